"""Products of products, of sums and of concatenations.

dot(a, b, n) contracts the items of a and b, which share their first n axes: (G M)(K) and (G N)(K) make (G M N)().
"""

from __future__ import annotations

from typing import Any

from glenside.ir.term import Term
from glenside.ir.types import Dims
from glenside.rewrites import operators as op
from glenside.rewrites.declare import Clauses, V, equation
from glenside.rewrites.facts import dims, dtype, split
from glenside.rewrites.product_algebra.notation import (
    FAMILY,
    A,
    B,
    C,
    block,
    example,
    is_real,
    operand,
    over,
    pairwise,
    plus,
    stated,
    times,
    unwidened,
)
from glenside.rewrites.terms import dot, variables, vec, vec_range

_X, _Y, _Z = (operand(name, "2 3", 2) for name in "xyz")
_E = operand("e", "2 3 4", 2)
_SUMS = (op.elementwise_add, op.subtract)


@equation(
    FAMILY,
    example(dot(op.access(dot(A, B, 1), 2), C, 1)),
    example(times(times(_X, _Y, 2), _Z, 2)),
    example(dot(times(operand("w", "2 4", 1), A, 1), B, 1)),
)
def products_associate(a: V, b: V, c: V, n: V, sa: V, sb: V, sc: V, k: V, m: V) -> Clauses:
    """dot(dot(a, b), c) = dot(a, dot(b, c)), with the axes of b transposed; a * b * c = a * (b * c); and
    dot(c * a, b) = dot(a, c * b) for a factor c of indices that both have.

    Sound because both sides are the sum over k and j of a[g m k] b[g j k] c[g o j]: multiplication is associative, and
    the order of sums does not matter.
    """
    db, dt = variables("db dt")
    turned = op.access(op.transpose(b, vec_range(n).append(block(sb, k + sb), block(n, sb))), n + k)
    inner = op.transpose(dot(turned, c, n), vec_range(n).append(block(n + k, k + sc), block(n, n + k)))
    return (
        stated(
            dot(op.access(dot(a, b, n), sa), c, n),
            dot(a, op.access(inner, sc), n),
            *(sa == split(a), sb == split(b), sc == split(c), db == dims(b), k == db.length - sb),
            *(dt == dtype(a), dt == dtype(c)),
        ),
        stated(
            times(times(a, b, n), c, n),
            times(a, times(b, c, n), n),
            *(n == split(a), n == split(b), n == split(c)),
        ),
        stated(dot(times(c, a, m), b, n), dot(a, times(c, b, m), n), m == split(c), m <= n, unwidened(a)),
    )


@equation(
    FAMILY,
    example(dot(A, B, 1)),
    example(times(_X, _Y, 2)),
    example(plus(_X, _Y, 2)),
    example(plus(plus(_X, _Y, 2), _Z, 2)),
)
def products_and_sums_commute(a: V, b: V, c: V, n: V, sa: V, sb: V) -> Clauses:
    """dot(a, b) = transpose(dot(b, a)), a * b = b * a, a + b = b + a, (a + b) + c = a + (b + c).

    Sound because multiplication and addition are commutative, and addition is associative; a product has the axes of
    its first operand before those of its second.
    """
    order = vec_range(n).append(block(sb, sa + sb - n), block(n, sb))
    return (
        stated(dot(a, b, n), op.transpose(dot(b, a, n), order), sa == split(a), sb == split(b)),
        *(stated(of(a, b, n), of(b, a, n), n == split(a), n == split(b)) for of in (times, plus)),
        stated(plus(plus(a, b, n), c, n), plus(a, plus(b, c, n), n), n == split(a), n == split(b), n == split(c)),
    )


