"""Queues of instructions that wait for each other: what writes and reads each resource is known, so waits follow."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterable
from dataclasses import dataclass, field, replace
from typing import Any

from glenside.npu.instructions import UNITS, Instruction, Wait

Resource = Hashable
"""Part of a memory that is written as one and read as one, such as a half of the lanes."""


@dataclass
class Queues:
    """The queues of a program as they grow.

    An instruction that reads a resource waits for what wrote it last; one that writes it waits for that too, and for
    all that has read it since. Of one unit only the last matters: units complete in order. What a unit wrote itself is
    waited for only to be read: it writes in order.
    """

    instructions: dict[str, list[Instruction]] = field(default_factory=lambda: {unit: [] for unit in UNITS})
    _written: dict[Resource, dict[str, int]] = field(default_factory=lambda: defaultdict(dict))
    _read: dict[Resource, dict[str, int]] = field(default_factory=lambda: defaultdict(dict))

    def add(
        self,
        instruction: Any,
        reads: Iterable[Resource] = (),
        writes: Iterable[Resource] = (),
        uses: Iterable[Resource] = (),
    ) -> None:
        """One more instruction of its unit. What it `uses` the machine itself keeps until it was written: only who
        writes there next waits.
        """
        unit, wanted = instruction.unit, dict.fromkeys(UNITS, 0)
        reads, writes = [*reads], [*writes]
        for resource in writes:
            _raise(wanted, self._written[resource])
            _raise(wanted, self._read[resource])
        wanted[unit] = 0  # it comes after them anyway
        for resource in reads:
            _raise(wanted, self._written[resource])
        own = self.instructions[unit]
        number = len(own) + 1  # as many are completed with it
        own.append(replace(instruction, wait=Wait(**wanted)))
        for resource in (*reads, *uses):
            self._read[resource][unit] = number
        for resource in writes:
            self._written[resource] = {unit: number}
            self._read[resource] = {}

    def made(self) -> dict[str, tuple[Instruction, ...]]:
        """The queues."""
        return {unit: tuple(own) for unit, own in self.instructions.items()}


def _raise(wanted: dict[str, int], numbers: dict[str, int]) -> None:
    for unit, number in numbers.items():
        wanted[unit] = max(wanted[unit], number)
