"""Imports pools, and windows that are added up."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from math import prod
from typing import Any

import numpy as np

from glenside.builder import windows as pooling
from glenside.builder.layout import concatenate, pad_or_crop, reshape, slice_axis, transpose
from glenside.builder.pointwise import add, cast, divide, filled
from glenside.builder.reductions import reduce_axes
from glenside.importers.torch.node import Node, aten, register
from glenside.importers.torch.operators.products import per_axis
from glenside.importers.torch.operators.reductions import first_position
from glenside.ir.dtypes import FLOATS, HALVES
from glenside.ir.term import Term


def batched(x: Term, axes: int) -> Term:
    """Returns x as ()(N C d..) with that many axes d."""
    return reshape(x, (1, *x.access.dims)) if x.access.rank == axes + 1 else x


def options_of(
    axes: int, kernel: Sequence[int], stride: Sequence[int], padding: Sequence[int], ceil: bool
) -> tuple[tuple[int, ...], dict[str, Any]]:
    """Returns the window and the options of the builder's pools."""
    window = per_axis(kernel, axes)
    steps = per_axis(stride, axes) if stride else window
    return window, {"strides": steps, "padding": [(n, n) for n in per_axis(padding, axes)], "ceil": ceil}


def average_pool(
    axes: int,
    node: Node,
    self: Term,
    kernel_size: Sequence[int],
    stride: Sequence[int] = (),
    padding: Sequence[int] = (0,),
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
) -> Term:
    """Averages windows: halves in float32, integers in float64, truncated."""
    x = batched(self, axes)
    wide = cast(x, "float32" if node.dtype in HALVES else "float64" if node.dtype not in FLOATS else node.dtype)
    window, options = options_of(axes, kernel_size, stride, padding, ceil_mode)
    if divisor_override is None:
        found = pooling.average_pool(wide, window, count_padding=count_include_pad, **options)
    else:
        total = pooling.sum_pool(wide, window, **options)
        found = divide(total, filled(total, divisor_override))
    return cast(reshape(found, node.dims), node.dtype)


for _axes in (1, 2, 3):
    register(f"avg_pool{_axes}d", partial(average_pool, _axes), ("default",), "", __name__)


def max_pool(
    axes: int,
    node: Node,
    self: Term,
    kernel_size: Sequence[int],
    stride: Sequence[int] = (),
    padding: Sequence[int] = (0,),
    dilation: Sequence[int] = (1,),
    ceil_mode: bool = False,
) -> tuple[Term, Term]:
    """Returns the maximum of each window, and its position in the image of its channel."""
    x = batched(self, axes)
    window, options = options_of(axes, kernel_size, stride, padding, ceil_mode)
    spread = per_axis(dilation, axes)
    found = pooling.max_pool(x, window, dilations=spread, **options)
    wide = x if x.access.dtype in FLOATS or x.access.dtype == "int64" else cast(x, "int32")
    positions = pooling.largest_positions(wide, window, dilations=spread, **options)
    sizes = x.access.dims[2:]
    steps = [prod(sizes[axis + 1 :]) for axis in range(axes)]
    inside = [np.arange(k) * d * step for k, d, step in zip(window, spread, steps, strict=True)]
    along = zip(found.access.dims[2:], options["strides"], options["padding"], steps, strict=True)
    starts = [(np.arange(n) * t - before) * step for n, t, (before, _), step in along]
    table = node.constant(_summed(inside).reshape(-1), "offsets")
    places = add(node.builder.gather(table, positions), node.constant(_summed(starts), "starts"))
    return reshape(found, node.dims), reshape(places, node.dims)


def _summed(parts: Sequence[Any]) -> Any:
    """Returns all sums of one number from each part, with one axis per part."""
    return np.asarray(sum(np.ix_(*parts)), np.int64)


for _axes in (2, 3):
    register(f"max_pool{_axes}d_with_indices", partial(max_pool, _axes), ("default",), "", __name__)


