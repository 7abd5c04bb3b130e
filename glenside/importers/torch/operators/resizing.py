"""Imports resizes and sampling of images at computed positions."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from glenside.builder.indexing import gather_nd
from glenside.builder.layout import gather, reshape, transpose
from glenside.builder.pointwise import add, cast, combine, compare, compute, filled, multiply, select, subtract
from glenside.importers.torch.node import Node, Refused, aten
from glenside.ir.dtypes import HALVES, RECORDS
from glenside.ir.operand import Array
from glenside.ir.term import Term, build


def _scales(scale_factors: Sequence[float] | None, axes: int) -> list[float | None]:
    return list(scale_factors) if scale_factors else [None] * axes


@aten("upsample_nearest2d", "vec", "default")
def nearest(
    node: Node,
    input: Term,
    output_size: Sequence[int] | None = None,
    scale_factors: Sequence[float] | float | None = None,
    scales_w: float | None = None,
) -> Term:
    given = scale_factors if not isinstance(scale_factors, float) else [scale_factors, scales_w or scale_factors]
    for place, scale in enumerate(_scales(given, 2)):
        axis = input.access.rank - 2 + place
        size, count = input.access.dims[axis], node.dims[axis]
        step = np.float32(1 / scale if scale else size / count)
        places = np.minimum(np.floor(np.arange(count).astype(np.float32) * step), size - 1).astype(np.int64)
        if not np.array_equal(places, np.arange(size)):
            input = gather(input, node.constant(places, f"places{place}"), axis)
    return input


@aten("upsample_bilinear2d", "vec", "default")
def bilinear(
    node: Node,
    input: Term,
    output_size: Sequence[int] | None,
    align_corners: bool,
    scale_factors: Sequence[float] | float | None = None,
    scales_w: float | None = None,
) -> Term:
    given = scale_factors if not isinstance(scale_factors, float) else [scale_factors, scales_w or scale_factors]
    x = cast(input, "float32") if node.dtype in HALVES else input
    for place, scale in enumerate(_scales(given, 2)):
        x = _interpolated(
            node, x, x.access.rank - 2 + place, node.dims[x.access.rank - 2 + place], align_corners, scale
        )
    return cast(x, node.dtype)


def _interpolated(node: Node, x: Term, axis: int, count: int, aligned: bool, scale: float | None) -> Term:
    """Interpolates one axis between the elements below and above each position."""
    size, at = x.access.dims[axis], np.arange(count)
    if aligned:
        positions = at * ((size - 1) / (count - 1)) if count > 1 else np.zeros(count)
    else:
        positions = np.maximum((at + 0.5) * (1 / scale if scale else size / count) - 0.5, 0)
    below = np.minimum(np.floor(positions), size - 1).astype(np.int64)
    above = np.minimum(below + 1, size - 1)
    dims = [count if i == axis else 1 for i in range(x.access.rank)]
    share = _array(node, (positions - below).reshape(dims), x.access.dtype, f"share{axis}")
    first, second = (gather(x, node.constant(p, f"{n}{axis}"), axis) for p, n in ((below, "below"), (above, "above")))
    return add(multiply(first, subtract(filled(share, 1), share)), multiply(second, share))


def _array(node: Node, value: Array, dtype: str, part: str) -> Term:
    return node.constant(value.astype(RECORDS[dtype].numpy), part)


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
    from glenside.builder.layout import element

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
    from glenside.builder.layout import concatenate

    values = transpose(gather_nd(x, concatenate(found, -1), 1), (0, 3, 1, 2))
    assert inside is not None
    batch, rows, columns = places[0].access.dims
    zero = build("full", (), 0, values.access.dtype)
    return select(reshape(inside, (batch, 1, rows, columns)), values, zero)
