"""The search for the cheapest mapping of a product: branch and bound over facts, before any e-node is made.

A plan regroups windows axis by axis, takes rows together, packs groups and swaps operands, in this order; its vector is
(axis of windows, axis of elements, q) for each regrouping, then r, p and 1 if swapped. What a plan makes of a product
is again g matrices of (m)(k) and (o)(k), so all that a target need give are two functions: the price of such sizes, and
a bound of it for everything that the steps still to come may reach:

    regroup by q      m -> m ceil(h/q)/h    k -> k (((w-1) d + (q-1) t)/c + 1)/w   o -> o q
    r rows together   m -> ceil(m/r)        k -> k r                            o -> o r
    pack p groups     g -> ceil(g/p)        k -> k p                            o -> o p

No step makes the work (g m k o), the results (g m o), the depth of all groups (g k) or the weights (g k o) less. A plan
is followed while its bound is not above `cheapest`, the price of the best mapping known so far, which only falls: a
price known late weakens a guard, and never makes it wrong. Factors that leave as many windows, rows or groups as a
smaller one only add zeros, and are skipped. Of plans that cost the same, by the second objective too, those with the
fewest weights and steps are made.
"""

from __future__ import annotations

from glenside.egraph.clause import Clause
from glenside.egraph.rule import Example, Parameters
from glenside.ir.sizes import ceil_div
from rewrites import expressions
from rewrites.declare import rule
from rewrites.expressions import PRODUCT_SIZES
from rewrites.mapping.loops import RELATIONS as LOOPS
from rewrites.mapping.matrices import RELATIONS as MATRICES
from rewrites.mapping.sliding_windows import RELATIONS as WINDOWS

FAMILY = "mapping"
_SEARCH = """
(relation product-of (Access Access i64 i64 i64 i64))
(function cheapest (Access) i64 :merge (min old new))
(function next-cheapest (Access i64) i64 :merge (min old new))
(function lightest (Access i64 i64) i64 :merge (min old new))
(relation regrouping (Access i64 i64 i64 i64 Ints))
(relation window-factor (Access i64 i64 i64 i64 i64 i64 i64 i64 i64 Ints i64))
(relation row-factor (Access i64 i64 i64 Ints i64))
(relation group-factor (Access i64 i64 i64 i64 Ints i64))
(relation candidate (Access i64 i64 i64 Ints))
(relation planned (Access Ints Ints))
(relation matrix-plan (Access i64 i64 i64 Ints))
"""
RELATIONS = "\n".join([*dict.fromkeys(f"{WINDOWS}\n{MATRICES}\n{LOOPS}{_SEARCH}".splitlines())])


def _next(size: str, left: str) -> str:
    """The smallest factor that leaves fewer than `left` of `size`."""
    return expressions.ceil_div(size, f"(- {left} 1)")


_CONV = (
    "(compute dot-product (access-product (access-windows (access (access-tensor x) 1) (shape 2 3) (shape 1 2))"
    " (access (access-tensor w) 1) 1))"
)
_MATMUL = "(compute dot-product (access-cartesian-product (access (access-tensor x) 1) (access (access-tensor w) 1)))"


def _price(g: int, m: int, k: int, o: int) -> int:
    """Of the examples: a weight-stationary array of 4 x 3."""
    tiles: int = g * ceil_div(k, 4) * ceil_div(o, 3)
    return tiles * (m + 9)


_EXAMPLE_PARAMETERS: Parameters = {
    "rows": 4,
    "columns": 3,
    "max_rows": 100,
    "price": _price,
    "elsewhere": _price,
    "second-price": lambda g, m, k, o: g * k * o,
    "bound": lambda work, depth, results, weights: ceil_div(work, 12) + ceil_div(depth, 4) * 9,
    "heavier": lambda weights, original: 0 * weights,
}
_EXAMPLES = (
    Example(_CONV, {"x": "3 6 9", "w": "3 2 3"}, parameters=_EXAMPLE_PARAMETERS),
    Example(_MATMUL, {"x": "70 2", "w": "3 2"}, parameters=_EXAMPLE_PARAMETERS),
    Example(_MATMUL, {"x": "5 9", "w": "70 9"}, parameters=_EXAMPLE_PARAMETERS),
)


