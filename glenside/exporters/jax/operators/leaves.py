"""Tensors; other terms without operands are numbers, which are known while the source is written."""

from __future__ import annotations

from glenside.exporters.jax.registry import exports
from glenside.exporters.jax.source import Source, Value
from glenside.ir.types import AccessType, Tensor


@exports("access-tensor")
def _tensor(source: Source, result: AccessType, tensor: Tensor) -> Value:
    return Value(source.arguments[tensor.name], tensor.dims, tensor.dtype)