@equation(
    FAMILY,
    *(example(dot(pairwise(each, A, _E, 2), B, 1)) for each in _SUMS),
    *(example(dot(B, pairwise(each, A, _E, 2), 1)) for each in _SUMS),
    *(example(of(pairwise(each, _X, _Y, 2), _Z, 2)) for each in _SUMS for of in (times, over)),
    *(example(op.reduce_sum(pairwise(each, A, _E, 2))) for each in _SUMS),
)
def products_distribute_over_sums(a: V, b: V, c: V, n: V, s: V, sc: V) -> Clauses:
    """dot(a + b, c) = dot(a, c) + dot(b, c), dot(c, a + b) = dot(c, a) + dot(c, b), likewise differences, elementwise
    products, quotients, and sums over axes. From right to left, a common operand is factored out.

    Sound because multiplication distributes over addition, and a sum of sums is the sum of all.
    """
    found: list[Clauses] = []
    sides = (s == split(a), s == split(b))
    for each in _SUMS:
        both = pairwise(each, a, b, s)
        of_c = (sides, sc == split(c), unwidened(c))
        found += [
            stated(dot(both, c, n), pairwise(each, dot(a, c, n), dot(b, c, n), s + sc - n), *of_c),
            stated(dot(c, both, n), pairwise(each, dot(c, a, n), dot(c, b, n), s + sc - n), *of_c),
            *(
                stated(of(both, c, s), pairwise(each, of(a, c, s), of(b, c, s), s), *sides, s == split(c), where(c))
                for of, where in ((times, unwidened), (over, is_real))
            ),
            stated(op.reduce_sum(both), pairwise(each, op.reduce_sum(a), op.reduce_sum(b), s), *sides, unwidened(a)),
        ]
    return found


@equation(
    FAMILY,
    example(op.subtract(op.product(_X, _Y, 2))),
    example(dot(op.negative(A), B, 1)),
    example(op.negative(op.negative(_X))),
    example(over(_X, _Y, 2)),
    example(op.compute("reduce-mean", A)),
)
def signs_quotients_and_means_are_factors(a: V, b: V, n: V, d: V, s: V) -> Clauses:
    """a - b = a + (-b), dot(-a, b) = -dot(a, b), -(-a) = a, a / b = a * (1 / b), mean(a) = sum(a) / count.

    Sound because -a is -1 times a, and a quotient of reals is the product with the reciprocal.
    """
    one = op.full(vec(), "1", "float32")
    count = op.reduce_sum(op.full(d.drop(s), "1", "float32"))
    return (
        stated(op.subtract(op.product(a, b, n)), plus(a, op.negative(b), n), n == split(a), n == split(b)),
        stated(dot(op.negative(a), b, n), op.negative(dot(a, b, n)), unwidened(a)),
        stated(op.negative(op.negative(a)), a),
        stated(over(a, b, n), times(a, over(one, b, 0), n), n == split(a), d == dims(b), n == d.length, is_real(a)),
        stated(op.compute("reduce-mean", a), over(op.reduce_sum(a), count, 0), d == dims(a), s == split(a), is_real(a)),
    )


@equation(
    FAMILY,
    example(op.concatenate(dot(A, B, 1), dot(A, operand("c", "2 6 4", 2), 1), 2)),
    example(op.concatenate(dot(A, B, 1), dot(operand("c", "2 6 4", 2), B, 1), 1)),
    *(
        example(op.slice(dot(A, op.concatenate(B, operand("c", "2 6 4", 2), 1), 1), 2, low, high))
        for low, high in ((0, 5), (5, 11))
    ),
    *(
        example(op.slice(dot(op.concatenate(B, operand("c", "2 6 4", 2), 1), A, 1), 1, low, high))
        for low, high in ((0, 5), (5, 11))
    ),
)
def products_that_share_an_operand_are_one(a: V, b: V, c: V, n: V, x: V, y: V, lo: V, hi: V) -> Clauses:
    """concatenate(dot(a, b), dot(a, c)) = dot(a, concatenate(b, c)), and on the left; the parts are slices of it.

    Sound because each element of a product is computed from one row of each operand, and the rows of a concatenation
    are those of its parts.
    """
    sa, sb, db, dc = variables("sa sb db dc")
    columns = dot(a, op.concatenate(b, c, y), n)
    rows = dot(op.concatenate(b, c, y), a, n)
    own = (sa == split(a), sb == split(b), db == dims(b), y >= n, y < sb)
    ends = (lo == 0, hi == db[y]), (lo == db[y], dc == dims(c), hi == db[y] + dc[y])
    return (
        stated(
            op.concatenate(dot(a, b, n), dot(a, c, n), x),
            dot(a, op.concatenate(b, c, y), n),
            *(sa == split(a), sb == split(b), x >= sa, y == x + n - sa),
        ),
        stated(
            op.concatenate(dot(b, a, n), dot(c, a, n), x),
            dot(op.concatenate(b, c, x), a, n),
            sb == split(b),
            x >= n,
            x < sb,
        ),
        *(
            stated(op.slice(columns, x, lo, hi), dot(a, part, n), own, x == y + sa - n, ends[k])
            for k, part in enumerate((b, c))
        ),
        *(stated(op.slice(rows, y, lo, hi), dot(part, a, n), own, ends[k]) for k, part in enumerate((b, c))),
    )


