"""Defines windows over the item, and their adjoint."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from glenside.ir.blockwise import PART, block_size, blocks, positions
from glenside.ir.dtypes import STORED, bits_dtype
from glenside.ir.index_map import IndexMap, axes_of, mapped
from glenside.ir.operand import Array
from glenside.ir.operator import MONOTONE, Kind, OperatorKind, example, fields, operator, require
from glenside.ir.operators.requirements import require_number, require_sizes, spelled
from glenside.ir.types import AccessType, Dims


def _check_steps(name: str, axes: int, window: Dims, strides: Dims) -> None:
    ranks = len(window) == axes == len(strides)
    require(ranks, name, f"window and strides of {axes} axes", f"{spelled(window)} and {spelled(strides)}")
    require_sizes(name, "window sizes", window)
    require_sizes(name, "strides", strides, least=1)


def _check_windows(a: AccessType, window: Dims, strides: Dims) -> None:
    _check_steps("access-windows", a.rank - a.split, window, strides)
    fits = all(k <= n for k, n in zip(window, a.item, strict=True))
    require(fits, "access-windows", f"a window within the item {spelled(a.item)}", spelled(window))


def _evaluate_windows(_: object, a: Array, window: Dims, strides: Dims) -> Array:
    first = a.ndim - len(window)
    if not window:
        return a
    bits = a.view(bits_dtype(a.dtype.name)) if a.dtype.name in STORED else a  # numpy cannot spell all stored dtypes
    views: Array = sliding_window_view(bits, window, tuple(range(first, a.ndim))).view(a.dtype)
    return views[(slice(None),) * first + tuple(slice(None, None, t) for t in strides)]


def _map_windows(a: AccessType, window: Dims, strides: Dims) -> IndexMap:
    dims = a.shape.append(a.item.windows(window, strides)).append(window)
    axes, rank = axes_of(dims), len(window)
    starts, inside = axes[a.split : a.split + rank], axes[a.split + rank :]
    item = [start * t + i for start, t, i in zip(starts, strides, inside, strict=True)]
    return mapped(dims, [*axes[: a.split], *item])


access_windows = operator(
    name="access-windows",
    kind=OperatorKind.VIEW,
    fields=fields(a=Kind.TERM, window=Kind.SHAPE, strides=Kind.SHAPE),
    check=_check_windows,
    result=lambda a, window, strides: a.shape.append(a.item.windows(window, strides)).access(window, a.dtype),
    index_map=_map_windows,
    evaluate=_evaluate_windows,
    adjoint=lambda terms, g, a, window, strides: (
        terms.overlap_add(terms.at(g, g.access.rank - len(window)), a.access.item, strides),
    ),
    doc="Every window of the item at those strides: the shape gains floor((I - window) / stride) + 1, "
    "the item is one window. There is no padding.",
    examples=example("(access-windows (access (access-tensor x) 1) (shape 3 2) (shape 2 1))", x="m 9 n"),
)


def _check_overlap_add(a: AccessType, out: Dims, strides: Dims) -> None:
    name = "access-overlap-add"
    require_number(name, a)
    _check_steps(name, a.rank - a.split, a.item, strides)
    require(len(out) == len(a.item), name, f"an output of {len(a.item)} axes", spelled(out))
    covers = all(k <= n for k, n in zip(a.item, out, strict=True))
    require(covers, name, f"an output that holds a window {spelled(a.item)}", spelled(out))
    counts = out.windows(a.item, strides)
    have = a.shape.drop(max(a.split - len(out), 0))
    require(have == counts, name, f"{spelled(counts)} windows as the last axes of the shape", a)


def _evaluate_overlap_add(arithmetic: Any, a: Array, out: Dims, strides: Dims) -> Array:
    """Adds one strided slice per window position, in blocks: windows have few positions, and there are many windows."""
    lead, axes = a.ndim - 2 * len(out), len(out)
    result = np.zeros((*a.shape[:lead], *out), a.dtype)
    counts, window = a.shape[lead : lead + axes], a.shape[lead + axes :]
    for position in positions(window):
        steps = (slice(i, i + (c - 1) * t + 1, t) for i, c, t in zip(position, counts, strides, strict=True))
        reached: tuple[Any, ...] = (..., *steps)  # a view, even without axes
        sums, parts = result[reached], a[(..., *position)]
        for index in blocks(parts.shape, PART):
            sums[index] = arithmetic.add(sums[index], parts[index])
    return result


access_overlap_add = operator(
    name="access-overlap-add",
    kind=OperatorKind.COMPUTE,
    fields=fields(a=Kind.TERM, out=Kind.SHAPE, strides=Kind.SHAPE),
    check=_check_overlap_add,
    result=lambda a, out, strides: a.dims.take(a.split - out.length).access(out, a.dtype),
    evaluate=_evaluate_overlap_add,
    scratch=lambda a, out, strides: block_size(a.shape[: a.ndim - len(out)], PART) * a.itemsize,
    operations=lambda a, out, strides: a.size,
    linear=True,
    keeps=MONOTONE,
    adjoint=lambda terms, g, a, out, strides: (
        terms.windows(terms.at(g, g.access.rank - len(out)), a.access.item, strides),
    ),
    doc="The adjoint of access-windows: windows (S, counts)(window) are added into items of size out, (S)(out).",
    examples=example("(access-overlap-add (access (access-tensor x) 2) (shape 9) (shape 2))", x="m 4 3"),
)
