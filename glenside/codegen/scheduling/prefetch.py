"""What tiles ask for before they read it: what lies some steps ahead, and a share of what the next tile reads.

A processor fetches by itself what lies line after line. Rows of a matrix of which a step reads a few columns it does
not, and it begins anew with each tile.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

from glenside.codegen.loop_ir.affine_analysis import at, changed, coefficient, loads_in, substituted
from glenside.codegen.loop_ir.ir import Buffer, Fence, For, Formula, Load, Prefetch, Role, Statement, Store, Way
from glenside.codegen.memory.buffer_arena import LINE, in_line
from glenside.codegen.processor.model import Machine
from glenside.codegen.scheduling.tile_partition import Tile, Turns
from glenside.ir.dtypes import RECORDS
from glenside.ir.index_map import Axis, Index

_AHEAD, _FAR_AHEAD = 16, 48
"""Steps of a sum before which operands are asked for, so that they come from the second cache by then; and from beyond
it, where one tile reads them all.
"""
_NEAR = 16
"""Where operands are no more than that part of it, they come in time by themselves."""
_MOST = 4
"""Lines that a step asks for of an operand: each is one more load."""
LONG = 64
"""Steps of a sum, from which on what is read after it is asked for before it."""
_LEAST_STEPS = 8
"""Of a sum, after which rows of the next tile are asked for: more often, loops would end more often."""
_PAGE = 4096
"""Bytes beyond which processors ask for nothing by themselves."""


@dataclass(frozen=True)
class Reads:
    """What the steps of the sums of a tile read of a buffer: `count` elements each, `apart` from each other.

    first   where the first one of the first step is
    step    which step it is, of `depth`
    stride  from one step to the next
    jump    from what this tile reads to what the next one does
    """

    buffer: Buffer
    first: Index
    step: Index
    depth: int
    count: int
    apart: int
    stride: int
    jump: int

    @property
    def line(self) -> int:
        """Elements of a line of the cache."""
        return in_line(self.buffer.dtype)

    @property
    def is_run(self) -> bool:
        """Whether all that a tile reads lies next to each other."""
        steps_within = self.stride == 1 and self.apart == self.depth
        return steps_within or (self.apart == 1 and self.stride == self.count)

    def is_near(self, machine: Machine) -> bool:
        return self.buffer.bytes <= machine.l2 // _NEAR

    def _lines(self) -> list[int]:
        """How far the lines of one step are from its first element."""
        if self.apart >= self.line:
            return [n * self.apart for n in range(self.count)]
        last = (self.count - 1) * self.apart
        lines = list(range(0, last + 1, self.line))
        places = (self.first.constant, self.stride, self.jump, *(factor for _, factor in self.first.terms))
        begins = self.buffer.role not in (Role.INPUT, Role.RESULT) and not any(n % self.line for n in places)
        return lines if begins else list(dict.fromkeys((*lines, last)))

    def _new_lines(self) -> list[int]:
        """The same of the next tile, but for one that this tile reads too: where they lie next to each other, each line
        ends there that begins here.
        """
        if self.apart != 1 or self.jump != self.count:
            return self._lines()
        return [min(begin + self.line, self.count) - 1 for begin in range(0, self.count, self.line)]

    def ahead(self, steps: int = _AHEAD) -> list[Prefetch]:
        """The lines of a later step."""
        place = self.first + (self.step + steps) * self.stride
        return [Prefetch(self.buffer, place + far) for far in self._lines()]

    def strided_ahead(self, alone: bool = False) -> list[Prefetch]:
        """The same, where steps are lines apart, and few lines are read in each; `alone`: no other tile reads them."""
        few = abs(self.stride) >= self.line and len(self._lines()) <= _MOST
        return self.ahead(_FAR_AHEAD if alone else _AHEAD) if few else []

    def of_next(self, turns: Turns, far: bool = False) -> Iterator[Prefetch]:
        """A share of what the next tile reads, where so many ask for all of it together, and steps lie closer than
        lines; `far` as of Prefetch.
        """
        first, share = self.first + self.jump, -(-self.count // turns.count)
        steps = turns.place * self.depth + self.step
        if self.is_run:
            begin = first + steps * share
            yield from (Prefetch(self.buffer, begin + n, far) for n in range(0, share, self.line))
        elif abs(self.stride) < self.line:
            if share <= _MOST:
                rows = (turns.place * share + n for n in range(share))
                yield from (Prefetch(self.buffer, first + row * self.apart + self.step * self.stride) for row in rows)

    def rows_of_next(self, turns: Turns) -> Seldom | None:
        """The same where steps are lines apart: the lines of one step at a time. None where those are many."""
        lines = self._new_lines()
        if self.is_run or abs(self.stride) < self.line or len(lines) > _MOST:
            return None
        share = -(-self.depth // turns.count)
        each = -(-share // max(1, self.depth // _LEAST_STEPS))
        steps = self.depth // -(-share // each)
        first = self.first + self.jump + turns.place * share * self.stride

        def asked(block: Index) -> list[Prefetch]:
            rows = (first + (block * each + row) * self.stride for row in range(each))
            return [Prefetch(self.buffer, place + line, True) for place in rows for line in lines]

        return Seldom(steps, asked)


@dataclass(frozen=True)
class Seldom:
    """What is asked for once in so many steps, by how many times that has been."""

    steps: int
    asked: Callable[[Index], Sequence[Statement]]

    def around(self, axis: Axis, body: Sequence[Statement], axes: Iterator[int]) -> list[Statement]:
        """A loop over an axis whose steps are so many at a time, and what is left: to ask takes no sums in a step."""
        whole, rest = divmod(axis.size, self.steps)
        high, low, last = (Axis(next(axes), n) for n in (whole, self.steps, rest))
        inner = For(low, tuple(placed(body, {axis: at(high) * self.steps + at(low)})))
        found: list[Statement] = [For(high, (*self.asked(at(high)), inner))]
        if rest:
            found.append(For(last, tuple(placed(body, {axis: at(last) + whole * self.steps}))))
        return found


def placed(statements: Sequence[Statement], places: dict[Axis, Index]) -> Iterator[Statement]:
    """Statements of tiles at some places of axes."""
    change = partial(substituted, places=places)
    for statement in statements:
        if isinstance(statement, For):
            yield replace(statement, body=tuple(placed(statement.body, places)))
        elif isinstance(statement, Store):
            yield replace(statement, place=change(statement.place), formula=changed(statement.formula, change))
        elif isinstance(statement, Prefetch):
            yield replace(statement, place=change(statement.place))
        else:
            assert isinstance(statement, Fence), "tiles have no variables"
            yield statement


def run_ahead(here: Formula, count: int) -> list[Prefetch]:
    """What a later step reads of what is packed, so many elements, of which the first of this step is `here`. A line
    that begins within a step is asked for by the next one.
    """
    assert isinstance(here, Load), "what is packed is read"
    return [Prefetch(here.buffer, here.place + _AHEAD * count + n) for n in range(0, count, in_line(here.dtype))]


def asked_of_packed(
    here: Formula, step: Index, depth: int, width: int, columns: int, turns: Turns | None, machine: Machine
) -> Iterator[Statement]:
    """Of a packed operand, whose first element of a step is `here`: what later steps read, and a share of the panel of
    the next tile.
    """
    assert isinstance(here, Load), "what is packed is read"
    jump = depth * (columns if turns is not None and turns.grouped else width)
    reads = Reads(here.buffer, here.place - step * width, step, depth, width, 1, width, jump)
    if turns is not None and turns.count == 1:
        yield from reads.ahead(_FAR_AHEAD)
        return
    yield from () if reads.is_near(machine) else reads.ahead()
    yield from reads.of_next(turns) if turns is not None else ()


def read_at_end(
    value: Formula, tile: Tile, depth: int, columns: Axis, rows: Sequence[Axis], machine: Machine
) -> list[Statement]:
    """The lines of what the results of a tile are made of beside its sums: each element of one result alone. Where the
    sums read more than the nearest cache holds, they would not stay there.
    """
    found: list[Statement] = []
    far = depth * (tile.row.size + tile.width) * LINE // in_line(tile.registers.dtype) > machine.l1
    for load in dict.fromkeys(loads_in(value)):
        own = coefficient(load.place, columns) == 1 and any(coefficient(load.place, axis) for axis in rows)
        if not own or load.picked or load.buffer.bytes <= machine.l2 // 4:
            continue
        first = substituted(tile.change(load.place), {tile.unit: Index(), tile.lane: Index()})
        for begin in range(0, tile.width, in_line(load.dtype)):
            asked = Prefetch(load.buffer, first + begin, far)
            found.append(For(tile.row, (asked,), Way.UNROLLED) if tile.row.size > 1 else asked)
    return found


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
            line = LINE // size
            yield from (Prefetch(load.buffer, start + n) for n in range(line - 1, tile.width, line))
