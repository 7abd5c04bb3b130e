"""How rows and columns are cut: into tiles of rows, and panels of columns, which tiles read one after the other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

from glenside.codegen.loop_ir.affine_analysis import at, substituted
from glenside.codegen.loop_ir.ir import Buffer, For, Statement, Way
from glenside.ir.dtypes import RECORDS
from glenside.ir.index_map import Axis, Index, flattened


@dataclass(frozen=True)
class Turns:
    """Tiles that read the same panel: how many, the place of one among them, and whether a group lies between them."""

    count: int
    place: Index
    grouped: bool


@dataclass(frozen=True)
class Tile:
    """A tile that is being made: its registers, which of them a row, a vector and a lane are, and the columns.

    places     where the axes of the block are
    rows       of those, (first, height, times), and the axis that counts them
    same_rows  tiles that read the same rows, where these follow each other
    copies     whether it keeps a copy of what it reads of a panel, for the tiles that follow
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
    same_rows: Turns | None = None
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
        """A place of the block."""
        return substituted(index, self.places)

    def each(self, statement: Statement, rows: bool = True) -> list[Statement]:
        """What is done to each vector, of one row or of all of them."""
        inner: tuple[Statement, ...] = (statement,)
        inner = (For(self.lane, inner, Way.VECTOR),) if self.lane.size > 1 else inner
        for axis in (self.unit, self.row) if rows else (self.unit,):
            inner = (For(axis, inner, Way.UNROLLED),) if axis.size > 1 else inner
        return list(inner)


def least_lanes(dtype: str) -> int:
    """Elements of a dtype in the shortest vectors that processors have, which are of 16 bytes."""
    return 16 * 8 // RECORDS[dtype].bits


def pieces_of(size: int, width: int, lanes: int, least: int) -> list[tuple[int, int, int, int]]:
    """Columns as (first, lanes, vectors, times): panels of `width` vectors, then what is left in shorter ones.

    What is less than the `least` lanes is taken by numbers: shorter vectors are nobody's registers, and spilled.
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


def rows_of(size: int, height: int) -> list[tuple[int, int, int]]:
    """Rows as (first, height, times), in tiles that differ by one row at most."""
    tiles = -(-size // height)
    low, larger = divmod(size, tiles)
    found = [(0, low + 1, larger), (larger * (low + 1), low, tiles - larger)]
    return [piece for piece in found if piece[2]]


def turns_of(
    shared: Sequence[Axis],
    rows: Sequence[tuple[int, int, int]],
    piece: tuple[int, int, int],
    axis: Axis,
    grouped: bool,
) -> Turns:
    """Of the tiles of a panel, whose rows are those pieces at each place of shared axes, that of a piece at an axis."""
    count, before = sum(times for *_, times in rows), sum(times for begin, _, times in rows if begin < piece[0])
    outer = flattened([at(a) for a in shared], [a.size for a in shared])
    return Turns(count * prod(a.size for a in shared), outer * count + before + at(axis), grouped)
