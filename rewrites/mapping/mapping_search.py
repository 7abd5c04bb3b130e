"""Searches for the cheapest mapping of a product: branch and bound over facts, before any e-node is made.

A plan regroups windows axis by axis, joins rows, packs groups and swaps operands, in this order; its vector is
(axis of windows, axis of elements, q) for each regrouping, then r, p and 1 if swapped. After each step the product is
again g matrices of (m)(k) and (o)(k). So a target only defines two functions: the cost of such sizes, and a lower bound
on the cost after all further steps:

    regroup by q      m -> m ceil(h/q)/h    k -> k (((w-1) d + (q-1) t)/c + 1)/w   o -> o q
    join r rows       m -> ceil(m/r)        k -> k r                            o -> o r
    pack p groups     g -> ceil(g/p)        k -> k p                            o -> o p

No step reduces the work (g m k o), the results (g m o), the depth of all groups (g k) or the weights (g k o). A plan is
followed while its bound is not above `cheapest`, the cost of the best mapping known so far. `cheapest` only falls, so a
cost that is found late admits more plans and never excludes the best one. If a target keeps a front of mappings
(`mapping_front`), a plan is followed while its bound is `within` reach of that cost. Factors that leave as many
windows, rows or groups as a smaller one only add zeros, and are skipped. Of plans with equal cost, by the second
objective too, those with the fewest weights and steps are made.
"""

from __future__ import annotations

from glenside.egraph.rule import Parameters
from glenside.ir import types
from glenside.rewrites import examples as ex
from glenside.rewrites import operators as op
from glenside.rewrites.convolution.recipes import recipe
from glenside.rewrites.declare import ROOT, Clauses, Example, Facts, V, analysis, let, rule, set_, when
from glenside.rewrites.facts import ACCESS, INT, INTS, access_at, dims, function, relation, source, split
from glenside.rewrites.mapping import matrices
from glenside.rewrites.movement.sliding_windows import regrouped, searched, slides, want_regroup
from glenside.rewrites.parameters import bound, exceeds_growth, fallback_price, price, second_price, third_price, within
from glenside.rewrites.terms import Variable, ceil_div, sized, variables, vec

FAMILY = "mapping"
product_of = relation("product-of", product=ACCESS, a=ACCESS, g=INT, m=INT, k=INT, o=INT)
cheapest = function("cheapest", INT, "min", product=ACCESS)
next_cheapest = function("next-cheapest", INT, "min", product=ACCESS, price=INT)
lightest = function("lightest", INT, "min", product=ACCESS, price=INT, second=INT)
# A partial plan: the axis below which the next regrouping must be, and the sizes that remain.
regrouping = relation("regrouping", product=ACCESS, below=INT, m=INT, k=INT, o=INT, plan=INTS)
# A plan with the next factor to try, for windows (i of size h steps by t over j of size w, elements d apart), rows or
window_factor = relation(
    "window-factor", product=ACCESS, i=INT, j=INT, h=INT, w=INT, t=INT, d=INT, m=INT, k=INT, o=INT, plan=INTS, q=INT
)
row_factor = relation("row-factor", product=ACCESS, m=INT, k=INT, o=INT, plan=INTS, r=INT)
group_factor = relation("group-factor", product=ACCESS, m=INT, k=INT, o=INT, r=INT, plan=INTS, p=INT)
# A complete plan and its costs; `second` decides ties, and `third` is for fronts.
candidate = relation("candidate", product=ACCESS, price=INT, second=INT, third=INT, weight=INT, swapped=INT, plan=INTS)
planned = relation("planned", product=ACCESS, rest=INTS, plan=INTS)
matrix_plan = relation("matrix-plan", product=ACCESS, r=INT, p=INT, swap=INT, plan=INTS)
"""The rest of a plan: r rows together, p groups packed, and 1 if swapped, plus 2 if they are crossed (`crossing`)."""

_CONV = ex.dot(ex.windows(ex.X, "2 3", "1 2"), ex.W, 1)


def _price(g: int, m: int, k: int, o: int) -> int:
    """The cost model of the examples: a weight-stationary array of 4 x 3."""
    tiles: int = g * types.ceil_div(k, 4) * types.ceil_div(o, 3)
    return tiles * (m + 9)


