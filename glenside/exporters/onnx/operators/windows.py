"""Exports windows, axis by axis, and their adjoint."""

from __future__ import annotations

from glenside.exporters.onnx.emitter import Emitter
from glenside.exporters.onnx.operators.movement import dilated
from glenside.exporters.onnx.operators.products import contracted, multiplied_in
from glenside.exporters.onnx.registry import OPERATOR_EXPORTS, Operand
from glenside.exporters.writer import Pair, Value
from glenside.ir.types import AccessType, Dims

# An axis takes a slice per position in the window, or per window if these are fewer. Up to this many slices are faster
# than a gather: measured in onnxruntime, 4x to 8x for windows of 3, and faster for windows of 16 too.
_SLICES = 32


@OPERATOR_EXPORTS.register("access-windows")
def _windows(emit: Emitter, result: AccessType, a: Operand, window: Dims, strides: Dims) -> Value:
    """Puts positions first and counts last, so that one transpose of two groups of axes finishes."""
    x, split = a.value, a.access.split
    if not window:
        return x
    found = _Windowing(emit, x, split)
    for axis in reversed(range(len(window))):
        found.cut(axis, window[axis], strides[axis])
    return emit.view(found.ordered(len(window)), result.dims)


class _Windowing:
    """A value whose axes are cut into windows. `axes` gives the kind (lead, in, count or at) and the number of each."""

    def __init__(self, emit: Emitter, x: Value, split: int) -> None:
        self.emit, self.x, self.split = emit, x, split
        self.axes = [("lead", i) for i in range(split)] + [("in", i) for i in range(x.rank - split)]

    def cut(self, number: int, window: int, stride: int) -> None:
        """Cuts the axis of that number into `count` windows and `at` positions."""
        axis = self.axes.index(("in", number))
        size = self.x.dims[axis]
        count = (size - window) // stride + 1
        if window == size:
            self.axes[axis] = ("at", number)
        elif window == 1:
            self.x = self.emit.slice(self.x, axis, 0, (count - 1) * stride + 1, stride)
            self.axes[axis] = ("count", number)
        elif window == stride:
            self.x = self.emit.slice(self.x, axis, 0, count * stride)
            self.x = self.emit.view(self.x, self.x.dims.set(axis, window).insert(axis, count))
            self.axes[axis : axis + 1] = [("count", number), ("at", number)]
        elif min(count, window) > _SLICES:
            starts = self.emit.integers([[i * stride] for i in range(count)])
            places = self.emit.elementwise("Add", starts, self.emit.integers([range(window)]))
            self.x = self.emit.gather(self.x, places, axis)
            self.axes[axis : axis + 1] = [("count", number), ("at", number)]
        elif window <= count:
            last = (count - 1) * stride + 1
            self._stack(axis, [(i, i + last, stride) for i in range(window)], "at", "count", number)
        else:
            self._stack(axis, [(i * stride, i * stride + window, 1) for i in range(count)], "count", "at", number)

    def _stack(self, axis: int, ranges: list[tuple[int, int, int]], of: str, within: str, number: int) -> None:
        """Stacks slices of an axis in front of the axes that are not stacked yet."""
        parts = [self.emit.slice(self.x, axis, *bounds) for bounds in ranges]
        front = next(i for i, (kind, _) in enumerate(self.axes) if kind in ("in", "count"))
        self.axes[axis] = (within, number)
        dims = parts[0].dims.insert(front, len(parts))
        self.x = self.emit.view(self.emit.concat(parts, front), dims)
        self.axes.insert(front, (of, number))

    def ordered(self, count: int) -> Value:
        """Orders the axes as lead, counts, positions; axes of one element are omitted."""
        wanted = [("lead", i) for i in range(self.split)]
        wanted += [(kind, i) for kind in ("count", "at") for i in range(count)]
        return self.emit.transpose(self.x, [self.axes.index(axis) for axis in wanted if axis in self.axes])


