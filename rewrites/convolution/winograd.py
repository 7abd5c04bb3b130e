"""Winograd's convolutions compute several outputs of overlapping windows at once with fewer multiplications.

Along one axis, m outputs of windows of r elements read the alpha = m + r - 1 elements of a wider window. F(m, r) of
Cook and Toom (`glenside.ir.cook_toom`) maps these and the r weights to alpha numbers each, multiplies the numbers
pairwise, and maps the alpha products to m sums. Along several axes it is applied once for each: the pairwise products
are again a product, of windows along the other axes.

F(m, r) is tried if bit m of the parameter `winograd` is set. The word of a step is `winograd:AXIS:M:R`, where AXIS is
an axis of the result, and of the shape of the left operand, of the product to which the first of these steps was
applied. The last axis comes first, so that each choice of m for each axis, or none, is one form.
"""

from __future__ import annotations

from glenside.egraph.pattern import Function
from glenside.egraph.sorts import Column
from glenside.ir.cook_toom import cook_toom, spelled
from glenside.ir.dtypes import FLOATS, HALVES
from glenside.ir.types import Dims
from glenside.rewrites import examples as ex
from glenside.rewrites import operators as op
from glenside.rewrites.convolution.recipes import recipe
from glenside.rewrites.convolution.windows_over_gaps import zero_inserted
from glenside.rewrites.declare import ROOT, Clauses, Example, V, analysis, let, rule, set_, union, when
from glenside.rewrites.facts import ACCESS, INT, TEXT, access_at, dims, dtype, function, relation, split, table
from glenside.rewrites.movement.sliding_windows import WEIGHTS_FIRST, axis_number, inside, turned, want_wider, wider
from glenside.rewrites.parameters import winograd
from glenside.rewrites.terms import dot, is_dot, reshaped, variables, vec, vec_range

FAMILY = "winograd"
LARGEST = 8  # the largest alpha: beyond it, the matrices have large entries
_AXES = 3
winograd_dtype = relation("winograd-dtype", dtype=TEXT, rows=[dtype for dtype in FLOATS if dtype not in HALVES])
"""Dtypes of operands: 16 bits hold transformed windows ten times less accurately than products of the windows."""
# The product of a form, whose axes below `open` may still be converted, and the axes whose windows overlap.
winograd_open = relation("winograd-open", product=ACCESS, words=TEXT, open=INT)
overlapping = relation("overlapping", product=ACCESS, words=TEXT, i=INT, j=INT, r=INT)
largest_gap = function("largest-gap", INT, "max", windows=ACCESS)
want_winograd = relation("want-winograd", product=ACCESS, words=TEXT, i=INT, j=INT, m=INT, r=INT, axis=INT, rank=INT)
_count = Function("count-matches", (Column("text", TEXT), Column("part", TEXT)), False)


def _steps(words: V) -> V:
    """Number of axes along which a form already uses Winograd's algorithm."""
    return _count(words, "winograd:")


@table(words=str, data=str, weights=str, output=str)
def winograd_step(words: str, axis: int, m: int, r: int) -> tuple[str, str, str, str]:
    """Returns the words with one more step, and the matrices of F(m, r)."""
    found = cook_toom(m, r)
    step = f"winograd:{axis}:{m}:{r}"
    return f"{words} {step}".strip(), spelled(found.data), spelled(found.filter), spelled(found.output)


@table(back=Dims)
def sums_behind(axis: int, rank: int) -> tuple[Dims]:
    """Returns the order of `rank` axes and one more in front, that moves the first to just after the axis."""
    return (Dims((*range(1, axis + 2), 0, *range(axis + 2, rank + 1))),)


_LINE = ex.windows(ex.X, "$k", "1")  # (n ..)(k)
_IMAGE = ex.windows(ex.X, "2 3", "1 1")  # (n .. ..)(2 3)
_CHANNELS = f"(access-squeeze {_IMAGE} 1)"  # (n ..)(2 3)
_APART = ex.dilated(ex.windows(ex.X, "5", "2"), "2", "$n 4 3", 2)  # (n 4)(3): in steps of 2, elements 2 apart
_SPREAD = _LINE.replace("(access-tensor x)", "(access-dilate (access-tensor x) 1 1)")  # zeros between the elements
_PHASE = [recipe(access_at("root"), "phase")]  # of another rule
_DEMANDED = (
    Example(ex.dot(_LINE, ex.W, 0), {"x": "n 12", "w": "o k"}, (), {"winograd": 1 << 2}),
    Example(ex.dot(_CHANNELS, ex.W, 0), {"x": "n 2 7", "w": "o 2 3"}, _PHASE, {"winograd": 1 << 4}),
    Example(ex.dot(_IMAGE, ex.W, 0), {"x": "n 5 6", "w": "o 2 3"}, (), {"winograd": 1 << 2}),
    Example(ex.dot(_IMAGE, ex.access("w", 2), 1), {"x": "n 7 6", "w": "n o 2 3"}, (), {"winograd": 1 << 2 | 1 << 3}),
    Example(ex.dot(_APART, ex.W, 0), {"x": "n 11", "w": "o 3"}, (), {"winograd": 1 << 2}),
)
_GAPS = Example(ex.dot(_SPREAD, ex.W, 0), {"x": "n 12", "w": "o k"}, (), {"winograd": 1 << 2})


