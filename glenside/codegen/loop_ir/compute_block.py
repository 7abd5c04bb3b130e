"""Blocks: the elements of a buffer, each a formula of its place and of what is joined for it; no order of loops yet."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from glenside.codegen.loop_ir.ir import Buffer, Formula, Let, Local, Packing, Statement, Store
from glenside.codegen.loop_ir.nest_builder import around
from glenside.codegen.loop_ir.scalar_expr import apply
from glenside.ir.index_map import Axis, Index


@dataclass(frozen=True)
class Joined:
    """A variable that becomes `combine` of `start` and of an element for each place of the axes.

    exact  whether start changes nothing, so that elements may be joined in parts
    """

    local: Local
    axes: tuple[Axis, ...]
    combine: str
    start: Formula
    element: Formula
    exact: bool

    def statements(self) -> Sequence[Statement]:
        """One element after the other."""
        found = apply(self.combine, self.local, self.element)
        return [Let(self.local, self.start), *around(self.axes, [Let(self.local, found, known=True)])]


@dataclass(frozen=True)
class Block:
    """For each place of the axes: what is joined, then the element of the buffer at `place` becomes `value`.

    beside  other elements and what they become, of blocks that join nothing
    around  the axes of loops that are around it already
    """

    axes: tuple[Axis, ...]
    joined: tuple[Joined, ...]
    buffer: Buffer
    place: Index
    value: Formula
    beside: tuple[tuple[Index, Formula], ...] = ()
    around: tuple[Axis, ...] = ()

    def stores(self) -> list[Statement]:
        """What is stored for each place of the axes."""
        return [Store(self.buffer, place, value) for place, value in ((self.place, self.value), *self.beside)]

    def plain(self) -> list[Statement]:
        """Loops over the axes in their order."""
        before = [statement for joined in self.joined for statement in joined.statements()]
        return around(self.axes, [*before, *self.stores()])


@dataclass(frozen=True)
class ScheduledBlock:
    """A block in loops, and what must be packed for them."""

    statements: list[Statement]
    packings: tuple[Packing, ...] = ()