def _stacked(a: Any, x: Any, sizes: Any, order: Any) -> Any:
    """Returns the consecutive parts of an array along axis x, one above the other: `sizes` has it as two axes."""
    return op.transpose(op.reshape(a, sizes, vec()), order)


def _whole(name: str, sizes: str) -> Term:
    return operand(name, sizes, len(sizes.split()))


_STEPS, _STACK, _MORE = _whole("a", "2 3 4"), _whole("a", "3 2 4"), _whole("b", "1 2 4")


def _flat(a: Term, *sizes: int) -> Term:
    found: Term = op.reshape(a, (Dims(sizes), Dims(())))
    return found


@equation(
    FAMILY,
    example(op.concatenate(op.slice(A, 1, 0, 1), op.slice(A, 1, 1, 3), 1)),
    example(op.insert_axis(op.slice(_STEPS, 1, 1, 3), 0)),
    example(
        op.concatenate(
            op.transpose(_flat(op.slice(_STEPS, 1, 0, 2), 2, 2, 1, 4), Dims((1, 0, 2, 3))),
            op.insert_axis(op.slice(_STEPS, 1, 2, 3), 0),
            0,
        )
    ),
    example(op.concatenate(op.transpose(_STACK, Dims((0, 2, 1))), op.transpose(_MORE, Dims((0, 2, 1))), 0)),
    example(op.concatenate(_flat(_STACK, 3, 1, 2, 4), _flat(_MORE, 1, 1, 2, 4), 0)),
    example(op.concatenate(_flat(_whole("a", "3 4 2"), 3, 2, 2, 2), _flat(_whole("b", "1 4 2"), 1, 2, 2, 2), 0)),
)
def consecutive_slices_are_one(a: V, b: V, x: V, lo: V, mid: V, hi: V, d: V, e: V, s: V, t: V) -> Clauses:
    """concatenate(slice(a), slice(a)) = slice(a); slices one above the other are the parts of one slice, and the same
    transposes and reshapes of each are one transpose and reshape of all.

    Sound because element i of part number k of a slice is its element k width + i; what is done alike to each part
    leaves its number alone.
    """
    p, sa, sb = variables("p sa sb")
    order = vec(x).append(vec_range(x)).append(block(x + 1, d.length + 1))
    one = op.slice(a, x, lo, hi)
    base = (d == dims(a), sa == split(a), sa == d.length)

    def sizes(count: Any, width: Any) -> Any:
        return d.take(x).append(vec(count, width)).append(d.drop(x + 1))

    def next_split(dims: V) -> Any:
        return dims.take(x + 1).append(vec(s[x + 1], s[x + 2])).append(dims.drop(x + 2))

    above = op.concatenate(_stacked(op.slice(a, x, lo, mid), x, s, p), op.insert_axis(op.slice(a, x, mid, hi), 0), 0)
    others = (d.take(x) == e.take(x), d.drop(x + 1) == e.drop(x + 1))
    both = (*base, e == dims(b), sb == split(b), sb == e.length, *others)
    return (
        stated(op.concatenate(op.slice(a, x, lo, mid), op.slice(a, x, mid, hi), x), op.slice(a, x, lo, hi)),
        stated(op.insert_axis(one, 0), _stacked(one, x, sizes(1, hi - lo), order), *base),
        stated(
            above,
            _stacked(one, x, sizes(s[x] + 1, hi - mid), order),
            *(*base, s == sizes(s[x], hi - mid), p == order),
        ),
        stated(op.concatenate(op.transpose(a, p), op.transpose(b, p), x), op.transpose(op.concatenate(a, b, p[x]), p)),
        stated(
            op.concatenate(op.reshape(a, s, vec()), op.reshape(b, t, vec()), x),
            op.reshape(op.concatenate(a, b, x), sizes(s[x] + t[x], s[x + 1]), vec()),
            *(*both, s == sizes(s[x], s[x + 1]), t == sizes(t[x], s[x + 1])),
            *(d[x] == s[x] * s[x + 1], e[x] == t[x] * s[x + 1]),
        ),
        stated(
            op.concatenate(op.reshape(a, s, vec()), op.reshape(b, t, vec()), x),
            op.reshape(op.concatenate(a, b, x), s.take(x).append(vec(s[x] + t[x])).append(s.drop(x + 1)), vec()),
            *(*both, s == next_split(d), t == next_split(e), d[x + 1] == s[x + 1] * s[x + 2]),
        ),
    )


