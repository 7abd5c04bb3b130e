"""Attributes each cycle of a program to computation or to the cause of a stall, and counts DRAM bytes.

The array computes in cycles in which rows stream, and stalls in all others. The cause of a stall is found by walking
the critical path backwards (critical path method, Kelley and Walker, 1959). A stream starts when its last dependence is
satisfied. The instruction that satisfied it was running, or its results were in flight; before that it waited for its
own last dependence, and so on, back to a cycle in which rows streamed. Each cycle has one cause, and counts for the
layer of the instruction on the path.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np

from glenside.npu.analysis.access_counts import accesses
from glenside.npu.isa.base import Instruction
from glenside.npu.isa.effects import COMPLETED, DRAM, END, START
from glenside.npu.isa.fields import ARRAY_UNIT, UNITS, Wait
from glenside.npu.isa.table import INSTRUCTIONS
from glenside.npu.machine.model import Machine
from glenside.npu.model.cycle_model import Times, delays, times
from glenside.npu.model.interlocks import Dependence, Interlocks
from glenside.npu.program.program import Choices, NpuProgram

WRITES = tuple(kind.purpose for kind in INSTRUCTIONS if any(own.memory is DRAM and own.writes for own in kind.effects))
"""The causes of DMA stores."""
LATENCY = "latency"
"""Cycles from the end of a DMA instruction to its completion: DRAM latency and pipeline stages."""
DRAIN = "drain"
"""Cycles from the last streamed row until its sums are in the accumulators."""
UNKNOWN = "unknown"
"""Cycles without a cause: a count other than 0 is a bug of this module."""
OUTSIDE = "outside of layers"


def cause_of(kind: type[Instruction]) -> str:
    """Returns the stall cause of an instruction."""
    return kind.purpose or kind.mnemonic()


@dataclass
class Account:
    """The cycles, bytes and accesses of a layer, or of all layers.

    compute   cycles in which the array computes
    stalls    cycles in which the array stalls, by cause
    busy      busy cycles of each unit
    waits     cycles in which a unit with instructions left waits: unit -> the unit that it waits for -> cycles
    moved     bytes from and to DRAM, by cause
    accesses  multiplications and memory accesses, by the names of `Energy`
    macs      multiply-accumulates of the layer as written in the network; None if unknown
    stays     True if the result stays on chip
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
        """Returns the bytes written to DRAM."""
        return sum(self.moved[cause] for cause in WRITES)

    @property
    def read(self) -> int:
        """Returns the bytes read from DRAM."""
        return sum(self.moved.values()) - self.written

    def utilization(self, machine: Machine) -> float | None:
        """Returns `macs` divided by the array's peak over these cycles; None if `macs` is unknown."""
        peak = machine.rows * machine.columns * self.cycles
        return None if self.macs is None or not peak else self.macs / peak

    def energy(self, machine: Machine) -> float | None:
        """Returns the energy in picojoules; None for a machine without energies."""
        if machine.energy is None:
            return None
        return float(sum(count * getattr(machine.energy, name) for name, count in self.accesses.items()))

    def add(self, other: Account) -> None:
        """Adds the counts of another account, except `macs`."""
        self.compute += other.compute
        for name in ("stalls", "busy", "moved", "accesses"):
            getattr(self, name).update(getattr(other, name))
        for unit, counts in other.waits.items():
            self.waits.setdefault(unit, Counter()).update(counts)


@dataclass(frozen=True)
class Ledger:
    """The accounts of a program: one per stretch, in order; then one for cycles outside of stretches, if any.

    bound      lower bound on the cycles of any schedule of these instructions: the cycles of the busiest unit
    choices    the search space of the program, which has other instructions; None if unknown
    """

    machine: Machine
    layers: Sequence[Account]
    cycles: int
    bound: int = 0
    choices: Choices | None = None

    @property
    def gap(self) -> float:
        """Returns the largest fraction of cycles that a better schedule of the same instructions may save."""
        return 1 - self.bound / self.cycles if self.cycles else 0.0

    @property
    def total(self) -> Account:
        """Returns the sum of all accounts."""
        found = Account("total")
        for own in self.layers:
            found.add(own)
        known = [own.macs for own in self.layers if own.macs is not None]
        found.macs = sum(known) if known else None
        return found

    def as_dict(self) -> dict[str, Any]:
        """Returns all accounts as JSON values; energies are in picojoules, with the source of the figures."""
        energy = self.machine.energy
        source = {} if energy is None else {"energy source": energy.source}
        parts = {"bound": self.bound, "gap": self.gap, **({} if self.choices is None else {"choices": self._chosen()})}
        layers = [self._account_as_dict(own) for own in self.layers]
        return {"total": self._account_as_dict(self.total), **parts, "layers": layers, **source}

    def _chosen(self) -> dict[str, Any]:
        own = self.choices
        return {} if own is None else {**asdict(own), "all tried": own.are_all_tried, "gap": own.gap(self.cycles)}

    def _account_as_dict(self, own: Account) -> dict[str, Any]:
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
    """Returns the nonzero counts, largest first."""
    return {name: count for name, count in counts.most_common() if count}


def accounts(program: NpuProgram, found: Times | None = None) -> Ledger:
    """Computes the accounts of a program. Raises BadInput for a deadlock."""
    return _Accounting(program, times(program) if found is None else found).ledger()