EXAMPLE_PARAMETERS: Parameters = {
    "rows": 4,
    "columns": 3,
    "max_rows": 100,
    "price": _price,
    "fallback-price": _price,
    "second-price": lambda g, m, k, o: g * k * o,
    "third-price": lambda g, m, k, o: g * m * k,
    "within": lambda best: best,
    "bound": lambda work, depth, results, weights: types.ceil_div(work, 12) + types.ceil_div(depth, 4) * 9,
    "exceeds-growth": lambda weights, original: 0 * weights,
}
EXAMPLES = (
    Example(_CONV, {"x": "3 6 9", "w": "3 2 3"}, parameters=EXAMPLE_PARAMETERS),
    Example(ex.MATMUL, {"x": "70 2", "w": "3 2"}, parameters=EXAMPLE_PARAMETERS),
    Example(ex.MATMUL, {"x": "5 9", "w": "70 9"}, parameters=EXAMPLE_PARAMETERS),
)

_FORM = Example(ex.MATMUL, {"x": "5 9", "w": "7 9"}, [recipe(access_at("root"), "phases:0:2")], EXAMPLE_PARAMETERS)


# The product that is searched: its operand, its sizes in the program, and the best cost so far.
_A, _G, _M, _K, _O, _BEST = Variable("a", ACCESS), *(Variable(name, INT) for name in ("g", "m0", "k0", "o0", "best"))
SIZES = (_G, _M, _K, _O)
SEARCHED = (_BEST == cheapest(ROOT), product_of(ROOT, _A, _G, _M, _K, _O))


def light(weights: V) -> Facts:
    """Lets a target refuse mappings with many more weights than the product has."""
    return exceeds_growth(weights, _G * (_K * _O)) == 0


def is_promising(work: V, depth: V, results: V, weights: V) -> Facts:
    """Requires that the lower bound of these sizes is not above the cost of the plans that are kept."""
    return light(weights), bound(work, depth, results, weights) <= within(_BEST)


def left_of(left: V, size: V, factor: V) -> Facts:
    """Returns how many windows, rows or groups remain of that many."""
    return left == ceil_div(size, factor)


def next_factor(size: V, left: V) -> V:
    """Returns the smallest factor that leaves fewer than `left` of `size`."""
    return ceil_div(size, left - 1)


