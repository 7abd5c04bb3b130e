"""Partitions rows into tiles and columns into panels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import prod

from glenside.codegen.loop_ir.affine_analysis import at, substituted
from glenside.codegen.loop_ir.ir import Buffer, For, Statement, Way
from glenside.codegen.loop_ir.open_axes import at_least, is_open
from glenside.ir.dtypes import RECORDS
from glenside.ir.index_map import Axis, Index, flattened

_LIKELY = 3
"""The tiles that are assumed to read a panel, if their number is open: each prefetches this part of the next panel."""


@dataclass(frozen=True)
class TilePosition:
    """The tiles that read the same panel.

    count    number of these tiles
    place    position of the current tile among them
    grouped  True if tiles of other panels run between them
    is_alone  True if there may be no others
    """

    count: int
    place: Index
    grouped: bool
    is_alone: bool


@dataclass(frozen=True)
class Tile:
    """A tile under construction: its accumulators, and its axes of rows (`row`), vectors (`unit`) and lanes (`lane`).

    begin     first column; `panel` is the axis that counts panels
    places    axis of the block -> its index in the tile
    rows      (first, height, times) of its piece of rows, which `row_axis` counts
    copies    True if the tile copies its panel of an operand to scratch memory, for the tiles after it
    """

    registers: Buffer
    row: Axis
    unit: Axis
    lane: Axis
    begin: int
    panel: Axis
    places: dict[Axis, Index]
    rows: tuple[int, int, int]
    row_axis: Axis
    copies: bool = False

    @property
    def width(self) -> int:
        return self.unit.size * self.lane.size

    @property
    def column(self) -> Index:
        return at(self.unit) * self.lane.size + at(self.lane)

    @property
    def own(self) -> Index:
        return self.registers.place([at(self.row), self.column])

    def change(self, index: Index) -> Index:
        """Substitutes the axes of the block in an index."""
        return substituted(index, self.places)

    def each(self, statement: Statement, rows: bool = True) -> list[Statement]:
        """Returns a statement in loops over the vectors of the tile, of all rows or of one."""
        inner: tuple[Statement, ...] = (statement,)
        inner = (For(self.lane, inner, Way.VECTOR),) if self.lane.size > 1 else inner
        for axis in (self.unit, self.row) if rows else (self.unit,):
            inner = (For(axis, inner, Way.UNROLLED),) if axis.size > 1 else inner
        return list(inner)


def least_lanes(dtype: str) -> int:
    """Returns the elements of a dtype in the shortest vectors of processors, which have 16 bytes."""
    return 16 * 8 // RECORDS[dtype].bits


def pieces_of(size: int, width: int, lanes: int, least: int) -> list[tuple[int, int, int, int]]:
    """Cuts columns into (first, lanes, vectors, times): panels of `width` vectors, then shorter vectors for the rest.

    Fewer columns than `least` lanes are scalars: no processor has registers for shorter vectors, so they spill.
    """
    pieces, begin = [], 0
    while begin < size:
        vectors = min(width, (size - begin) // lanes)
        if vectors == 0:
            lanes = lanes // 2 if lanes > least else 1
            continue
        times = (size - begin) // (vectors * lanes)
        pieces.append((begin, lanes, vectors, times))
        begin += vectors * lanes * times
    return pieces


def tiles_of_rows(rows: Sequence[Axis], height: int) -> list[tuple[int, int, int]]:
    """Cuts the outer axis of the rows, if there is one, into (first, height, times)."""
    if not rows:
        return [(0, 1, 1)]
    return _open_rows_of(rows[0].size, height) if rows[0].limit else rows_of(rows[0].size, height)


def _open_rows_of(size: int, height: int) -> list[tuple[int, int, int]]:
    """Cuts an open number of rows into (first, height, times): whole tiles, and two equal ones."""
    whole, several, pieces, begin = size // height, at_least(size, height), list[tuple[int, int, int]](), 0
    left = [(size + height - n) // height - whole for n in range(1, height)]  # 1 if at least n rows are left
    for own in range(height, 0, -1):
        of_last = [((n,) if n <= height else (n - n // 2, n // 2)).count(own) for n in range(2 * height)]
        times = (whole - several) * (own == height)
        for last, is_so in ((of_last[:height], 1 - several), (of_last[height:], several)):
            found = last[0]
            for enough, (before, after) in zip(left, pairwise(last), strict=True):
                found += enough * (after - before)
            times += found * is_so
        pieces.append((begin, own, times))
        begin += own * times
    return pieces


def rows_of(size: int, height: int) -> list[tuple[int, int, int]]:
    """Cuts rows into (first, height, times), with heights that differ by at most one row."""
    tiles = -(-size // height)
    low, larger = divmod(size, tiles)
    found = [(0, low + 1, larger), (larger * (low + 1), low, tiles - larger)]
    return [piece for piece in found if piece[2]]


def position_in_panel(
    shared: Sequence[Axis],
    rows: Sequence[tuple[int, int, int]],
    piece: tuple[int, int, int],
    axis: Axis,
    grouped: bool,
) -> TilePosition:
    """Returns the position of a tile among the tiles of its panel.

    A panel has the tiles of `rows` at each step of the `shared` axes; the tile is number `axis` of `piece`. Of an open
    number of tiles, some are assumed; all but whole ones may be alone.
    """
    count, before = sum(times for *_, times in rows), sum(times for begin, _, times in rows if begin < piece[0])
    if is_open(count):
        return TilePosition(_LIKELY, at(axis) + before, False, piece != rows[0])
    outer = flattened([at(a) for a in shared], [a.size for a in shared])
    return TilePosition(count * prod(a.size for a in shared), outer * count + before + at(axis), grouped, count == 1)
