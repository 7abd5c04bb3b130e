"""Weights of the next layer, brought while DMA would wait for room for more of this one's."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Protocol

from glenside.npu.isa.base import Instruction, Stream
from glenside.npu.lowering.allocation.slot_allocator import Slots
from glenside.npu.lowering.transfer.dram_operands import Brought
from glenside.npu.machine.model import Machine

_FEW = 16
"""Slots of weight memory that are shared by two layers, at least."""
_SHARE = 3, 4
"""What part of these may be of the next one."""


_SPREAD = 3, 8
"""Slots of each pattern of zeros, at least, and of one that is alone; others may be of weights that come as rows."""


def slots_for(tile: Brought, count: int, patterns: int = 8) -> int:
    """Returns the number of slots, out of `count`, that suffice for tiles of this kind with that many patterns of
    zeros.
    """
    least, most = _SPREAD
    if tile.spread is None:
        return max(least, count - most)
    return max(least, min(most, count // patterns))


class Clocks:
    """About when DMA and the array are done with what is written down: weights in slots are all that they wait for."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.dma = self.array = 0
        self.free: dict[int, int] = {}
        self.ready: dict[int, int] = {}
        self.loads = 0

    def count(self, instruction: Instruction) -> None:
        """One more instruction."""
        if instruction.unit == "dma":
            self.dma += instruction.cycles(self.machine)
        elif isinstance(instruction, Stream):
            least = self.machine.rows if instruction.fresh else 0  # the weights of the next one load meanwhile
            self.array = max(self.array, self.loads if instruction.fresh else 0)
            self.array += max(least, instruction.cycles(self.machine))

    def take(self, slot: int) -> None:
        """DMA goes on when a slot is free."""
        self.dma = max(self.dma, self.free.get(slot, 0))

    def there(self, slot: int) -> None:
        """DMA has filled it."""
        self.ready[slot] = self.dma + self.machine.latency

    def load(self, slot: int) -> None:
        """The array takes it."""
        self.loads = self.ready.get(slot, 0) + self.machine.rows
        self.free[slot] = max(self.array, self.loads)


class Coming:
    """The tiles of the next layer's runs, the first of which will have that number."""

    def __init__(self, tiles: Sequence[Brought], run: int, slots: Slots) -> None:
        self.tiles, self.run, self.slots = tiles, run, slots
        self.next, self.taken = 0, set[bytes]()
        self.most = slots.count * _SHARE[0] // _SHARE[1] if slots.count >= _FEW else 0

    def bring(self, writer: _Writer, now: int, cycles: int) -> None:
        """Some of them while run `now` streams, for so many cycles, as long as DMA would be done before."""
        clocks = writer.clocks
        while self.next < len(self.tiles) and len(self.taken) < self.most and clocks.dma < clocks.array + cycles:
            own = self.tiles[self.next]
            enough = slots_for(own, self.slots.count)
            found = self.slots.take(own.key, self.run + self.next, now, partial(writer.suits, own), enough)
            if found is None:
                return
            self.taken.add(own.key)
            self.next += 1
            if found[1]:
                writer.bring_weights(own, found[0])


class _Writer(Protocol):
    @property
    def clocks(self) -> Clocks: ...
    def suits(self, tile: Brought, slot: int) -> bool:
        """True if a slot has the zeros of a tile."""

    def bring_weights(self, tile: Brought, slot: int) -> None:
        """A tile to a slot."""
