"""Names of indices (transposes, reshapes, broadcasts) and row operators (windows, strides, paddings, slices, resizes,
pools) past products and past each other.
"""

from __future__ import annotations

from collections.abc import Callable

from glenside.ir.term import Term
from glenside.ir.types import Dims
from glenside.rewrites import operators as op
from glenside.rewrites.declare import Clauses, Facts, V, equation
from glenside.rewrites.facts import dims, split
from glenside.rewrites.product_algebra.notation import (
    FAMILY,
    A,
    B,
    block,
    example,
    is_real,
    operand,
    stated,
    times,
    unwidened,
)
from glenside.rewrites.terms import dot, padded, variables, vec, vec_range

_X = operand("x", "2 3", 2)
_TABLE = op.concatenate(op.full(Dims((1,)), "2", "int64"), op.full(Dims((3,)), "0", "int64"), 0)
_WIDE = operand("a", "2 9 4", 2)


def identity(k: int) -> Term:
    """Returns the identity matrix (k)(k)."""
    ones = op.full(Dims((k,)), "1", "float32")
    matrix: Term = op.access(op.reshape(op.dilate(op.access(ones, 0), 0, k), (Dims(()), Dims((k, k)))), 1)
    return matrix


def _turned(*axes: int) -> Dims:
    return Dims(axes)


_ITEMS = [op.transpose(operand(x, "2 3 4 5", 2), _turned(0, 1, 3, 2)) for x in "ab"]


@equation(
    FAMILY,
    example(dot(op.transpose(operand("a", "2 3 2 4", 3), _turned(0, 2, 1, 3)), B, 1)),
    example(dot(B, op.transpose(operand("a", "2 3 2 4", 3), _turned(0, 2, 1, 3)), 1)),
    example(dot(_ITEMS[0], _ITEMS[1], 1)),
    example(dot(op.reshape(A, (Dims((2, 1, 3)), Dims((4,)))), B, 1)),
    example(dot(op.insert_axis(A, 1), B, 1)),
    example(dot(op.squeeze(operand("a", "2 1 4", 2), 1), B, 1)),
    example(dot(op.reshape(A, (Dims((2, 3)), Dims((2, 2)))), op.reshape(B, (Dims((2, 5)), Dims((2, 2)))), 1)),
    example(dot(op.broadcast(operand("a", "2 1 4", 2), (Dims((2, 3)), Dims((4,)))), B, 1)),
    example(
        dot(op.broadcast(op.insert_axis(A, 3), (Dims((2, 3)), Dims((4, 2)))), operand("b", "2 5 4 2", 2), 1),
    ),
    example(op.reduce_sum(op.access(op.broadcast(op.insert_axis(_X, 2), (Dims((2, 3, 4)), Dims(()))), 2))),
)
def names_of_indices_cross_products(a: V, b: V, n: V, p: V, q: V, s: V, i: V, sa: V, sb: V) -> Clauses:
    """A product of a transposed, reshaped or broadcast operand is the product, transposed, reshaped or broadcast; items
    of both that are transposed or reshaped alike are as they were; and what only one operand has is summed first.

    Sound because each element of the result is the same sum of products, at an index of another name; a sum of equal
    terms is their count times one of them.
    """
    da, db, j, k = variables("da db j k")
    sides = (da == dims(a), sa == split(a), db == dims(b), sb == split(b))
    fixed = (p.take(n) == vec_range(n), p.drop(sa) == block(sa, da.length))
    behind = block(sa, sa + sb - n)
    turned = op.transpose(a, p)
    of_p = p.take(sa).drop(n).shift(sb - n)
    rest = db.take(sb).drop(n)
    same_items = (i == da.drop(sa), s.take(n) == da.take(n))
    return (
        stated(dot(turned, b, n), op.transpose(dot(a, b, n), p.take(sa).append(behind)), sides, fixed, sa >= n),
        stated(dot(b, turned, n), op.transpose(dot(b, a, n), vec_range(sb).append(of_p)), sides, fixed, sa >= n),
        stated(
            dot(turned, op.transpose(b, q), n),
            dot(a, b, n),
            *(sides, p.take(sa) == vec_range(sa), q.take(sb) == vec_range(sb)),
            p.drop(sa).shift(sb - sa) == q.drop(sb),
        ),
        stated(
            dot(op.reshape(a, s, i), b, n),
            op.reshape(dot(a, b, n), s.append(rest), vec()),
            *(sides, same_items, sa > n, s.length > n, s.drop(n).product() == da.take(sa).drop(n).product()),
        ),
        stated(dot(op.insert_axis(a, k), b, n), op.insert_axis(dot(a, b, n), k), sides, k >= n, k <= sa),
        stated(dot(op.squeeze(a, k), b, n), op.squeeze(dot(a, b, n), k), sides, k >= n, k < sa),
        stated(
            dot(op.reshape(a, s, i), op.reshape(b, q, i), n),
            dot(a, b, n),
            *(sides, s == da.take(sa), q == db.take(sb), da.drop(sa) == db.drop(sb)),
            *(da.length == sa + 1, i.length == 2),
        ),
        stated(
            dot(op.broadcast(a, s, i), b, n),
            op.broadcast(dot(a, b, n), s.append(rest), vec()),
            *(sides, same_items),
        ),
        stated(
            dot(op.broadcast(op.insert_axis(a, k), s, i), b, n),
            dot(a, op.access(op.reduce_sum(op.access(b, db.length - 1)), sb), n),
            *(sides, k == da.length, k >= sa, s == da.take(sa), j == i.pop(), j == da.drop(sa), unwidened(a)),
        ),
        stated(
            op.reduce_sum(op.access(op.broadcast(op.insert_axis(a, sa), s, i), sa)),
            times(a, op.reduce_sum(op.full(s.drop(sa), "1", "float32")), 0),
            *(sa == split(a), da == dims(a), da.length == sa, s.take(sa) == da, is_real(a)),
        ),
    )


