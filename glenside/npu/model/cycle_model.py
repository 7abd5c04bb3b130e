"""Computes the exact cycles in which each instruction starts, ends and completes, by recurrences over the queues.

A unit executes an instruction's n iterations in n cycles and goes on without a gap: end = start + n. Results are in
memory some cycles later, at `completed`; instructions that waited for it may start in that cycle. Iteration i begins in
cycle start + i. The pipeline stages of an iteration, in the same cycles as in `rtl/`:

    stream   +1 table   +2 lanes read   +3+r+c element (r, c)   +3+R+c column c is added to its accumulator
    load     +1 weights read            +3+k+c row k enters column c; element (k, c) keeps it at +3+2k+c
    store    +1 accumulators read       +7 requantised   +8 a function of that   +9 lanes written
    columns  +1 accumulators read       +8 accumulators written
    dma      +2 lanes, accumulators read   +4 request   +4+L data   +6+L lanes and other memories written
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property

import numpy as np
import numpy.typing as npt

from glenside.ir.errors import BadInput
from glenside.npu.isa.base import Instruction, Stream
from glenside.npu.isa.effects import ACCUMULATORS, COMPLETED, END, START
from glenside.npu.isa.encoding import operations
from glenside.npu.isa.fields import UNITS
from glenside.npu.machine.model import Machine
from glenside.npu.model.interlocks import Interlocks
from glenside.npu.program.program import NpuProgram

Integers = npt.NDArray[np.int64]


def stream_adds(machine: Machine) -> int:
    """Returns the cycles from a row's iteration to the sum of column 0; each next column is a cycle later."""
    return Stream.effect(ACCUMULATORS, writes=True).delay.of(machine)


@cache
def delays(machine: Machine) -> Mapping[str, int]:
    """Returns the cycles from an instruction's end until it is completed, by unit: those to the unit's last write."""
    return {
        unit: max(own.last(machine) for kind in operations(unit).values() for own in kind.effects if own.writes)
        for unit in UNITS
    }


def dma_delay(machine: Machine) -> int:
    """Returns the cycles from a beat's iteration until its bytes are in an on-chip memory."""
    return delays(machine)["dma"]


@dataclass(frozen=True)
class Times:
    """The cycle in which each instruction starts, ends and completes: by unit, (n); the program starts in cycle 0."""

    start: Mapping[str, Integers]
    end: Mapping[str, Integers]
    completed: Mapping[str, Integers]

    @cached_property
    def cycles(self) -> int:
        """Returns the cycles from the start until all instructions are completed."""
        return max((int(found.max(initial=0)) for found in self.completed.values()), default=0)

    @cached_property
    def busy(self) -> Mapping[str, int]:
        """Returns the busy cycles of each unit."""
        return {unit: int((self.end[unit] - self.start[unit]).sum()) for unit in UNITS}

    def between(self, begin: Mapping[str, int], end: Mapping[str, int]) -> tuple[int, int]:
        """Returns the first start and the last completion in the ranges of instructions; (0, 0) if empty."""
        starts = [int(self.start[unit][begin[unit] : end[unit]].min(initial=np.iinfo(np.int64).max)) for unit in UNITS]
        ends = [int(self.completed[unit][begin[unit] : end[unit]].max(initial=0)) for unit in UNITS]
        return (min(starts), max(ends)) if max(ends) else (0, 0)


_LAST: list[tuple[NpuProgram, Times]] = []
"""The last program and its times, since compiling, reporting and saving use the times of one program."""


def times(program: NpuProgram) -> Times:
    """Computes the times of a program. Raises BadInput for a deadlock."""
    for last, known in _LAST:
        if last.queues is program.queues and last.machine == program.machine:
            return known
    found = _Recurrences(program).solved()
    _LAST[:] = [(NpuProgram(program.machine, program.queues, program.dram[:0]), found)]
    return found


class _Recurrences:
    def __init__(self, program: NpuProgram) -> None:
        self.machine = program.machine
        self.queues: dict[str, Sequence[Instruction]] = {unit: program.queue(unit) for unit in UNITS}
        self.delays = delays(program.machine)
        self.start: dict[str, list[int]] = {unit: [] for unit in UNITS}
        self.end: dict[str, list[int]] = {unit: [] for unit in UNITS}
        self.completed: dict[str, list[int]] = {unit: [] for unit in UNITS}
        self.times = {START: self.start, END: self.end, COMPLETED: self.completed}
        self.interlocks = Interlocks(program.machine.pipelined, self.queues)

    def solved(self) -> Times:
        while sum([self._advance(unit) for unit in UNITS]):
            pass
        stuck = next((unit for unit in UNITS if len(self.start[unit]) < len(self.queues[unit])), None)
        if stuck is not None:
            raise BadInput(self._why(stuck))
        return Times(*({u: np.array(t[u], np.int64) for u in UNITS} for t in (self.start, self.end, self.completed)))

    def _advance(self, unit: str) -> int:
        """Times the unit's next instructions while their dependences are timed; returns how many."""
        queue, starts = self.queues[unit], self.start[unit]
        before = len(starts)
        while len(starts) < len(queue):
            instruction = queue[len(starts)]
            ready = self._ready(unit, instruction)
            if ready is None:
                break
            starts.append(ready)
            self.end[unit].append(ready + instruction.cycles(self.machine))
            self.completed[unit].append(self.end[unit][-1] + self.delays[unit])
        return len(starts) - before

    def _ready(self, unit: str, instruction: Instruction) -> int | None:
        """Returns the cycle in which the next instruction of the unit starts; None if a dependence is not timed yet."""
        ready = self.end[unit][-1] if self.end[unit] else 0
        for other, count in zip(UNITS, instruction.wait, strict=True):
            if count > len(self.completed[other]):
                return None
            ready = max(ready, self.completed[other][count - 1] if count else 0)
        locked = self.interlocks.dependence(instruction, len(self.start[unit]))
        if locked is None:
            return ready
        known = self.times[locked.event][locked.unit]
        return max(ready, known[locked.number]) if 0 <= locked.number < len(known) else None

    def _why(self, unit: str) -> str:
        """Explains a deadlock: follows the causes from one blocked unit until a unit repeats or its queue is done."""
        seen: list[str] = []
        reason = ""
        while unit not in seen:
            seen.append(unit)
            instruction = self.queues[unit][len(self.start[unit])]
            own = f"the program does not end: {unit} instruction {len(self.start[unit])} ({instruction.mnemonic()})"
            other, cause = self._cause(instruction)
            reason = f"{own} {cause}"
            if len(self.start[other]) == len(self.queues[other]):
                break
            unit = other
        return reason

    def _cause(self, instruction: Instruction) -> tuple[str, str]:
        """Returns the unit that an instruction is blocked on, and the reason."""
        for other, count in zip(UNITS, instruction.wait, strict=True):
            if count > len(self.completed[other]):
                have = len(self.completed[other])
                return other, f"waits until {other} has completed {count:,}, and only {have:,} of {other} ever are"
        assert instruction.interlock is not None, "nothing else blocks"
        return instruction.interlock.other, instruction.interlock.reason