@rule("mapping-analyses", *_EXAMPLES, relations=RELATIONS)
def cheapest_mapping_is_known() -> tuple[Clause, ...]:
    """Which plans a product of the program may have, and the least that any of them costs.

    An analysis: it adds no e-node. Sound because it only reads sizes; what a plan does is done by the rules.
    """
    sizes = "(product-of root a g m0 k0 o0)"
    here = f"(= best (cheapest root)) {sizes}"
    return (
        Clause('(source root) (= root (compute "dot-product" p))', "(searched root)"),
        # A form of the program's own pairs: what stood between the pairs and their sum has moved out of the way.
        Clause('(= p (access-product a b n)) (source p) (= root (compute "dot-product" p))', "(searched root)"),
        Clause(
            f"{PRODUCT_SIZES} (searched root) (> (* (* g m) (* k o)) 0) (= usual (price g m k o))",
            "(product-of root a g m k o) (set (cheapest root) usual) (set (cheapest root) (elsewhere g m k o))"
            " (regrouping root 100 m k o (vec-empty))",
        ),
        Clause(
            f"(regrouping root open m k o plan) {sizes} (slides a i j t d c) (< i open) (= da (dims a))"
            " (= sa (split a)) (< i sa) (>= j sa) (= h (vec-get da i)) (> h 1) (= w (vec-get da j))",
            "(window-factor root i j h w (/ t c) (/ d c) m k o plan 2)",
        ),
        Clause(
            f"(window-factor root i j h w t d m k o plan q) {here} (= left {expressions.ceil_div('h', 'q')}) (> left 1)"
            " (= depth (* (/ k w) (+ (+ 1 (* (- w 1) d)) (* (- q 1) t)))) (= weights (* (* g depth) (* o q)))"
            " (= 0 (heavier weights (* g (* k0 o0))))"
            " (<= (bound (* (* g depth) (* m o)) (* g depth) (* g (* m o)) weights) best)",
            f"(window-factor root i j h w t d m k o plan {_next('h', 'left')})",
        ),
        Clause(
            f"(window-factor root i j h w t d m k o plan q) {here} (= left {expressions.ceil_div('h', 'q')})"
            " (= depth (* (/ k w) (+ (+ 1 (* (- w 1) d)) (* (- q 1) t)))) (= weights (* (* g depth) (* o q)))"
            " (= rows (* (/ m h) left)) (= results (* (* g rows) (* o q)))"
            " (= 0 (heavier weights (* g (* k0 o0))))"
            " (<= (bound (* results depth) (* g depth) results weights) best)",
            "(regrouping root i rows depth (* o q) (vec-append plan (vec-of i j q)))",
        ),
        Clause("(regrouping root open m k o plan)", "(row-factor root m k o plan 1)"),
        Clause(
            f"(row-factor root m k o plan r) {here} (= weights (* (* g k) (* o (* r r))))"
            " (= 0 (heavier weights (* g (* k0 o0))))"
            " (<= (bound (* (* g m) (* k (* o r))) (* g (* k r)) (* g (* m o)) weights) best)"
            f" (= left {expressions.ceil_div('m', 'r')})",
            "(group-factor root left (* k r) (* o r) r plan 1)",
        ),
        Clause(
            f"(row-factor root m k o plan r) {here} (= weights (* (* g k) (* o (* r r))))"
            " (= 0 (heavier weights (* g (* k0 o0))))"
            " (<= (bound (* (* g m) (* k (* o r))) (* g (* k r)) (* g (* m o)) weights) best)"
            f" (= left {expressions.ceil_div('m', 'r')}) (> left 1)",
            f"(row-factor root m k o plan {_next('m', 'left')})",
        ),
        Clause(
            f"(group-factor root m k o r plan p) {here} (= weights (* (* g k) (* o p)))"
            " (= 0 (heavier weights (* g (* k0 o0))))"
            " (<= (bound (* (* g m) (* k (* o p))) (* g k) (* g (* m o)) weights) best)"
            f" (= left {expressions.ceil_div('g', 'p')}) (> left 1)",
            f"(group-factor root m k o r plan {_next('g', 'left')})",
        ),
        *(
            Clause(
                f"(group-factor root m k o r plan p) {here} (= left {expressions.ceil_div('g', 'p')})"
                " (= weights (* (* left (* k p)) (* o p))) (= 0 (heavier weights (* g (* k0 o0))))"
                f" (= cost (price {first})) (<= cost best)",
                f"(set (cheapest root) cost) (let second (second-price {first}))"
                f" (let whole (vec-append plan (vec-of r p {swapped})))"
                f" (let weight (+ (* 64 weights) (+ (vec-length plan) {swapped})))"
                " (set (next-cheapest root cost) second) (set (lightest root cost second) weight)"
                " (candidate root cost second weight whole)",
            )
            for swapped, first in enumerate(("left m (* k p) (* o p)", "left (* o p) (* k p) m"))
        ),
    )


