"""Factors of some indices, such as gains, temperatures and divisors, past products, sums, parts and windows.

times(v, a, m) is v[i] a[i ..] for a v of the first m axes of a, which has no item.
"""

from __future__ import annotations

from glenside.ir.types import Dims
from glenside.rewrites import operators as op
from glenside.rewrites.declare import Clauses, Facts, V, equation
from glenside.rewrites.facts import dims, split
from glenside.rewrites.product_algebra.notation import (
    FAMILY,
    A,
    B,
    example,
    is_real,
    operand,
    over,
    plus,
    stated,
    times,
    unwidened,
)
from glenside.rewrites.terms import Variable, dot, variables, vec_range

_V, _W, _U = operand("v", "2 3", 2), operand("w", "2", 1), operand("u", "2", 1)
_P, _Q, _R = operand("p", "2 3 4", 3), operand("q", "2 5 4", 3), operand("r", "2 3 4", 3)


def _factor(v: V, m: V) -> Facts:
    """Matches a v of m axes, without items."""
    d = Variable(f"d{v}")
    return m == split(v), d == dims(v), d.length == m


@equation(
    FAMILY,
    example(dot(op.access(times(_V, _P, 2), 2), B, 1)),
    example(dot(B, op.access(times(_W, _P, 1), 2), 1)),
    example(dot(op.access(over(_P, _V, 2), 2), B, 1)),
    example(dot(B, op.access(over(_P, _W, 1), 2), 1)),
    example(dot(over(A, operand("w", "2 4", 1), 1), B, 1)),
    example(op.reduce_sum(op.access(times(_W, _P, 1), 2))),
    example(op.reduce_sum(op.access(over(_P, _W, 1), 2))),
)
def factors_cross_products(a: V, b: V, v: V, n: V, m: V, s: V) -> Clauses:
    """dot(v a, b) = v dot(a, b) for a factor v of indices that the result has, dot(a / v, b) = dot(a, b) / v, and
    dot(a / v, b) = dot(a, b / v) for indices of the depth; likewise sums over axes.

    Sound because a factor that does not depend on the index of a sum is a factor of the sum.
    """
    where = (_factor(v, m), unwidened(a))
    x = op.access(a, s)
    divided = (_factor(v, m), is_real(a))
    return (
        stated(dot(op.access(times(v, a, m), s), b, n), times(v, dot(x, b, n), m), where, m <= s),
        stated(dot(b, op.access(times(v, a, m), s), n), times(v, dot(b, x, n), m), where, m <= n),
        stated(dot(op.access(over(a, v, m), s), b, n), over(dot(x, b, n), v, m), divided, m <= s),
        stated(dot(b, op.access(over(a, v, m), s), n), over(dot(b, x, n), v, m), divided, m <= n),
        stated(dot(over(a, v, m), b, n), dot(a, over(b, v, m), n), m == split(v), m <= n, is_real(a)),
        stated(op.reduce_sum(op.access(times(v, a, m), s)), times(v, op.reduce_sum(x), m), where, m <= s),
        stated(op.reduce_sum(op.access(over(a, v, m), s)), over(op.reduce_sum(x), v, m), divided, m <= s),
    )


@equation(
    FAMILY,
    example(times(_W, op.concatenate(_P, _Q, 1), 1)),
    example(times(op.concatenate(_V, operand("u", "2 5", 2), 1), op.concatenate(_P, _Q, 1), 2)),
    example(times(_W, op.slice(_P, 1, 1, 3), 1)),
    example(times(_W, op.pad(_P, "zero-padding", 1, 1, 2), 1)),
    example(times(_W, op.linear_map(_P, 1, 2, "1 2 3 4 5 6"), 1)),
    example(times(_W, op.access(op.windows(operand("x", "2 7", 1), Dims((3,)), Dims((2,))), 3), 1)),
    example(times(_W, op.transpose(_P, Dims((0, 2, 1))), 1)),
    example(times(_W, plus(_P, _R, 3), 1)),
    example(times(_W, times(_V, _P, 2), 1)),
    example(times(_W, times(_U, _P, 1), 1)),
    example(op.negative(times(_W, _P, 1))),
)
def factors_cross_what_is_linear(a: V, b: V, v: V, w: V, m: V, n: V, x: V, k: V, t: V, s: V, p: V) -> Clauses:
    """v [a b] = [(v a) (v b)], [v w] [a b] = [(v a) (w b)], v slice(a) = slice(v a), likewise zero paddings, windows,
    linear maps, transposes; v (a + b) = v a + v b; v (w a) = w (v a) = (v w) a; -(v a) = v (-a).

    Sound because each of them leaves the index of the factor alone, products associate, and zeros stay zeros.
    """
    lo, hi, before, after, rows, numbers, da, db, r = variables("lo hi before after rows numbers da db r")
    factor = _factor(v, m)
    along = (factor, x >= m)
    image = op.access(a, s)
    kept = p.take(m)
    return (
        stated(times(v, op.concatenate(a, b, x), m), op.concatenate(times(v, a, m), times(v, b, m), x), along),
        stated(
            times(op.concatenate(v, w, x), op.concatenate(a, b, x), m),
            op.concatenate(times(v, a, m), times(w, b, m), x),
            *(factor, da == dims(v), db == dims(a), da[x] == db[x]),
        ),
        stated(times(v, op.slice(a, x, lo, hi), m), op.slice(times(v, a, m), x, lo, hi), along),
        stated(
            times(v, op.pad(a, "zero-padding", x, before, after), m),
            op.pad(times(v, a, m), "zero-padding", x, before, after),
            along,
        ),
        stated(times(v, op.linear_map(a, x, rows, numbers), m), op.linear_map(times(v, a, m), x, rows, numbers), along),
        stated(
            times(v, op.access(op.windows(image, k, t), r), m),
            op.access(op.windows(op.access(times(v, op.access(a, da.length), m), s), k, t), r),
            *(factor, da == dims(a), m <= s),
        ),
        stated(times(v, op.transpose(a, p), m), op.transpose(times(v, a, m), p), factor, kept == vec_range(m), m > 0),
        stated(
            times(v, plus(a, b, n), m), plus(times(v, a, m), times(v, b, m), n), factor, n == split(a), n == split(b)
        ),
        *(
            stated(times(v, times(w, a, n), m), right, factor, _factor(w, n), m <= n)
            for right in (times(w, times(v, a, m), n), times(times(v, w, m), a, n))
        ),
        stated(op.negative(times(v, a, m)), times(v, op.negative(a), m), factor),
    )
