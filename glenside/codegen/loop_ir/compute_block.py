"""Compute blocks: each element of a buffer as a formula of its index and its reductions, before loops are ordered."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from glenside.codegen.loop_ir.ir import Buffer, Formula, Let, Local, Packing, Statement, Store
from glenside.codegen.loop_ir.nest_builder import around
from glenside.codegen.loop_ir.scalar_expr import apply
from glenside.ir.index_map import Axis, Index


@dataclass(frozen=True)
class Joined:
    """A reduction: a variable that accumulates `element` over the axes with the primitive `combine`, from `start` on.

    exact  True if `start` is the identity, so that the reduction may be split into partial ones
    """

    local: Local
    axes: tuple[Axis, ...]
    combine: str
    start: Formula
    element: Formula
    exact: bool

    def statements(self) -> Sequence[Statement]:
        """Returns the sequential loops of the reduction."""
        found = apply(self.combine, self.local, self.element)
        return [Let(self.local, self.start), *around(self.axes, [Let(self.local, found, known=True)])]


@dataclass(frozen=True)
class Block:
    """For each step of the axes: computes the reductions, then stores `value` at `place` of the buffer.

    beside  (index, value) of further stores, in blocks without reductions
    around  the axes of the loops that enclose the block
    """

    axes: tuple[Axis, ...]
    joined: tuple[Joined, ...]
    buffer: Buffer
    place: Index
    value: Formula
    beside: tuple[tuple[Index, Formula], ...] = ()
    around: tuple[Axis, ...] = ()

    def stores(self) -> list[Statement]:
        """Returns the stores of one step."""
        return [Store(self.buffer, place, value) for place, value in ((self.place, self.value), *self.beside)]

    def plain(self) -> list[Statement]:
        """Returns the unscheduled loops: one per axis, in order."""
        before = [statement for joined in self.joined for statement in joined.statements()]
        return around(self.axes, [*before, *self.stores()])


@dataclass(frozen=True)
class ScheduledBlock:
    """The loops of a block, and the packed operands that they read."""

    statements: list[Statement]
    packings: tuple[Packing, ...] = ()
