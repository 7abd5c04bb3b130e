"""Treats products as matrices, transforms them (operands swapped, several rows or groups joined), and makes their
loops.

The matrices of a product are a = (g, m)(k) and b = (g, o)(k). Each equation here waits for a demand, which is a step of
a plan that the mapping search (`mapping_search`) found to be the cheapest, and records its result for the next step.
The last step makes loops of instructions: the counts of tiles are leading axes of one mapped call, so that a product of
any size is a few e-nodes.
"""

from __future__ import annotations

from typing import Any

from glenside.rewrites import examples as ex
from glenside.rewrites import operators as op
from glenside.rewrites.declare import ROOT, Clauses, Example, Fact, V, let, rule, union, when
from glenside.rewrites.facts import ACCESS, INT, INTS, access_at, dims, relation
from glenside.rewrites.parameters import columns, max_rows, rows
from glenside.rewrites.terms import ceil_div, diagonal, dot, padded, reshaped, sized, transposed, vec

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
want_call = relation("want-call", product=ACCESS, plan=INTS)
mapping = relation("mapping", call=ACCESS, plan=INTS, sizes=INTS)  # for reports: a call's plan, and the g m k o it left

PRODUCT = access_at("root")
_WANTED = [want_matrices(PRODUCT)]


@rule(
    FAMILY,
    Example(
        ex.dot(ex.access("x", 3), ex.access("w", 2), 1), {"x": "g m 1 k l", "w": "g n k l"}, [want_matrices(PRODUCT)]
    ),
    Example(ex.MATMUL, {"x": "m k", "w": "n k"}, _WANTED),
)
def product_is_a_product_of_matrices(
    a: V, b: V, n: V, g: V, m: V, k: V, o: V, d: V, left: V, right: V, flattened: V
) -> Clauses:
    """dot(a x b) = reshape(dot(reshape(a; (g m)(k)) x reshape(b; (g o)(k)))), with g for all shared axes.

    One form for the next steps. Sound because reshape keeps the elements of shared axes, of other axes and of items
    each in row-major order, so the way back restores every axis.
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
    """Matches the demanded product of x, g groups of m rows, and w, of o rows, which are matrices already."""
    known = matrices(PRODUCT, access_at("x2"), access_at("w2"), g, m, k, o)
    return Example(ex.MATMULS, {"x": f"{g} {m} {k}", "w": f"{g} {o} {k}"}, [known, want], parameters)


@rule(FAMILY, of_matrices(3, 5, 2, 4, want_swap(PRODUCT)))
def operands_are_swapped(a: V, b: V, g: V, m: V, k: V, o: V, swapped: V) -> Clauses:
    """dot(a x b) = transpose(dot(b x a)).

    The operand that streams through the array becomes stationary, and the other way round: the input-stationary
    dataflow. It pays if b has more rows than a. Sound because multiplication of numbers is commutative and the
    transpose restores the order of rows.
    """
    return when(want_swap(ROOT), matrices(ROOT, a, b, g, m, k, o)).then(
        let(swapped, dot(b, a)),
        union(ROOT, transposed(swapped, 0, 2, 1)),
        matrices(swapped, b, a, g, m=o, k=k, o=m),
        swap_of(ROOT, swapped),
    )


@rule(FAMILY, of_matrices(2, 5, 3, 4, want_rows(PRODUCT, 2)), of_matrices(1, 4, 3, 2, want_rows(PRODUCT, 4)))
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


@rule(FAMILY, of_matrices(5, 4, 3, 2, want_pack(PRODUCT, 2)), of_matrices(3, 4, 2, 1, want_pack(PRODUCT, 3)))
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


def _in_tiles(rows: int, columns: int, max_rows: int) -> Example:
    as_written = want_call(PRODUCT, vec(1, 1, 0))
    return of_matrices(2, 7, 8, 3, as_written, rows=rows, columns=columns, max_rows=max_rows)


def _product(tiles: V, g: V, m: V, o: V, row_tiles: V, tile_rows: V, column_tiles: V) -> Any:
    """Returns the product (g m o), from tiles (g, row tiles, rows, column tiles, columns)."""
    whole = reshaped(tiles, vec(g, row_tiles * tile_rows, column_tiles * columns), 3)
    return op.slice(op.slice(whole, 1, 0, m), 2, 0, o)


@rule("weight-stationary", _in_tiles(3, 2, 3), _in_tiles(8, 3, 7), _in_tiles(3, 8, 100))
def product_is_loops_of_weight_tiles(
    a: V, b: V, g: V, m: V, k: V, o: V, plan: V, kt: V, nt: V, mt: V, ms: V, call: V, sums: V
) -> Clauses:
    """dot(a x b) = sum over k-tiles of systolic-array over (groups, row tiles, column tiles, k-tiles).

    Sound because padding the depth adds pairs of 0 x 0, because rows and columns added to fill up tiles are cut off
    again, and because a sum over all k is the sum over tiles of the sums within each.
    """
    left = padded(padded(a, 2, kt * rows - k), 1, mt * ms - m)
    left = transposed(reshaped(left, vec(g, mt, ms, 1, kt, rows), 5), 0, 1, 3, 4, 2, 5)
    right = padded(padded(b, 2, kt * rows - k), 1, nt * columns - o)
    right = transposed(reshaped(right, vec(g, 1, nt, columns, kt, rows), 4), 0, 1, 2, 4, 5, 3)
    inputs = op.broadcast(left, vec(g, mt, nt, kt, ms), vec(rows))
    weights = op.broadcast(right, vec(g, mt, nt, kt), vec(rows, columns))
    return when(
        *(want_call(ROOT, plan), matrices(ROOT, a, b, g, m, k, o)),
        *(kt == ceil_div(k, rows), nt == ceil_div(o, columns), mt == ceil_div(m, max_rows), ms == ceil_div(m, mt)),
    ).then(
        let(call, op.systolic_array(rows, columns, inputs, weights)),
        mapping(call, plan, vec(g, m, k, o)),
        let(sums, op.reduce_sum(op.access(transposed(call, 0, 1, 4, 2, 5, 3), 5))),
        union(ROOT, _product(sums, g, m, o, mt, ms, nt)),
    )


@rule("output-stationary", _in_tiles(3, 2, 3), _in_tiles(7, 3, 7))
def product_is_loops_of_result_tiles(
    a: V, b: V, g: V, m: V, k: V, o: V, plan: V, nt: V, mt: V, ms: V, call: V, tiles: V
) -> Clauses:
    """dot(a x b) = systolic-array-output-stationary over (groups, row tiles, column tiles), joined.

    Sound because rows and columns added to fill up tiles are cut off again.
    """
    left = reshaped(padded(a, 1, mt * rows - m), vec(g, mt, 1, rows, k), 4)
    right = reshaped(padded(b, 1, nt * columns - o), vec(g, 1, nt, columns, k), 3)
    inputs = op.broadcast(left, vec(g, mt, nt, rows), vec(k))
    weights = op.broadcast(transposed(right, 0, 1, 2, 4, 3), vec(g, mt, nt), vec(k, columns))
    return when(
        *(want_call(ROOT, plan), matrices(ROOT, a, b, g, m, k, o)),
        *(nt == ceil_div(o, columns), mt == ceil_div(m, rows), ms == rows),
    ).then(
        let(call, op.systolic_array_output_stationary(rows, columns, inputs, weights)),
        mapping(call, plan, vec(g, m, k, o)),
        let(tiles, transposed(call, 0, 1, 3, 2, 4)),
        union(ROOT, _product(tiles, g, m, o, mt, ms, nt)),
    )
