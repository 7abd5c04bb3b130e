"""Imports resizes and sampling of images at computed positions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

import numpy as np

from glenside.builder.indexing import gather_nd
from glenside.builder.layout import concatenate, element, gather, reshape, transpose
from glenside.builder.pointwise import add, cast, combine, compare, compute, filled, multiply, select, subtract
from glenside.importers.torch.node import Node, Refused, aten, register
from glenside.ir.dtypes import HALVES, RECORDS
from glenside.ir.open_program import sizes_are_open
from glenside.ir.operand import Array
from glenside.ir.term import Term, build

Scales = Sequence[float] | float | None


def _resized_axes(node: Node, axes: int, x: Term, scales: Sequence[Scales]) -> Iterator[tuple[int, int, float | None]]:
    """Yields each resized axis, its new size, and its scale if one is given, in a list or one after the other."""
    given = scales[0] if scales and isinstance(scales[0], list | tuple) else scales
    whole = [*given, *[None] * axes] if given else [None] * axes
    for place, scale in zip(range(axes), whole, strict=False):
        axis = x.access.rank - axes + place
        yield axis, node.dims[axis], scale if isinstance(scale, float | int) else None


def nearest(axes: int, node: Node, input: Term, output_size: Sequence[int] | None = None, *scales: Scales) -> Term:
    """Repeats the element below each position."""
    for axis, count, scale in _resized_axes(node, axes, input, scales):
        size = input.access.dims[axis]
        step = np.float32(1 / scale if scale else size / count)
        places = np.minimum(np.floor(np.arange(count).astype(np.float32) * step), size - 1).astype(np.int64)
        if sizes_are_open() or not np.array_equal(places, np.arange(size)):  # an open size may be that of the result
            input = gather(input, node.constant(places, f"places{axis}"), axis)
    return input


def linear(
    axes: int, node: Node, input: Term, output_size: Sequence[int] | None, align_corners: bool, *scales: Scales
) -> Term:
    """Interpolates between the elements below and above each position, axis by axis."""
    x = cast(input, "float32") if node.dtype in HALVES else input
    for axis, count, scale in _resized_axes(node, axes, x, scales):
        positions = np.maximum(_positions(x.access.dims[axis], count, align_corners, scale), 0)
        share = positions - np.floor(positions)
        x = _tapped(node, x, axis, np.floor(positions), [1 - share, share], 0)
    return cast(x, node.dtype)


def cubic(
    axes: int, node: Node, input: Term, output_size: Sequence[int] | None, align_corners: bool, *scales: Scales
) -> Term:
    """Interpolates between four elements by the cubic kernel of Keys with a = -3/4, axis by axis."""
    x = cast(input, "float32") if node.dtype in HALVES else input
    for axis, count, scale in _resized_axes(node, axes, x, scales):
        positions = _positions(x.access.dims[axis], count, align_corners, scale)
        t = positions - np.floor(positions)
        weights = [_keys(t + 1), _keys(t), _keys(1 - t), _keys(2 - t)]
        x = _tapped(node, x, axis, np.floor(positions), weights, -1)
    return cast(x, node.dtype)


def _keys(t: Array) -> Array:
    """Computes the kernel at distances from 0 to 2."""
    a = -0.75
    return np.where(t <= 1, ((a + 2) * t - (a + 3)) * t * t + 1, ((a * t - 5 * a) * t + 8 * a) * t - 4 * a)


def _positions(size: int, count: int, aligned: bool, scale: float | None) -> Array:
    """Returns the positions in the original axis of the elements of the resized one."""
    at = np.arange(count)
    if aligned:
        return at * ((size - 1) / (count - 1)) if count > 1 else np.zeros(count)
    return np.asarray((at + 0.5) * (1 / scale if scale else size / count) - 0.5)


def _tapped(node: Node, x: Term, axis: int, start: Array, weights: Sequence[Array], first: int) -> Term:
    """Sums weighted elements at start + first, start + first + 1 .., moved to the ends of the axis."""
    size, dims = x.access.dims[axis], [len(start) if i == axis else 1 for i in range(x.access.rank)]
    total: Term | None = None
    for i, weight in enumerate(weights, first):
        places = np.clip(start + i, 0, size - 1).astype(np.int64)
        share = node.constant(weight.reshape(dims).astype(RECORDS[x.access.dtype].numpy), f"weight{axis}{i}")
        part = multiply(gather(x, node.constant(places, f"place{axis}{i}"), axis), share)
        total = part if total is None else add(total, part)
    assert total is not None
    return total


for _axes, _kinds in {1: ("linear",), 2: ("bilinear", "bicubic"), 3: ("trilinear",)}.items():
    register(f"upsample_nearest{_axes}d", partial(nearest, _axes), ("vec", "default"), "", __name__)
    for _kind in _kinds:
        _how = cubic if _kind == "bicubic" else linear
        register(f"upsample_{_kind}{_axes}d", partial(_how, _axes), ("vec", "default"), "", __name__)


@aten("grid_sampler_2d", but="bicubic interpolation")
def grid_sampler(
    node: Node,
    input: Term,
    grid: Term,
    interpolation_mode: int,
    padding_mode: int,
    align_corners: bool,
) -> Term:
    """Samples ()(N C H W) at a grid ()(N h w 2) of positions (x, y) from -1 to 1."""
    if interpolation_mode not in (0, 1):
        raise Refused("requires bilinear or nearest interpolation, got bicubic")
    sizes = input.access.dims[2:]
    batch, rows, columns, _ = grid.access.dims
    places = []
    for axis in (0, 1):
        number = reshape(_component(grid, 1 - axis), (batch, rows, columns))
        places.append(_position(number, sizes[axis], padding_mode, align_corners))
    last = transpose(input, (0, 2, 3, 1))
    if interpolation_mode == 1:
        return _sampled(last, [compute("round", place) for place in places], sizes)
    low = [compute("floor", place) for place in places]
    total = None
    for high_row in (0, 1):
        for high_column in (0, 1):
            corner = [add(p, filled(p, bit)) for p, bit in zip(low, (high_row, high_column), strict=True)]
            weights = [
                subtract(p, b) if bit else subtract(add(b, filled(b, 1)), p)
                for p, b, bit in zip(places, low, (high_row, high_column), strict=True)
            ]
            weight = reshape(multiply(*weights), (batch, 1, rows, columns))
            part = multiply(_sampled(last, corner, sizes), weight)
            total = part if total is None else add(total, part)
    assert total is not None
    return total


def _component(grid: Term, which: int) -> Term:
    return element(grid, grid.access.rank - 1, which)


def _position(x: Term, size: int, padding_mode: int, aligned: bool) -> Term:
    """Maps -1..1 to elements of an axis; beyond the ends they are moved to the end, or reflected."""
    wide, shift = (size - 1, 0.0) if aligned else (size, 0.5)
    x = subtract(multiply(add(x, filled(x, 1)), filled(x, wide / 2)), filled(x, shift))
    if padding_mode == 2:
        x = _reflected(x, -shift, wide)
    if padding_mode:
        x = combine("minimum", combine("maximum", x, filled(x, 0)), filled(x, size - 1))
    return x


def _reflected(x: Term, low: float, span: float) -> Term:
    """Computes a triangle wave from low to low + span."""
    if span == 0:
        return filled(x, 0)
    distance = compute("abs", subtract(x, filled(x, low)))
    rest = combine("(mod floor)", distance, filled(x, 2 * span))
    return add(subtract(filled(x, span), compute("abs", subtract(rest, filled(x, span)))), filled(x, low))


def _sampled(x: Term, places: Sequence[Term], sizes: Sequence[int]) -> Term:
    """Gathers ()(N H W C) at whole positions ()(N h w), 0 beyond the ends -> ()(N C h w)."""
    inside, found = None, []
    for place, size in zip(places, sizes, strict=True):
        bounds = [compare("ge", place, filled(place, 0)), compare("le", place, filled(place, size - 1))]
        within = combine("logical-and", *bounds)
        inside = within if inside is None else combine("logical-and", inside, within)
        clipped = combine("minimum", combine("maximum", place, filled(place, 0)), filled(place, size - 1))
        found.append(reshape(cast(select(within, clipped, filled(place, 0)), "int64"), (*place.access.dims, 1)))
    values = transpose(gather_nd(x, concatenate(found, -1), 1), (0, 3, 1, 2))
    assert inside is not None
    batch, rows, columns = places[0].access.dims
    zero = build("full", (), 0, values.access.dtype)
    return select(reshape(inside, (batch, 1, rows, columns)), values, zero)
