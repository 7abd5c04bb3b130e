"""Schedules matrix products on AMX (`bf16_split_matmul`).

One operand is constant; the rows of the other are contiguous along the reduction. The rows are split into bfloat16
parts before the product: by a nest of their own, or by the thread that multiplies them, some blocks at a time, where
the columns are in cache anyway.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from math import prod

from glenside.codegen.loop_ir.affine_analysis import (
    at,
    changed,
    coefficient,
    is_affine,
    joined_axes,
    loads_in,
    merged,
    substituted,
    with_merged,
)
from glenside.codegen.loop_ir.bf16_split_matmul import CHUNK, COLUMNS, PRODUCTS, MatrixProduct, PartPacking, cycles
from glenside.codegen.loop_ir.compute_block import Block, ScheduledBlock
from glenside.codegen.loop_ir.ir import (
    Apply,
    Buffer,
    Convert,
    For,
    Load,
    Number,
    Role,
    Statement,
    Store,
    Way,
)
from glenside.codegen.loop_ir.nest_builder import around
from glenside.codegen.loop_ir.scalar_expr import with_local
from glenside.codegen.processor.model import Machine
from glenside.codegen.scheduling.tile_partition import rows_of
from glenside.codegen.scheduling.vectorize import in_vectors, lanes_in, spread
from glenside.ir.index_map import Axis, Index, flattened
from glenside.ir.types import Dims

_LANES = 16
_LEAST_STEPS, _LEAST_ROWS = 16, 8
"""The fewest reduction steps, and rows of a matrix: with fewer, most of the unit's products are of padding."""
_STEPS = 8
"""Chunks of the tile for which heights of tiles are compared."""
_AT_ONCE = 8
"""Trip count of the parallel loop over row blocks."""


@dataclass(frozen=True)
class _Factors:
    """The operands: rows, contiguous along the reduction, and constant columns; each split into `parts` parts."""

    rows: Load
    columns: Load
    parts: int


@dataclass(frozen=True)
class _Place:
    """The position of a tile.

    sums, at_sums  accumulator buffer, and the tile's index in it
    parts, packed  packed rows, and the index of the tile's block in them
    block          index of the block among all blocks of rows
    panel          index of the panel of columns
    first, steps   first chunk, and number of chunks
    asks           True if the tile prefetches its share of the next panel
    """

    sums: Buffer
    at_sums: Index
    parts: Buffer
    packed: Index
    block: Index
    panel: Index
    first: int
    steps: int
    asks: bool = False


