"""Crossed groups: several products with few rows and columns are computed as one, whose diagonal blocks are kept.

A product of groups with few results each does not fill a matrix unit: the weight gradient of a depthwise convolution
has one row, the elements of a filter as columns for each channel, and all pixels as its depth. If p groups are stacked
on both sides, a tile computes p x p blocks at once, and the p blocks on the diagonal are the results: p times as many,
in as many tiles of depth as one group has. Packing (`matrices`) is the opposite: p times the depth, and no more
results.

Crossing is a step of a plan instead of packing, for products as they are written. It leaves ceil(g/p) groups of (m
p)(k) and (o p)(k). It reduces the depth of all groups, which no other step does, so its lower bound uses that of one
group. Its plan is (1, p, 2), or (1, p, 3) with swapped operands.
"""

from __future__ import annotations

from typing import Any

from glenside.rewrites import operators as op
from glenside.rewrites.declare import ROOT, Clauses, Example, V, analysis, let, rule, set_, union, when
from glenside.rewrites.facts import ACCESS, INT, access_at, relation
from glenside.rewrites.mapping import matrices
from glenside.rewrites.mapping.mapping_search import (
    EXAMPLE_PARAMETERS,
    SEARCHED,
    SIZES,
    a_candidate,
    cheapest,
    is_promising,
    left_of,
    matrix_plan,
    next_factor,
    product_of,
)
from glenside.rewrites.parameters import price
from glenside.rewrites.terms import ceil_div, dot, padded, reshaped, transposed, vec

FAMILY, ANALYSES = "crossed-mapping", "crossed-mapping-analyses"
cross_factor = relation("cross-factor", product=ACCESS, p=INT)
want_cross = relation("want-cross", product=ACCESS, p=INT)
cross_of = relation("cross-of", product=ACCESS, p=INT, crossed=ACCESS)

_MATRICES = "(compute dot-product (access-product (access (access-tensor x) 2) (access (access-tensor w) 2) 1))"
_FEW = Example(
    _MATRICES,
    {"x": "7 1 9", "w": "7 2 9"},
    [
        product_of(matrices.PRODUCT, access_at("x2"), 7, 1, 9, 2),
        matrix_plan(matrices.PRODUCT, 1, 2, 2, vec(1, 2, 2)),
        cross_of(matrices.PRODUCT, 2, matrices.PRODUCT),
    ],
    EXAMPLE_PARAMETERS,
)


@analysis(ANALYSES, _FEW)
def crossed_groups_are_known(
    a: V, p: V, left: V, cost: V, weights: V, p_rows: V, p_columns: V, s: V, plan: V, larger: V
) -> Clauses:
    """Finds products whose groups may be crossed by p, their cost, and the next step of such a plan.

    An analysis: it adds no e-node. Sound because it only reads sizes and adds demands.
    """
    g, m, k, o = SIZES
    factor, own = cross_factor(ROOT, p), (p_rows == m * p, p_columns == o * p)
    promising = is_promising((g * k) * (m * p_columns), k, (g * m) * p_columns, (g * k) * o)

    def priced(swapped: int, sides: tuple[V, V, V, V]) -> Clauses:
        where = (factor, SEARCHED, left_of(left, g, p), own, weights == (left * k) * p_columns)
        return a_candidate(where, 2 + swapped, sides, weights, vec(1, p, 2 + swapped))

    return (
        when(product_of(ROOT, a, g, m, k, o), g > 1, cost == price(g, m, k, o)).then(
            set_(cheapest(ROOT), cost), cross_factor(ROOT, 2)
        ),
        when(factor, SEARCHED, left_of(left, g, p), left > 1, own, promising).then(
            cross_factor(ROOT, next_factor(g, left))
        ),
        priced(0, (left, p_rows, k, p_columns)),
        priced(1, (left, p_columns, k, p_rows)),
        when(matrix_plan(ROOT, 1, p, s, plan), s > 1).then(want_cross(ROOT, p)),
        when(matrix_plan(ROOT, 1, p, s, plan), s > 1, cross_of(ROOT, p, larger)).then(
            matrix_plan(larger, 1, 1, s - 2, plan)
        ),
    )


@rule(
    FAMILY,
    matrices.of_matrices(5, 2, 3, 4, want_cross(matrices.PRODUCT, 2)),
    matrices.of_matrices(3, 1, 4, 2, want_cross(matrices.PRODUCT, 3)),
)
def groups_are_crossed(a: V, b: V, g: V, m: V, k: V, o: V, p: V, packs: V, left: V, right: V, crossed: V) -> Clauses:
    """dot(a x b) = diagonal blocks of dot(rows of p groups of a x rows of p groups of b).

    Several channels of the weight gradient of a depthwise convolution share a tile: more of its rows and columns are
    used, and results of two different channels are dropped. Sound because block (i, j) of p x p is the product of group
    i of a and group j of b, and only those with i = j are kept, which are every p + 1st block. Groups added to fill up
    p are cut off again.
    """

    def together(x: V, rows: V) -> Any:
        return reshaped(padded(x, 0, packs * p - g), vec(packs, p * rows, k), 2)

    blocks = transposed(reshaped(crossed, vec(packs, p, m, p, o), 0), 0, 1, 3, 2, 4)
    in_a_row = padded(reshaped(blocks, vec(packs, p * p, m, o), 0), 1, p)
    diagonal = op.slice(reshaped(in_a_row, vec(packs, p, p + 1, m, o), 0), 2, 0, 1)
    return when(want_cross(ROOT, p), matrices.matrices(ROOT, a, b, g, m, k, o), packs == ceil_div(g, p)).then(
        let(left, together(a, m)),
        let(right, together(b, o)),
        let(crossed, dot(left, right)),
        union(ROOT, op.slice(reshaped(diagonal, vec(packs * p, m, o), 3), 0, 0, g)),
        matrices.matrices(crossed, left, right, g=packs, m=m * p, k=k, o=o * p),
        cross_of(ROOT, p, crossed),
    )
