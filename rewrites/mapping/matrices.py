"""Products as matrices, and what may be done to them: swapped, several rows at once, several groups at once.

The matrices of a product are a = (g, m)(k) and b = (g, o)(k). Every equation here waits for a demand, a step of a plan
that the mapping search has found to be the cheapest (`mapping_search`), and says what it made, for the next step.
"""

from __future__ import annotations

from glenside.egraph.clause import Clause
from glenside.egraph.rule import Example
from glenside.egraph.schema import relation
from glenside.egraph.sorts import ACCESS, INT
from rewrites.declare import rule
from rewrites.expressions import PRODUCT_SIZES, ceil_div, diagonal, dot, padded, reshaped, transposed, vec

FAMILY = "matrices"
matrices = relation("matrices", product=ACCESS, a=ACCESS, b=ACCESS, g=INT, m=INT, k=INT, o=INT)
want_matrices = relation("want-matrices", product=ACCESS)
matrices_of = relation("matrices-of", product=ACCESS, flattened=ACCESS)
want_swap = relation("want-swap", product=ACCESS)
swap_of = relation("swap-of", product=ACCESS, swapped=ACCESS)
want_rows = relation("want-rows", product=ACCESS, r=INT)
rows_of = relation("rows-of", product=ACCESS, r=INT, larger=ACCESS)
want_pack = relation("want-pack", product=ACCESS, p=INT)
pack_of = relation("pack-of", product=ACCESS, p=INT, packed=ACCESS)
MATRICES = "(relation matrices (Access Access Access i64 i64 i64 i64))"  # product a b g m k o
_WANT_MATRICES = "(relation want-matrices (Access))"
_MATRICES_OF = "(relation matrices-of (Access Access))"
_WANT_SWAP = "(relation want-swap (Access))"
_SWAP_OF = "(relation swap-of (Access Access))"
_WANT_ROWS = "(relation want-rows (Access i64))"
_ROWS_OF = "(relation rows-of (Access i64 Access))"
_WANT_PACK = "(relation want-pack (Access i64))"
_PACK_OF = "(relation pack-of (Access i64 Access))"
RELATIONS = "\n".join(
    [MATRICES, _WANT_MATRICES, _MATRICES_OF, _WANT_SWAP, _SWAP_OF, _WANT_ROWS, _ROWS_OF, _WANT_PACK, _PACK_OF]
)

_GROUPED = "(compute dot-product (access-product (access (access-tensor x) 3) (access (access-tensor w) 2) 1))"
_MATMUL = "(compute dot-product (access-cartesian-product (access (access-tensor x) 1) (access (access-tensor w) 1)))"
_MATRICES = "(compute dot-product (access-product (access (access-tensor x) 2) (access (access-tensor w) 2) 1))"


@rule(
    FAMILY,
    Example(_GROUPED, {"x": "g m 1 k l", "w": "g n k l"}, wants="(want-matrices $root)"),
    Example(_MATMUL, {"x": "m k", "w": "n k"}, wants="(want-matrices $root)"),
    relations=RELATIONS,
)
def product_is_a_product_of_matrices() -> tuple[Clause, ...]:
    """dot(a x b) = reshape(dot(reshape(a; (g m)(k)) x reshape(b; (g o)(k)))), with g for all shared axes.

    One form for what follows. Sound because reshape keeps the elements of shared axes, of other axes and of items each
    in row-major order, so the way back restores every axis.
    """
    return (
        Clause(
            f"(want-matrices root) {PRODUCT_SIZES} (= d (dims root))",
            f"(let left {reshaped('a', vec('g', 'm', 'k'), 2)}) (let right {reshaped('b', vec('g', 'o', 'k'), 2)})"
            f" (let flattened {dot('left', 'right')}) (union root {reshaped('flattened', 'd', '(vec-length d)')})"
            " (matrices flattened left right g m k o) (matrices-of root flattened)",
        ),
    )


def _of(shapes: str, want: str) -> str:
    """The demand on a product whose matrices are x and w."""
    return f"(matrices $root $x2 $w2 {shapes}) {want}"


