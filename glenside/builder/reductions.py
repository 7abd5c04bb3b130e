"""Reductions over any axes, running reductions along an axis, weighted sums, and determinants."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod

from glenside.builder.layout import (
    concatenate,
    flip,
    gather,
    reshape,
    slice_axis,
    split_at,
    transpose,
    untransposed,
)
from glenside.builder.pointwise import (
    add,
    cast,
    compare,
    compute,
    divide,
    filled,
    mean_from,
    multiply,
    select,
    subtract,
)
from glenside.ir.dtypes import HALVES
from glenside.ir.open_program import sizes_are_open
from glenside.ir.operator import require
from glenside.ir.term import Term, build

Combine = Callable[[Term, Term], Term]


def reduce_axes(kind: str, x: Term, axes: Sequence[int], keep: bool = False) -> Term:
    """Reduces these axes, as by reduce-sum; they are removed or keep size 1. Narrow integers do not widen."""
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


def upcast(x: Term) -> Term:
    """Converts floats of 16 bits to float32, in which their sums are computed; leaves all else."""
    return cast(x, "float32") if x.access.dtype in HALVES else x


def channel_statistics(x: Term, axis: int = 1) -> tuple[Term, Term]:
    """Computes the mean and the variance of each channel over all other axes, ()(C) both, in at least float32."""
    rows = transpose(upcast(x), (axis, *(i for i in range(x.access.rank) if i != axis)))
    mean = mean_from(rows, 1)
    centred = subtract(rows, mean)
    channels = rows.access.dims[:1]
    return reshape(mean, channels), reshape(mean_from(multiply(centred, centred), 1), channels)


def position(kind: str, x: Term, axis: int, *, last: bool = False) -> Term:
    """Computes the position of the argmax or argmin along one axis, int64, the first or the last; the axis keeps size
    1.
    """
    found = reduce_axes(kind, flip(x, axis) if last else x, [axis], keep=True)
    return subtract(filled(found, x.access.dims[axis] - 1), found) if last else found


_REDUCTIONS: dict[Combine, str] = {add: "reduce-sum", multiply: "reduce-prod"}


def running(combine: Combine, x: Term, axis: int, neutral: str, *, exclusive: bool = False) -> Term:
    """Combines each element with all elements before it along one axis; with `exclusive`, only the elements before it.

    What is combined is associative; `neutral` changes nothing. Distances double, so that the term is logarithmic in
    the size. If sizes are open, sums and products are those of windows as long as the axis: one term for all sizes.
    """
    size = x.access.dims[axis]

    def behind(y: Term, distance: int) -> Term:
        dims = (*x.access.dims[:axis], distance, *x.access.dims[axis + 1 :])
        return concatenate([build("full", dims, neutral, x.access.dtype), y], axis)

    def moved(y: Term, distance: int) -> Term:
        return behind(slice_axis(y, axis, 0, size - distance), distance)

    if exclusive and size:
        x = moved(x, 1)
    if combine in _REDUCTIONS and size and sizes_are_open():
        others = [i for i in range(x.access.rank) if i != axis]
        found = split_at(transpose(behind(x, size - 1), [*others, axis]), len(others))
        windows = build("access-windows", found, [size], [1])
        reduced = split_at(build("compute", _REDUCTIONS[combine], windows), 0)
        return cast(untransposed(reduced, [*others, axis]), x.access.dtype)
    distance = 1
    while distance < size:
        x = combine(moved(x, distance), x)
        distance *= 2
    return x


def weighted_elements(found: Term, weights: Term, kind: str = "reduce-sum") -> Term:
    """Sums of weighted elements, ()(S.. T R..) with weights of ()(S.. T) -> ()(S.. R..); or another reduction of them.

    This is elementwise: a product of so few elements for each result would be no work for a matrix unit.
    """
    dims, rank = weights.access.dims, found.access.rank
    at = len(dims) - 1
    fits = at >= 0 and found.access.dims[: at + 1] == dims
    require(fits, "weighted elements", "weights of the leading axes", f"{found.access} and {weights.access}")
    weighted = multiply(found, reshape(weights, (*dims, *(1 for _ in range(rank - len(dims))))))
    moved = transpose(weighted, (*range(at), *range(at + 1, rank), at))
    return split_at(build("compute", kind, split_at(moved, rank - 1)), 0)


def determinant(x: Term) -> Term:
    """Returns the determinants of the last two axes, ()(S.. n n) -> ()(S..). The pivot is the largest element of a
    column.

    Rows are exchanged by selecting elements, so the terms do not depend on the values.
    """
    fits = x.access.rank >= 2 and x.access.dims[-1] == x.access.dims[-2]
    require(fits, "determinant", "x of ()(S.. n n)", x.access)
    *shape, n, _ = x.access.dims
    rest = reshape(x, (prod(shape), n, n))
    result = build("full", (prod(shape),), 1, x.access.dtype)
    for _ in range(n):
        pivot, rest = _eliminated(rest)
        result = multiply(result, pivot)
    return reshape(result, shape)


def _eliminated(x: Term) -> tuple[Term, Term]:
    """Eliminates a column: ()(B n n) -> the pivots ()(B), signed by the exchange of rows, and the rest, ()(B n-1
    n-1).
    """
    count, n, _ = x.access.dims
    place = reshape(position("argmax", compute("abs", slice_axis(x, 2, 0, 1)), 1), (count,))
    chosen = reshape(gather(build("eye", n, "bool"), place), (count, n, 1))
    row = reduce_axes("reduce-sum", select(chosen, x, filled(x, 0)), [1], keep=True)
    pivot = slice_axis(row, 2, 0, 1)
    one = filled(pivot, 1)
    # A pivot of 0 means a column of zeros: nothing needs to be eliminated, and the determinant is 0.
    divisor = select(compare("eq", pivot, filled(pivot, 0)), one, pivot)
    exchanged = slice_axis(select(chosen, slice_axis(x, 1, 0, 1), x), 1, 1, n)
    factors = divide(slice_axis(exchanged, 2, 0, 1), divisor)
    left = subtract(slice_axis(exchanged, 2, 1, n), multiply(factors, slice_axis(row, 2, 1, n)))
    first = compare("eq", place, filled(place, 0))
    pivot = reshape(pivot, (count,))
    return select(first, pivot, compute("negative", pivot)), left
