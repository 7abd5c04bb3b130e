"""Retargets a program to a larger machine: the same instructions with relocated addresses, in no more cycles.

A machine is at least as large as another one with the same array if it has no smaller memory, no narrower DRAM port and
no higher DRAM latency. Only addresses change:

    scratchpad, accumulators  two halves with separate ports: all addresses grow by the difference of the half sizes, so
                              that data around the border of the halves stays around it
    DRAM                      a beat of the narrow port becomes the first bytes of a beat of the wide port; rows that
                              units access as a whole (weights, tables, parameters, functions, sums) stay contiguous, in
                              whole beats of the wide port, which are no more than before

No instruction has more cycles on the larger machine, or more cycles from its end to its completion. Each start is a
maximum of sums of such times, so no program takes more cycles on the larger machine.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np

from glenside.ir.errors import BadInput
from glenside.ir.operand import Array
from glenside.npu.isa.address_generators import generated
from glenside.npu.isa.base import Instruction, Lanes, Out, Parameters, Spread, Sums, Tables, Weights
from glenside.npu.isa.column_unit import Functions
from glenside.npu.isa.fields import UNITS, Address
from glenside.npu.machine.model import FUNCTION, PARAMETER_ENTRY, TABLE_ENTRY, Machine
from glenside.npu.model.cycle_model import times
from glenside.npu.program.program import NpuProgram, Place, Stretch


def is_at_least(large: Machine, small: Machine) -> bool:
    """True if programs of the small machine run on the large one, in no more cycles."""
    if (large.rows, large.columns, large.pipelined) != (small.rows, small.columns, small.pipelined):
        return False
    memories = ("weight_rows", "depth", "accumulators", "parameters", "tables", "functions", "instructions")
    return (
        all(getattr(large, name) >= getattr(small, name) for name in (*memories, "bandwidth"))
        and large.latency <= small.latency
    )


def retargeted(program: NpuProgram, machine: Machine) -> NpuProgram:
    """Returns the program for a machine that is at least as large, with the cycles predicted there.

    Raises BadInput for a smaller machine, and for rows of several narrow beats that are accessed beat by beat.
    """
    if not is_at_least(machine, program.machine):
        raise BadInput(f"a program of {program.machine} does not run on the smaller {machine}")
    if machine == program.machine:
        return program
    known = _RETARGETED.setdefault(program, {})
    if machine not in known:
        known[machine] = _relocated(program, machine)
    return known[machine]


_RETARGETED: WeakKeyDictionary[NpuProgram, dict[Machine, NpuProgram]] = WeakKeyDictionary()
"""Retargeted programs by machine; weak references to the original programs."""


def _relocated(program: NpuProgram, machine: Machine) -> NpuProgram:
    moving = _Relocation(program, machine)
    queues = {unit: tuple(map(moving.instruction, program.queue(unit))) for unit in UNITS}
    made = replace(
        program,
        machine=machine,
        queues=queues,
        dram=moving.dram(),
        inputs=moving.places(program.inputs),
        outputs=moving.places(program.outputs),
        stretches=tuple(map(moving.stretch, program.stretches)),
        host=None if program.host is None else replace(program.host, operands=moving.places(program.host.operands)),
    )
    return replace(made, predicted=times(made).cycles)


def cycles_on(program: NpuProgram, machine: Machine) -> int:
    """Returns the program's cycles on a machine that is at least as large."""
    known = program if machine == program.machine else _RETARGETED.get(program, {}).get(machine)
    if known is not None and known.predicted is not None:
        return known.predicted
    return times(NpuProgram(machine, program.queues, program.dram)).cycles


@dataclass(frozen=True)
class _Rows:
    """Rows of DRAM that a unit accesses as a whole: their old addresses, sorted, their new addresses, their bytes."""

    old: Array
    new: Array
    sizes: Array

    @staticmethod
    def of(found: Mapping[int, tuple[int, int]]) -> _Rows:
        old = np.array(sorted(found), np.int64)
        return _Rows(old, *np.array([found[each] for each in old.tolist()], np.int64).reshape(-1, 2).T)

    def row(self, at: Array) -> Array:
        """Returns the index of the row that holds each byte address; -1 for none."""
        row = np.searchsorted(self.old, at, side="right") - 1
        ends = np.append(self.old + self.sizes, 0)
        return np.where(at < ends[row], row, -1)


