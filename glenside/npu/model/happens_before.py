"""Computes the happens-before order that waits establish, and checks all memory accesses against it.

A program is legal only if any two accesses to one location, at least one of them a write, are ordered by happens-before
or by one in-order unit. Then no result depends on a latency. A missing wait is found even if the timing hides it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod

import numpy as np
import numpy.typing as npt

from glenside.ir.errors import BadInput
from glenside.npu.isa.effects import COMPLETED
from glenside.npu.isa.fields import UNITS
from glenside.npu.model.cycle_model import Times
from glenside.npu.model.interlocks import Dependence, Interlocks
from glenside.npu.program.program import NpuProgram

Known = tuple[int, ...]
Integers = npt.NDArray[np.intp]
INDEX = {unit: i for i, unit in enumerate(UNITS)}


def known(program: NpuProgram, times: Times) -> Mapping[str, Sequence[Known]]:
    """Returns the happens-before vector of each instruction.

    The vector counts, per unit, the instructions that waits and interlocks guarantee to be completed at its start.
    """
    found: dict[str, list[Known]] = {unit: [] for unit in UNITS}
    order = sorted((int(t), unit != "stream", unit, i) for unit in UNITS for i, t in enumerate(times.start[unit]))
    interlocks = Interlocks(program.machine.pipelined, {unit: program.queue(unit) for unit in UNITS})
    for _, _, unit, number in order:
        instruction = program.queue(unit)[number]
        own = [found[unit][-1]] if number else []
        if (locked := interlocks.dependence(instruction, number)) is not None:
            own += guaranteed(locked, found)
        for other, count in zip(UNITS, instruction.wait, strict=True):
            own += [found[other][count - 1]] if count else []
        found[unit].append(tuple(map(max, instruction.wait, *own)) if own else tuple(instruction.wait))
    return found


def guaranteed(locked: Dependence, found: Mapping[str, Sequence[Known]]) -> list[Known]:
    """Returns the happens-before vector that an interlock guarantees, from those found so far; [] if unknown.

    The vector of a start or an end is that of the instruction; a completion adds the instruction itself.
    """
    unit, number = locked.unit, locked.number
    if not 0 <= number < len(found[unit]):
        return []
    known = found[unit][number]
    if locked.event == COMPLETED:
        known = tuple(max(n, number + 1) if other == unit else n for other, n in zip(UNITS, known, strict=True))
    return [known]


@dataclass
class Now:
    """The instruction being executed: its unit, number, start cycle and happens-before vector `known`."""

    unit: str
    number: int
    start: int
    known: Known

    def require(self, other: str, count: int, verb: str, place: str, their_verb: str) -> None:
        """Reports a race: the other unit's instruction `count` - 1 may not be completed. Raises BadInput."""
        raise BadInput(
            f"{self.unit} instruction {self.number} {verb} {place} without waiting for {other} instruction {count - 1},"
            f" which {their_verb} it: it needs wait.{other} of {count}"
        )


class Places:
    """The locations of a memory, and per unit the last writer and the last reader of each location.

    writes  unit -> 1 + index of the location's last writer, 0 for none; zero pages that stay untouched use no memory
    reads   unit -> the same of readers
    there   True for locations that were written; unused if all are `written` from the start
    latest  unit -> index of the last instruction that wrote any location, and of the last that read any
    """

    def __init__(self, name: str, shape: tuple[int, ...], *, written: bool = False) -> None:
        self.name = name
        self.shape = shape
        self.everywhere = written
        self.there = np.zeros(0 if written else prod(shape), np.bool_)
        self.writes: dict[str, npt.NDArray[np.int32]] = {}
        self.reads: dict[str, npt.NDArray[np.int32]] = {}
        self.latest: tuple[dict[str, int], dict[str, int]] = {}, {}

    def _last(self, which: int, at: Integers | int, now: Now) -> None:
        """Records the instruction as the last writer (`which` = 0) or reader (1) of locations."""
        table, unit = (self.writes, self.reads)[which], now.unit
        if unit not in table:
            table[unit] = np.zeros(prod(self.shape), np.int32)
        table[unit][at] = now.number + 1
        self.latest[which][unit] = now.number

    def read(self, at: Integers, now: Now, *, own: bool = True) -> None:
        """Records a read of flat locations; `own`: the unit sees its own writes without a wait. Raises BadInput."""
        if not at.size:
            return
        for other, latest in self.latest[0].items():
            if latest >= now.known[INDEX[other]] and not (own and other == now.unit):
                self._require_before(self.writes[other].take(at), at, now, ("reads", "writes"), other)
        if not self.everywhere and not (there := self.there.take(at)).all():
            first = at.reshape(-1)[int(there.argmin())]
            raise BadInput(
                f"{now.unit} instruction {now.number} reads {self._named(first)} before any instruction has written it"
            )
        self._last(1, at, now)

    def read_one(self, at: int, now: Now) -> None:
        """Records a read of one flat location; all writes, also the unit's own, need a wait. Raises BadInput."""
        for other, latest in self.latest[0].items():
            known = now.known[INDEX[other]]
            if latest >= known and (there := self.writes[other].item(at)) > known:
                now.require(other, there, "reads", self._named(at), "writes")
        if not self.everywhere and not self.there[at]:
            raise BadInput(
                f"{now.unit} instruction {now.number} reads {self._named(at)} before any instruction has written it"
            )
        self._last(1, at, now)

    def write(self, at: Integers, now: Now) -> None:
        """Records a write of flat locations; a unit's own accesses are in order. Raises BadInput."""
        if not at.size:
            return
        for table, latest, verb in zip((self.writes, self.reads), self.latest, ("writes", "reads"), strict=True):
            for other, last in latest.items():
                if other != now.unit and last >= now.known[INDEX[other]]:
                    self._require_before(table[other].take(at), at, now, ("writes", verb), other)
        if not self.everywhere:
            self.there[at] = True
        self._last(0, at, now)

    def _require_before(
        self, lasts: npt.NDArray[np.int32], at: Integers, now: Now, verbs: tuple[str, str], other: str
    ) -> None:
        if lasts.max() <= now.known[INDEX[other]]:
            return
        worst = int(lasts.argmax())
        last = int(lasts.reshape(-1)[worst])
        now.require(other, last, verbs[0], self._named(at.reshape(-1)[worst]), verbs[1])

    def _named(self, place: int) -> str:
        *outer, last = np.unravel_index(place, self.shape)
        return f"{self.name} {last}{f' at {outer[0]}' if outer else ''}"
