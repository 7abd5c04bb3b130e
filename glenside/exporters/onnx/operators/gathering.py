"""Elements picked by computed indices, and elements put where computed indices say.

An index that is out of range is the runtime's to refuse; ONNX counts those below 0 from the end, as we do.
"""

from __future__ import annotations

import numpy as np

from glenside.exporters.onnx.emitter import Emitter
from glenside.exporters.onnx.graph import Value
from glenside.exporters.onnx.kernels import carrier
from glenside.exporters.onnx.registry import Operand, exports
from glenside.ir.types import AccessType, Dims


@exports("access-gather")
def _gather(emit: Emitter, _: AccessType, a: Operand, indices: Operand, axis: int) -> Value:
    positions = indices.value
    if positions.dtype not in ("int32", "int64"):
        positions = emit.cast(positions, "int64")
    return emit.gather(a.value, positions, axis)


@exports("access-gather-nd")
def _gather_nd(emit: Emitter, result: AccessType, a: Operand, indices: Operand, shared: int) -> Value:
    places = emit.cast(indices.value, "int64")
    inputs, attributes = [a.value, places], {"batch_dims": shared}
    return emit.graph.node("GatherND", inputs, result.dims, result.dtype, attributes, main=True)


@exports("access-scatter-nd")
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
    wide = carrier("ScatterND", x.dtype)
    assert wide is not None, "there is one for every dtype"
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


def _different(places: np.ndarray | None, dims: Dims) -> bool:
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
