"""Numbers interlocked instructions, and resolves each interlock to the event that an instruction waits for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from glenside.npu.isa.base import Instruction
from glenside.npu.isa.fields import UNITS


@dataclass(frozen=True)
class Dependence:
    """An event that an instruction waits for before it starts; `number` is -1 if no instruction raises the event."""

    unit: str
    number: int
    event: str


class Interlocks:
    """The interlocked instructions of each unit, in order; instructions may be added one by one."""

    def __init__(self, pipelined: bool, queues: Mapping[str, Sequence[Instruction]] | None = None) -> None:
        self.pipelined = pipelined
        self._numbers: dict[str, list[int]] = {unit: [] for unit in UNITS}
        self._positions: dict[tuple[str, int], int] = {}
        for queue in (queues or {}).values():
            for number, own in enumerate(queue):
                self.add(own, number)

    def add(self, own: Instruction, number: int) -> None:
        """Adds instruction `number` of its unit."""
        if own.interlock is not None and own.interlock.holds(own):
            self._positions[own.unit, number] = len(self._numbers[own.unit])
            self._numbers[own.unit].append(number)

    def dependence(self, own: Instruction, number: int) -> Dependence | None:
        """Returns the event that instruction `number` of its unit waits for, or None."""
        lock = own.interlock
        if lock is None or not lock.holds(own):
            return None
        position = self._positions.get((own.unit, number), len(self._numbers[own.unit])) - lock.lag
        if position < 0:
            return None
        others = self._numbers[lock.other]
        found = others[position] if position < len(others) else -1
        return Dependence(lock.other, found, lock.event if self.pipelined else lock.serial)