def _window_factors() -> Clauses:
    """Regroups by q each pair of axes along which windows slide, in the order of the axes."""
    i, j, h, w, t, d, c, m, k, o, plan, q = variables("i j h w t d c m k o plan q")
    below, da, sa, left, depth, weights, rows, results = variables("below da sa left depth weights rows results")
    slide = (slides(_A, i, j, t, d, c), i < below, da == dims(_A), sa == split(_A), i < sa, j >= sa)
    factor = window_factor(ROOT, i, j, h, w, t, d, m, k, o, plan, q)
    deeper = depth == (k // w) * ((1 + (w - 1) * d) + (q - 1) * t)
    heavy = weights == (_G * depth) * (o * q)
    return (
        when(
            *(regrouping(ROOT, below, m, k, o, plan), product_of(ROOT, _A, _G, _M, _K, _O)),
            *(slide, h == da[i], h > 1, w == da[j]),
        ).then(window_factor(ROOT, i, j, h, w, t // c, d // c, m, k, o, plan, q=2)),
        when(
            *(factor, SEARCHED, left_of(left, h, q), left > 1, deeper, heavy),
            is_promising((_G * depth) * (m * o), _G * depth, _G * (m * o), weights),
        ).then(window_factor(ROOT, i, j, h, w, t, d, m, k, o, plan, next_factor(h, left))),
        when(
            *(factor, SEARCHED, left_of(left, h, q), deeper, heavy),
            *(rows == (m // h) * left, results == (_G * rows) * (o * q)),
            is_promising(results * depth, _G * depth, results, weights),
        ).then(regrouping(ROOT, below=i, m=rows, k=depth, o=o * q, plan=plan.append(vec(i, j, q)))),
    )


def _row_factors() -> Clauses:
    """Joins r rows, after each regrouping."""
    below, m, k, o, plan, r, left, weights = variables("below m k o plan r left weights")
    promising = (
        *(row_factor(ROOT, m, k, o, plan, r), SEARCHED, weights == (_G * k) * (o * (r * r))),
        is_promising((_G * m) * (k * (o * r)), _G * (k * r), _G * (m * o), weights),
        left_of(left, m, r),
    )
    return (
        when(regrouping(ROOT, below, m, k, o, plan)).then(row_factor(ROOT, m, k, o, plan, r=1)),
        when(promising).then(group_factor(ROOT, m=left, k=k * r, o=o * r, r=r, plan=plan, p=1)),
        when(promising, left > 1).then(row_factor(ROOT, m, k, o, plan, next_factor(m, left))),
    )


def a_candidate(where: Facts, swapped: int, sides: tuple[V, V, V, V], weights: V, plan: V) -> Clauses:
    """Records a complete plan with these sizes and weights if it costs no more than the best one; `swapped` is its last
    step.
    """
    cost, second, weight, whole = variables("cost second weight whole")
    return when(*(where, light(weights)), *(cost == price(*sides), cost <= within(_BEST))).then(
        set_(cheapest(ROOT), cost),
        let(second, second_price(*sides)),
        let(whole, plan),
        let(weight, 64 * weights + (whole.length + swapped)),
        set_(next_cheapest(ROOT, cost), second),
        set_(lightest(ROOT, cost, second), weight),
        candidate(ROOT, cost, second, third_price(*sides), weight, swapped, whole),
    )


def _group_factors() -> Clauses:
    """Packs p groups, with operands as they are and swapped: a complete plan, which is a candidate."""
    m, k, o, r, plan, p, left, weights = variables("m k o r plan p left weights")
    factor = group_factor(ROOT, m, k, o, r, plan, p)
    promising = (weights == (_G * k) * (o * p), is_promising((_G * m) * (k * (o * p)), _G * k, _G * (m * o), weights))

    def priced(swapped: int, sides: tuple[V, V, V, V]) -> Clauses:
        where = (factor, SEARCHED, left_of(left, _G, p), weights == (left * (k * p)) * (o * p))
        return a_candidate(where, swapped, sides, weights, plan.append(vec(r, p, swapped)))

    return (
        when(factor, SEARCHED, promising, left_of(left, _G, p), left > 1).then(
            group_factor(ROOT, m, k, o, r, plan, next_factor(_G, left))
        ),
        priced(0, (left, m, k * p, o * p)),
        priced(1, (left, o * p, k * p, m)),
    )


@analysis("mapping-analyses", *EXAMPLES, _FORM)
def cheapest_mapping_is_known(a: V, b: V, n: V, p: V, g: V, m: V, k: V, o: V, baseline: V, words: V) -> Clauses:
    """Finds the plans of a product of the program, or of another form of it, and the least cost of any of them.

    An analysis: it adds no e-node. Sound because it only reads sizes; other rules carry out a plan.
    """
    return (
        when(source(ROOT), ROOT == op.dot_product(p)).then(searched(ROOT)),
        # A product of another form of it.
        when(recipe(ROOT, words), ROOT == op.dot_product(p)).then(searched(ROOT)),
        # A form of the program's own pairs: operators between the pairs and their sum have moved away.
        when(p == op.product(a, b, n), source(p), ROOT == op.dot_product(p)).then(searched(ROOT)),
        when(sized(a, b, n, g, m, k, o), searched(ROOT), (g * m) * (k * o) > 0, baseline == price(g, m, k, o)).then(
            product_of(ROOT, a, g, m, k, o),
            set_(cheapest(ROOT), baseline),
            set_(cheapest(ROOT), fallback_price(g, m, k, o)),
            regrouping(ROOT, below=100, m=m, k=k, o=o, plan=vec()),
        ),
        _window_factors(),
        _row_factors(),
        _group_factors(),
    )


@rule(FAMILY, *EXAMPLES)
def cheapest_mapping_is_made(best: V, second: V, third: V, weight: V, swapped: V, plan: V) -> Clauses:
    """dot(a x b) = the result of the cheapest plans, one step after the other.

    It only adds a demand; the steps are separate rules. It is not an analysis, so that it knows the cheapest of all
    plans. Sound because a demand adds no e-node.
    """
    return when(
        best == cheapest(ROOT),
        second == next_cheapest(ROOT, best),
        weight == lightest(ROOT, best, second),
        candidate(ROOT, best, second, third, weight, swapped, plan),
    ).then(planned(ROOT, plan, plan))


_PRODUCT = access_at("root")
_PLAN = vec(1, 3, 2, 2, 3, 1)
_STEPS = (
    planned(_PRODUCT, _PLAN, _PLAN),
    regrouped(_PRODUCT, 1, 3, 2, _PRODUCT),
    matrices.matrices_of(_PRODUCT, _PRODUCT),
    matrix_plan(_PRODUCT, 2, 3, 1, _PLAN),
    matrices.rows_of(_PRODUCT, 2, _PRODUCT),
    matrices.pack_of(_PRODUCT, 3, _PRODUCT),
    matrices.swap_of(_PRODUCT, _PRODUCT),
)


@analysis("mapping-analyses", Example(_CONV, {"x": "3 6 9", "w": "3 2 3"}, _STEPS, EXAMPLE_PARAMETERS))
def steps_of_plans_are_demanded(
    plan: V, whole: V, length: V, i: V, j: V, q: V, r: V, p: V, s: V, larger: V, rest: V, flat: V
) -> Clauses:
    """Demands the first step of a plan for a product, and each next step for the result of the previous one.

    An analysis: it adds no e-node. Sound because a demand only says where a rule applies.
    """
    open_plan = (planned(ROOT, plan, whole), length == plan.length)
    first = (length > 3, i == plan[0], j == plan[1], q == plan[2])
    last = (length == 3, r == plan[0], p == plan[1], s == plan[2])
    of_rows = (matrix_plan(flat, r, p, s, whole), r > 1)
    of_groups = (matrix_plan(flat, 1, p, s, whole), p > 1, s < 2)
    of_swap = matrix_plan(flat, 1, 1, 1, whole)
    return (
        when(open_plan, first).then(want_regroup(ROOT, i, j, q)),
        when(open_plan, first, regrouped(ROOT, i, j, q, larger), rest == plan.remove(0).remove(0).remove(0)).then(
            planned(larger, rest, whole)
        ),
        when(open_plan, length == 3).then(matrices.want_matrices(ROOT)),
        when(open_plan, last, matrices.matrices_of(ROOT, flat)).then(matrix_plan(flat, r, p, s, whole)),
        when(of_rows).then(matrices.want_rows(flat, r)),
        when(of_rows, matrices.rows_of(flat, r, larger)).then(matrix_plan(larger, 1, p, s, whole)),
        when(of_groups).then(matrices.want_pack(flat, p)),
        when(of_groups, matrices.pack_of(flat, p, larger)).then(matrix_plan(larger, 1, 1, s, whole)),
        when(of_swap).then(matrices.want_swap(flat)),
        when(of_swap, matrices.swap_of(flat, larger)).then(matrix_plan(larger, 1, 1, 0, whole)),
        when(matrix_plan(flat, 1, 1, 0, whole)).then(matrices.want_call(flat, whole)),
    )


_FLAT = Example(ex.MATMUL, {"x": "5 9", "w": "7 9"}, [matrices.matrices_of(_PRODUCT, _PRODUCT)], EXAMPLE_PARAMETERS)


@rule("baseline-mapping", *EXAMPLES, _FLAT)
def baseline_mapping_is_made(a: V, g: V, m: V, k: V, o: V, flat: V) -> Clauses:
    """dot(a x b) = loops of tiles, as written: nothing regrouped, packed or swapped.

    It only adds demands. Sound because a demand adds no e-node.
    """
    product = product_of(ROOT, a, g, m, k, o)
    return (
        when(product).then(matrices.want_matrices(ROOT)),
        when(product, matrices.matrices_of(ROOT, flat)).then(matrices.want_call(flat, vec(1, 1, 0))),
    )
