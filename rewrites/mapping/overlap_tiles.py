"""Products whose windows are added up a tile of positions at a time, so that their columns need little memory.

`in-tiles root inner axes tile positions`: root is what the windows of the product `inner` add up to, along `axes`, in
tiles of so many of its positions.
"""

from __future__ import annotations

import math

import numpy as np

from glenside.egraph.clause import Clause
from glenside.egraph.tables import table
from glenside.ir.types import Dims
from rewrites.convolution.transposed import EXAMPLES, every_place
from rewrites.convolution.transposed import RELATIONS as TRANSPOSED
from rewrites.declare import rule

FAMILY = "transposed-tiles"
LEAST_BYTES = 1 << 16  # of columns: with fewer, a tile costs more in calls than it saves
GROWTH = 8
RELATIONS = TRANSPOSED + "\n(relation in-tiles (Access Access Ints i64 i64))"


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


@rule(FAMILY, *EXAMPLES, *every_place(400), relations=RELATIONS)
def windows_are_added_up_in_tiles() -> tuple[Clause, ...]:
    """overlap-add(dot(a x b)) = overlap-add-product(a, b), for tiles of a few positions up to all of them.

    Sound because that operator is defined as the one on the left, whatever its tile is: the places in which windows
    overlap are sums, in any order.
    """
    whole = (
        "(scattering root inner axes steps spread outs firsts sizes)"
        ' (= inner (compute "dot-product" (access-product a b m))) (= da (dims a)) (= sa (split a))'
    )
    tile = "(smallest-tile-{0} da sa db sb m axes dt)"
    key = "rank sa whole-a axes"
    return (
        Clause(
            f"{whole} (= db (dims b)) (= sb (split b)) (= dt (dtype root)) (= tile {tile.format('tile')})"
            f" (= positions {tile.format('positions')})",
            "(in-tiles root inner axes tile positions)",
        ),
        Clause(
            f"(in-tiles root inner axes tile positions) (< tile positions) (= next (min positions (* {GROWTH} tile)))",
            "(in-tiles root inner axes next positions)",
        ),
        Clause(
            f"(in-tiles root inner axes tile positions) {whole} (= dr (dims root)) (= rank (vec-length dr))"
            f" (= whole-a (vec-length da)) (= order (positions-last-operand {key}))"
            f" (= back (positions-last-back {key}))",
            "(let made (overlap-add-product (access-transpose a order) b m sizes steps spread firsts tile))"
            " (union root (access-transpose made back)) (made-in-tiles inner made)",
        ),
    )