@equation(
    FAMILY,
    example(dot(op.concatenate(A, _E, 2), op.concatenate(B, operand("d", "2 5 4", 2), 2), 1)),
    example(dot(op.concatenate(A, _E, 2), operand("b", "2 5 8", 2), 1)),
    example(dot(op.pad(A, "zero-padding", 2, 1, 2), operand("b", "2 5 7", 2), 1)),
    example(dot(op.slice(A, 2, 1, 3), operand("b", "2 5 2", 2), 1)),
    example(dot(op.access(op.squeeze(op.windows(A, Dims((1,)), Dims((3,))), 3), 2), operand("b", "2 5 2", 2), 1)),
)
def depth_is_split(a: V, b: V, c: V, d: V, n: V, x: V, y: V, sa: V, sb: V) -> Clauses:
    """dot([a c], [b d]) = dot(a, b) + dot(c, d), and [a c] with slices of the other operand; zeros in the depth of one
    operand are a slice of the other; a slice, and every t-th element, are zeros in the other operand: weights of a
    smaller window are padded, and those of a dilated window have zeros between them.

    Sound because a sum over two ranges is the sum of the sums over each, and products with zero are zero.
    """
    lo, hi, before, after, da, db, t, one = variables("lo hi before after da db t one")
    alike = (sa == split(a), sb == split(b), x >= sa, y == x + sb - sa, da == dims(a), db == dims(b))
    s = sa + sb - n
    parts = dot(a, op.slice(b, y, 0, da[x]), n), dot(c, op.slice(b, y, da[x], db[y]), n)
    return (
        stated(
            dot(op.concatenate(a, c, x), op.concatenate(b, d, y), n),
            plus(dot(a, b, n), dot(c, d, n), s),
            *(*alike, da[x] == db[y]),
        ),
        stated(dot(op.concatenate(a, c, x), b, n), plus(*parts, s), *alike),
        stated(
            dot(op.pad(a, "zero-padding", x, before, after), b, n),
            dot(a, op.slice(b, y, before, before + da[x]), n),
            *alike,
        ),
        stated(
            dot(op.slice(a, x, lo, hi), b, n),
            dot(a, op.pad(b, "zero-padding", y, lo, da[x] - hi), n),
            *alike,
        ),
        stated(
            dot(op.access(op.squeeze(op.windows(a, one, t), x), sa), b, n),
            dot(a, op.pad(op.dilate(b, sb, t[0] - 1), "zero-padding", sb, 0, da[sa] - 1 - (db[sb] - 1) * t[0]), n),
            *(sa == split(a), sb == split(b), da == dims(a), db == dims(b), one == vec(1), x == sa + 1),
        ),
    )
