"""What tiles ask for before they read it: what lies some steps ahead, and a share of what the next tile reads.

A processor fetches by itself what lies line after line. Rows of a matrix of which a step reads a few columns it does
not, and it begins anew with each tile.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from glenside.codegen.arena import LINE
from glenside.codegen.loops import Buffer, Prefetch, Role
from glenside.codegen.machine import Machine
from glenside.codegen.panels import Turns
from glenside.ir.dtypes import RECORDS
from glenside.ir.index_map import Index

_AHEAD, FAR_AHEAD = 16, 48
"""Steps of a sum before which operands are asked for, so that they come from the second cache by then; and from beyond
it, where one tile reads them all.
"""
_NEAR = 16
"""Where operands are no more than that part of it, they come in time by themselves."""
_MOST = 4
"""Lines that a step asks for of an operand: each is one more load."""


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
        return LINE * 8 // RECORDS[self.buffer.dtype].bits

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

    def ahead(self, steps: int = _AHEAD) -> list[Prefetch]:
        """The lines of a later step."""
        place = self.first + (self.step + steps) * self.stride
        return [Prefetch(self.buffer, place + far) for far in self._lines()]

    def strided_ahead(self) -> list[Prefetch]:
        """The same, where steps are lines apart, and few lines are read in each."""
        return self.ahead() if abs(self.stride) >= self.line and len(self._lines()) <= _MOST else []

    def of_next(self, turns: Turns) -> Iterator[Prefetch]:
        """A share of what the next tile reads, where so many ask for all of it together."""
        first, share = self.first + self.jump, -(-self.count // turns.count)
        steps = turns.place * self.depth + self.step
        if self.is_run:
            yield from (Prefetch(self.buffer, first + steps * share + n) for n in range(0, share, self.line))
        elif abs(self.stride) < self.line:
            if share <= _MOST:
                rows = (turns.place * share + n for n in range(share))
                yield from (Prefetch(self.buffer, first + row * self.apart + self.step * self.stride) for row in rows)
        elif len(lines := self._lines()) <= _MOST:
            often = 1 << (turns.count.bit_length() - 1)  # steps that ask for the same, as it is a shift to find them
            step = turns.place * -(-self.depth // turns.count) + self.step // often
            yield from (Prefetch(self.buffer, first + step * self.stride + far) for far in lines)
