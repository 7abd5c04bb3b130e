"""Counts multiplications and memory accesses of instructions, for energy estimates.

A bank that a table does not enable is neither read nor multiplied. Memories with whole-row accesses count all columns.
Tables, parameters and functions count as registers: only their DRAM loads are counted. Counts follow from the effects
of instructions.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from functools import cache, partial
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt

from glenside.ir.errors import BadInput
from glenside.npu.isa.address_generators import ENTRY
from glenside.npu.isa.base import Tables
from glenside.npu.isa.effects import DRAM, LANES, TABLES
from glenside.npu.isa.fields import ARRAY_UNIT
from glenside.npu.machine.model import Energy, Machine
from glenside.npu.program.program import NpuProgram

KINDS = tuple(field.name for field in fields(Energy) if field.type == "float")
"""Counted operations and accesses: the energy fields of `Energy`."""
Counts = Mapping[str, int]


class _Tables:
    """The permutation table in each slot over time, and its number of enabled entries."""

    def __init__(self, program: NpuProgram, start: Mapping[str, Sequence[int]]) -> None:
        self.program, self.machine = program, program.machine
        self.filled: dict[int, list[tuple[int, int]]] = {}
        size = self.machine.table_beats * self.machine.bandwidth
        for number, own in enumerate(program.queue("dma")):
            if isinstance(own, Tables):
                for each in range(own.number):
                    slot = self.filled.setdefault(own.table + each, [])
                    slot.append((start["dma"][number], own.dram + each * size))
        self.enabled = cache(self._enabled)

    def _enabled(self, address: int) -> npt.NDArray[np.int64]:
        """Returns the running count of enabled entries of the table at a DRAM address, (entries)."""
        size = self.machine.entries * ENTRY.itemsize
        found = self.program.dram[address : address + size].view(ENTRY)["enable"] & 1
        return np.cumsum(found, dtype=np.int64)

    def enabled_at(self, start: int, slot: int, used: int) -> int:
        """Counts the enabled entries among the first `used` of a slot's table at cycle `start`.

        Raises BadInput if no table was loaded by then.
        """
        filled = self.filled.get(slot, [])
        last = bisect_right(filled, start, key=lambda own: own[0]) - 1
        if last < 0:
            raise BadInput(f"table {slot} is used, and nothing has filled it by cycle {start:,}")
        return int(self.enabled(filled[last][1])[used - 1])


def accesses(program: NpuProgram, unit: str, start: Mapping[str, Sequence[int]]) -> list[Counts]:
    """Returns the counts of each instruction of a unit; `start`: the start cycle of each instruction, by unit."""
    tables, machine = _Tables(program, start), program.machine
    return [
        _counts(own, machine, partial(tables.enabled_at, start[unit][n])) for n, own in enumerate(program.queue(unit))
    ]


def _counts(own: Any, machine: Machine, enabled: Callable[[int, int], int]) -> Counts:
    """Counts the accesses of an instruction from its effects.

    enabled  slot, number of entries -> number of enabled entries
    """
    counts, iterations, entries = Counter[str](), prod(getattr(own, "counts", (1,))), 0
    for effect in own.effects:
        number, energy = getattr(own, effect.count) if effect.count else 1, effect.memory.energy
        if effect.memory is TABLES and not effect.writes:
            slots = range(first := getattr(own, effect.at), first + number)
            entries = sum(enabled(slot, getattr(machine, own.entries)) for slot in slots)
            iterations //= number
        elif effect.memory is DRAM:
            counts[energy] += own.cycles(machine) * machine.bandwidth
        elif energy and effect.holds(own):
            counts[energy] += iterations * (entries if effect.through else number * machine.columns)
    if own.unit == ARRAY_UNIT:
        counts["product"] = counts[LANES.energy] * machine.columns
    return counts
