"""Movement leaves a product and its dot-product: slices, concatenations, pads, reshapes, transposes.

Axes of access-product(a, b, n): the n shared ones, the rest of a's shape, the rest of b's shape, the tuple axis, the
item. Nothing here may touch the tuple axis: dot-product multiplies along it.
"""

from __future__ import annotations

from typing import Any

from glenside.rewrites import examples as ex
from glenside.rewrites import operators as op
from glenside.rewrites.declare import ROOT, Clauses, Example, Facts, V, rewrite, rule, union, when
from glenside.rewrites.facts import ACCESS, INT, INTS, dims, relation, source, split
from glenside.rewrites.movement.algebra import tiled
from glenside.rewrites.terms import dot, padded, sided, variables, vec, vec_range

FAMILY = "through-products"
# The few candidates first: joining them with the tables of shapes at once is much slower.
reshaped_product = relation(
    "reshaped-product", product=ACCESS, a=ACCESS, shape=INTS, item=INTS, b=ACCESS, shape_b=INTS, shared=INT
)
left_transposed_product = relation("left-transposed-product", product=ACCESS, a=ACCESS, order=INTS, b=ACCESS, n=INT)
right_transposed_product = relation("right-transposed-product", product=ACCESS, a=ACCESS, b=ACCESS, order=INTS, n=INT)
transposed_product = relation(
    "transposed-product", product=ACCESS, a=ACCESS, order_a=INTS, b=ACCESS, order_b=INTS, n=INT
)

_A, _B = ex.access("a", 2), ex.access("b", 2)
_SHAPES = {"a": "g m k", "b": "g n k"}


def _product(a: str, b: str, n: int = 1) -> str:
    return f"(access-product {a} {b} {n})"


def _alike(a: V, b: V, x: V, y: V, n: V) -> tuple[tuple[Facts, V], ...]:
    """Matches axes x of a and y of b, of one size, that are one axis of a x b, and that axis: an item axis or a shared
    one.
    """
    da, sa, db, sb = variables("da sa db sb")
    one_size = (da == dims(a), db == dims(b), da[x] == db[y])
    return (
        ((sa == split(a), sb == split(b), x >= sa, x - sa == y - sb, one_size), (x + 1) + (sb - n)),
        ((x == y, x < n, one_size), x),
    )


@rule(
    FAMILY,
    Example(_product(f"(access-concatenate {_A} {_A} 1)", _B), _SHAPES),
    Example(_product(_A, f"(access-concatenate {_B} {_B} 1)"), _SHAPES),
    Example(_product(f"(access-concatenate {_A} {_A} 2)", f"(access-concatenate {_B} {_B} 2)"), _SHAPES),
    Example(_product(f"(access-concatenate {_A} {_A} 0)", f"(access-concatenate {_B} {_B} 0)"), _SHAPES),
)
def concatenate_leaves_product(a: V, b: V, c: V, d: V, n: V, x: V, y: V, sa: V, sb: V) -> Clauses:
    """concatenate(a, c) x b = concatenate(a x b, c x b), and likewise on the right, on the item and on shared axes.

    Sound because a product pairs every item of one side with every item of the other, so a part of one side gives a
    part of the result. Item and shared axes must be cut at the same index on both sides.
    """
    return (
        rewrite(
            op.product(op.concatenate(a, c, x), b, n),
            op.concatenate(op.product(a, b, n), op.product(c, b, n), x),
            *(sa == split(a), x >= n, x < sa),
        ),
        rewrite(
            op.product(a, op.concatenate(b, c, y), n),
            op.concatenate(op.product(a, b, n), op.product(a, c, n), y + (sa - n)),
            *(sa == split(a), sb == split(b), y >= n, y < sb),
        ),
        *(
            rewrite(
                op.product(op.concatenate(a, c, x), op.concatenate(b, d, y), n),
                op.concatenate(op.product(a, b, n), op.product(c, d, n), axis),
                alike,
            )
            for alike, axis in _alike(a, b, x, y, n)
        ),
    )


def _dot(p: str) -> str:
    return f"(compute dot-product {p})"


_P = _product(_A, _B)


@rule(
    FAMILY,
    Example(_dot(f"(access-concatenate {_P} {_P} 1)"), _SHAPES),
    Example(_dot(f"(access-concatenate {_P} {_P} 4)"), _SHAPES),
)
def concatenate_leaves_dot_product(p: V, q: V, x: V, s: V) -> Clauses:
    """dot(concatenate(p, q, shape axis)) = concatenate(dot p, dot q); along the depth it is dot(p) + dot(q).

    Sound because each item is contracted by itself, and a sum over a depth of two parts is the sum of their sums.
    Not on the tuple axis: there a concatenation is a product of parts, not a sum.
    """
    whole = op.concatenate(p, q, x)
    return (
        when(ROOT == op.dot_product(whole), s == split(p), x < s).then(
            union(ROOT, op.concatenate(op.dot_product(p), op.dot_product(q), x)), tiled(ROOT)
        ),
        rewrite(
            op.dot_product(whole),
            op.elementwise_add(op.product(op.dot_product(p), op.dot_product(q), s)),
            *(s == split(p), x > s),
        ),
    )


