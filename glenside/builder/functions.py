"""Functions of elements that are formulas of compute types."""

from __future__ import annotations

import math

from glenside.builder.layout import broadcast, common_dims
from glenside.builder.pointwise import add, combine, compare, compute, divide, filled, multiply, select, subtract
from glenside.ir.dtypes import FLOATS, RECORDS, largest_float
from glenside.ir.term import Term


def log1p(x: Term) -> Term:
    """Computes log(1 + x); near 0, where 1 + x loses digits, as x log(u) / (u - 1) with u = 1 + x (Kahan)."""
    one = filled(x, 1)
    u = add(x, one)
    rest = subtract(u, one)
    exact = compare("eq", rest, filled(x, 0))
    near = select(exact, x, multiply(x, divide(compute("log", u), select(exact, one, rest))))
    return select(compare("lt", compute("abs", x), filled(x, 0.5)), near, compute("log", u))


def expm1(x: Term) -> Term:
    """Computes exp(x) - 1; near 0, where it loses digits, as (u - 1) x / log(u) with u = exp(x) (Kahan)."""
    one = filled(x, 1)
    u = compute("exp", x)
    rest = subtract(u, one)
    exact = compare("eq", rest, filled(x, 0))
    near = select(exact, x, multiply(rest, divide(x, select(exact, one, compute("log", u)))))
    return select(compare("lt", compute("abs", x), filled(x, 0.5)), near, rest)


def truncated(x: Term) -> Term:
    """Computes x rounded towards zero."""
    return select(compare("lt", x, filled(x, 0)), compute("ceil", x), compute("floor", x))


def is_negative(x: Term) -> Term:
    """True below 0, and for -0."""
    if x.access.dtype not in FLOATS:
        return compare("lt", x, filled(x, 0))
    zero = compare("eq", x, filled(x, 0))
    return compare("lt", select(zero, divide(filled(x, 1), x), x), filled(x, 0))


def angle(y: Term, x: Term) -> Term:
    """Computes the angle of the point (x, y): the arctangent of y / x, moved to the half plane of x.

    The sign of a zero counts, and that of 1 / zero tells it; two infinities count as two ones.
    """
    dims = common_dims("atan2", y.access.dims, x.access.dims)
    y, x = broadcast(y, dims), broadcast(x, dims)
    largest, zero, pi = (filled(x, v) for v in (int(largest_float(x.access.dtype)), 0, math.pi))
    both = combine("logical-and", *(compare("gt", compute("abs", part), largest) for part in (x, y)))
    y, x = (select(both, compute("sign", part), part) for part in (y, x))
    origin = combine("logical-and", compare("eq", x, zero), compare("eq", y, zero))
    found = select(origin, y, compute("atan", divide(y, select(origin, filled(x, 1), x))))
    turned = select(is_negative(y), subtract(found, pi), add(found, pi))
    return select(is_negative(x), turned, found)


def shifted(x: Term, by: Term, *, left: bool) -> Term:
    """Shifts the bits of integers by a product with, or a floor division by, a power of 2.

    By their width and more, or by fewer than 0, the result is 0, or, to the right, -1 for numbers below 0.
    """
    record = RECORDS[x.access.dtype]
    sign = record.signed and not left  # shifted by one bit fewer than the width, the sign is all that is left
    zero = filled(by, 0)
    inside = combine("logical-and", compare("ge", by, zero), compare("lt", by, filled(by, record.bits - sign)))
    factor = combine("pow", filled(by, 2), select(inside, by, zero))
    beyond = filled(x, 0)
    if left:
        return select(inside, multiply(x, factor), beyond)
    if sign:
        beyond = select(compare("lt", x, beyond), filled(x, -1), beyond)
    return select(inside, divide(subtract(x, combine("(mod floor)", x, factor)), factor), beyond)
