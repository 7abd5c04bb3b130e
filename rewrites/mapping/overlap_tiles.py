"""Products whose windows are added up a tile of positions at a time, so that their columns need little memory."""

from __future__ import annotations

import math

import numpy as np

from glenside.ir.sizes import smallest
from glenside.ir.types import Dims
from rewrites import operators as op
from rewrites.convolution.transposed import EXAMPLES, every_place, made_in_tiles, positions_last, scattering
from rewrites.declare import ROOT, Clauses, V, let, rule, union, when
from rewrites.facts import ACCESS, INT, INTS, dims, dtype, relation, table
from rewrites.terms import dot, sided, variables

LEAST_BYTES = 1 << 16  # of columns: with fewer, a tile costs more in calls than it saves
GROWTH = 8
# What the windows of the product `inner` add up to along the axes, in tiles of so many of its positions.
in_tiles = relation("in-tiles", product=ACCESS, inner=ACCESS, axes=INTS, tile=INT, positions=INT)


@table(tile=int, positions=int)
def smallest_tile(da: Dims, sa: int, db: Dims, sb: int, m: int, axes: Dims, dtype: str) -> tuple[int, int] | None:
    """The positions whose columns take LEAST_BYTES, at least one, and how many there are."""
    if not all(m <= axis < sa for axis in axes) or sb - m < len(axes):
        return None
    positions = math.prod(da[axis] for axis in axes)
    columns = math.prod(da[:sa]) * math.prod(db[m:sb]) * np.dtype(dtype).itemsize
    if positions == 0 or columns == 0:
        return None
    return min(positions, max(1, LEAST_BYTES * positions // columns)), positions


@rule("transposed-tiles", *EXAMPLES, *every_place(400))
def windows_are_added_up_in_tiles(
    a: V, b: V, m: V, inner: V, axes: V, tile: V, positions: V, larger: V, rank: V, made: V
) -> Clauses:
    """overlap-add(dot(a x b)) = overlap-add-product(a, b), for tiles of a few positions up to all of them.

    Sound because that operator is defined as the one on the left, whatever its tile is: the places in which windows
    overlap are sums, in any order.
    """
    steps, spread, outs, firsts, sizes = variables("steps spread outs firsts sizes")
    da, sa, db, sb, dt, dr, rank_a, order, back = variables("da sa db sb dt dr rank-a order back")
    sums = (
        scattering(ROOT, inner, axes, steps, spread, outs, firsts, sizes),
        *(inner == dot(a, b, m), sided(a, da, sa)),
    )
    in_these_tiles = in_tiles(ROOT, inner, axes, tile, positions)
    return (
        when(
            *(sums, sided(b, db, sb), dt == dtype(ROOT)),
            smallest_tile.facts(da, sa, db, sb, m, axes, dt, tile=tile, positions=positions),
        ).then(in_these_tiles),
        when(in_these_tiles, tile < positions, larger == smallest(positions, GROWTH * tile)).then(
            in_tiles(ROOT, inner, axes, larger, positions)
        ),
        when(
            *(in_these_tiles, sums, dr == dims(ROOT), rank == dr.length, rank_a == da.length),
            positions_last.facts(rank, sa, rank_a, axes, operand=order, back=back),
        ).then(
            let(made, op.overlap_add_product(op.transpose(a, order), b, m, sizes, steps, spread, firsts, tile)),
            union(ROOT, op.transpose(made, back)),
            made_in_tiles(inner, made),
        ),
    )