@OPERATOR_EXPORTS.register("access-overlap-add")
def _overlap_add(emit: Emitter, result: AccessType, a: Operand, out: Dims, strides: Dims) -> Value:
    """Adds up windows axis by axis: (count, window) -> (out)."""
    if not a.access.size:
        return emit.full(result.dims, 0, result.dtype)
    axes, lead = len(out), a.access.rank - 2 * len(out)
    order = [*range(lead), *(i for axis in range(lead, lead + axes) for i in (axis, axis + axes))]
    x = emit.transpose(a.value, order)
    for axis in reversed(range(axes)):
        x = _added(emit, x, lead + 2 * axis, out[axis], strides[axis])
    return x


@OPERATOR_EXPORTS.register("overlap-add-product")
def _overlap_add_product(
    emit: Emitter,
    result: AccessType,
    a: Operand,
    b: Operand,
    n: int,
    out: Dims,
    strides: Dims,
    dilations: Dims,
    starts: Dims,
    _: int,
) -> Value:
    """Computes all positions at once: a loop over tiles in ONNX would not pay."""
    axes, rows, columns = len(out), a.access.shape, b.access.shape.drop(n)
    before, after = len(rows) - axes, len(columns) - axes
    dims = rows.append(columns)
    if not dims.product() * result.size:
        return emit.full(result.dims, 0, result.dtype)
    pair = Pair(a.value, b.value, n, len(a.access.item))
    inner = multiplied_in(a.access.dtype, a.access.item.product())
    x = emit.cast(contracted(emit, AccessType(dims, len(dims), result.dtype), pair, inner), result.dtype)
    places = [axis for e in range(axes) for axis in (before + e, len(rows) + after + e)]
    lead = before + after
    x = emit.transpose(x, [*(axis for axis in range(len(dims)) if axis not in places), *places])
    for e in reversed(range(axes)):
        x = _put(emit, x, lead + 2 * e, out[e], strides[e], dilations[e], starts[e])
    return x


def _put(emit: Emitter, x: Value, axis: int, out: int, stride: int, dilation: int, start: int) -> Value:
    """Adds up windows of dilated elements along one axis, and keeps `out` indices from `start` on."""
    if dilation > 1:
        x = dilated(emit, x, axis + 1, dilation - 1)
    size = (x.dims[axis] - 1) * stride + x.dims[axis + 1]
    x = _added(emit, x, axis, size, stride)
    lo, hi = (min(size, max(0, place)) for place in (start, start + out))
    before = min(out, max(0, -start))
    return emit.pad(emit.slice(x, axis, lo, hi), axis, before, out - before - (hi - lo))


def _added(emit: Emitter, x: Value, axis: int, out: int, stride: int) -> Value:
    """Adds windows along one axis, positions along the next, into one axis of size `out`."""
    count, window = x.dims[axis], x.dims[axis + 1]
    parts = -(-window // stride)
    if count < parts:
        placed = []
        for i in range(count):
            alone = emit.view(emit.slice(x, axis, i, i + 1), x.dims.remove(axis))
            placed.append(emit.pad(alone, axis, i * stride, out - i * stride - window))
        return emit.chain("Add", placed)
    # A window is `parts` pieces of `stride` positions: piece j of window i is added to piece i + j of the result.
    whole = emit.pad(x, axis + 1, 0, parts * stride - window)
    pieces = emit.view(whole, whole.dims.set(axis + 1, stride).insert(axis + 1, parts))
    shifted = [emit.pad(emit.slice(pieces, axis + 1, j, j + 1), axis, j, parts - 1 - j) for j in range(parts)]
    length = (count + parts - 1) * stride
    flat = emit.view(emit.chain("Add", shifted), x.dims.remove(axis).set(axis, length))
    flat = emit.slice(flat, axis, 0, min(length, out))
    return emit.pad(flat, axis, 0, out - flat.dims[axis])