_PLAN = "(vec-of 1 3 2 2 3 1)"
_DONE = f"(regrouped $root 1 3 2 $root) (matrices-of $root $root) (matrix-plan $root 2 3 1 {_PLAN})"
_STEPS = "(rows-of $root 2 $root) (pack-of $root 3 $root) (swap-of $root $root)"


@rule(FAMILY, *_EXAMPLES, relations=RELATIONS)
def cheapest_mapping_is_made() -> tuple[Clause, ...]:
    """dot(a x b) = what the cheapest plans make of it, one step after the other.

    Only a demand: the steps are rules of their own. It is no analysis, so that it sees the cheapest of all plans.
    Sound because a demand adds no e-node.
    """
    return (
        Clause(
            "(= best (cheapest root)) (= second (next-cheapest root best)) (= weight (lightest root best second))"
            " (candidate root best second weight plan)",
            "(planned root plan plan)",
        ),
    )


@rule(
    "mapping-analyses",
    Example(
        _CONV, {"x": "3 6 9", "w": "3 2 3"}, f"(planned $root {_PLAN} {_PLAN}) {_DONE} {_STEPS}", _EXAMPLE_PARAMETERS
    ),
    relations=RELATIONS,
)
def steps_of_plans_are_demanded() -> tuple[Clause, ...]:
    """The first step of a plan is demanded of a product, and the next of what that step made.

    An analysis: it adds no e-node. Sound because a demand only says where a rule applies.
    """
    length = "(= length (vec-length plan))"
    first = "(= i (vec-get plan 0)) (= j (vec-get plan 1)) (= q (vec-get plan 2))"
    steps = "(= r (vec-get plan 0)) (= p (vec-get plan 1)) (= s (vec-get plan 2))"
    of_matrices = "(matrix-plan flat-product {} whole)"
    return (
        Clause(f"(planned root plan whole) {length} (> length 3) {first}", "(want-regroup root i j q)"),
        Clause(
            f"(planned root plan whole) {length} (> length 3) {first} (regrouped root i j q larger)"
            " (= rest (vec-remove (vec-remove (vec-remove plan 0) 0) 0))",
            "(planned larger rest whole)",
        ),
        Clause(f"(planned root plan whole) {length} (= length 3)", "(want-matrices root)"),
        Clause(
            f"(planned root plan whole) {length} (= length 3) {steps} (matrices-of root flat-product)",
            of_matrices.format("r p s"),
        ),
        Clause(f"{of_matrices.format('r p s')} (> r 1)", "(want-rows flat-product r)"),
        Clause(
            f"{of_matrices.format('r p s')} (> r 1) (rows-of flat-product r larger)", "(matrix-plan larger 1 p s whole)"
        ),
        Clause(f"{of_matrices.format('1 p s')} (> p 1)", "(want-pack flat-product p)"),
        Clause(
            f"{of_matrices.format('1 p s')} (> p 1) (pack-of flat-product p larger)", "(matrix-plan larger 1 1 s whole)"
        ),
        Clause(of_matrices.format("1 1 1"), "(want-swap flat-product)"),
        Clause(f"{of_matrices.format('1 1 1')} (swap-of flat-product swapped)", "(matrix-plan swapped 1 1 0 whole)"),
        Clause(of_matrices.format("1 1 0"), "(want-call flat-product whole)"),
    )


_FLAT = Example(_MATMUL, {"x": "5 9", "w": "7 9"}, "(matrices-of $root $root)", _EXAMPLE_PARAMETERS)


@rule("usual-mapping", *_EXAMPLES, _FLAT, relations=RELATIONS)
def usual_mapping_is_made() -> tuple[Clause, ...]:
    """dot(a x b) = loops of tiles, as written: nothing regrouped, packed or swapped.

    Only demands. Sound because a demand adds no e-node.
    """
    return (
        Clause("(product-of root a g m k o)", "(want-matrices root)"),
        Clause(
            "(product-of root a g m k o) (matrices-of root flat-product)", "(want-call flat-product (vec-of 1 1 0))"
        ),
    )
