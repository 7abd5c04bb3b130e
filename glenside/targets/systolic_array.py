"""A weight-stationary systolic array of R rows and C columns.

Cycles of one tile with M rows streamed: M + 2R + C - 2 (R to load the weights, then the skew of the stream through R
rows and C columns). SCALE-Sim 3.0.0 reports exactly ceil(K/R) * ceil(N/C) * (M + 2R + C - 2), less 1 for each product.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from glenside.ir.errors import BadInput
from glenside.ir.types import AccessType
from glenside.target import Instruction, Target
from glenside.targets.registry import target

LARGEST = 4096


def _price(attributes: Sequence[Any], children: Sequence[AccessType], own: AccessType) -> tuple[int, int]:
    """(cycles, tiles): one tile for each element of the shared axes."""
    rows, columns = attributes
    a, b = children
    tiles = b.shape.product()
    streamed = a.dims.get(b.split) if a.split > b.split else 1
    return tiles * (streamed + 2 * rows + columns - 2), tiles


def _blocked_price(attributes: Sequence[Any], children: Sequence[AccessType], own: AccessType) -> tuple[int, int]:
    """The same for an instruction that cuts K and N itself."""
    rows, columns = attributes
    a, b = children
    tiles = (b.item.get(0) // rows) * (b.item.get(1) // columns)
    streamed = a.dims.get(0) if a.split else 1
    return tiles * (streamed + 2 * rows + columns - 2), tiles


@target("systolic-array", "systolic-array:RxC")
def systolic_array(rows: int, columns: int) -> Target:
    """A weight-stationary matrix unit of R x C multipliers; M rows stream through a tile in M + 2R + C - 2 cycles."""
    for size in (rows, columns):
        if not 1 <= size <= LARGEST:
            raise BadInput(f"systolic-array requires sizes from 1 to {LARGEST}, got {rows}x{columns}")
    return Target(
        name=f"systolic-array:{rows}x{columns}",
        doc=systolic_array.__doc__ or "",
        instructions=(
            Instruction("systolic-array", _price, f"(G.., M)({rows}) and (G..)({rows}, {columns})", (rows, columns)),
            Instruction(
                "systolic-array-with-blocking", _blocked_price, "(M)(K) and ()(K, N), whole tiles", (rows, columns)
            ),
        ),
        families=("analyses", "products", "through-products", "systolic-array", "algebra", "through-computes"),
        parameters={"rows": rows, "columns": columns},
        peak=rows * columns,
    )