@equation(
    FAMILY,
    example(dot(op.slice(A, 1, 1, 3), B, 1)),
    example(dot(op.pad(A, "zero-padding", 1, 1, 2), B, 1)),
    example(dot(op.linear_map(A, 1, 2, "1 2 3 4 5 6"), B, 1)),
    example(dot(B, op.slice(A, 1, 1, 3), 1)),
    example(dot(B, op.pad(A, "zero-padding", 1, 1, 2), 1)),
    example(dot(B, op.linear_map(A, 1, 2, "1 2 3 4 5 6"), 1)),
    example(dot(op.gather(A, _TABLE, 1), B, 1)),
    example(dot(B, op.gather(A, _TABLE, 1), 1)),
    example(op.reduce_sum(op.access(dot(B, A, 1), 2))),
    example(op.compute("reduce-mean", op.access(dot(B, A, 1), 2))),
    example(op.windows(op.access(dot(B, _WIDE, 1), 2), Dims((3,)), Dims((2,)))),
)
def row_operators_cross_products(a: V, b: V, n: V, x: V, sa: V, sb: V, da: V, k: V, t: V) -> Clauses:
    """dot(f(a), b) = f(dot(a, b)) for f a slice, a zero padding, windows or any linear map of an axis that only a has,
    such as a resize or a strided slice; likewise on the right, and for sums and means over all axes that only a has.

    Sound because f computes a row of the result from rows of a, with the same numbers for each column: it is itself a
    product with a matrix, and products associate.
    """
    lo, hi, before, after, rows, numbers, c, i = variables("lo hi before after rows numbers c i")
    own = (sa == split(a), sb == split(b), x >= n, x < sa)
    y = x + sb - n

    def crossing(of: Callable[[V, V], V], *where: Facts) -> tuple[Clauses, ...]:
        return (
            stated(dot(of(a, x), b, n), of(dot(a, b, n), x), own, *where),
            stated(dot(b, of(a, x), n), of(dot(b, a, n), y), own, *where),
        )

    turned = op.access(op.transpose(a, vec_range(n).append(block(sa, da.length), block(n, sa))), n + k)
    whole = (sa == split(a), sb == split(b), da == dims(a), k == da.length - sa)
    windows = op.windows(turned, t, c)
    m = sa - n
    inside = op.transpose(windows, vec_range(n).append(block(n + k, n + k + m + m), block(n, n + k)))
    return (
        *crossing(lambda z, axis: op.slice(z, axis, lo, hi)),
        *crossing(lambda z, axis: op.gather(z, i, axis)),
        *crossing(lambda z, axis: padded(z, axis, after, before), unwidened(a)),
        *crossing(lambda z, axis: op.linear_map(z, axis, rows, numbers), unwidened(a)),
        *(
            stated(
                op.compute(kind, op.access(dot(b, a, n), sb)),
                dot(b, op.access(op.compute(kind, turned), n), n),
                *(whole, where),
            )
            for kind, where in (("reduce-sum", unwidened(a)), ("reduce-mean", is_real(a)))
        ),
        stated(
            op.windows(op.access(dot(b, a, n), sb), t, c),
            op.access(dot(b, op.access(inside, n + m + m), n), sb + m),
            *(whole, t.length == sa - n),
        ),
    )


