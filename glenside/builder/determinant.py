"""Determinants by elimination, as terms: the rows change places by what they hold, and no term depends on that."""

from __future__ import annotations

from math import prod

from glenside.builder.layout import gather, reshape, slice_axis
from glenside.builder.pointwise import compare, compute, divide, filled, multiply, select, subtract
from glenside.builder.reductions import position, reduce_axes
from glenside.ir.operator import require
from glenside.ir.term import Term, build


def determinant(x: Term) -> Term:
    """The determinants of the last two axes, ()(S.. n n) -> ()(S..); the largest element of a column is its pivot."""
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
    """()(B n n) -> the pivots ()(B), with the sign of the exchange of rows, and what is left, ()(B n-1 n-1)."""
    count, n, _ = x.access.dims
    place = reshape(position("argmax", compute("abs", slice_axis(x, 2, 0, 1)), 1), (count,))
    chosen = reshape(gather(build("eye", n, "bool"), place), (count, n, 1))
    row = reduce_axes("reduce-sum", select(chosen, x, filled(x, 0)), [1], keep=True)
    pivot = slice_axis(row, 2, 0, 1)
    one = filled(pivot, 1)
    # A pivot of 0 is that of a column of zeros: there is nothing to eliminate, and the determinant is 0.
    divisor = select(compare("eq", pivot, filled(pivot, 0)), one, pivot)
    exchanged = slice_axis(select(chosen, slice_axis(x, 1, 0, 1), x), 1, 1, n)
    factors = divide(slice_axis(exchanged, 2, 0, 1), divisor)
    left = subtract(slice_axis(exchanged, 2, 1, n), multiply(factors, slice_axis(row, 2, 1, n)))
    first = compare("eq", place, filled(place, 0))
    pivot = reshape(pivot, (count,))
    return select(first, pivot, compute("negative", pivot)), left
