"""Products as matrices, and what may be done to them: swapped, several rows at once, several groups at once.

The matrices of a product are a = (g, m)(k) and b = (g, o)(k). Every equation here waits for a demand, a step of a plan
that the mapping search has found to be the cheapest (`mapping_search`), and says what it made, for the next step.
"""

from __future__ import annotations

from typing import Any

from rewrites import operators as op
from rewrites.declare import ROOT, Clauses, Example, Fact, V, let, rule, union, when
from rewrites.facts import ACCESS, INT, access_at, dims, relation
from rewrites.terms import ceil_div, diagonal, dot, padded, reshaped, sized, transposed, vec

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

_PRODUCT = access_at("root")
_GROUPED = "(compute dot-product (access-product (access (access-tensor x) 3) (access (access-tensor w) 2) 1))"
_MATMUL = "(compute dot-product (access-cartesian-product (access (access-tensor x) 1) (access (access-tensor w) 1)))"
_MATRICES = "(compute dot-product (access-product (access (access-tensor x) 2) (access (access-tensor w) 2) 1))"


@rule(
    FAMILY,
    Example(_GROUPED, {"x": "g m 1 k l", "w": "g n k l"}, [want_matrices(_PRODUCT)]),
    Example(_MATMUL, {"x": "m k", "w": "n k"}, [want_matrices(_PRODUCT)]),
)
def product_is_a_product_of_matrices(
    a: V, b: V, n: V, g: V, m: V, k: V, o: V, d: V, left: V, right: V, flattened: V
) -> Clauses:
    """dot(a x b) = reshape(dot(reshape(a; (g m)(k)) x reshape(b; (g o)(k)))), with g for all shared axes.

    One form for what follows. Sound because reshape keeps the elements of shared axes, of other axes and of items each
    in row-major order, so the way back restores every axis.
    """
    return when(want_matrices(ROOT), sized(a, b, n, g, m, k, o), d == dims(ROOT)).then(
        let(left, reshaped(a, vec(g, m, k), 2)),
        let(right, reshaped(b, vec(g, o, k), 2)),
        let(flattened, dot(left, right)),
        union(ROOT, reshaped(flattened, d, d.length)),
        matrices(flattened, left, right, g, m, k, o),
        matrices_of(ROOT, flattened),
    )


def of_matrices(g: int, m: int, k: int, o: int, want: Fact, **parameters: int) -> Example:
    """The product of x, g groups of m rows, and w, of o rows, which is matrices already, and what is wanted of it."""
    known = matrices(_PRODUCT, access_at("x2"), access_at("w2"), g, m, k, o)
    return Example(_MATRICES, {"x": f"{g} {m} {k}", "w": f"{g} {o} {k}"}, [known, want], parameters)


@rule(FAMILY, of_matrices(3, 5, 2, 4, want_swap(_PRODUCT)))
def operands_are_swapped(a: V, b: V, g: V, m: V, k: V, o: V, swapped: V) -> Clauses:
    """dot(a x b) = transpose(dot(b x a)).

    What streams through the array stays, and what stays streams: the input-stationary dataflow. It pays where b has
    more rows than a. Sound because multiplication of numbers is commutative and the transpose puts the rows back.
    """
    return when(want_swap(ROOT), matrices(ROOT, a, b, g, m, k, o)).then(
        let(swapped, dot(b, a)),
        union(ROOT, transposed(swapped, 0, 2, 1)),
        matrices(swapped, b, a, g, m=o, k=k, o=m),
        swap_of(ROOT, swapped),
    )


@rule(FAMILY, of_matrices(2, 5, 3, 4, want_rows(_PRODUCT, 2)), of_matrices(1, 4, 3, 2, want_rows(_PRODUCT, 4)))
def rows_are_taken_together(
    a: V, b: V, g: V, m: V, k: V, o: V, r: V, together: V, left: V, right: V, product: V
) -> Clauses:
    """dot(a x b) = rows of dot(r rows of a as one x r copies of b on a diagonal).

    Several pixels of a 1x1 convolution at once: fewer rows stream, through more of the array. Sound because row i of r
    taken together meets copy i of b and zeros elsewhere, and because rows added to fill up r are cut off again.
    """
    copies = op.broadcast(reshaped(b, vec(g, 1, o, k), 0), vec(), vec(g, r, o, k))
    return when(want_rows(ROOT, r), matrices(ROOT, a, b, g, m, k, o), together == ceil_div(m, r)).then(
        let(left, reshaped(padded(a, 1, together * r - m), vec(g, together, r * k), 2)),
        let(right, diagonal(copies, g, r, o, k)),
        let(product, dot(left, right)),
        union(ROOT, op.slice(reshaped(product, vec(g, together * r, o), 3), 1, 0, m)),
        matrices(product, left, right, g, m=together, k=r * k, o=r * o),
        rows_of(ROOT, r, product),
    )


@rule(FAMILY, of_matrices(5, 4, 3, 2, want_pack(_PRODUCT, 2)), of_matrices(3, 4, 2, 1, want_pack(_PRODUCT, 3)))
def groups_are_packed(a: V, b: V, g: V, m: V, k: V, o: V, p: V, packs: V, left: V, right: V, packed: V) -> Clauses:
    """dot(a x b) = groups of dot(items of p groups of a side by side x p groups of b on a diagonal).

    Several channels of a depthwise convolution in one tile. Sound because the items of group i meet the rows of group
    i and zeros elsewhere, and because groups added to fill up p are cut off again.
    """

    def grouped(x: V, rows: V) -> Any:
        return reshaped(padded(x, 0, packs * p - g), vec(packs, p, rows, k), 0)

    side_by_side = reshaped(transposed(grouped(a, m), 0, 2, 1, 3), vec(packs, m, p * k), 2)
    apart = transposed(reshaped(packed, vec(packs, m, p, o), 4), 0, 2, 1, 3)
    return when(want_pack(ROOT, p), matrices(ROOT, a, b, g, m, k, o), packs == ceil_div(g, p)).then(
        let(left, side_by_side),
        let(right, diagonal(grouped(b, o), packs, p, o, k)),
        let(packed, dot(left, right)),
        union(ROOT, op.slice(reshaped(apart, vec(packs * p, m, o), 3), 0, 0, g)),
        matrices(packed, left, right, g=packs, m=m, k=p * k, o=p * o),
        pack_of(ROOT, p, packed),
    )
