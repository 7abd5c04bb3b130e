"""Computes products on a plain processor, tile by tile.

The rows of a tile are gathered and multiplied as a matrix. Tiles of all rows are im2col, small ones the direct loop:
the same multiplications, with more memory or more calls. Windows of results are added up a tile of positions at a time,
so that their columns need little memory.
"""

from __future__ import annotations

import math

import numpy as np

from glenside.ir.types import Dims, smallest
from glenside.rewrites import examples as ex
from glenside.rewrites import operators as op
from glenside.rewrites.convolution.position_tables import positions_last
from glenside.rewrites.convolution.recipes import recipe
from glenside.rewrites.convolution.transposed import EXAMPLES, line, made_in_tiles, scattering
from glenside.rewrites.declare import ROOT, Clauses, Example, V, let, rule, union, when
from glenside.rewrites.facts import ACCESS, INT, INTS, dims, dtype, relation, table
from glenside.rewrites.terms import dot, is_dot, sided, variables

LEAST = 1 << 14
"""Elements of the smallest tile: half of the first-level cache of a core."""
STEP = 8
"""The factor between sizes of tiles; finer steps make no measurable difference."""
tile_number = relation("tile-number", number=INT, rows=range(16))
LEAST_BYTES = 1 << 16  # of columns: a tile with fewer costs more in calls than it saves
GROWTH = 8
# The sum of the windows of the product `inner` along the axes, in tiles of that many positions.
in_tiles = relation("in-tiles", product=ACCESS, inner=ACCESS, axes=INTS, tile=INT, positions=INT)


@table(sizes=Dims)
def tile_sizes(dims: Dims, split: int, shared: int) -> tuple[Dims] | None:
    """Returns possible rows of a tile of an operand (shape)(item) with shared leading axes: from few to all of them."""
    rows, length = math.prod(dims[shared:split]), math.prod(dims[split:])
    if not math.prod(dims):
        return None
    tiles = [max(1, LEAST // length)]
    while tiles[-1] < rows:
        tiles.append(tiles[-1] * STEP)
    return (Dims((*tiles[:-1], rows)),)


_CONV = ex.pairs("dot-product", ex.windows(ex.access("x", 0), "2 3", "1 2"), ex.W)
_GROUPED = ex.dot(ex.windows(ex.X, "2 3", "2 1"), ex.W, 1)


@rule("cpu-products", Example(_CONV, {"x": "40 451", "w": "o 2 3"}), Example(_GROUPED, {"x": "g 5 7", "w": "g 2 3"}))
def products_are_tiled(a: V, b: V, n: V, words: V, da: V, sa: V, sizes: V, i: V, tile: V) -> Clauses:
    """dot(a x b) = tiled-product(a, b), for tiles of several sizes.

    Sound because each row of a is multiplied with each row of b, whichever rows are copied together before.
    """
    return when(
        *(recipe(ROOT, words), is_dot(a, b, n), sided(a, da, sa), sizes == tile_sizes.sizes(da, sa, n)),
        *(tile_number(i), i < sizes.length, tile == sizes[i]),
    ).then(union(ROOT, op.tiled_product(a, b, n, tile)))


@table(tile=int, positions=int)
def smallest_tile(da: Dims, sa: int, db: Dims, sb: int, m: int, axes: Dims, dtype: str) -> tuple[int, int] | None:
    """Returns the number of positions whose columns take LEAST_BYTES, at least one, and the number of all positions."""
    if not all(m <= axis < sa for axis in axes) or sb - m < len(axes):
        return None
    positions = math.prod(da[axis] for axis in axes)
    columns = math.prod(da[:sa]) * math.prod(db[m:sb]) * np.dtype(dtype).itemsize
    if positions == 0 or columns == 0:
        return None
    return min(positions, max(1, LEAST_BYTES * positions // columns)), positions


@rule("transposed-tiles", *EXAMPLES, line(2, 3, 2, 2, "7 c 400"))
def windows_are_added_up_in_tiles(a: V, b: V, m: V, inner: V, axes: V, tile: V, positions: V, larger: V) -> Clauses:
    """overlap-add(dot(a x b)) = overlap-add-product(a, b), for tiles of a few positions up to all of them.

    Sound because overlap-add-product is defined as the left side, for any tile: elements of overlapping windows are
    sums, in any order.
    """
    steps, spread, outs, firsts, sizes, rank, made = variables("steps spread outs firsts sizes rank made")
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
