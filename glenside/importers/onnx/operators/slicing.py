"""Imports slices, splits, padding and triangular masks."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate

import numpy as np

from glenside.builder.indexing import iota
from glenside.builder.layout import flip, gather, pad, reshape, slice_axis, strided, surround
from glenside.builder.pointwise import add, cast, compare, filled, multiply, select, subtract
from glenside.importers.onnx.node import Node, distinct_axes, onnx_operator
from glenside.importers.onnx.operators.layout import numbers, required
from glenside.importers.onnx.tensors import dtype_name, require_table
from glenside.ir.dtypes import FLOATS, HALVES, INTEGERS, is_integer, is_signed, limits
from glenside.ir.errors import BadInput
from glenside.ir.operand import Array
from glenside.ir.term import Term, build


@onnx_operator("Slice")
def sliced(node: Node) -> Term:
    x = node.term(0)
    starts = required(numbers(node, 1, "starts", 10), "starts")
    ends = required(numbers(node, 2, "ends", 10), "ends")
    named = numbers(node, 3, "axes", 10)
    axes = distinct_axes(range(len(starts)) if named is None else named, x.access.rank)
    steps = (node.known_ints(4) if node.version >= 10 else None) or [1] * len(starts)
    if not len(starts) == len(ends) == len(axes) == len(steps):
        raise BadInput(f"requires as many starts, ends, axes and steps, got {starts}, {ends}, {axes} and {steps}")
    if 0 in steps:
        raise BadInput(f"steps requires numbers other than 0, got {steps}")
    parts = zip(starts, ends, steps, axes, strict=True)
    return _picked(x, {i: _places(a, b, t, x.access.dims[i]) for a, b, t, i in parts})


def _places(start: int, end: int, step: int, size: int) -> range:
    """Returns the indices of a slice; unlike in Python, a slice backwards starts within the axis."""
    if step < 0:
        start = max(start, -size)
    return range(*slice(start, end, step).indices(size))


def _picked(x: Term, places: dict[int, range]) -> Term:
    """Selects elements of some axes at evenly spaced indices, perhaps backwards."""
    strides = [1] * x.access.rank
    for axis, along in places.items():
        low, high = (min(along[0], along[-1]), max(along[0], along[-1]) + 1) if along else (0, 0)
        x = slice_axis(x, axis, low, high)
        strides[axis] = abs(along.step) if len(along) > 1 else 1
    x = strided(x, strides)
    for axis, along in places.items():
        if along.step < 0 and len(along) > 1:
            x = flip(x, axis)
    return x


PARTS = 1 << 14
"""The maximum parts of one tensor: each becomes a term."""


def parts_of(x: Term, axis: int, sizes: Sequence[int]) -> list[Term]:
    """Splits x along one axis into parts of these sizes. Raises BadInput if they do not add up to the axis."""
    if min(sizes, default=0) < 0 or sum(sizes) != x.access.dims[axis]:
        raise BadInput(f"split requires sizes that add up to {x.access.dims[axis]}, got {list(sizes)}")
    require_table("the list of parts", len(sizes), most=PARTS)
    ends = list(accumulate(sizes))
    return [slice_axis(x, axis, end - size, end) for size, end in zip(sizes, ends, strict=True)]


@onnx_operator("Split")
def split(node: Node) -> list[Term]:
    x = node.term(0)
    axis = node.axis("axis", 0, x.access.rank)
    size = x.access.dims[axis]
    sizes = node.integers("split") if node.version < 13 and "split" in node.attributes else node.known_ints(1)
    if sizes is None:
        count = node.integer("num_outputs", len(node.outputs)) if node.version >= 18 else len(node.outputs)
        if count < 1 or count != len(node.outputs):
            raise BadInput(f"attribute num_outputs requires the number of outputs, {len(node.outputs)}, got {count}")
        if node.version < 18 and size % count:
            raise BadInput(f"requires {count} parts of one size along an axis of {size}")
        chunk = -(-size // count)
        sizes = [max(0, min(chunk, size - i * chunk)) for i in range(count)]
    if len(sizes) != len(node.outputs):
        raise BadInput(f"requires {len(sizes)} outputs, one for each part, got {len(node.outputs)}")
    return parts_of(x, axis, sizes)


@onnx_operator("Pad")
def padded(node: Node) -> Term:
    x = node.term(0)
    rank = x.access.rank
    ends = required(numbers(node, 1, "pads" if node.version >= 2 else "paddings", 11), "pads")
    given = node.known_ints(3) if node.version >= 18 else None
    axes = list(range(rank)) if given is None else distinct_axes(given, rank)
    if len(ends) != 2 * len(axes):
        raise BadInput(f"pads requires {2 * len(axes)} numbers, two for each axis, got {ends}")
    pairs = [(0, 0)] * rank
    for i, axis in enumerate(axes):
        pairs[axis] = (ends[i], ends[i + len(axes)])
    mode = node.text("mode", "constant", "constant", "reflect", "edge", "wrap")
    x = _cropped(x, pairs)
    grown = [(max(before, 0), max(after, 0)) for before, after in pairs]
    return _filled_around(node, x, grown) if mode == "constant" else _repeated_around(node, x, grown, mode)


def _cropped(x: Term, pairs: Sequence[tuple[int, int]]) -> Term:
    """Crops x by negative padding."""
    for axis, (before, after) in enumerate(pairs):
        size = x.access.dims[axis]
        low, high = max(-before, 0), size - max(-after, 0)
        if low > high:
            raise BadInput(f"pads requires numbers that leave axis {axis} of {size}, got {before} and {after}")
        x = slice_axis(x, axis, low, high)
    return x


def _filled_around(node: Node, x: Term, pairs: Sequence[tuple[int, int]]) -> Term:
    dtype = np.dtype(x.access.dtype)
    if node.version < 11:
        return _surrounded(node, x, pairs, np.asarray(node.number("value", 0)).astype(dtype))
    filler = node.optional(2)
    if filler is None:
        return pad(x, pairs)
    if filler.access.size != 1 or filler.access.dtype != dtype.name:
        raise BadInput(f"input 2 requires one {dtype.name}, got {filler.access}")
    value = node.scope.known(filler)
    return surround(x, pairs, filler) if value is None else _surrounded(node, x, pairs, value.reshape(()))


def _surrounded(node: Node, x: Term, pairs: Sequence[tuple[int, int]], value: Array) -> Term:
    """Pads x with a known value: zeros and the lowest value have padding of their own."""
    if value == 0:
        return pad(x, pairs)
    dtype = value.dtype.name
    signed = dtype in INTEGERS and is_signed(value.dtype)
    if (dtype in FLOATS and value == -np.inf) or (signed and value == limits(dtype)[0]):
        return pad(x, pairs, "min-padding")
    return surround(x, pairs, node.scope.filled((), value[()]))


def _repeated_around(node: Node, x: Term, pairs: Sequence[tuple[int, int]], mode: str) -> Term:
    for axis, (before, after) in enumerate(pairs):
        size = x.access.dims[axis]
        if before or after:
            if not size:
                raise BadInput(f"attribute mode requires elements to repeat on axis {axis}, got none")
            require_table(f"the table of axis {axis}", size + max(before, 0) + max(after, 0))
            places = np.pad(np.arange(size), (before, after), mode)  # type: ignore[call-overload]
            x = gather(x, node.constant(places, f"{node.name}.places"), axis)
    return x


@onnx_operator("Trilu")
def triangle(node: Node) -> Term:
    x = node.term(0)
    if x.access.rank < 2:
        raise BadInput(f"input 0 requires at least two axes, got {x.access}")
    *_, rows, columns = x.access.dims
    given = node.optional(1)
    diagonal = build("full", (), 0, "int64") if given is None else cast(given, "int64")
    if diagonal.access.size != 1:
        raise BadInput(f"input 1 requires one number, got {diagonal.access}")
    offset = subtract(iota(columns, 1, 2), iota(rows, 0, 2))
    upper = bool(node.integer("upper", 1))
    kept = compare("ge" if upper else "le", offset, reshape(diagonal, (1, 1)))
    return select(kept, x, filled(x, 0))


@onnx_operator("EyeLike")
def eye_like(node: Node) -> Term:
    x = node.term(0)
    if x.access.rank != 2:
        raise BadInput(f"input 0 requires two axes, got {x.access}")
    (rows, columns), k = x.access.dims, node.integer("k", 0)
    wanted = node.integer("dtype")
    dtype = x.access.dtype if wanted is None else dtype_name(wanted)
    above, left = max(-k, 0), max(k, 0)
    size = min(rows - above, columns - left)
    if size <= 0:
        return build("full", (rows, columns), 0, dtype)
    return pad(build("eye", size, dtype), [(above, rows - above - size), (left, columns - left - size)])


@onnx_operator("Range")
def counted(node: Node) -> Term:
    values = [node.known(i).reshape(-1) for i in range(3)]
    if any(value.size != 1 or value.dtype != values[0].dtype for value in values):
        raise BadInput(f"requires three numbers of one dtype, got {' and '.join(str(v.dtype) for v in values)}")
    start, limit, step = (value.item() for value in values)
    if not (np.isfinite([start, limit, step]).all() and step):
        raise BadInput(f"requires finite numbers and a step other than 0, got {start}, {limit} and {step}")
    exact = is_integer(values[0].dtype)
    count = -((start - limit) // step) if exact else int(np.ceil((limit - start) / step))
    dtype = values[0].dtype.name
    computed = dtype_name(node.integer("stash_type", 1)) if dtype in HALVES else dtype
    places = build("iota", max(0, count), computed)
    first, width = (cast(reshape(node.term(i), ()), computed) for i in (0, 2))
    steps = places if step == 1 else multiply(places, width)
    return cast(steps if start == 0 else add(steps, first), dtype)