_THREE = Example(_MATRICES, {"x": "3 5 2", "w": "3 4 2"}, wants=_of("3 5 2 4", "(want-swap $root)"))
_ROWS = Example(_MATRICES, {"x": "2 5 3", "w": "2 4 3"}, wants=_of("2 5 3 4", "(want-rows $root 2)"))
_ALL_ROWS = Example(_MATRICES, {"x": "1 4 3", "w": "1 2 3"}, wants=_of("1 4 3 2", "(want-rows $root 4)"))
_PACK = Example(_MATRICES, {"x": "5 4 3", "w": "5 2 3"}, wants=_of("5 4 3 2", "(want-pack $root 2)"))
_ALL_PACKED = Example(_MATRICES, {"x": "3 4 2", "w": "3 1 2"}, wants=_of("3 4 2 1", "(want-pack $root 3)"))


@rule(FAMILY, _THREE, relations=RELATIONS)
def operands_are_swapped() -> tuple[Clause, ...]:
    """dot(a x b) = transpose(dot(b x a)).

    What streams through the array stays, and what stays streams: the input-stationary dataflow. It pays where b has
    more rows than a. Sound because multiplication of numbers is commutative and the transpose puts the rows back.
    """
    return (
        Clause(
            "(want-swap root) (matrices root a b g m k o)",
            f"(let swapped {dot('b', 'a')}) (union root {transposed('swapped', 0, 2, 1)})"
            " (matrices swapped b a g o k m) (swap-of root swapped)",
        ),
    )


@rule(FAMILY, _ROWS, _ALL_ROWS, relations=RELATIONS)
def rows_are_taken_together() -> tuple[Clause, ...]:
    """dot(a x b) = rows of dot(r rows of a as one x r copies of b on a diagonal).

    Several pixels of a 1x1 convolution at once: fewer rows stream, through more of the array. Sound because row i of r
    taken together meets copy i of b and zeros elsewhere, and because rows added to fill up r are cut off again.
    """
    together = ceil_div("m", "r")
    left = reshaped(padded("a", 1, "(- (* m2 r) m)"), vec("g", "m2", "(* r k)"), 2)
    copies = f"(access-broadcast {reshaped('b', vec('g', 1, 'o', 'k'), 0)} (vec-empty) {vec('g', 'r', 'o', 'k')})"
    back = f"(access-slice {reshaped('product-of-rows', vec('g', '(* m2 r)', 'o'), 3)} 1 0 m)"
    return (
        Clause(
            f"(want-rows root r) (matrices root a b g m k o) (= m2 {together})",
            f"(let left {left}) (let right {diagonal(copies, 'g', 'r', 'o', 'k')})"
            f" (let product-of-rows {dot('left', 'right')}) (union root {back})"
            " (matrices product-of-rows left right g m2 (* r k) (* r o)) (rows-of root r product-of-rows)",
        ),
    )


@rule(FAMILY, _PACK, _ALL_PACKED, relations=RELATIONS)
def groups_are_packed() -> tuple[Clause, ...]:
    """dot(a x b) = groups of dot(items of p groups of a side by side x p groups of b on a diagonal).

    Several channels of a depthwise convolution in one tile. Sound because the items of group i meet the rows of group
    i and zeros elsewhere, and because groups added to fill up p are cut off again.
    """
    packs = ceil_div("g", "p")
    more = "(- (* g2 p) g)"
    left = reshaped(
        transposed(reshaped(padded("a", 0, more), vec("g2", "p", "m", "k"), 0), 0, 2, 1, 3),
        vec("g2", "m", "(* p k)"),
        2,
    )
    right = diagonal(reshaped(padded("b", 0, more), vec("g2", "p", "o", "k"), 0), "g2", "p", "o", "k")
    apart = transposed(reshaped("packed", vec("g2", "m", "p", "o"), 4), 0, 2, 1, 3)
    back = f"(access-slice {reshaped(apart, vec('(* g2 p)', 'm', 'o'), 3)} 0 0 g)"
    return (
        Clause(
            f"(want-pack root p) (matrices root a b g m k o) (= g2 {packs})",
            f"(let left {left}) (let right {right}) (let packed {dot('left', 'right')}) (union root {back})"
            " (matrices packed left right g2 m (* p k) (* p o)) (pack-of root p packed)",
        ),
    )
