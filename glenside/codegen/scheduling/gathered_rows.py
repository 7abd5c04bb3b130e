"""Schedules blocks that read elements at computed indices, which are computed in the loops in which they vary."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from math import prod

from glenside.codegen.loop_ir.affine_analysis import at, coefficient, indices_of, is_direct, substituted, with_places
from glenside.codegen.loop_ir.compute_block import Block
from glenside.codegen.loop_ir.footprints import axes_in
from glenside.codegen.loop_ir.ir import For, Formula, Let, Local, Require, Statement, Way
from glenside.codegen.loop_ir.nest_builder import around
from glenside.codegen.processor.model import Machine
from glenside.codegen.scheduling.vectorize import in_vectors, lanes_in, run, runs_along, spread
from glenside.ir.index_map import Axis, Index

_ROWS = 4
"""Rows that share each index along them."""


@dataclass(frozen=True)
class Position:
    """A computed index of an axis of `size` elements, read by an operator."""

    local: Local
    index: Formula
    size: int
    operator: str

    @property
    def axes(self) -> set[Axis]:
        """Returns the loops in which it varies."""
        return set(axes_in(*indices_of(self.index)))

    def statements(self) -> list[Statement]:
        """Returns its definition and the check of its bounds."""
        return [Let(self.local, self.index), Require(self.local, self.size, self.operator)]


def gathered_rows(
    block: Block, positions: Sequence[Position], axes: Iterator[int], machine: Machine
) -> list[Statement]:
    """Returns the loops of a block without reductions that reads elements at computed indices.

    Rows at computed indices are read in vectors. Elements at computed indices of a row are read for several rows at a
    time.
    """
    if not block.axes:
        return [*(s for position in positions for s in position.statements()), *block.stores()]
    *outer, last = block.axes
    along = [position for position in positions if last in position.axes]
    steps, others = prod(axis.size for axis in block.axes), [p for p in positions if p not in along]
    if not along:
        return _around(outer, _row(block, axes, machine), others, steps)
    if not outer or any(outer[-1] in position.axes for position in positions):
        return _around(block.axes, block.stores(), positions, steps)
    return _around(outer[:-1], _rows(block, along, axes), others, steps)


def _row(block: Block, axes: Iterator[int], machine: Machine) -> list[Statement]:
    """Returns the loop along the last axis: vectors, if the elements are contiguous."""
    last = block.axes[-1]
    is_contiguous = coefficient(block.place, last) == 1 and is_direct(block.place, last)
    if not (is_contiguous and in_vectors(block.value, block.buffer.dtype) and runs_along(block.value, last)):
        return around([last], block.stores())
    return run(last, axes, lanes_in([block.value], machine), _stores_at(block, last))


def _rows(block: Block, along: Sequence[Position], axes: Iterator[int]) -> list[Statement]:
    """Returns the last two loops: positions along the last axis are computed once for several rows."""
    rows, last = block.axes[-2:]
    positions = [statement for position in along for statement in position.statements()]
    stores, made, begin = _stores_at(block, rows), list[Statement](), 0
    for count in (_ROWS, 1):
        times = (rows.size - begin) // count
        if times or rows.limit:
            limit = rows.limit if count > 1 else _ROWS * bool(rows.limit)
            step, row = Axis(next(axes), times, limit), Axis(next(axes), count)
            own = stores(at(step) * count + at(row) + begin)
            made += around([step, last], [*positions, *([For(row, tuple(own), Way.UNROLLED)] if count > 1 else own)])
        begin += times * count
    return made


def _stores_at(block: Block, axis: Axis) -> Callable[[Index], list[Statement]]:
    """Returns a function: index along an axis -> the stores of the block there."""
    return lambda place: with_places(block, partial(substituted, places={axis: place})).stores()


def _around(loops: Sequence[Axis], body: list[Statement], positions: Sequence[Position], steps: int) -> list[Statement]:
    """Returns loops around a body; each position is computed in the innermost loop in which it varies.

    Those that vary in none are computed in the outermost one: if it is parallel, it is a function of its own.
    """
    loops = [axis for axis in loops if axis.is_loop]
    depth = {p: max((i + 1 for i, axis in enumerate(loops) if axis in p.axes), default=bool(loops)) for p in positions}
    for number in range(len(loops), 0, -1):
        own = [statement for p in positions if depth[p] == number for statement in p.statements()]
        body = spread([loops[number - 1]], [*own, *body], steps if number == 1 else 0)
    return [*(statement for p in positions if depth[p] == 0 for statement in p.statements()), *body]