@analysis("recipe-analyses", *_DEMANDED, _GAPS)
def windows_of_variants_overlap(a: V, b: V, n: V, words: V, open_: V, done: V, f: V, i: V, j: V, r: V) -> Clauses:
    """Finds the axes of a form's product along which windows of r elements overlap with their neighbours, element by
    element.

    An analysis: it adds no e-node. Sound because it only says where a rule may apply: not to integers, which have no
    fractions.
    """
    gap, begin, count, t, d, c, sa, da = variables("gap begin count t d c sa da")
    return (
        when(recipe(ROOT, words), _steps(words) == 0).then(winograd_open(ROOT, words, 100)),
        when(
            *(winograd_open(ROOT, words, open_), done == _steps(words), done < _AXES, is_dot(a, b, n)),
            *(f == dtype(ROOT), winograd_dtype(f), inside(a, i, j, t, d, c, n, sa)),
            *(t == d, i < open_, da == dims(a), r == da[j], r >= 2),
        ).then(overlapping(ROOT, words, i, j, r), set_(largest_gap(a), 1)),
        when(overlapping(ROOT, words, i, j, r), is_dot(a, b, n), zero_inserted(a, t, d, gap, begin, count)).then(
            set_(largest_gap(a), gap)
        ),
    )


@rule(FAMILY, *WEIGHTS_FIRST)
def windows_of_variants_come_first(words: V) -> Clauses:
    """dot(a x b) = transpose(dot(b x a)), where b is windows.

    Sound because multiplication of numbers is commutative and the transpose puts the axes back in order.
    """
    return turned(recipe(ROOT, words), lambda product: recipe(product, words))


@rule(FAMILY, *_DEMANDED)
def winograd_is_applied(a: V, b: V, n: V, words: V, i: V, j: V, m: V, r: V, axis: V, rank: V, done: V) -> Clauses:
    """dot(a x b) = output(dot(data(wider(a, m)) x filter(b))), with m outputs of alpha products instead of m r.

    The alpha numbers become another shared axis, the first, of a product of the remaining items; `output` maps them to
    the m outputs of each wider window, which are then adjacent. Sound because F(m, r) is an identity of rationals for
    all m + r - 1 elements and r weights, and is linear, so that it holds for the sum over the rest of the items;
    outputs of windows beyond the end are cut off. Floats are rounded at other places. It does not apply while there are
    zeros between elements, which other rules remove first, nor where half as many outputs would do.
    """
    da, dw, dr, place, alpha, items, item, served = variables("da dw dr place alpha items item served")
    front_a, front_b, back, w, sa, sb, h = variables("front-a front-b back w sa sb h")
    more, data, weights, output = variables("more data weights output")
    tiles, filters, products, sums = variables("tiles filters products sums")
    allowed = (m >= 2, winograd & (1 << m) != 0, m + (r - 1) <= LARGEST, m < 2 * da[i])
    matrices = winograd_step.facts(words, axis, m, r, words=more, data=data, weights=weights, output=output)
    return (
        when(
            *(overlapping(ROOT, words, i, j, r), is_dot(a, b, n), largest_gap(a) == 1, da == dims(a)),
            *(axis_number(m), allowed, rank == dims(ROOT).length, done == _steps(words), axis == i - done),
        ).then(want_wider(a, i, j, m), want_winograd(ROOT, words, i, j, m, r, axis, rank)),
        when(
            *(want_winograd(ROOT, words, i, j, m, r, axis, rank), sums_behind.facts(i, rank, back=back), matrices),
            *(is_dot(a, b, n), w == wider(a, i, j, m), sa == split(a), sb == split(b)),
            *(dw == dims(w), dr == dims(ROOT), place == sb + (j - sa), h == dr[i], alpha == m + (r - 1)),
            *(items == dw.length, item == items - sa),
            front_a == vec(j).append(vec_range(items).remove(j)),
            front_b == vec(place).append(vec_range(sb + item).remove(place)),
            served == m * dw[i],
        ).then(
            let(tiles, op.access(op.transpose(op.linear_map(w, j, alpha, data), front_a), sa + 1)),
            let(filters, op.access(op.transpose(op.linear_map(b, place, alpha, weights), front_b), sb + 1)),
            let(products, dot(tiles, filters, n + 1)),
            let(sums, op.transpose(op.linear_map(products, 0, m, output), back)),
            union(ROOT, op.slice(reshaped(sums, dr.set(i, served), rank), i, 0, h)),
            recipe(products, more),
            winograd_open(products, more, i + 1),
        ),
    )
