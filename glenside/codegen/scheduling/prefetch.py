"""Prefetches operands of tiles: lines of later steps, and a share of the lines of the next tile.

The hardware prefetcher follows consecutive lines. It does not follow strided rows of which a step reads a few columns,
and it starts again with each tile.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

from glenside.codegen.loop_ir.affine_analysis import at, changed, coefficient, loads_in, substituted
from glenside.codegen.loop_ir.ir import Buffer, Fence, For, Formula, Load, Prefetch, Role, Statement, Store, Way
from glenside.codegen.memory.buffer_arena import LINE, in_line
from glenside.codegen.processor.model import Machine
from glenside.codegen.scheduling.tile_partition import Tile, TilePosition
from glenside.ir.dtypes import RECORDS
from glenside.ir.index_map import Axis, Index

_AHEAD, _FAR_AHEAD = 16, 48
"""Prefetch distances in reduction steps, within which operands arrive from the L2 cache; and from beyond the L2 cache,
where one tile reads all of the operand.
"""
_NEAR = 16
"""Operands of at most this fraction (1 / 16) of the L2 cache are not prefetched: they arrive in time."""
_MOST = 4
"""The most cache lines that a step prefetches of an operand: each costs a load."""
LONG = 64
"""The fewest reduction steps for which operands that are read after the reduction are prefetched before it."""
_LEAST_STEPS = 8
"""The fewest reduction steps between prefetches of the next tile's rows: more often, loops would end more often."""
_PAGE = 4096
"""Bytes of a page: hardware prefetchers do not cross pages."""


