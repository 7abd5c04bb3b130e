"""Products as loops of instructions: the counts of tiles are leading axes of one mapped call, so a product of any size
is a few e-nodes."""

from __future__ import annotations

from typing import Any

from rewrites import operators as op
from rewrites.declare import ROOT, Clauses, Example, V, let, rule, union, when
from rewrites.facts import ACCESS, INTS, access_at, relation
from rewrites.mapping.matrices import matrices, of_matrices
from rewrites.parameters import columns, max_rows, rows
from rewrites.terms import ceil_div, padded, reshaped, transposed, vec

want_call = relation("want-call", product=ACCESS, plan=INTS)
mapping = relation("mapping", call=ACCESS, plan=INTS, sizes=INTS)  # for reports: a call's plan, and the g m k o it left


def _in_tiles(rows: int, columns: int, max_rows: int) -> Example:
    as_written = want_call(access_at("root"), vec(1, 1, 0))
    return of_matrices(2, 7, 8, 3, as_written, rows=rows, columns=columns, max_rows=max_rows)


def _product(tiles: V, g: V, m: V, o: V, row_tiles: V, tile_rows: V, column_tiles: V) -> Any:
    """The product (g m o), from tiles (g, row tiles, rows, column tiles, columns)."""
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
    """dot(a x b) = systolic-array-output-stationary over (groups, row tiles, column tiles), put side by side.

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
