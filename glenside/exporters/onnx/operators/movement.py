"""Exports tensors, constants, casts, and operators that move elements to known or computed indices.

Runtimes refuse a computed index that is out of range; ONNX counts negative ones from the end, as here.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from glenside.exporters.onnx.emitter import Emitter
from glenside.exporters.onnx.registry import OPERATOR_EXPORTS, Operand
from glenside.exporters.onnx.supported_dtypes import required_dtype
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
    """Compares a column of numbers with a row of them."""
    column, row = (emit.view(emit.counting(n), dims) for dims in ((n, 1), (1, n)))
    return emit.cast(emit.elementwise("Equal", column, row, dtype="bool"), dtype)


@OPERATOR_EXPORTS.register("truncate")
def _truncate(_: Emitter, __: AccessType, a: Operand) -> Value:
    """Returns a unchanged, since floats round by themselves."""
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
    """Inserts zeros after each element but the last."""
    padded = emit.pad(emit.view(x, x.dims.insert(axis + 1, 1)), axis + 1, 0, n)
    together = emit.view(padded, x.dims.set(axis, x.dims[axis] * (n + 1)))
    return emit.slice(together, axis, 0, max(0, x.dims[axis] * (n + 1) - n))


@OPERATOR_EXPORTS.register("cast")
def _cast(emit: Emitter, _: AccessType, a: Operand, dtype: str) -> Value:
    return emit.cast(a.value, dtype)


@OPERATOR_EXPORTS.register("bitcast")
def _bitcast(emit: Emitter, result: AccessType, a: Operand, dtype: str) -> Value:
    """Casts between integers of one width, which wrap; other bitcasts need BitCast, from version 26 on."""
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
    places = _full_indices(emit, emit.cast(indices.value, "int64"), shared)
    if reduction == "replace" and not _are_distinct(emit.known(places), a.access.dims):
        return _scatter_last(emit, a.value, places, updates.value)
    if reduction == "replace":
        return emit.graph.node("ScatterND", [a.value, places, updates.value], result.dims, result.dtype, main=True)
    return _combined(emit, a.value, places, updates.value, reduction)


def _combined(emit: Emitter, x: Value, places: Value, updates: Value, reduction: str) -> Value:
    """Scatters updates that are combined with x."""
    wide = required_dtype("ScatterND", x.dtype)
    inputs = [emit.cast(x, wide), places, emit.cast(updates, wide)]
    combined = emit.graph.node("ScatterND", inputs, x.dims, wide, {"reduction": reduction}, main=True)
    return emit.cast(combined, x.dtype)


def _full_indices(emit: Emitter, indices: Value, shared: int) -> Value:
    """Extends indices (G.., M.., k) into (G.., n..) by the index along each shared axis, since ONNX has no G here."""
    lead = indices.dims.take(indices.rank - 1).append([1])
    columns = []
    for axis in range(shared):
        numbers = emit.view(emit.counting(lead[axis]), Dims((1,) * len(lead)).set(axis, lead[axis]))
        columns.append(emit.expand(numbers, lead))
    return emit.concat([*columns, indices], indices.rank - 1)


def _are_distinct(places: Array | None, dims: Dims) -> bool:
    """True if the indices are known and distinct."""
    if places is None:
        return False
    rows = places.reshape(-1, places.shape[-1])
    positive = np.where(rows < 0, rows + np.array(dims[: rows.shape[1]]), rows)
    return len(np.unique(positive, axis=0)) == len(rows)


def _scatter_last(emit: Emitter, x: Value, places: Value, updates: Value) -> Value:
    """Scatters updates that replace elements; the last of several for one index applies, which ONNX leaves undefined.

    The largest number of an update at each index is the last one's; -1 is none.
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
    """Exports movement by its index map: one gather per operand, and a select if several operands contribute."""
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