@dataclass(frozen=True)
class Reads:
    """The reads of a buffer by the reduction steps of a tile: `count` elements a step, with stride `apart`.

    first   index of the first element of the first step
    step    index of the step, of `depth` steps
    stride  elements from one step to the next
    jump    elements from this tile's reads to those of the next tile
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
        """Returns the elements of a cache line."""
        return in_line(self.buffer.dtype)

    @property
    def is_run(self) -> bool:
        """True if all reads of a tile together are contiguous."""
        steps_within = self.stride == 1 and self.apart == self.depth
        return steps_within or (self.apart == 1 and self.stride == self.count)

    def is_near(self, machine: Machine) -> bool:
        return self.buffer.bytes <= machine.l2 // _NEAR

    def _lines(self) -> list[int]:
        """Returns the offsets of the cache lines of one step from its first element."""
        if self.apart >= self.line:
            return [n * self.apart for n in range(self.count)]
        last = (self.count - 1) * self.apart
        lines = list(range(0, last + 1, self.line))
        places = (self.first.constant, self.stride, self.jump, *(factor for _, factor in self.first.terms))
        begins = self.buffer.role not in (Role.INPUT, Role.RESULT) and not any(n % self.line for n in places)
        return lines if begins else list(dict.fromkeys((*lines, last)))

    def _new_lines(self) -> list[int]:
        """Returns the offsets of the next tile's lines, without a line that this tile reads too.

        In contiguous tiles, an offset is that of the last element of a line, which is certain to be new.
        """
        if self.apart != 1 or self.jump != self.count:
            return self._lines()
        return [min(begin + self.line, self.count) - 1 for begin in range(0, self.count, self.line)]

    def ahead(self, steps: int = _AHEAD) -> list[Prefetch]:
        """Prefetches the lines of the step that is `steps` later."""
        place = self.first + (self.step + steps) * self.stride
        return [Prefetch(self.buffer, place + far) for far in self._lines()]

    def strided_ahead(self, alone: bool = False) -> list[Prefetch]:
        """Prefetches later lines if the stride of a step is a line or more and a step reads few lines.

        alone  True if no other tile reads them
        """
        few = abs(self.stride) >= self.line and len(self._lines()) <= _MOST
        return self.ahead(_FAR_AHEAD if alone else _AHEAD) if few else []

    def of_next(self, position: TilePosition, far: bool = False) -> Iterator[Prefetch]:
        """Prefetches a share of the next tile's operand, which the tiles of `position` divide.

        Only for a contiguous operand, or a stride below a cache line. `far`: as in `Prefetch`.
        """
        first, share = self.first + self.jump, -(-self.count // position.count)
        steps = position.place * self.depth + self.step
        if self.is_run:
            begin = first + steps * share
            yield from (Prefetch(self.buffer, begin + n, far) for n in range(0, share, self.line))
        elif abs(self.stride) < self.line:
            if share <= _MOST:
                rows = (position.place * share + n for n in range(share))
                yield from (Prefetch(self.buffer, first + row * self.apart + self.step * self.stride) for row in rows)

    def rows_of_next(self, position: TilePosition) -> Seldom | None:
        """Prefetches a share of the next tile's operand if its stride is a line or more: some steps' lines at a time.

        Returns None where the stride is smaller, or a step has many lines.
        """
        lines = self._new_lines()
        if self.is_run or abs(self.stride) < self.line or len(lines) > _MOST:
            return None
        share = -(-self.depth // position.count)
        each = -(-share // max(1, self.depth // _LEAST_STEPS))
        steps = self.depth // -(-share // each)
        first = self.first + self.jump + position.place * share * self.stride

        def asked(block: Index) -> list[Prefetch]:
            rows = (first + (block * each + row) * self.stride for row in range(each))
            return [Prefetch(self.buffer, place + line, True) for place in rows for line in lines]

        return Seldom(steps, asked)


@dataclass(frozen=True)
class Seldom:
    """A prefetch that is issued once in `steps` steps.

    asked  function that returns the prefetch statements, given the index of the block of steps
    """

    steps: int
    asked: Callable[[Index], Sequence[Statement]]

    def around(self, axis: Axis, body: Sequence[Statement], axes: Iterator[int]) -> list[Statement]:
        """Returns a loop over an axis, strip-mined by `steps`, with the prefetch outside the inner loop."""
        whole, rest = divmod(axis.size, self.steps)
        high, low, last = (Axis(next(axes), n) for n in (whole, self.steps, rest))
        inner = For(low, tuple(placed(body, {axis: at(high) * self.steps + at(low)})))
        found: list[Statement] = [For(high, (*self.asked(at(high)), inner))]
        if rest:
            found.append(For(last, tuple(placed(body, {axis: at(last) + whole * self.steps}))))
        return found


def placed(statements: Sequence[Statement], places: dict[Axis, Index]) -> Iterator[Statement]:
    """Substitutes axes in the statements of a tile."""
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
    """Prefetches the `count` elements that a later step reads of a packed operand; `here` is the first of this step.

    A line that begins within a step is prefetched by the next step.
    """
    assert isinstance(here, Load), "what is packed is read"
    return [Prefetch(here.buffer, here.place + _AHEAD * count + n) for n in range(0, count, in_line(here.dtype))]


def asked_of_packed(
    here: Formula, step: Index, depth: int, width: int, columns: int, position: TilePosition | None, machine: Machine
) -> Iterator[Statement]:
    """Prefetches later steps of a packed operand, and a share of the next tile's panel.

    here  the first element of the step
    """
    assert isinstance(here, Load), "what is packed is read"
    jump = depth * (columns if position is not None and position.grouped else width)
    reads = Reads(here.buffer, here.place - step * width, step, depth, width, 1, width, jump)
    if position is not None and position.count == 1:
        yield from reads.ahead(_FAR_AHEAD)
        return
    yield from () if reads.is_near(machine) else reads.ahead()
    yield from reads.of_next(position) if position is not None else ()


def read_at_end(
    value: Formula, tile: Tile, depth: int, columns: Axis, rows: Sequence[Axis], machine: Machine
) -> list[Statement]:
    """Prefetches the large operands of a tile's results besides its accumulators, with one element per result.

    They go into the L2 cache if the reduction reads more than the L1 cache holds and so would evict them.
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
    """Prefetches operands of the next tile that are in a new page for each step of a reduction axis.

    The operand is contiguous along rows, then the last line is prefetched, or along columns, then each line. Indices
    are those of the last step of the loops over `inner`.
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