class MatrixTiles:
    """A schedule of tiles of rows x 32 columns, with accumulators in the registers of a matrix unit."""

    def __init__(self, block: Block, axes: Iterator[int], machine: Machine) -> None:
        self.axes, self.machine = axes, machine
        self.block = with_merged(block, axes) if machine.matrix else block
        (self.joined,) = self.block.joined
        self.factors = self._factors() if machine.matrix else None
        self.is_possible = self._is_possible()

    def _factors(self) -> _Factors | None:
        element = self.joined.element
        if self.joined.combine != "add" or not isinstance(element, Apply) or element.primitive.name != "multiply":
            return None
        parts = 1 if all(isinstance(o, Convert) and not o.bits for o in element.operands) else 3
        found = [o.formula if isinstance(o, Convert) and parts == 1 else o for o in element.operands]
        loads = [load for load in found if isinstance(load, Load) and not load.picked and is_affine(load.place)]
        dtype = "float32" if parts == 3 else "bfloat16"
        if len(loads) < 2 or any(load.dtype != dtype for load in loads) or self.joined.local.dtype != "float32":
            return None
        columns = next((load for load in loads if load.buffer.role is Role.CONSTANT), None)
        if columns is None:
            return None
        return _Factors(loads[1] if loads[0] is columns else loads[0], columns, parts)

    def _is_possible(self) -> bool:
        block, joined = self.block, self.joined
        if self.factors is None or not isinstance(joined.start, Number) or joined.start.value != 0 or not joined.exact:
            return False
        if not is_affine(block.place) or block.beside or not in_vectors(block.value, block.buffer.dtype):
            return False
        if lanes_in([block.value], self.machine) != _LANES or not all(
            is_affine(x.place) for x in loads_in(block.value)
        ):
            return False
        return self._split()

    def _split(self) -> bool:
        """Sets the axes of columns, rows, batches and the reduction; returns False if the block has no such axes."""
        assert self.factors, "there are factors"
        a, b, block = self.factors.rows.place, self.factors.columns.place, self.block
        every = [*block.around, *block.axes]
        along = [load.place for load in loads_in(block.value)]
        columns = [axis for axis in block.axes if coefficient(block.place, axis) == 1 and not coefficient(a, axis)]
        columns = [
            axis for axis in columns if coefficient(b, axis) and all(coefficient(i, axis) in (0, 1) for i in along)
        ]
        if not columns or columns[0].size % _LANES:
            return False
        self.columns = columns[0]
        self.rows = [axis for axis in block.axes if coefficient(a, axis) and not coefficient(b, axis)]
        self.outer = [axis for axis in block.axes if axis not in (*self.rows, self.columns)]
        self.of_rows = [axis for axis in self.outer if coefficient(a, axis)]
        self.of_columns = [axis for axis in every if axis != self.columns and coefficient(b, axis)]
        groups = merged([a, b], [axis for axis in self.joined.axes if axis.size != 1])
        groups.sort(key=lambda group: -max(abs(coefficient(a, group[-1])), 0))
        sums, places = joined_axes(groups, self.axes)
        of_a, of_b = (substituted(place, places) for place in (a, b))
        if not sums or coefficient(of_a, sums[-1]) != 1 or sums[-1].size < _LEAST_STEPS:
            return False
        if not self.rows or prod(axis.size for axis in self.rows) < _LEAST_ROWS:
            return False
        self.a = tuple((axis.size, coefficient(of_a, axis)) for axis in sums)
        self.b = tuple((axis.size, coefficient(of_b, axis)) for axis in sums)
        return all(n for n, _ in self.a)

    @property
    def orders(self) -> list[bool]:
        """Returns the candidate values of `apart` in `made`: True if rows are packed by a nest of their own."""
        return [False] if self.block.around else [False, True]

    def made(self, apart: bool) -> ScheduledBlock:
        """Returns the schedule; with `apart`, rows are packed by a nest of their own."""
        assert self.factors, "there are factors"
        count = prod(axis.size for axis in self.rows)
        self.height = self._height(count)
        columns = self._packing(self.factors.columns, self.b, [self.columns])
        rows = self._packing(self.factors.rows, self.a, self.rows)
        if apart:
            return ScheduledBlock(self._apart(rows, columns), (columns, rows))
        return ScheduledBlock(self._in_groups(rows, columns), (columns,))

    def _height(self, count: int) -> int:
        """Returns the rows of a tile, over two registers, with the lowest predicted cost for all `count` rows."""
        assert self.factors, "there are factors"
        sizes = [2 * rows for rows in range(4, _LANES + 1)]
        cost = {n: cycles(self.machine, n, self.factors.parts, _STEPS) for n in sizes}
        return min(sizes, key=lambda n: (-(-count // n) * cost[n], n))

    def _packing(self, load: Load, inner: tuple[tuple[int, int], ...], lines: Sequence[Axis]) -> PartPacking:
        assert self.factors, "there are factors"
        paired = load is self.factors.columns
        outer = self.of_columns if paired else self.of_rows
        buffer = Buffer(f"{load.buffer}.parts", Dims((0,)), "bfloat16", Role.CONSTANT if paired else Role.TEMPORARY)
        found = PartPacking(
            buffer,
            load.buffer,
            load.place.constant,
            tuple((axis.size, coefficient(load.place, axis)) for axis in outer),
            inner,
            0,
            (),
            lines=tuple((axis.size, coefficient(load.place, axis)) for axis in lines),
            height=COLUMNS if paired else self.height,
            parts=self.factors.parts,
            paired=paired,
        )
        size = prod(n for n, _ in found.outer) * found.blocks * found.height * found.depth
        return replace(found, buffer=replace(buffer, dims=Dims((size,))))

    @property
    def _steps(self) -> int:
        return prod(axis.size for axis in (*self.block.around, *self.block.axes, *self.joined.axes))

    def _panels(self, columns: PartPacking) -> list[tuple[Axis, Index, int]]:
        """Returns panels of columns as (axis that counts them, index of the panel, vectors to store of each)."""
        whole, rest = divmod(self.columns.size, COLUMNS)
        pieces = [(0, whole, COLUMNS // _LANES), (whole, 1, rest // _LANES)]
        axes = [(Axis(next(self.axes), times), first, vectors) for first, times, vectors in pieces if times and vectors]
        return [(axis, at(axis) + first, vectors) for axis, first, vectors in axes]

    def _apart(self, rows: PartPacking, columns: PartPacking) -> list[Statement]:
        """Returns the loops over panels, with all tiles of a panel inside, for packed rows.

        If the packed rows exceed half of the L2 cache, the reduction is cut into pieces: a group of panels runs one
        piece at a time.
        """
        group = flattened([at(a) for a in self.of_rows], [a.size for a in self.of_rows]) * rows.blocks
        packed = 2 * rows.blocks * rows.height * rows.depth
        cuts = rows_of(rows.chunks, max(1, rows.chunks * self.machine.l2 // (2 * packed)))
        pieces = [(begin + i * size, size) for begin, size, times in cuts for i in range(times)]
        rest = rows.count % rows.height
        blocks = [(0, rows.count // rows.height, rows.height), (rows.blocks - 1, 1, rest)]
        blocks = [(first, times, filled) for first, times, filled in blocks if times and filled]
        made: list[Statement] = []
        for axis, panel, vectors in self._panels(columns):
            several = 1 if len(pieces) == 1 else -(-axis.size // _AT_ONCE * 2)
            for begin, size, times in rows_of(axis.size, several):
                turn, own = Axis(next(self.axes), times), Axis(next(self.axes), size)
                here = substituted(panel, {axis: at(turn) * size + at(own) + begin})
                kept = size * rows.blocks if len(pieces) > 1 else 1  # tiles with live accumulators
                dims = Dims((kept * rows.height * COLUMNS,))
                sums = Buffer(f"sums{next(self.axes)}", dims, "float32", Role.SCRATCH)
                inner: list[Statement] = []
                for number, piece in enumerate(pieces):
                    last = number + 1 == len(pieces)
                    tiles: list[Statement] = []
                    for first, count, filled in blocks:
                        block = at(axis_of := Axis(next(self.axes), count)) + first
                        at_sums = (at(own) * rows.blocks + block) * (rows.height * COLUMNS) if kept > 1 else Index()
                        place = _Place(sums, at_sums, rows.buffer, group + block, block, here, *piece, True)
                        tile = [self._product(place, rows, columns)]
                        tile += self._stored(place, filled, vectors, rows) if last else []
                        tiles += around([axis_of], tile)
                    inner += around([own], tiles)
                made += spread([*self.outer, turn], inner, self._steps)
        return made

    def _in_groups(self, rows: PartPacking, columns: PartPacking) -> list[Statement]:
        """Returns the loops over groups of row blocks: each group is packed, then multiplied by all columns."""
        assert self.factors, "there are factors"
        near = self.machine.l2 // 2 // (2 * rows.height * rows.depth)
        groups = max(1, min(near, rows.blocks // _AT_ONCE))
        rest = rows.count % rows.height
        pieces = list(rows_of(rows.blocks, groups))
        if rest and pieces[-1][2] > 1:
            begin, size, times = pieces.pop()
            pieces += [(begin, size, times - 1), (begin + (times - 1) * size, size, 1)]
        start = substituted(self.factors.rows.place, dict.fromkeys((*self.rows, *self.joined.axes), Index()))
        made: list[Statement] = []
        for begin, size, times in pieces:
            group = Axis(next(self.axes), times)
            dims = Dims((size * rows.height * rows.depth,))
            own = replace(rows, buffer=Buffer(f"parts{next(self.axes)}", dims, "bfloat16", Role.SCRATCH))
            first = at(group) * size + begin
            whole = size - (1 if rest and begin + size * times == rows.blocks else 0)
            blocks = [
                (Axis(next(self.axes), n), i, filled)
                for i, n, filled in ((0, whole, rows.height), (whole, size - whole, rest))
                if n
            ]
            body: list[Statement] = []
            for block, i, filled in blocks:
                here = at(block) + i
                body += around([block], own.filling(here, (first + here) * rows.height, filled, start, self.axes))
            sums = Buffer(f"sums{next(self.axes)}", Dims((rows.height * COLUMNS,)), "float32", Role.SCRATCH)
            for axis, panel, vectors in self._panels(columns):
                inner: list[Statement] = []
                for block, i, filled in blocks:
                    here = at(block) + i
                    place = _Place(sums, Index(), own.buffer, here, first + here, panel, 0, rows.chunks)
                    tile = [self._product(place, rows, columns), *self._stored(place, filled, vectors, rows)]
                    inner += around([block], tile)
                body += around([axis], inner)
            made += spread([*self.outer, group], body, self._steps)
        return made

    def _product(self, place: _Place, rows: PartPacking, columns: PartPacking) -> Statement:
        """Returns the product of a tile over its chunks; with `asks`, it prefetches a share of the next panel."""
        outer = flattened([at(a) for a in self.of_columns], [a.size for a in self.of_columns])
        of_columns = ((outer * columns.blocks + place.panel) * columns.chunks + place.first) * columns.chunk
        of_rows = (place.packed * rows.chunks + place.first) * rows.chunk
        later, products = (Index(), 0), len(PRODUCTS[rows.parts])
        if place.asks:
            lines = -(-rows.parts * COLUMNS // (rows.blocks * products))
            begin = of_columns + columns.chunks * columns.chunk
            later = begin + place.block * (place.steps * lines * products * CHUNK), lines
        product = MatrixProduct(
            place.sums,
            place.parts,
            columns.buffer,
            place.at_sums,
            of_rows,
            of_columns,
            rows.height,
            rows.parts,
            place.steps,
            later,
            place.first > 0,
        )
        return product.statement(self.axes)

    def _stored(self, place: _Place, filled: int, vectors: int, rows: PartPacking) -> list[Statement]:
        """Returns the stores of a tile's results: `filled` rows by `vectors` vectors."""
        row, unit, lane = (Axis(next(self.axes), n) for n in (filled, vectors, _LANES))
        column, line = at(unit) * _LANES + at(lane), place.block * rows.height + at(row)
        places = {self.columns: place.panel * COLUMNS + column}
        for axis in reversed(self.rows):
            places[axis], line = (line % axis.size, line // axis.size) if len(self.rows) > 1 else (line, line)
        change = partial(substituted, places=places)
        found = Load(place.sums, place.at_sums + at(row) * COLUMNS + column)
        value = with_local(changed(self.block.value, change), self.joined.local, found)
        store: Statement = For(lane, (Store(self.block.buffer, change(self.block.place), value),), Way.VECTOR)
        store = For(unit, (store,), Way.UNROLLED) if vectors > 1 else store
        return around([row], [store])
