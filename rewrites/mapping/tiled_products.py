"""Products as a plain processor computes them: rows are gathered a tile at a time, and multiplied as a matrix.

Tiles of all rows are im2col, small ones the direct loop: the same multiplications, with more memory or more calls.
"""

from __future__ import annotations

from math import prod

from glenside.ir.types import Dims
from rewrites import operators as op
from rewrites.convolution.recipes import recipe
from rewrites.declare import ROOT, Clauses, Example, V, rule, union, when
from rewrites.facts import INT, relation, table
from rewrites.terms import is_dot, sided

LEAST = 1 << 14
"""Elements of the smallest tile: half of what the first cache of a core holds."""
STEP = 8
"""How many times as large each further tile is: what it saves in calls is not seen in finer steps."""
tile_number = relation("tile-number", number=INT, rows=range(16))


@table(sizes=Dims)
def tile_sizes(dims: Dims, split: int, shared: int) -> tuple[Dims] | None:
    """Rows of a tile, of an operand (shape)(item) of which some first axes are shared: from few to all of them."""
    rows, length = prod(dims[shared:split]), prod(dims[split:])
    if not prod(dims):
        return None
    tiles = [max(1, LEAST // length)]
    while tiles[-1] < rows:
        tiles.append(tiles[-1] * STEP)
    return (Dims((*tiles[:-1], rows)),)


_CONV = (
    "(compute dot-product (access-cartesian-product (access-windows (access (access-tensor x) 0) (shape 2 3)"
    " (shape 1 2)) (access (access-tensor w) 1)))"
)
_GROUPED = (
    "(compute dot-product (access-product (access-windows (access (access-tensor x) 1) (shape 2 3) (shape 2 1))"
    " (access (access-tensor w) 1) 1))"
)


@rule("cpu-products", Example(_CONV, {"x": "40 451", "w": "o 2 3"}), Example(_GROUPED, {"x": "g 5 7", "w": "g 2 3"}))
def products_are_tiled(a: V, b: V, n: V, words: V, da: V, sa: V, sizes: V, i: V, tile: V) -> Clauses:
    """dot(a x b) = tiled-product(a, b), for tiles of several sizes.

    Sound because each row of a is multiplied with each row of b, whichever rows are copied together before.
    """
    return when(
        *(recipe(ROOT, words), is_dot(a, b, n), sided(a, da, sa), sizes == tile_sizes.sizes(da, sa, n)),
        *(tile_number(i), i < sizes.length, tile == sizes[i]),
    ).then(union(ROOT, op.tiled_product(a, b, n, tile)))
