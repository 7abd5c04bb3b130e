"""Prefetches the next layer's weights while DMA would stall on space for this layer's weights."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from functools import partial
from typing import Protocol

from glenside.npu.isa.base import Instruction, Stream
from glenside.npu.lowering.allocation.slot_allocator import Slots
from glenside.npu.lowering.transfer.dram_operands import Brought
from glenside.npu.machine.model import Machine

_MIN_SLOTS = 16
"""Least number of slots of weight memory for prefetching."""
_SHARE = 3, 4
"""Maximum share of the slots for the next layer's weights."""


_SPREAD = 3, 8
"""Least and most slots for each pattern of zeros; the others remain for weights that are loaded as dense rows."""


def slots_for(tile: Brought, count: int, patterns: int = 8) -> int:
    """Returns the number of slots, out of `count`, that suffice for tiles of this kind with that many patterns of
    zeros.
    """
    least, most = _SPREAD
    if tile.spread is None:
        return max(least, count - most)
    return max(least, min(most, count // patterns))


class Clocks:
    """Estimates when DMA and the array finish the emitted instructions, considering waits for weight slots only."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.dma = self.array = 0
        self.free: dict[int, int] = {}
        self.ready: dict[int, int] = {}
        self.loads = 0

    def count(self, instruction: Instruction) -> None:
        """Adds the cycles of an instruction."""
        if instruction.unit == "dma":
            self.dma += instruction.cycles(self.machine)
        elif isinstance(instruction, Stream):
            least = self.machine.rows if instruction.fresh else 0  # the next weights load meanwhile
            self.array = max(self.array, self.loads if instruction.fresh else 0)
            self.array += max(least, instruction.cycles(self.machine))

    def take(self, slot: int) -> None:
        """Lets DMA wait until a slot is free."""
        self.dma = max(self.dma, self.free.get(slot, 0))

    def there(self, slot: int) -> None:
        """Records that DMA has filled a slot."""
        self.ready[slot] = self.dma + self.machine.latency

    def load(self, slot: int) -> None:
        """Records that the array loads the weights of a slot."""
        self.loads = self.ready.get(slot, 0) + self.machine.rows
        self.free[slot] = max(self.array, self.loads)


class Coming:
    """The weight tiles of the next layer's runs; `run` is the number of its first run."""

    def __init__(self, tiles: Sequence[Brought], run: int, slots: Slots) -> None:
        self.tiles, self.run, self.slots = tiles, run, slots
        self.next, self.taken = 0, set[bytes]()
        self.most = slots.count * _SHARE[0] // _SHARE[1] if slots.count >= _MIN_SLOTS else 0

    def bring(self, writer: _Writer, now: int, cycles: int) -> None:
        """Prefetches tiles while run `now` streams for `cycles`, as long as DMA would finish before."""
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
    def suits(self, tile: Brought, there: Hashable) -> bool:
        """True if a slot with these zeros has the zeros of a tile."""

    def bring_weights(self, tile: Brought, slot: int) -> None:
        """Emits the load of a tile's weights into a slot."""