def adaptive_average(axes: int, node: Node, self: Term, output_size: Sequence[int]) -> Term:
    """Averages a given number of windows along each axis; they overlap if the size is not a multiple of the number."""
    x = self
    for place, count in enumerate(per_axis(output_size, axes)):
        axis = self.access.rank - axes + place
        size = self.access.dims[axis]
        if count == size:
            continue
        x = _averaged(x, axis, size, count)
    return cast(x, node.dtype)


def _averaged(x: Term, axis: int, size: int, count: int) -> Term:
    dims = x.access.dims
    if count and size % count == 0 and size:
        apart = reshape(x, (*dims[:axis], count, size // count, *dims[axis + 1 :]))
        return reduce_axes("reduce-mean", apart, [axis + 1])
    parts = [slice_axis(x, axis, *_bounds(i, size, count)) for i in range(count)]
    if not parts:
        return slice_axis(x, axis, 0, 0)
    return concatenate([reduce_axes("reduce-mean", part, [axis], keep=True) for part in parts], axis)


@aten("adaptive_max_pool2d")
def adaptive_max(node: Node, self: Term, output_size: Sequence[int]) -> tuple[Term, Term]:
    """Returns the maximum of each window and its position in the image; the windows have no fixed size."""
    x = batched(self, 2)
    rows = [_bounds(i, x.access.dims[2], output_size[0]) for i in range(output_size[0])]
    columns = [_bounds(i, x.access.dims[3], output_size[1]) for i in range(output_size[1])]
    batch, channels, _, width = x.access.dims
    values, places = [], []
    for top, bottom in rows:
        for left, right in columns:
            window = slice_axis(slice_axis(x, 2, top, bottom), 3, left, right)
            items = reshape(window, (batch, channels, (bottom - top) * (right - left)))
            table = np.add.outer(np.arange(top, bottom) * width, np.arange(left, right)).reshape(-1)
            found = first_position("argmax", items, 2)
            values.append(reduce_axes("reduce-max", items, [2], keep=True))
            places.append(node.builder.gather(node.constant(table, "window"), found))
    return reshape(concatenate(values, 2), node.dims), reshape(concatenate(places, 2), node.dims)


def _bounds(i: int, size: int, count: int) -> tuple[int, int]:
    """Returns where the i-th of `count` windows of an axis begins and ends."""
    return i * size // count, -((i + 1) * size // -count)


for _axes in (2, 3):
    register(f"_adaptive_avg_pool{_axes}d", partial(adaptive_average, _axes), ("default",), "", __name__)
register("adaptive_avg_pool1d", partial(adaptive_average, 1), ("default",), "", __name__)


@aten("col2im")
def col2im(
    node: Node,
    self: Term,
    output_size: Sequence[int],
    kernel_size: Sequence[int],
    dilation: Sequence[int],
    padding: Sequence[int],
    stride: Sequence[int],
) -> Term:
    """Adds columns up where their windows came from: ()(N C*k L) -> ()(N C d..)."""
    columns = self if self.access.rank == 3 else reshape(self, (1, *self.access.dims))
    batch, rows, _ = columns.access.dims
    axes = len(output_size)
    sizes = [n + 2 * before for n, before in zip(output_size, padding, strict=True)]
    counts = [(n - (k - 1) * d - 1) // t + 1 for n, k, d, t in zip(sizes, kernel_size, dilation, stride, strict=True)]
    apart = reshape(columns, (batch, rows // prod(kernel_size), *kernel_size, *counts))
    moved = transpose(apart, (0, 1, *range(2 + axes, 2 + 2 * axes), *range(2, 2 + axes)))
    whole = pooling.overlap_add(moved, sizes, tuple(stride), tuple(dilation))
    cropped = pad_or_crop(whole, [(0, 0), (0, 0), *((-before, -before) for before in padding)])
    return reshape(cropped, node.dims)
