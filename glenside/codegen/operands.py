"""How operands lie that tiles read: packed for all of them, or as they are; of what lies row below row the first tile
of a panel keeps a copy, beside each other, for those that follow.

What lies row below row a processor does not fetch by itself, each row is another page, and vectors begin within lines.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from glenside.codegen.affine import coefficient
from glenside.codegen.arena import in_line
from glenside.codegen.blocks import Block
from glenside.codegen.lanes import LEAST_AT_ONCE
from glenside.codegen.loops import Buffer, Load, Packing, Role
from glenside.codegen.machine import Machine
from glenside.ir.index_map import Axis
from glenside.ir.types import Dims

_LEAST_TILES = 4
"""That read a panel, so that it is copied: the first one takes longer."""
_PART = 4
"""Of the second cache, that such a copy is at most: beside it lie the rows of the tiles, and what they become."""


def packing_of(
    block: Block, along: Axis, pieces: Sequence[tuple[int, int, int]], load: Load, inner: Sequence[Axis], number: int
) -> Packing:
    """How an operand is packed, in pieces of an axis of a block, for each place of the inner axes."""
    outer = [a for a in (*block.around, *block.axes) if a != along and coefficient(load.place, a)]
    role = Role.CONSTANT if load.buffer.role is Role.CONSTANT else Role.TEMPORARY
    name = f"{load.buffer.name}.packed" + (f".{number + 1}" if number else "")
    dims = Dims((prod(axis.size for axis in (*outer, *inner, along)),))
    return Packing(
        Buffer(name, dims, load.dtype, role),
        load.buffer,
        load.place.constant,
        tuple((axis.size, coefficient(load.place, axis)) for axis in outer),
        tuple((axis.size, coefficient(load.place, axis)) for axis in inner),
        coefficient(load.place, along),
        tuple(pieces),
    )


def panels_copied(
    loads: Sequence[Load],
    columns: Axis,
    rows: Sequence[Axis],
    last: Axis,
    size: Dims,
    tiles: int,
    machine: Machine,
) -> dict[Load, Buffer]:
    """Of what so many tiles read that have the same columns, where a copy of a panel is kept: of operands that are the
    same for all rows, lie row below row along the last axis of the sum, and are not near whole.

    size  (steps of the sum, columns of the panel)
    """
    found: dict[Load, Buffer] = {}
    for load in loads if tiles >= _LEAST_TILES else ():
        below = coefficient(load.place, columns) == 1 and abs(coefficient(load.place, last)) >= in_line(load.dtype)
        if load.picked or not below or any(coefficient(load.place, row) for row in rows):
            continue
        name = f"{load.buffer}.panel" + (f".{len(found) + 1}" if found else "")
        panel = Buffer(name, size, load.dtype, Role.SCRATCH)
        if _PART * panel.bytes <= machine.l2 < 2 * load.buffer.bytes:
            found[load] = panel
    return found


def with_first_alone(rows: Sequence[tuple[int, int, int]]) -> list[tuple[int, int, int]]:
    """Pieces of rows, (first, height, times), of which the first is one tile."""
    (begin, height, times), *others = rows
    return [(begin, height, 1), *([(begin + height, height, times - 1)] if times > 1 else []), *others]


def is_near(loads: Sequence[Load], columns: Axis, tiles: int, panels: int, machine: Machine) -> bool:
    """Whether fewer bytes come from afar where all panels of a tile of rows follow each other, so many tiles, than
    where all tiles of a panel do: of operands that are read as they lie. Where as many do, threads share the larger
    one.
    """
    along = [load for load in loads if coefficient(load.place, columns)]
    of_columns = sum(load.buffer.bytes for load in along)
    of_rows = sum(load.buffer.bytes for load in loads if load not in along)
    room = machine.l2 // 2
    near = of_rows + of_columns * (tiles if of_columns > room else 1)
    far = of_columns + of_rows * (panels if of_rows > room else 1)
    return near < far or (near == far and (of_columns < of_rows or panels < min(LEAST_AT_ONCE, tiles)))
