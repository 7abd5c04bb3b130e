"""Tensors and constants."""

from __future__ import annotations

import numpy as np

from glenside.exporters.onnx.emitter import Emitter
from glenside.exporters.onnx.graph import Value
from glenside.exporters.onnx.registry import exports
from glenside.ir.rational import exact_numbers
from glenside.ir.types import AccessType, Dims, Tensor
from glenside.semantics.native import Native


@exports("access-tensor")
def _tensor(emit: Emitter, _: AccessType, tensor: Tensor) -> Value:
    if tensor.constant:
        return emit.graph.weight(tensor.name, tensor.dims, tensor.dtype)
    return Value(tensor.name, tensor.dims, tensor.dtype)


@exports("access-literal")
def _literal(emit: Emitter, _: AccessType, value: str, dtype: str) -> Value:
    return emit.number(value, dtype)


@exports("full")
def _full(emit: Emitter, _: AccessType, shape: Dims, value: str, dtype: str) -> Value:
    return emit.full(shape, value, dtype)


@exports("numbers")
def _numbers(emit: Emitter, result: AccessType, shape: Dims, values: str, dtype: str) -> Value:
    known = [Native().constant(value, dtype) for value in exact_numbers(values) or ()]
    return emit.graph.constant(np.asarray(known, result.dtype).reshape(shape))


@exports("iota")
def _iota(emit: Emitter, _: AccessType, n: int, dtype: str) -> Value:
    return emit.cast(emit.counting(n), dtype)


@exports("eye")
def _eye(emit: Emitter, _: AccessType, n: int, dtype: str) -> Value:
    """Where a column of numbers equals a row of them."""
    column, row = (emit.view(emit.counting(n), dims) for dims in ((n, 1), (1, n)))
    return emit.cast(emit.elementwise("Equal", column, row, dtype="bool"), dtype)
