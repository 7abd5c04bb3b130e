"""Where the cycles and the bytes of a program go: what the array computes, and what it waits for, each cycle once.

Cycles in which rows stream compute; in all others the array waits. For what is found backwards: a stream starts when
the last thing that it needs is there, which an instruction of some unit made; that one ran, or its bytes were still on
their way, and before it started it waited for another, and so on, until rows streamed. So each cycle has one cause, and
belongs to the layer of the instruction that it was spent on: the slowest chain of a schedule, as in the critical path
method (Kelley and Walker, 1959).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np

from glenside.npu.analysis.access_counts import accesses, uncounted
from glenside.npu.isa.base import (
    Fill,
    Instruction,
    Lanes,
    Load,
    Out,
    Parameters,
    Spread,
    Stream,
    Sums,
    Tables,
    Weights,
)
from glenside.npu.isa.column_unit import Functions
from glenside.npu.isa.fields import UNITS, Wait
from glenside.npu.machine.model import Machine
from glenside.npu.model.cycle_model import Times, delays, times
from glenside.npu.program.program import Choices, NpuProgram

ARRAY = "stream"
"""The unit whose cycles compute."""
CAUSES: Mapping[type[Instruction], str] = {
    Weights: "weights",
    Spread: "weights",
    Lanes: "inputs",
    Fill: "fills",
    Tables: "tables",
    Parameters: "parameters",
    Functions: "functions",
    Out: "outputs",
    Sums: "sums",
}
"""What the instructions of DMA are for; any other instruction is its own cause."""
WRITES = ("outputs", "sums")
"""The causes whose bytes go to DRAM."""
LATENCY = "latency"
"""Cycles from DMA's last beat until it is completed: DRAM's, and those of the stages on the way."""
DRAIN = "drain"
"""Cycles from the last row that streams until its sums are in the accumulators."""
UNKNOWN = "unknown"
"""Of cycles whose cause this module does not see; there are none."""
OUTSIDE = "outside of layers"


def cause_of(kind: type[Instruction]) -> str:
    """What an instruction is for."""
    return CAUSES.get(kind, kind.mnemonic())


@dataclass
class Account:
    """A layer, or all of them.

    stalls   cycles in which the array waits, by cause
    busy     cycles in which each unit works
    waits    cycles in which a unit has work and waits: unit -> for which unit
    moved    bytes from and to DRAM, by cause
    accesses how often it multiplies and reaches into each memory, as `Energy` names them
    macs     products of the layer as it is written; None where that is not known
    stays    whether the result stays in lanes
    """

    name: str
    compute: int = 0
    stalls: Counter[str] = field(default_factory=Counter)
    busy: Counter[str] = field(default_factory=Counter)
    waits: dict[str, Counter[str]] = field(default_factory=dict)
    moved: Counter[str] = field(default_factory=Counter)
    accesses: Counter[str] = field(default_factory=Counter)
    macs: int | None = None
    stays: bool = False

    @property
    def stall(self) -> int:
        return sum(self.stalls.values())

    @property
    def cycles(self) -> int:
        return self.compute + self.stall

    @property
    def written(self) -> int:
        """Bytes to DRAM."""
        return sum(self.moved[cause] for cause in WRITES)

    @property
    def read(self) -> int:
        """Bytes from DRAM."""
        return sum(self.moved.values()) - self.written

    def utilization(self, machine: Machine) -> float | None:
        """Products by those of an array that multiplies in every cycle; None where they are not known."""
        peak = machine.rows * machine.columns * self.cycles
        return None if self.macs is None or not peak else self.macs / peak

    def energy(self, machine: Machine) -> float | None:
        """Picojoules; None for a machine that does not say what an access takes."""
        if machine.energy is None:
            return None
        return float(sum(count * getattr(machine.energy, name) for name, count in self.accesses.items()))

    def add(self, other: Account) -> None:
        """What another took, too."""
        self.compute += other.compute
        for name in ("stalls", "busy", "moved", "accesses"):
            getattr(self, name).update(getattr(other, name))
        for unit, counts in other.waits.items():
            self.waits.setdefault(unit, Counter()).update(counts)


@dataclass(frozen=True)
class Ledger:
    """A program's accounts: one for each stretch, in order, then what is of none, if there is any.

    uncounted  instructions that energies do not count, but for their bytes of DRAM
    bound      cycles that no order and no waits of these instructions spare: those of the unit that has most to do
    choices    what is known of others, which have other instructions
    """

    machine: Machine
    layers: Sequence[Account]
    cycles: int
    uncounted: Sequence[str] = ()
    bound: int = 0
    choices: Choices | None = None

    @property
    def gap(self) -> float:
        """What part of its cycles a better schedule of the same instructions may spare, at most."""
        return 1 - self.bound / self.cycles if self.cycles else 0.0

    @property
    def total(self) -> Account:
        """All of them."""
        found = Account("total")
        for own in self.layers:
            found.add(own)
        known = [own.macs for own in self.layers if own.macs is not None]
        found.macs = sum(known) if known else None
        return found

    def as_dict(self) -> dict[str, Any]:
        """For JSON: energies in picojoules, and where their figures are from."""
        energy = self.machine.energy
        source = {} if energy is None else {"energy source": energy.source, "energy without": [*self.uncounted]}
        told = {"bound": self.bound, "gap": self.gap, **({} if self.choices is None else {"choices": self._chosen()})}
        layers = [self._told(own) for own in self.layers]
        return {"total": self._told(self.total), **told, "layers": layers, **source}

    def _chosen(self) -> dict[str, Any]:
        own = self.choices
        return {} if own is None else {**asdict(own), "all tried": own.are_all_tried, "gap": own.gap(self.cycles)}

    def _told(self, own: Account) -> dict[str, Any]:
        utilization, energy = own.utilization(self.machine), own.energy(self.machine)
        return {
            "name": own.name,
            "cycles": own.cycles,
            "compute": own.compute,
            "stall": own.stall,
            "stalls": _sorted(own.stalls),
            "busy": {unit: own.busy[unit] for unit in UNITS},
            "waits": {unit: _sorted(counts) for unit, counts in own.waits.items() if counts.total()},
            "read": own.read,
            "written": own.written,
            "bytes": _sorted(own.moved),
            "stays": own.stays,
            **({} if own.macs is None else {"macs": own.macs, "utilization": utilization}),
            **({} if energy is None else {"picojoules": energy}),
        }


def _sorted(counts: Counter[str]) -> dict[str, int]:
    """Most first."""
    return {name: count for name, count in counts.most_common() if count}


def accounts(program: NpuProgram, found: Times | None = None) -> Ledger:
    """Where the cycles and bytes of a program go. Raises BadInput: it waits for what does not come."""
    return _Accounting(program, times(program) if found is None else found).ledger()


def bound(program: NpuProgram) -> int:
    """Cycles that the busiest unit takes for its instructions until the last is completed, where nothing is waited for;
    the array's with the loads of its weights.
    """
    machine, late = program.machine, delays(program.machine)
    queues = {unit: tuple(replace(own, wait=Wait()) for own in program.queue(unit)) for unit in ("load", ARRAY)}  # type: ignore[type-var]
    array = times(NpuProgram(machine, queues, program.dram)).cycles
    others = (
        sum(own.cycles(machine) for own in program.queue(unit)) + late[unit] for unit in UNITS if program.queue(unit)
    )
    return max((array, *others))


_STARTS, _ENDS, _COMPLETES = "start", "end", "completed"


@dataclass(frozen=True)
class _Before:
    """What an instruction's start hung on: that an instruction of a unit starts, ends or is completed."""

    unit: str
    number: int
    what: str