@rule(
    FAMILY,
    Example(_product(f"(access-slice {_A} 1 1 3)", _B), {"a": "g 5 k", "b": "g n k"}),
    Example(_product(_A, f"(access-slice {_B} 1 1 3)"), {"a": "g m k", "b": "g 5 k"}),
    Example(_product(f"(access-slice {_A} 2 1 3)", f"(access-slice {_B} 2 1 3)"), {"a": "g m 5", "b": "g n 5"}),
    Example(_product(f"(access-slice {_A} 0 1 3)", f"(access-slice {_B} 0 1 3)"), {"a": "4 m k", "b": "4 n k"}),
    Example(_product(f"(access-slice (access-pad {_A} zero-padding 1 0 2) 1 0 4)", _B), {"a": "g 4 k", "b": "g n k"}),
    Example(_product(_A, f"(access-slice (access-pad {_B} zero-padding 1 0 2) 1 0 4)"), {"a": "g m k", "b": "g 4 k"}),
)
def slice_leaves_product(a: V, b: V, c: V, n: V, x: V, y: V, lo: V, hi: V, sa: V, sb: V) -> Clauses:
    """slice(a) x b = slice(a x b) on an axis of a's own shape; likewise on the right, on the item and on shared axes.

    Only where a pad is cut back to its size (the slice begins at 0) or the program itself has the slice: the slices
    that make tiles must stay on the operands. Sound because a part of one side gives a part of the product; items
    and shared axes must be cut alike on both sides.
    """
    kind, before, after = variables("kind before after")
    left, right = op.slice(a, x, lo, hi), op.slice(b, y, lo, hi)
    shapes = (sa == split(a), sb == split(b))

    def sliced(axis: V) -> Any:
        return op.slice(op.product(a, b, n), axis, lo, hi)

    def of_one_side(of_left: Facts, of_right: Facts) -> tuple[Clauses, ...]:
        return (
            rewrite(op.product(left, b, n), sliced(x), of_left, shapes, x >= n, x < sa),
            rewrite(op.product(a, right, n), sliced(y + (sa - n)), of_right, shapes, y >= n, y < sb),
        )

    return (
        *of_one_side(a == op.pad(c, kind, x, before, after), b == op.pad(c, kind, y, before, after)),
        *of_one_side((source(ROOT), source(a)), (source(ROOT), source(b))),
        *(
            rewrite(op.product(left, right, n), sliced(axis), source(ROOT), source(a), source(b), alike)
            for alike, axis in _alike(a, b, x, y, n)
        ),
    )


@rule(FAMILY, Example(_dot(f"(access-slice {_P} 1 1 3)"), {"a": "g 5 k", "b": "g n k"}))
def slice_leaves_dot_product(p: V, x: V, lo: V, hi: V, s: V) -> Clauses:
    """dot(slice(p, shape axis)) = slice(dot(p), shape axis).

    Sound because each item is contracted by itself. Not on the depth (it drops terms of the sum) and not on the tuple
    axis (it drops a factor).
    """
    return rewrite(op.dot_product(op.slice(p, x, lo, hi)), op.slice(op.dot_product(p), x, lo, hi), s == split(p), x < s)


@rule(
    FAMILY,
    Example(f"(access-pad {_P} zero-padding 4 1 2)", _SHAPES),
    Example(f"(compute dot-product {_product(f'(access-pad {_A} zero-padding 1 2 1)', _B)})", _SHAPES),
    Example(f"(compute dot-product {_product(_A, f'(access-pad {_B} zero-padding 1 2 1)')})", _SHAPES),
)
def pad_crosses_product(a: V, b: V, n: V, x: V, before: V, after: V, sa: V, sb: V) -> Clauses:
    """pad(a x b, item axis) = pad(a) x pad(b); and dot(pad(a, shape axis) x b) = pad(dot(a x b)).

    Sound because the product pairs items element by element, so both halves of a pair are padded; and because an
    item of zeros gives 0 with every other item, as the pad does. The tuple axis is left alone.
    """

    def pad(z: V, axis: V) -> Any:
        return padded(z, axis, after, before)

    shapes = (sa == split(a), sb == split(b))
    return (
        rewrite(
            pad(op.product(a, b, n), x),
            op.product(pad(a, (x - 1) - (sb - n)), pad(b, (x - 1) - (sa - n)), n),
            *(shapes, x > (sa + sb) - n),
        ),
        rewrite(dot(pad(a, x), b, n), pad(dot(a, b, n), x), source(ROOT), source(a), sa == split(a), x >= n, x < sa),
        rewrite(dot(a, pad(b, x), n), pad(dot(a, b, n), x + (sa - n)), source(ROOT), source(b), shapes, x >= n, x < sb),
    )