@dataclass(frozen=True)
class _Relocation:
    """The relocation of a program's addresses to a larger machine."""

    program: NpuProgram
    machine: Machine

    @property
    def narrow(self) -> int:
        """Returns the bytes of a beat of the smaller machine."""
        return self.program.machine.bandwidth

    @cached_property
    def times(self) -> int:
        """Returns the ratio of beat sizes, wide to narrow."""
        return self.machine.bandwidth // self.narrow

    @cached_property
    def moves(self) -> Mapping[str, int]:
        """Returns the address increments of the memories with two halves, by field name."""
        old, new = self.program.machine, self.machine
        halves = {"lanes": new.half_depth - old.half_depth}
        return halves | {"accumulators": new.half_accumulators - old.half_accumulators}

    def instruction(self, own: Instruction) -> Instruction:
        changes: dict[str, Any] = {}
        for name, by in self.moves.items():
            address = getattr(own, name, None)
            if by and isinstance(address, Address):
                changes[name] = replace(address, base=address.base + by)
        where = getattr(own, "dram", None)
        if where is not None and self.times > 1:
            if isinstance(where, Address):
                first, second, third = where.strides
                by = self.times
                changes["dram"] = Address(where.base * by, (first * by, second * by, third * by))
            else:
                changes["dram"] = int(self.addresses(np.array([where]))[0])
        return replace(own, **changes) if changes else own  # type: ignore[type-var]

    @cached_property
    def rows(self) -> _Rows:
        """Returns the rows of DRAM that stay contiguous. Raises BadInput if rows overlap other accesses."""
        found: dict[int, tuple[int, int]] = {}
        after = _row_sizes(self.machine)
        for kind, size in _row_sizes(self.program.machine).items():
            own = [each for each in self.program.queue("dma") if type(each) is kind]
            steps = _whole(size, self.narrow), _whole(after[kind], self.machine.bandwidth)
            for old, new in _rows_of(own, *steps, self.times):
                if found.setdefault(old, (new, size)) != (new, size):
                    raise BadInput("a row of DRAM is read in two ways, which a wider port does not support")
        rows = _Rows.of(found)
        self._require_apart(rows)
        elements = self._wide_elements()
        row = rows.row(np.array([*elements], np.int64)).tolist()
        alone = {at: (at * self.times, elements[at]) for at, inside in zip(elements, row, strict=True) if inside < 0}
        return _Rows.of(found | alone)

    def _wide_elements(self) -> dict[int, int]:
        """Returns address -> bytes of the elements that are wider than a narrow beat; each must stay contiguous."""
        own, found = self.program, dict[int, int]()
        every = [*own.inputs.values(), *own.outputs.values(), *(own.host.operands.values() if own.host else ())]
        for stretch in own.stretches:
            every += [*stretch.operands.values(), *([] if stretch.result is None else [stretch.result])]
        for place in every:
            size = np.dtype(place.dtype).itemsize
            if size > self.narrow:
                found |= {at: size for at in np.unique(place.addresses).tolist() if at >= 0}
        return found

    def _require_apart(self, rows: _Rows) -> None:
        """Checks that no single-beat access is part of a row of several narrow beats. Raises BadInput."""
        own = [each for each in self.program.queue("dma") if isinstance(each, (Lanes, Out, Spread))]
        beats = [generated(each.dram, each.counts) for each in own]
        at = np.unique(np.concatenate([np.zeros(0, np.int64), *beats]))
        row = rows.row(at)
        if (rows.sizes[row[row >= 0]] > self.narrow).any():
            raise BadInput(
                "rows of several narrow beats are accessed beat by beat, which a wider port does not support"
            )

    def addresses(self, old: Array) -> Array:
        """Relocates byte addresses of DRAM; -1 stays -1."""
        if self.times == 1:
            return old
        rows, flat = self.rows, old.reshape(-1)
        found = flat + (self.times - 1) * self.narrow * (flat // self.narrow)
        row = rows.row(flat)
        inside = row >= 0
        found[inside] = rows.new[row[inside]] + flat[inside] - rows.old[row[inside]]
        return np.where(flat < 0, flat, found).reshape(old.shape)

    def dram(self) -> Array:
        """Returns the relocated DRAM image."""
        old = self.program.dram
        if self.times == 1:
            return old
        found = np.zeros(len(old) * self.times, np.uint8)
        there = np.flatnonzero(old)
        found[self.addresses(there)] = old[there]
        return found

    def place(self, place: Place) -> Place:
        if self.times == 1:
            return place
        moved = self.addresses(place.addresses)
        made = Place.of_sums(moved, place.dtype) if place.outer else Place.of(moved, place.dtype)
        return replace(made, stands_for=place.stands_for)

    def places(self, every: Mapping[str, Place]) -> dict[str, Place]:
        return {name: self.place(place) for name, place in every.items()}

    def stretch(self, own: Stretch) -> Stretch:
        return replace(
            own, operands=self.places(own.operands), result=None if own.result is None else self.place(own.result)
        )


def _whole(size: int, beat: int) -> int:
    """Rounds a size up to whole beats."""
    return -(-size // beat) * beat


def _row_sizes(machine: Machine) -> Mapping[type[Instruction], int]:
    """Returns the bytes per row of the DMA instructions that access whole rows."""
    return {
        Weights: machine.columns,
        Tables: TABLE_ENTRY * machine.entries,
        Parameters: PARAMETER_ENTRY * machine.columns,
        Functions: FUNCTION,
        Sums: 4 * machine.columns,
    }


def _rows_of(every: Sequence[Instruction], old: int, new: int, by: int) -> Sequence[tuple[int, int]]:
    """Returns the (old, new) addresses of the rows of one kind of instruction.

    `old`, `new`: bytes from a row to the next one; `by`: ratio of beat sizes. Rows of one instruction stay contiguous,
    as do rows of instructions that share some rows. Raises BadInput for rows that overlap partially.
    """
    if any(isinstance(own, Sums) for own in every):
        at = np.unique(np.concatenate([generated(own.dram, own.counts) for own in every if isinstance(own, Sums)]))
        return [(own, own * by) for own in at.tolist()]
    spans = sorted((own.dram, own.dram + old * _count(own)) for own in every)  # type: ignore[attr-defined]
    found, first, end = list[tuple[int, int]](), 0, -1
    for begin, after in dict.fromkeys(spans):
        if begin >= end:
            first = end = begin
        if (begin - first) % old:
            raise BadInput("rows of DRAM overlap partially")
        found += [(at, first * by + (at - first) // old * new) for at in range(max(begin, end), after, old)]
        end = max(end, after)
    return found


def _count(own: Instruction) -> int:
    """Returns the number of rows that a DMA instruction reads."""
    found: int = own.number if isinstance(own, (Tables, Functions)) else own.rows  # type: ignore[attr-defined]
    return found
