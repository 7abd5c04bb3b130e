"""What tiles ask for before they read it, where processors do not see it coming: what lies in other pages each step."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from glenside.codegen.affine import coefficient, substituted
from glenside.codegen.loops import Load, Prefetch
from glenside.codegen.machine import Machine
from glenside.codegen.panels import Tile
from glenside.ir.dtypes import RECORDS
from glenside.ir.index_map import Axis, Index

_PAGE, _LINE = 4096, 64
"""Bytes beyond which processors ask for nothing by themselves, and that come at a time."""


def next_tile(
    axis: Axis, inner: Sequence[Axis], tile: Tile, loads: Sequence[Load], machine: Machine
) -> Iterator[Prefetch]:
    """Of operands that lie along rows, or along columns, and in another page for each place of an axis of the sum, the
    last that the next tile reads in the loops over `inner`, of columns each line of them.
    """
    ends = {other: Index() + (other.size - 1) for other in inner}
    for load in loads:
        place, size = tile.change(load.place), RECORDS[load.dtype].numpy.itemsize
        if abs(coefficient(place, axis)) * size < _PAGE or load.buffer.bytes <= machine.l2:
            continue
        row, column = (coefficient(place, a) for a in (tile.row, tile.lane))
        if row == 1 and not column:
            yield Prefetch(load.buffer, substituted(place, {tile.row: Index() + (2 * tile.row.size - 1), **ends}))
        elif column == 1 and not row:
            start = substituted(place, {tile.lane: Index(), tile.unit: Index(), **ends}) + tile.width
            line = _LINE // size
            yield from (Prefetch(load.buffer, start + n) for n in range(line - 1, tile.width, line))