_TWO_SHARED = ex.reshaped(_A, "2 3 $m", "$k"), ex.reshaped(_B, "2 3 $n", "$k")


@rule(
    FAMILY,
    Example(_product(ex.reshaped(_A, "$g 1 $m", "$k"), ex.reshaped(_B, "$g $n 1", "$k")), _SHAPES),
    Example(_product(*_TWO_SHARED, 2), {"a": "6 m k", "b": "6 n k"}),
)
def reshape_leaves_product(a: V, s: V, i: V, b: V, t: V, n: V, rest: V, g: V) -> Clauses:
    """reshape(a) x reshape(b) = reshape(a x b), when both sides regroup the item and the shared axes alike.

    Sound because reshape keeps row-major order: the result's shape is (shared, rows of a, rows of b) in both orders of
    doing it, and both halves of a pair are regrouped in the same way behind the tuple axis.
    """
    da, sa, db, sb = variables("da sa db sb")
    item_a, item_b, shared_s, shared_t, shared_a, shared_b = variables("ia ib sn tn an bn")
    candidate = (
        *(reshaped_product(ROOT, a, s, i, b, t, n), sided(a, da, sa), sided(b, db, sb)),
        *(item_a == da.drop(sa), item_b == db.drop(sb), item_a == item_b),
        *(shared_s == s.take(n), shared_t == t.take(n), shared_s == shared_t, rest == t.drop(n)),
    )
    axes_stay = (
        *(shared_a == da.take(n), shared_a == shared_s, shared_b == db.take(n), shared_b == shared_s),
        *(sa >= n, sb >= n),
    )
    first_axis_is_cut = (n > 0, sa > 0, sb > 0, g == shared_s.product(), g == da[0], g == db[0])

    def regrouped(shared: V | int) -> Any:
        return op.reshape(op.product(a, b, shared), s.append(rest), vec(2).append(i))

    return (
        when(ROOT == op.product(op.reshape(a, s, i), op.reshape(b, t, i), n)).then(
            reshaped_product(ROOT, a, s, i, b, t, n)
        ),
        when(candidate, axes_stay).then(union(ROOT, regrouped(n))),
        when(candidate, first_axis_is_cut).then(union(ROOT, regrouped(1))),
    )


_PAIRS = _product(ex.access("a", 1), ex.access("b", 1))


@rule(FAMILY, Example(_dot(ex.reshaped(_PAIRS, "1 $g", "2 1 12")), {"a": "g 3 4", "b": "g 3 4"}))
def reshape_leaves_dot_product(p: V, s: V, i: V, dp: V, sp: V) -> Clauses:
    """dot(reshape(p; (S)(2, I))) = reshape(dot(p); (S)()), if the reshape keeps the tuple axis first.

    Sound because the first item axis keeps its size and its position, so the same pairs are multiplied, and the order
    of a sum does not matter. A reshape that merges the tuple axis into the item changes the meaning and does not match.
    The tuple axis must not be empty: an empty product is 1, and the number of such terms in the sum would change.
    """
    return rewrite(
        op.dot_product(op.reshape(p, s, i)),
        op.reshape(op.dot_product(p), s, vec()),
        *(dp == dims(p), sp == split(p), sp < dp.length, i.length > 0, dp[sp] == i[0], i[0] > 0),
    )


# Of the operands: dims, split and rank of each, and the axes of their product.
_DA, _SA, _DB, _SB, _RA, _RB, _AXES = variables("da sa db sb ra rb axes")


def _operands(a: V, b: V, n: V) -> Facts:
    return (
        *(sided(a, _DA, _SA), sided(b, _DB, _SB)),
        *(_RA == _DA.length, _RB == _DB.length, _AXES == vec_range((_RA + (_SB - n)) + 1)),
    )


