"""Imports pools over windows or channels, and MaxUnpool."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np

from glenside.builder import windows as pooling
from glenside.builder.indexing import scatter_nd
from glenside.builder.layout import pad_or_crop, reshape, split_at
from glenside.builder.pointwise import cast
from glenside.importers.onnx.node import Node, onnx_operator
from glenside.importers.onnx.tensors import require_table
from glenside.importers.onnx.windows import Windows, cropped, kernel_of, pads_of, per_axis, windows_of
from glenside.ir.dtypes import INTEGERS
from glenside.ir.errors import BadInput
from glenside.ir.operand import Array
from glenside.ir.term import Term, build


def _pooled(node: Node, x: Term) -> tuple[Term, Windows, dict[str, Any]]:
    """Returns the pooled tensor, its windows, and their strides, padding and dilations as options of the builder's
    pools.
    """
    windows = windows_of(node, x.access.dims[2:])
    x, padding = cropped(x, windows)
    options = {"strides": windows.strides, "padding": padding, "dilations": windows.dilations, "ceil": windows.ceil}
    return x, windows, options


@onnx_operator("AveragePool")
def average_pool(node: Node) -> Term:
    return average_pool_of(node, node.term(0))


def average_pool_of(node: Node, x: Term) -> Term:
    """Averages windows of x, which the attributes of the node describe."""
    x, windows, options = _pooled(node, x)
    counted = bool(node.integer("count_include_pad", 0))
    return pooling.average_pool(x, windows.kernel, count_padding=counted, **options)


@onnx_operator("LpPool")
def lp_pool(node: Node) -> Term:
    x, windows, options = _pooled(node, node.term(0))
    return pooling.lp_pool(x, windows.kernel, node.number("p", 2), **options)


@onnx_operator("MaxPool")
def max_pool(node: Node) -> list[Term]:
    x, windows, options = _pooled(node, node.term(0))
    largest = pooling.max_pool(x, windows.kernel, **options)
    if not node.wants(1):
        return [largest]
    if x.access.dtype in INTEGERS:  # their lowest value may be an element too: padding must be below it
        x = cast(x, "int32")
    positions = pooling.largest_positions(x, windows.kernel, **options)
    return [largest, indices(node, positions, windows)]


def indices(node: Node, positions: Term, windows: Windows) -> Term:
    """Converts positions in windows to positions in the whole input, counted over all its axes."""
    batch, channels, *sizes = node.term(0).access.dims
    column_major = bool(node.integer("storage_order", 0))
    steps = [prod(sizes[:i] if column_major else sizes[i + 1 :]) for i in range(len(sizes))]
    require_table("the table of windows", prod(windows.kernel) + prod(positions.access.dims))
    inside = [np.arange(k) * d * step for k, d, step in zip(windows.kernel, windows.dilations, steps, strict=True)]
    along = zip(positions.access.dims[2:], windows.strides, windows.padding, steps, strict=True)
    starts = [(np.arange(n) * t - before) * step for n, t, (before, _), step in along]
    images = np.arange(batch * channels).reshape(batch, channels, *(1 for _ in sizes)) * prod(sizes)
    table = node.constant(summed(inside).reshape(-1), f"{node.name}.offsets")
    first = node.constant(images, f"{node.name}.images")
    origins = node.builder.add(first, node.constant(summed(starts), f"{node.name}.starts"))
    return node.builder.add(node.builder.gather(table, positions), origins)


def summed(parts: Sequence[Array]) -> Array:
    """Returns all sums of one number from each part, with one axis per part."""
    return np.asarray(sum(np.ix_(*parts)), np.int64)


GLOBAL = {"GlobalAveragePool": "reduce-mean", "GlobalMaxPool": "reduce-max"}


@onnx_operator(*GLOBAL)
def global_pool(node: Node) -> Term:
    return of_channels(GLOBAL[node.op_type], node.term(0))


@onnx_operator("GlobalLpPool")
def global_lp_pool(node: Node) -> Term:
    p = node.number("p", 2)
    return pooling.root(of_channels("reduce-sum", pooling.powers(node.term(0), p)), p)


def of_channels(kind: str, x: Term) -> Term:
    """Reduces each channel: ()(N C d..) -> ()(N C 1..)."""
    dims = x.access.dims
    return reshape(build("compute", kind, split_at(x, 2)), (*dims[:2], *(1 for _ in dims[2:])))


@onnx_operator("MaxUnpool")
def max_unpool(node: Node) -> Term:
    x, places = node.term(0), node.term(1)
    if x.access.rank < 3 or places.access.dims != x.access.dims:
        raise BadInput(f"inputs 0 and 1 require dims (N C d..) that agree, got {x.access} and {places.access}")
    batch, channels, *sizes = x.access.dims
    kernel, strides = kernel_of(node, len(sizes), None), per_axis(node, "strides", len(sizes))
    inferred = [batch, channels] + [
        (n - 1) * t - before - after + k
        for n, t, k, (before, after) in zip(sizes, strides, kernel, pads_of(node, len(sizes)), strict=True)
    ]
    wanted = node.known_ints(2) or inferred
    if min(inferred[2:]) < 1:
        raise BadInput(f"kernel_shape, strides and pads require an output of at least 1 on each axis, got {inferred}")
    if len(wanted) != len(inferred) or any(n < m for n, m in zip(wanted, inferred, strict=True)):
        raise BadInput(f"input 2 requires sizes of at least {inferred}, got {wanted}")
    empty = node.scope.filled([prod(inferred)], np.zeros(1, x.access.dtype)[0])
    flat = scatter_nd(empty, reshape(places, (x.access.size, 1)), reshape(x, (x.access.size,)))
    return pad_or_crop(reshape(flat, inferred), [(0, n - m) for n, m in zip(wanted, inferred, strict=True)])