def bound(program: NpuProgram) -> int:
    """Returns a lower bound on the cycles of any schedule of the program's instructions.

    The bound is the time of the busiest unit without waits, until its last completion. Array and load unit are timed
    together, with the interlock between them.
    """
    machine, late = program.machine, delays(program.machine)
    queues = {unit: tuple(replace(own, wait=Wait()) for own in program.queue(unit)) for unit in ("load", ARRAY_UNIT)}  # type: ignore[type-var]
    array = times(NpuProgram(machine, queues, program.dram)).cycles
    others = (
        sum(own.cycles(machine) for own in program.queue(unit)) + late[unit] for unit in UNITS if program.queue(unit)
    )
    return max((array, *others))


class _Accounting:
    def __init__(self, program: NpuProgram, found: Times) -> None:
        self.program, self.machine = program, program.machine
        self.queues = {unit: program.queue(unit) for unit in UNITS}
        self.times: dict[str, dict[str, list[int]]] = {
            what: {unit: getattr(found, what)[unit].tolist() for unit in UNITS} for what in (START, END, COMPLETED)
        }
        self.start, self.end, self.completed = self.times.values()
        self.cycles = found.cycles
        self.interlocks = Interlocks(self.machine.pipelined, self.queues)
        self.owner = {unit: self._owners(unit) for unit in UNITS}
        self.accounts = [
            *(Account(own.name, macs=own.macs, stays=own.result is None) for own in program.stretches),
            Account(OUTSIDE),
        ]

    def _owners(self, unit: str) -> list[int]:
        """Returns the index of each instruction's stretch; -1 for none."""
        owners = np.full(len(self.queues[unit]), -1)
        for number, own in enumerate(self.program.stretches):
            owners[own.begin.get(unit, 0) : own.end.get(unit, 0)] = number
        found: list[int] = owners.tolist()
        return found

    def ledger(self) -> Ledger:
        for unit in UNITS:
            self._count(unit)
        ends = [0, *self.end[ARRAY_UNIT]]
        for number, begin in enumerate(ends[:-1]):
            self._attribute_stalls(begin, self._last_dependence(ARRAY_UNIT, number))
        if ends[-1] < self.cycles:
            unit = next(u for u in UNITS if self.completed[u] and max(self.completed[u]) == self.cycles)
            last = Dependence(unit, self.completed[unit].index(self.cycles), COMPLETED)
            self._attribute_stalls(ends[-1], last)
        outside = self.accounts[-1]
        layers = self.accounts if outside.cycles or outside.busy.total() else self.accounts[:-1]
        program = self.program
        return Ledger(self.machine, layers, self.cycles, bound(program), program.choices)

    def _count(self, unit: str) -> None:
        """Counts the busy and wait cycles, bytes and accesses of a unit's instructions."""
        accessed = accesses(self.program, unit, self.start)
        for number, (own, owner) in enumerate(zip(self.queues[unit], self.owner[unit], strict=True)):
            account, busy = self.accounts[owner], self.end[unit][number] - self.start[unit][number]
            account.busy[unit] += busy
            account.compute += busy if unit == ARRAY_UNIT else 0
            account.accesses.update(accessed[number])
            if moved := accessed[number].get(DRAM.energy, 0):
                account.moved[cause_of(type(own))] += moved
            before = self._last_dependence(unit, number)
            idle = self.start[unit][number] - (self.end[unit][number - 1] if number else 0)
            if before is not None and idle:
                account.waits.setdefault(unit, Counter())[before.unit] += idle

    def _attribute_stalls(self, begin: int, before: Dependence | None) -> None:
        """Attributes the stall cycles from `begin` on, walking the dependences backwards from `before`."""
        while before is not None:
            unit, number = before.unit, before.number
            start, end = max(begin, self.start[unit][number]), max(begin, self.end[unit][number])
            account = self.accounts[self.owner[unit][number]]
            if unit == ARRAY_UNIT:
                account.stalls[DRAIN] += max(0, self._satisfied_at(before) - end)
                return
            cause = cause_of(type(self.queues[unit][number]))
            late = max(0, self._satisfied_at(before) - end)
            account.stalls[LATENCY if unit == "dma" else cause] += late
            account.stalls[cause] += end - start
            if start <= begin:
                return
            before = self._last_dependence(unit, number)
            account.stalls[UNKNOWN] += start - begin if before is None else 0

    def _satisfied_at(self, before: Dependence) -> int:
        """Returns the cycle in which a dependence was satisfied."""
        return self.times[before.event][before.unit][before.number]

    def _last_dependence(self, unit: str, number: int) -> Dependence | None:
        """Returns the dependence that an instruction's start was satisfied by last; None in cycle 0 or without one."""
        start = self.start[unit][number]
        return (
            next((own for own in self._dependences(unit, number) if self._satisfied_at(own) == start), None)
            if start
            else None
        )

    def _dependences(self, unit: str, number: int) -> Iterator[Dependence]:
        """Yields the dependences of an instruction's start, by the rules of `glenside.npu.model.cycle_model`."""
        own = self.queues[unit][number]
        if number:
            yield Dependence(unit, number - 1, END)
        for other, count in zip(UNITS, own.wait, strict=True):
            if count:
                yield Dependence(other, count - 1, COMPLETED)
        if (locked := self.interlocks.dependence(own, number)) is not None:
            yield locked
