"""Tensors and constants, and operators that move elements, to places that are known or computed, or cast them.

A computed index that is out of range is the runtime's to refuse; ONNX counts those below 0 from the end, as we do.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from glenside.exporters.onnx.emitter import Emitter
from glenside.exporters.onnx.kernels import carried
from glenside.exporters.onnx.registry import OPERATOR_EXPORTS, Operand
from glenside.exporters.writer import Value
from glenside.ir.dtypes import REALS
from glenside.ir.index_map import Fill, IndexMap
from glenside.ir.operand import Array
from glenside.ir.rational import exact_numbers
from glenside.ir.types import AccessType, Dims, Tensor
from glenside.semantics.native import Native


@OPERATOR_EXPORTS.register("access-tensor")
def _tensor(emit: Emitter, _: AccessType, tensor: Tensor) -> Value:
    if tensor.constant:
        return emit.graph.weight(tensor.name, tensor.dims, tensor.dtype)
    return Value(tensor.name, tensor.dims, tensor.dtype)


@OPERATOR_EXPORTS.register("access-literal")
def _literal(emit: Emitter, _: AccessType, value: str, dtype: str) -> Value:
    return emit.number(value, dtype)


@OPERATOR_EXPORTS.register("full")
def _full(emit: Emitter, _: AccessType, shape: Dims, value: str, dtype: str) -> Value:
    return emit.full(shape, value, dtype)


@OPERATOR_EXPORTS.register("numbers")
def _numbers(emit: Emitter, result: AccessType, shape: Dims, values: str, dtype: str) -> Value:
    known = [Native().constant(value, dtype) for value in exact_numbers(values) or ()]
    return emit.graph.constant(np.asarray(known, result.dtype).reshape(shape))


@OPERATOR_EXPORTS.register("iota")
def _iota(emit: Emitter, _: AccessType, n: int, dtype: str) -> Value:
    return emit.cast(emit.counting(n), dtype)


@OPERATOR_EXPORTS.register("eye")
def _eye(emit: Emitter, _: AccessType, n: int, dtype: str) -> Value:
    """Where a column of numbers equals a row of them."""
    column, row = (emit.view(emit.counting(n), dims) for dims in ((n, 1), (1, n)))
    return emit.cast(emit.elementwise("Equal", column, row, dtype="bool"), dtype)


@OPERATOR_EXPORTS.register("truncate")
def _truncate(_: Emitter, __: AccessType, a: Operand) -> Value:
    """Floats have their own rounding."""
    return a.value


@OPERATOR_EXPORTS.register("access-concatenate")
def _concatenate(emit: Emitter, _: AccessType, a: Operand, b: Operand, axis: int) -> Value:
    return emit.concat([a.value, b.value], axis)


@OPERATOR_EXPORTS.register("access-pad")
def _pad(emit: Emitter, _: AccessType, a: Operand, kind: str, axis: int, before: int, after: int) -> Value:
    fill = emit.number(0, a.access.dtype) if kind == "zero-padding" else emit.lowest(a.access.dtype)
    return emit.pad(a.value, axis, before, after, fill)


@OPERATOR_EXPORTS.register("access-dilate")
def _dilate(emit: Emitter, _: AccessType, a: Operand, axis: int, n: int) -> Value:
    return dilated(emit, a.value, axis, n)


def dilated(emit: Emitter, x: Value, axis: int, n: int) -> Value:
    """Zeros after each element, less those after the last one."""
    padded = emit.pad(emit.view(x, x.dims.insert(axis + 1, 1)), axis + 1, 0, n)
    together = emit.view(padded, x.dims.set(axis, x.dims[axis] * (n + 1)))
    return emit.slice(together, axis, 0, max(0, x.dims[axis] * (n + 1) - n))


@OPERATOR_EXPORTS.register("cast")
def _cast(emit: Emitter, _: AccessType, a: Operand, dtype: str) -> Value:
    return emit.cast(a.value, dtype)


@OPERATOR_EXPORTS.register("bitcast")
def _bitcast(emit: Emitter, result: AccessType, a: Operand, dtype: str) -> Value:
    """Integers of one width are casts of each other, which wrap; ONNX has BitCast from version 26 on."""
    x = emit.cast(a.value, "uint8") if a.access.dtype == "bool" else a.value
    if {x.dtype, dtype} & {*REALS} and x.dtype != dtype and dtype != "bool":
        emit.versions.add(("", "BitCast", 26))
        return emit.graph.node("BitCast", [x], result.dims, dtype, {"to": dtype}, main=True)
    return emit.cast(x, dtype)


@OPERATOR_EXPORTS.register("access-gather")
def _gather(emit: Emitter, _: AccessType, a: Operand, indices: Operand, axis: int) -> Value:
    positions = indices.value
    if positions.dtype not in ("int32", "int64"):
        positions = emit.cast(positions, "int64")
    return emit.gather(a.value, positions, axis)


@OPERATOR_EXPORTS.register("access-gather-nd")
def _gather_nd(emit: Emitter, result: AccessType, a: Operand, indices: Operand, shared: int) -> Value:
    places = emit.cast(indices.value, "int64")
    inputs, attributes = [a.value, places], {"batch_dims": shared}
    return emit.graph.node("GatherND", inputs, result.dims, result.dtype, attributes, main=True)


@OPERATOR_EXPORTS.register("access-scatter-nd")
def _scatter_nd(
    emit: Emitter, result: AccessType, a: Operand, indices: Operand, updates: Operand, shared: int, reduction: str
) -> Value:
    if not updates.access.size:
        return a.value
    places = _whole_places(emit, emit.cast(indices.value, "int64"), shared)
    if reduction == "replace" and not _different(emit.known(places), a.access.dims):
        return _replaced_by_the_last(emit, a.value, places, updates.value)
    if reduction == "replace":
        return emit.graph.node("ScatterND", [a.value, places, updates.value], result.dims, result.dtype, main=True)
    return _combined(emit, a.value, places, updates.value, reduction)


def _combined(emit: Emitter, x: Value, places: Value, updates: Value, reduction: str) -> Value:
    """x with updates combined with what is there."""
    wide = carried("ScatterND", x.dtype)
    inputs = [emit.cast(x, wide), places, emit.cast(updates, wide)]
    combined = emit.graph.node("ScatterND", inputs, x.dims, wide, {"reduction": reduction}, main=True)
    return emit.cast(combined, x.dtype)


def _whole_places(emit: Emitter, indices: Value, shared: int) -> Value:
    """Indices of (G.., M.., k) into (G.., n..) with the number of each shared axis before the k: ONNX has no G here."""
    lead = indices.dims.take(indices.rank - 1).append([1])
    columns = []
    for axis in range(shared):
        numbers = emit.view(emit.counting(lead[axis]), Dims((1,) * len(lead)).set(axis, lead[axis]))
        columns.append(emit.expand(numbers, lead))
    return emit.concat([*columns, indices], indices.rank - 1)


def _different(places: Array | None, dims: Dims) -> bool:
    """Whether places are known, and no two are the same."""
    if places is None:
        return False
    rows = places.reshape(-1, places.shape[-1])
    positive = np.where(rows < 0, rows + np.array(dims[: rows.shape[1]]), rows)
    return len(np.unique(positive, axis=0)) == len(rows)


def _replaced_by_the_last(emit: Emitter, x: Value, places: Value, updates: Value) -> Value:
    """Updates in place of what is there, of several for one place the last: ONNX leaves that open.

    The largest of the updates' numbers at each place says which one it is; -1 is none.
    """
    lead, depth = places.dims.take(places.rank - 1), places.dims[-1]
    count, rest, sizes = lead.product(), x.dims.drop(depth), x.dims.take(depth)
    numbers = emit.view(emit.counting(count), lead)
    none = emit.full(sizes, -1, "int64")
    last = emit.graph.node("ScatterND", [none, places, numbers], sizes, "int64", {"reduction": "max"})
    taken = emit.gather(emit.view(updates, Dims([count]).append(rest)), last, 0)
    found = emit.elementwise("GreaterOrEqual", last, emit.number(0, "int64", depth), dtype="bool", main=False)
    return emit.where(emit.view(found, sizes.append([1] * len(rest))), taken, x)


def addressed(emit: Emitter, found: IndexMap, operands: Sequence[Operand]) -> Value:
    """Movement that no export spells: one gather for each operand, and a choice where several have a part in it."""
    dtype = operands[0].access.dtype
    fill = emit.lowest(dtype) if found.fill is Fill.LOWEST else emit.number(0, dtype)
    result = emit.expand(emit.view(fill, (1,) * len(found.dims)), found.dims)
    for piece in found.pieces:
        x = operands[piece.operand].value
        places, held = found.places(piece, x.dims)
        if not held.any():
            continue
        picked = emit.gather(emit.view(x, (x.dims.product(),)), emit.integers(places), 0)
        result = picked if held.all() else emit.where(emit.graph.constant(held), picked, result)
    return result
