"""Counts multiplications and memory accesses of instructions, for energy estimates.

A bank that a table does not enable is neither read nor multiplied. Memories with whole-row accesses count all columns.
Tables, parameters and functions count as registers: only their DRAM loads are counted.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from functools import cache
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt

from glenside.ir.errors import BadInput
from glenside.npu.isa.address_generators import ENTRY
from glenside.npu.isa.base import (
    Fill,
    Instruction,
    Lanes,
    Load,
    Out,
    Parameters,
    Spread,
    Store,
    Stream,
    Sums,
    Tables,
    Weights,
)
from glenside.npu.isa.column_unit import Apply, Deviation, Functions, Greatest, Mean, Scale, Total
from glenside.npu.isa.fields import UNITS
from glenside.npu.machine.model import Energy
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

    def entries(self, slot: int, start: int, used: int) -> int:
        """Counts the enabled entries among the first `used` of a slot's table at cycle `start`.

        Raises BadInput if no table was loaded by then.
        """
        filled = self.filled.get(slot, [])
        last = bisect_right(filled, start, key=lambda own: own[0]) - 1
        if last < 0:
            raise BadInput(f"table {slot} is used, and nothing has filled it by cycle {start:,}")
        return int(self.enabled(filled[last][1])[used - 1])


def accesses(program: NpuProgram, unit: str, start: Mapping[str, Sequence[int]]) -> list[Counts]:
    """Returns the counts of each instruction of a unit; `start`: the start cycle of each instruction, by unit.

    For an instruction missing in `_COUNTED` only DRAM bytes are counted.
    """
    tables, machine = _Tables(program, start), program.machine
    found = list[Counts]()
    for number, own in enumerate(program.queue(unit)):
        used = {Out: machine.bandwidth, Spread: machine.columns}.get(type(own), machine.rows)
        slot = getattr(own, "table", None) if not isinstance(own, Tables) else None
        slots = () if slot is None else range(slot, slot + (own.tables if isinstance(own, Spread) else 1))
        entries = sum(tables.entries(each, start[unit][number], used) for each in slots)
        count = _COUNTED.get(type(own))
        counted = {} if count is None else count(own, entries, machine.columns)
        beats = own.cycles(machine) if "dram" in own.kinds() else 0
        found.append({**counted, "dram_byte": beats * machine.bandwidth})
    return found


def uncounted(program: NpuProgram) -> list[str]:
    """Returns the mnemonics of a program's instructions for which only DRAM bytes are counted."""
    found = (type(own) for unit in UNITS for own in program.queue(unit))
    return sorted({kind.mnemonic() for kind in found if kind not in _COUNTED})


def _stream(own: Stream, entries: int, columns: int) -> Counts:
    rows = prod(own.counts)
    return {
        "product": rows * entries * columns,
        "lane_byte": rows * entries,
        "accumulator_word": rows * columns * (2 if own.accumulate else 1),
    }


def _lanes(own: Lanes | Fill | Out, entries: int, columns: int) -> Counts:
    return {"lane_byte": prod(own.counts) * entries}


def _store(own: Store, entries: int, columns: int) -> Counts:
    return {"lane_byte": prod(own.counts) * entries, "accumulator_word": prod(own.counts) * columns}


def _sums(own: Any, _: int, columns: int) -> Counts:
    return {"accumulator_word": prod(own.counts) * columns}


_COUNTED: Mapping[type[Instruction], Callable[[Any, int, int], Counts]] = {
    Stream: _stream,
    Store: _store,
    Lanes: _lanes,
    Fill: _lanes,
    Out: _lanes,
    **dict.fromkeys((Sums, Greatest, Mean, Deviation, Total), _sums),
    **dict.fromkeys((Scale, Apply), lambda own, _, columns: {"accumulator_word": 2 * prod(own.counts) * columns}),
    Load: lambda own, _, columns: {"weight_byte": own.rows * columns},
    Weights: lambda own, _, columns: {"weight_byte": own.rows * columns},
    Spread: lambda own, entries, _: {"weight_byte": prod(own.counts) // own.tables * entries},
    Tables: lambda *_: {},
    Parameters: lambda *_: {},
    Functions: lambda *_: {},
}