class _Accounting:
    def __init__(self, program: NpuProgram, found: Times) -> None:
        self.program, self.machine = program, program.machine
        self.queues = {unit: program.queue(unit) for unit in UNITS}
        self.times: dict[str, dict[str, list[int]]] = {
            what: {unit: getattr(found, what)[unit].tolist() for unit in UNITS} for what in (_STARTS, _ENDS, _COMPLETES)
        }
        self.start, self.end, self.completed = self.times.values()
        self.cycles = found.cycles
        fresh = (n for n, own in enumerate(self.queues[ARRAY]) if isinstance(own, Stream) and own.fresh)
        self.fresh = list(fresh)
        self.taken = {stream: load for load, stream in enumerate(self.fresh)}
        """Stream -> the load whose weights it takes."""
        self.owner = {unit: self._owners(unit) for unit in UNITS}
        self.accounts = [
            *(Account(own.name, macs=own.macs, stays=own.result is None) for own in program.stretches),
            Account(OUTSIDE),
        ]

    def _owners(self, unit: str) -> list[int]:
        """Of each instruction its stretch; -1 for none."""
        owners = np.full(len(self.queues[unit]), -1)
        for number, own in enumerate(self.program.stretches):
            owners[own.begin.get(unit, 0) : own.end.get(unit, 0)] = number
        found: list[int] = owners.tolist()
        return found

    def ledger(self) -> Ledger:
        for unit in UNITS:
            self._count(unit)
        ends = [0, *self.end[ARRAY]]
        for number, begin in enumerate(ends[:-1]):
            self._spend(begin, self._hung_on(ARRAY, number))
        if ends[-1] < self.cycles:
            unit = next(u for u in UNITS if self.completed[u] and max(self.completed[u]) == self.cycles)
            last = _Before(unit, self.completed[unit].index(self.cycles), _COMPLETES)
            self._spend(ends[-1], last)
        outside = self.accounts[-1]
        layers = self.accounts if outside.cycles or outside.busy.total() else self.accounts[:-1]
        program = self.program
        return Ledger(self.machine, layers, self.cycles, uncounted(program), bound(program), program.choices)

    def _count(self, unit: str) -> None:
        """What each instruction of a unit takes by itself."""
        accessed = accesses(self.program, unit, self.start)
        for number, (own, owner) in enumerate(zip(self.queues[unit], self.owner[unit], strict=True)):
            account, busy = self.accounts[owner], self.end[unit][number] - self.start[unit][number]
            account.busy[unit] += busy
            account.compute += busy if unit == ARRAY else 0
            account.accesses.update(accessed[number])
            if "dram" in own.kinds():
                account.moved[cause_of(type(own))] += busy * self.machine.bandwidth
            before = self._hung_on(unit, number)
            idle = self.start[unit][number] - (self.end[unit][number - 1] if number else 0)
            if before is not None and idle:
                account.waits.setdefault(unit, Counter())[before.unit] += idle

    def _spend(self, begin: int, before: _Before | None) -> None:
        """Give each cycle from there until a start its cause, the last ones first."""
        while before is not None:
            unit, number = before.unit, before.number
            start, end = max(begin, self.start[unit][number]), max(begin, self.end[unit][number])
            account = self.accounts[self.owner[unit][number]]
            if unit == ARRAY:
                account.stalls[DRAIN] += max(0, self._reached(before) - end)
                return
            cause = cause_of(type(self.queues[unit][number]))
            late = max(0, self._reached(before) - end)
            account.stalls[LATENCY if unit == "dma" else cause] += late
            account.stalls[cause] += end - start
            if start <= begin:
                return
            before = self._hung_on(unit, number)
            account.stalls[UNKNOWN] += start - begin if before is None else 0

    def _reached(self, before: _Before) -> int:
        """When what hung on an instruction could start."""
        return self.times[before.what][before.unit][before.number]

    def _hung_on(self, unit: str, number: int) -> _Before | None:
        """What came last of all that an instruction needs to start; None: it starts with the program."""
        start = self.start[unit][number]
        return next((own for own in self._needs(unit, number) if self._reached(own) == start), None) if start else None

    def _needs(self, unit: str, number: int) -> Iterator[_Before]:
        """As `glenside.npu.model.cycle_model` has it."""
        own = self.queues[unit][number]
        if number:
            yield _Before(unit, number - 1, _ENDS)
        for other, count in zip(UNITS, own.wait, strict=True):
            if count:
                yield _Before(other, count - 1, _COMPLETES)
        if isinstance(own, Stream) and own.fresh:
            yield _Before("load", self.taken[number], _ENDS)
        if isinstance(own, Load) and number:
            yield _Before(ARRAY, self.fresh[number - 1], _STARTS if self.machine.pipelined else _COMPLETES)