def _own_axes_move(a: V, b: V, p: V, n: V) -> Clauses:
    """transpose(a) x b, and a x transpose(b), where p permutes neither shared axes nor the item."""
    shape, item, axes, unmoved, shared, first = variables("ps pi range keep pn front")
    own, by, moved, before, behind, rest = variables("own by moved before after rest")

    def moves_shape_only(s: V, rank: V) -> Facts:
        return (
            *(shape == p.take(s), item == p.drop(s), axes == vec_range(rank), unmoved == axes.drop(s), item == unmoved),
            *(shared == p.take(n), first == vec_range(n), shared == first),
        )

    return (
        when(
            *(left_transposed_product(ROOT, a, p, b, n), _operands(a, b, n), moves_shape_only(_SA, _RA)),
            rest == _AXES.drop(_SA),
        ).then(union(ROOT, op.transpose(op.product(a, b, n), shape.append(rest)))),
        when(
            *(right_transposed_product(ROOT, a, b, p, n), _operands(a, b, n), moves_shape_only(_SB, _RB)),
            *(own == shape.drop(n), by == _SA - n, moved == own.shift(by), before == _AXES.take(_SA)),
            *(behind == _SA + (_SB - n), rest == _AXES.drop(behind)),
        ).then(union(ROOT, op.transpose(op.product(a, b, n), before.append(moved, rest)))),
    )


def _items_move(a: V, b: V, p: V, q: V, n: V) -> Clauses:
    """transpose(a) x transpose(b), where both permute the axes of the item equally, and no other."""
    shape_p, shape_q, first_p, first_q, item_p, item_q = variables("ps qs sr tr pi qi")
    back_p, back_q, order_p, order_q, at, moved, before = variables("back forth order other at moved before")
    return when(
        *(transposed_product(ROOT, a, p, b, q, n), _operands(a, b, n)),
        *(shape_p == p.take(_SA), first_p == vec_range(_SA), shape_p == first_p),
        *(shape_q == q.take(_SB), first_q == vec_range(_SB), shape_q == first_q),
        *(item_p == p.drop(_SA), back_p == 0 - _SA, order_p == item_p.shift(back_p)),
        *(item_q == q.drop(_SB), back_q == 0 - _SB, order_q == item_q.shift(back_q), order_p == order_q),
        *(at == (_SA + (_SB - n)) + 1, moved == order_p.shift(at), before == _AXES.take(at)),
    ).then(union(ROOT, op.transpose(op.product(a, b, n), before.append(moved))))


_ROWS_TURNED = f"(access-transpose {ex.access('a', 3)} (list 0 2 1 3))"
_ITEM_TURNED = "(access-transpose {0} (list 0 1 3 2))"


@rule(
    FAMILY,
    Example(_product(_ROWS_TURNED, _B), {"a": "g m n k", "b": "g o k"}),
    Example(_product(_B, _ROWS_TURNED), {"a": "g m n k", "b": "g o k"}),
    Example(_product(_ITEM_TURNED.format(_A), _ITEM_TURNED.format(_B)), {"a": "g m k l", "b": "g n k l"}),
)
def transpose_leaves_product(a: V, b: V, p: V, q: V, n: V) -> Clauses:
    """transpose(a) x b = transpose(a x b), for axes of one side's own shape, or of the item when both sides agree.

    Only where the program itself has the transpose. Sound because the pairs are the same and only their order among the
    result's axes differs; shared axes stay in front, shape and item axes do not mix, the tuple axis does not move.
    """
    left, right = op.transpose(a, p), op.transpose(b, p)
    return (
        when(ROOT == op.product(left, b, n), source(ROOT), source(a)).then(left_transposed_product(ROOT, a, p, b, n)),
        when(ROOT == op.product(a, right, n), source(ROOT), source(b)).then(right_transposed_product(ROOT, a, b, p, n)),
        when(ROOT == op.product(left, op.transpose(b, q), n), source(ROOT), source(a), source(b)).then(
            transposed_product(ROOT, a, p, b, q, n)
        ),
        _own_axes_move(a, b, p, n),
        _items_move(a, b, p, q, n),
    )


@rule(
    FAMILY,
    Example(_dot(f"(access-transpose {_P} (list 2 0 1 3 4))"), _SHAPES),
    Example(_dot("(access-transpose (access (access-tensor p) 2) (list 1 0 2 4 3))"), {"p": "m n 2 k l"}),
)
def transpose_leaves_dot_product(p: V, order: V, sp: V, shape: V, top: V) -> Clauses:
    """dot(transpose(p)) = transpose(dot(p)), if shape and item axes do not mix and the tuple axis stays first.

    Sound because the same pairs are multiplied and summed for each index of the shape; the order of a sum does not
    matter.
    """
    return rewrite(
        op.dot_product(op.transpose(p, order)),
        op.transpose(op.dot_product(p), shape),
        *(sp == split(p), order.length > sp, order[sp] == sp),
        *(shape == order.take(sp), top == shape.highest(), top < sp),
    )
