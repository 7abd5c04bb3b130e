"""Reductions over any axes, and running ones along an axis."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from glenside.builder.layout import concatenate, flip, reshape, slice_axis, split_at, transpose
from glenside.builder.pointwise import cast, filled, subtract
from glenside.ir.operator import require
from glenside.ir.term import Term, build

Combine = Callable[[Term, Term], Term]


def reduce_axes(kind: str, x: Term, axes: Sequence[int], keep: bool = False) -> Term:
    """A reduction, such as reduce-sum, over these axes, which leave or keep size 1; narrow integers do not widen."""
    rank = x.access.rank
    require(all(0 <= axis < rank for axis in axes), kind, f"axes from 0 to {rank - 1}", tuple(axes))
    kept = [axis for axis in range(rank) if axis not in axes]
    if len(kept) == rank:
        return x
    order = [*kept, *(axis for axis in range(rank) if axis in axes)]
    result = split_at(build("compute", kind, split_at(transpose(x, order), len(kept))), 0)
    if result.access.dtype != "int64":
        result = cast(result, x.access.dtype)
    dims = [1 if axis in axes else n for axis, n in enumerate(x.access.dims)]
    return reshape(result, dims) if keep else result


def position(kind: str, x: Term, axis: int, *, last: bool = False) -> Term:
    """Where along one axis argmax or argmin finds it, int64, with that axis of size 1: the first place or the last."""
    found = reduce_axes(kind, flip(x, axis) if last else x, [axis], keep=True)
    return subtract(filled(found, x.access.dims[axis] - 1), found) if last else found


def running(combine: Combine, x: Term, axis: int, neutral: str, *, exclusive: bool = False) -> Term:
    """Each element combined with all before it along one axis, or with `exclusive` those before it alone.

    Distances double, so that the term is logarithmic in the size. What is combined is associative; `neutral` changes
    nothing.
    """
    size = x.access.dims[axis]

    def moved(y: Term, distance: int) -> Term:
        dims = (*x.access.dims[:axis], distance, *x.access.dims[axis + 1 :])
        start = build("full", dims, neutral, x.access.dtype)
        return concatenate([start, slice_axis(y, axis, 0, size - distance)], axis)

    if exclusive and size:
        x = moved(x, 1)
    distance = 1
    while distance < size:
        x = combine(moved(x, distance), x)
        distance *= 2
    return x
