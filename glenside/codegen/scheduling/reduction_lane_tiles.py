"""Tiles with few columns, such as image channels: each accumulator is a vector along a contiguous reduction axis.

The lanes of an accumulator are added last. Constants are packed along the reduction; each vector of constants is used
for several rows. Without a contiguous axis, accumulators are scalars; several rows are computed at once to hide
latency.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from copy import copy
from math import prod

from glenside.codegen.emit_c.nibbles import HALF
from glenside.codegen.loop_ir.affine_analysis import (
    at,
    changed,
    coefficient,
    is_asking,
    loads_in,
    merged,
    substituted,
    with_loads,
)
from glenside.codegen.loop_ir.compute_block import Block, ScheduledBlock
from glenside.codegen.loop_ir.ir import (
    Buffer,
    Fence,
    For,
    Formula,
    Load,
    Number,
    Packing,
    Role,
    Statement,
    Store,
    Way,
)
from glenside.codegen.loop_ir.nest_builder import around
from glenside.codegen.loop_ir.open_axes import is_open
from glenside.codegen.loop_ir.scalar_expr import apply, with_local
from glenside.codegen.processor.model import Machine
from glenside.codegen.scheduling.operand_packing import packing_of
from glenside.codegen.scheduling.tile_partition import least_lanes, pieces_of, rows_of
from glenside.codegen.scheduling.vectorize import in_vectors, lanes_in, spread, tree
from glenside.ir.index_map import Axis, Index, flattened
from glenside.ir.types import Dims

_COLUMNS = 8
"""The most columns."""
_SUMS = 16
"""About the number of accumulators that are used in turn: enough to hide the latency of additions."""
_MANY = 1 << 16
"""The fewest reduction steps for which scalar tiles are worth their code size."""
_OF_LANES = 2
"""Instructions per lane to add the lanes of an accumulator."""


class LaneTiles:
    """A schedule of rows x columns of results, each with a vector of partial sums.

    whole  the reduction axes that together are contiguous in the operands that are not constant
    """

    def __init__(self, block: Block, axes: Iterator[int], machine: Machine) -> None:
        self.block, self.axes, self.machine = block, axes, machine
        (self.joined,) = block.joined
        self.loads = list(dict.fromkeys(loads_in(self.joined.element)))
        self.constants = [load for load in self.loads if load.buffer.role is Role.CONSTANT]
        self.moved = [load for load in self.loads if load not in self.constants]
        groups = merged([load.place for load in self.moved], [axis for axis in self.joined.axes if axis.is_loop])
        self.whole = next((group for group in groups if self._is_run(group[-1])), [])
        self.others = [axis for group in groups if group is not self.whole for axis in group]
        self.others.sort(key=lambda axis: -max((abs(coefficient(load.place, axis)) for load in self.moved), default=0))
        self.size = prod(axis.size for axis in self.whole)
        self.steps = prod(axis.likely for axis in (*block.around, *block.axes, *self.joined.axes))
        self.lanes = self._lanes()
        alone = [axis for axis in block.axes if self._moves(axis, self.constants) and not self._moves(axis, self.moved)]
        self.column = next((axis for axis in alone if coefficient(block.place, axis) == 1), None)
        rows = [axis for axis in block.axes if not self._moves(axis, self.constants)]
        self.row = max(
            rows, key=lambda axis: (min(axis.size, _SUMS), -abs(coefficient(block.place, axis))), default=None
        )

    @property
    def columns(self) -> int:
        return self.column.size if self.column is not None else 1

    @property
    def is_possible(self) -> bool:
        joined, dtype = self.joined, self.joined.local.dtype
        return (
            dtype in ("float32", "float64")
            and joined.exact
            and isinstance(joined.start, Number)
            and in_vectors(joined.element, dtype)
            and not is_asking(self.block)
            and bool(self.constants and self.moved)
            and self.lanes > 1
            and self.columns <= _COLUMNS
        )

    @property
    def is_possible_of_numbers(self) -> bool:
        """True if accumulators can be scalars, and there are enough reduction steps."""
        of_numbers = in_vectors(self.joined.element, self.joined.local.dtype) and isinstance(self.joined.start, Number)
        return of_numbers and not is_asking(self.block) and self.columns == 1 and self.steps >= _MANY

    def is_better(self, columns: int) -> bool:
        """True if the schedule is possible and takes fewer instructions per result than vectors along the columns."""
        repeated = any(not coefficient(load.place, axis) for load in self.constants for axis in self.joined.axes)
        if not self.is_possible or repeated:  # a scale of several steps would be packed for each of them
            return False
        most = lanes_in([self.joined.element], self.machine)
        depth = self.size * prod(axis.size for axis in self.others)
        vectors = sum(
            count * times for _, _, count, times in pieces_of(columns, 1, most, least_lanes(self.joined.local.dtype))
        )
        return depth * self._steps / self.size + _OF_LANES * self.lanes < depth * vectors / columns

    def made(self) -> ScheduledBlock:
        packings = {load: self._packing(load, number) for number, load in enumerate(self.constants)}
        return self._in_tiles(packings)

    def made_of_numbers(self) -> ScheduledBlock:
        """Returns the schedule with scalar accumulators of several rows and unpacked operands."""
        found = copy(self)
        found.lanes, found.size, found.others, found.whole = 1, 1, [*self.others, *self.whole], []
        return found._in_tiles({})

    def _in_tiles(self, packings: dict[Load, Packing]) -> ScheduledBlock:
        block, height = self.block, max(1, min(_SUMS, self.machine.registers // 2) // self.columns)
        rows = self.row or Axis(0, 1)
        outer = [axis for axis in block.axes if axis not in (self.row, self.column)]
        steps, bodies = self.steps, []
        for begin, own, times in rows_of(rows.size, height):
            tile = Axis(next(self.axes), times)
            bodies.append((tile, self._tile(packings, Axis(next(self.axes), own), at(tile) * own + begin)))
        if outer:
            inner = [statement for tile, body in bodies for statement in around([tile], body)]
            return ScheduledBlock(spread(outer, inner, steps), tuple(packings.values()))
        return ScheduledBlock(
            [s for tile, body in bodies for s in spread([tile], body, steps)], tuple(packings.values())
        )

    def _is_run(self, axis: Axis) -> bool:
        """True if each operand that is not constant has stride 0 or 1 along an axis, and one has stride 1."""
        steps = {coefficient(load.place, axis) for load in self.moved}
        return steps <= {0, 1} and 1 in steps

    def _moves(self, axis: Axis, loads: Sequence[Load]) -> bool:
        return any(coefficient(load.place, axis) for load in loads)

    def _lanes(self) -> int:
        """Returns the lanes with the fewest reduction steps, or 1 if the reduction is shorter than every vector."""
        lanes = lanes_in([self.joined.element], self.machine)
        if is_open(self.size):
            return lanes
        found = [n for n in (lanes, lanes // 2, lanes // 4) if least_lanes(self.joined.local.dtype) <= n <= self.size]
        return min(found, key=lambda n: self.size // n + self.size % n, default=1)

    @property
    def _steps(self) -> int:
        """Returns the steps along the contiguous axes: vectors, then scalars at the end."""
        return self.size // self.lanes + (0 if is_open(self.size) else self.size % self.lanes)

    def _packing(self, load: Load, number: int) -> Packing:
        *before, last = self.whole
        inner, aligned = [*self.others, *before], last.size % HALF == 0
        return packing_of(self.block, last, ((0, last.size, 1),), load, inner, number, aligned)

    def _tile(self, packings: dict[Load, Packing], row: Axis, rows: Index) -> list[Statement]:
        """Returns a tile of `row` rows, from index `rows` on, and all columns."""
        joined, block, lanes = self.joined, self.block, self.lanes
        dtype, column = joined.local.dtype, Axis(next(self.axes), self.columns)
        is_open_ = is_open(self.size)
        lane, step = Axis(next(self.axes), lanes), Axis(next(self.axes), self.size // lanes, int(is_open_))
        last = Axis(next(self.axes), self.size % lanes, lanes * is_open_)
        sums = Buffer(f"tile{next(self.axes)}", Dims((row.size * column.size, lanes)), dtype, Role.REGISTER)
        places = {self.row: rows + at(row)} if self.row is not None else {}
        places |= {self.column: at(column)} if self.column is not None else {}
        of = at(row) * column.size + at(column)
        rest = Buffer(f"tile{next(self.axes)}", Dims((row.size * column.size,)), dtype, Role.REGISTER)
        vector, number = Load(sums, of * lanes + at(lane)), Load(rest, of)

        def each(*statements: Statement) -> list[Statement]:
            inner = statements
            for axis in (column, row):
                inner = (For(axis, inner, Way.UNROLLED),) if axis.size > 1 else inner
            return list(inner)

        def set_to(to: Load, value: Formula) -> list[Statement]:
            store = Store(to.buffer, to.place, value)
            return each(For(lane, (store,), Way.VECTOR) if to is vector and lanes > 1 else store)

        def added(to: Load, along: Index) -> list[Statement]:
            return set_to(to, apply(joined.combine, to, self._element(packings, places, along)))

        steps = around([step], added(vector, at(step) * lanes + at(lane)))
        if last.size or is_open_:
            steps += around([last], added(number, at(last) + (self.size - last.size)))
        parts = [Load(sums, of * lanes + n) for n in range(lanes)] + [number] * (last.size > 0 or is_open_)
        value = changed(block.value, lambda index: substituted(index, places))
        return [
            *set_to(vector, joined.start),
            *(set_to(number, joined.start) if last.size or is_open_ else ()),
            *around(self.others, steps),
            Fence(),
            *each(
                Store(rest, of, tree(joined.combine, parts)),
                Store(block.buffer, substituted(block.place, places), with_local(value, joined.local, number)),
            ),
        ]

    def _element(self, packings: dict[Load, Packing], places: dict[Axis, Index], along: Index) -> Formula:
        """Returns the element that is accumulated at index `along` of the contiguous axes."""
        here = {**places, **dict.fromkeys(self.whole, Index()), **dict.fromkeys(self.whole[-1:], along)}

        def read(load: Load) -> Load:
            if load not in packings:
                return Load(load.buffer, substituted(load.place, here), load.picked)
            outer = [a for a in (*self.block.around, *self.block.axes) if coefficient(load.place, a)]
            own = [*outer, *self.others]
            place = flattened([places.get(a, at(a)) for a in own], [a.size for a in own])
            return Load(packings[load].buffer, place * self.size + along)

        return with_loads(self.joined.element, read)
