"""Moves rearrangements up through elementwise computations."""

from __future__ import annotations

from typing import Any

from glenside.rewrites import examples as ex
from glenside.rewrites import operators as op
from glenside.rewrites.declare import ROOT, Clauses, Example, V, analysis, rewrite, rule, union, when
from glenside.rewrites.facts import ACCESS, INT, INTS, TEXT, category, dims, relation, split
from glenside.rewrites.layout import rearranging
from glenside.rewrites.layout.layout import ANYWHERE, BOXES, CORE, FAMILY, ITEM, OURS, RANK4, SHAPE, TURNED, TYPED
from glenside.rewrites.terms import rearranged, under, variables, vec, whole

whole_pair = relation("whole-pair", pairs=ACCESS, kind=TEXT, a=ACCESS, b=ACCESS)
# An operand of a pair, the tensor that it rearranges, with its dims and size, and the inverse rearrangement.
in_pair = relation("in-pair", operand=ACCESS)
moved_in_pair = relation(
    "moved-in-pair",
    operand=ACCESS, b=ACCESS, parts=INTS, order=INTS, dims=INTS, size=INT, own=INTS, back_parts=INTS, back_order=INTS
)  # fmt: skip


@rule(
    FAMILY,
    Example(f"(compute relu {TURNED})", RANK4),
    Example(f"(cast {TURNED} float64)", RANK4),
    Example(f'(opaque-pointwise "f" {TURNED} int8 {ANYWHERE})', RANK4),
    *(
        Example(f'(opaque-{seen} "f" {TURNED} int8 (list $m $k $l $n) (list 3 1))', RANK4)
        for seen in ("pointwise", "items")
    ),
)
def rearrangement_leaves_pointwise(b: V, p: V, o: V, s: V, i: V, f: V, t: V, u: V, v: V) -> Clauses:
    """f(rearrange(b)) = rearrange(f(b)), for pointwise f and for casts, and for an f of items in any layout.

    Sound because each element is computed by itself; only its position differs, and an f that names axes gets their new
    numbers.
    """
    moved = op.rearrange(b, p, o, s, i)
    parts, axes = variables("parts axes")
    return (
        rewrite(op.compute(f, moved), rearranged(op.compute(f, b), p, o, s, i), OURS, category(f, "pointwise")),
        rewrite(op.cast(moved, t), rearranged(op.cast(b, t), p, o, s, i), OURS),
        *(
            rewrite(
                box(f, moved, t, u, v),
                rearranged(box(f, b, t, parts, axes), p, o, s, i),
                *(OURS, rearranging.places_before.facts(p, o, u, v, parts=parts, axes=axes)),
            )
            for box in BOXES
        ),
    )


_PAIRS = (
    Example(ex.pairs("subtract", TURNED, "(access-tensor y)"), {"x": "m n k l", "y": "m k l n"}),
    Example(ex.pairs("subtract", "(access-tensor y)", TURNED), {"x": "m n k l", "y": "m k l n"}),
)


@analysis(CORE, *_PAIRS)
def pairs_of_whole_tensors_are_known(f: V, x: V, y: V, c: V, b: V, p: V, o: V, s: V, i: V, d: V) -> Clauses:
    """Finds functions of two whole tensors, and each tensor that is a rearrangement: once, not once per pair.

    An analysis: it adds no e-node. Sound because it only reads facts that hold.
    """
    size, own, parts, order = variables("size own parts order")
    pair = (OURS, ROOT == op.compute(f, op.product(x, y, 0)), category(f, "fold"), split(x) == 0, split(y) == 0)
    return (
        when(pair).then(whole_pair(ROOT, f, x, y), in_pair(x), in_pair(y)),
        when(
            *(in_pair(c), c == op.rearrange(b, p, o, s, i), d == dims(c), own == dims(b), size == own.product()),
            rearranging.undone.facts(p, o, parts=parts, order=order),
        ).then(moved_in_pair(c, b, p, o, d, size, own, parts, order)),
    )


@rule(CORE, *_PAIRS)
def rearrangement_leaves_pair(f: V, y: V, c: V, b: V, p: V, o: V, d: V, own: V, parts: V, order: V) -> Clauses:
    """f(rearrange(b) x y) = rearrange(f(b x rearrange'(y))), with the inverse rearrange', for an f of two whole
    tensors.

    Sound because f combines elements at the same position, and both operands are moved equally.
    """
    (size,) = variables("size")
    alike, other = whole(b, size, own), rearranged(y, parts, order, vec(), own)

    def moved_out(left: V, right: V, *operands: V) -> Clauses:
        found = (whole_pair(ROOT, f, left, right), moved_in_pair(c, b, p, o, d, size, own, parts, order))
        pairs = op.compute(f, op.product(*operands, 0))
        return when(found).then(union(ROOT, rearranged(pairs, p, o, vec(), d)))

    return moved_out(c, y, alike, other), moved_out(y, c, other, alike)


_T = "(access-tensor x)"


@rule(
    FAMILY,
    *(
        Example(computed, {"x": "m n"})
        for computed in (
            *(f"(compute relu {_T})", f"(cast {_T} int8)", f'(opaque-pointwise "f" {_T} int8 {ANYWHERE})'),
            f'(opaque-pointwise "f" {_T} int8 (list $m $n) (list 1))',
            f'(opaque-items "f" {_T} int8 (list $m $n) (list 1))',
        )
    ),
    Example(ex.pairs("subtract", _T, "(access-tensor y)"), {"x": "m n", "y": "m n"}),
)
def elements_are_computed_along_one_axis(f: V, t: V, x: V, y: V, d: V, size: V, u: V, v: V) -> Clauses:
    """f(x) under any dims = f(flat(x)) under those, for pointwise f and for an f of two whole tensors.

    So the layout that the program says is computed as all others are, along one axis. Sound because each element is
    computed by itself.
    """

    def flat(operand: V) -> Any:
        return whole(operand, size, vec(size))

    def along_one_axis(computed: V, *facts: Any) -> Clauses:
        several = (d == dims(ROOT), d.length > 1, size == d.product(), size > 0)
        return when(OURS, facts, several, TYPED).then(union(ROOT, under(computed, size, SHAPE, ITEM)))

    return (
        along_one_axis(op.compute(f, flat(x)), ROOT == op.compute(f, x), category(f, "pointwise")),
        along_one_axis(op.cast(flat(x), t), ROOT == op.cast(x, t)),
        *(along_one_axis(box(f, flat(x), t, u, v), ROOT == box(f, x, t, u, v)) for box in BOXES),
        along_one_axis(
            op.compute(f, op.product(flat(x), flat(y), 0)),
            *(ROOT == op.compute(f, op.product(x, y, 0)), category(f, "fold"), split(x) == 0, split(y) == 0),
        ),
    )
