"""Products as a plain processor computes them: rows are gathered a tile at a time, and multiplied as a matrix.

Tiles of all rows are im2col, small ones the direct loop: the same multiplications, with more memory or more calls.
"""

from __future__ import annotations

from math import prod

from glenside.egraph.clause import Clause
from glenside.egraph.rule import Example
from glenside.egraph.tables import table
from glenside.ir.types import Dims
from rewrites.convolution.forms import RELATIONS as FORMS
from rewrites.declare import rule

FAMILY = "cpu-products"
LEAST = 1 << 14
"""Elements of the smallest tile: half of what the first cache of a core holds."""
STEP = 8
"""How many times as large each further tile is: what it saves in calls is not seen in finer steps."""
_NUMBERS = ["(relation tile-number (i64))", *(f"(tile-number {i})" for i in range(16))]
RELATIONS = "\n".join([FORMS, *_NUMBERS])


@table(sizes=Dims)
def tile_sizes(dims: Dims, split: int, shared: int) -> tuple[Dims] | None:
    """Rows of a tile, of an operand (shape)(item) of which some first axes are shared: from few to all of them."""
    rows, length = prod(dims[shared:split]), prod(dims[split:])
    if not prod(dims):
        return None
    found = [max(1, LEAST // length)]
    while found[-1] < rows:
        found.append(found[-1] * STEP)
    return (Dims((*found[:-1], rows)),)


_CONV = (
    "(compute dot-product (access-cartesian-product (access-windows (access (access-tensor x) 0) (shape 2 3)"
    " (shape 1 2)) (access (access-tensor w) 1)))"
)
_GROUPED = (
    "(compute dot-product (access-product (access-windows (access (access-tensor x) 1) (shape 2 3) (shape 2 1))"
    " (access (access-tensor w) 1) 1))"
)


@rule(
    FAMILY,
    Example(_CONV, {"x": "40 451", "w": "o 2 3"}),
    Example(_GROUPED, {"x": "g 5 7", "w": "g 2 3"}),
    relations=RELATIONS,
)
def products_are_tiled() -> tuple[Clause, ...]:
    """dot(a x b) = tiled-product(a, b), for tiles of several sizes.

    Sound because each row of a is multiplied with each row of b, whichever rows are copied together before.
    """
    return (
        Clause(
            '(form root words) (= root (compute "dot-product" (access-product a b n))) (= da (dims a)) (= sa (split a))'
            " (= sizes (tile-sizes-sizes da sa n)) (tile-number i) (< i (vec-length sizes)) (= tile (vec-get sizes i))",
            "(union root (tiled-product a b n tile))",
        ),
    )