_LINE = operand("x", "2 20", 1)


def _windowed(x: Term, k: int, t: int) -> Term:
    found: Term = op.windows(x, Dims((k,)), Dims((t,)))
    return found


@equation(
    FAMILY,
    example(op.slice(op.slice(_WIDE, 1, 2, 8), 1, 1, 3)),
    example(op.pad(op.pad(A, "zero-padding", 1, 1, 2), "zero-padding", 1, 3, 4)),
    example(op.slice(_windowed(_LINE, 3, 2), 1, 1, 4)),
    example(op.slice(_windowed(_LINE, 3, 2), 2, 1, 3)),
    example(_windowed(op.access(op.transpose(_windowed(_LINE, 3, 2), _turned(0, 2, 1)), 2), 2, 2)),
    example(op.linear_map(op.linear_map(A, 1, 2, "1 2 3 4 5 6"), 2, 2, "1 2 3 4 5 6 7 8")),
)
def row_operators_compose(a: V, x: V, y: V, k: V, t: V, s: V, m: V, n: V, p: V, u: V) -> Clauses:
    """slice(slice(a)) and pad(pad(a)) are one; a slice of windows is windows of a slice, or smaller windows; windows of
    windows are larger windows, k + (m - 1) t long and t n apart; linear maps of two axes are in any order.

    Sound because element (i, j) of windows is element t i + j, and element (i, j, l) of windows of windows is element
    t n i + t j + l.
    """
    lo, hi, low, high, before, after, first, last, d = variables("lo hi low high before after first last d")
    rows, numbers, others, more = variables("rows numbers others more")
    windows = op.windows(a, k, t)
    of_line = (s == split(a), d == dims(a), d.length == s + 1)
    larger = op.windows(op.windows(a, vec(k[0] + (m[0] - 1) * t[0]), vec(t[0] * n[0])), k, t)
    return (
        stated(op.slice(op.slice(a, x, lo, hi), x, low, high), op.slice(a, x, lo + low, lo + high)),
        stated(padded(padded(a, x, after, before), x, last, first), padded(a, x, after + last, before + first)),
        stated(
            op.slice(windows, x, lo, hi),
            op.windows(op.slice(a, x, t[0] * lo, (hi - 1) * t[0] + k[0]), k, t),
            *(of_line, x == s, lo < hi),
        ),
        stated(
            op.slice(windows, x, lo, hi),
            op.windows(op.slice(a, s, lo, d[s] - (k[0] - hi)), vec(hi - lo), t),
            *(of_line, x == s + 1),
        ),
        stated(
            op.windows(op.access(op.transpose(windows, p), u), m, n),
            op.access(op.transpose(larger, vec_range(s).append(vec(s + 2, s, s + 1))), s + 2),
            *(of_line, p == vec_range(s).append(vec(s + 1, s)), u == s + 1, m[0] > 0, k[0] > 0),
        ),
        stated(
            op.linear_map(op.linear_map(a, x, rows, numbers), y, others, more),
            op.linear_map(op.linear_map(a, y, others, more), x, rows, numbers),
            x != y,
        ),
    )


@equation(
    FAMILY,
    example(dot(operand("a", "2 3 4", 2), identity(4), 0)),
    example(dot(operand("a", "2 3 4", 2), op.access(op.full(Dims((2, 5, 4)), "0", "float32"), 2), 1)),
)
def identity_matrices_change_nothing(a: V, s: V, d: V, k: V, i: V, e: V, da: V, n: V) -> Clauses:
    """dot(a, I) = a: one of a sum has no product, as in x + x W = x (I + W); dot(a, 0) = 0.

    Sound because ones of I are k + 1 elements apart, so that each row has one, in the column of the same number; and a
    sum of zeros is zero.
    """
    matrix = op.access(op.reshape(op.dilate(op.access(op.full(d, "1", "float32"), 0), 0, k), e, i), 1)
    zeros = op.access(op.full(d, "0", "float32"), k)
    rows = da.take(s).append(d.take(k).drop(n))
    return (
        stated(
            dot(a, matrix, 0),
            op.access(a, s + 1),
            *(s == split(a), da == dims(a), da.length == s + 1, k == da[s], e.length == 0, i == vec(k, k), d == vec(k)),
        ),
        stated(
            dot(a, zeros, n),
            op.access(op.full(rows, "0", "float32"), s + k - n),
            *(s == split(a), da == dims(a), is_real(a)),
        ),
    )
