"""Infers the waits with which parallel units execute a sequential instruction list correctly.

An instruction waits for another unit's instruction if both access one location and one of them writes it, or if both
use one port of one half. Waits that other waits imply are left out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar

from glenside.npu.isa.base import Instruction, Load, Stream
from glenside.npu.isa.column_unit import Reduction, Rewriting
from glenside.npu.isa.fields import UNITS, Wait
from glenside.npu.model.bank_conflicts import Halves, Ports
from glenside.npu.model.execute import State
from glenside.npu.model.happens_before import INDEX, Known, Now, after
from glenside.npu.program.program import NpuProgram

_Any = TypeVar("_Any", bound=Instruction)


def waiting(
    program: NpuProgram, written: Sequence[Instruction], *, ports: bool = True
) -> Mapping[str, tuple[Instruction, ...]]:
    """Splits a sequential instruction list into queues and adds the inferred waits.

    Existing waits are kept unless other waits imply them. Without `ports`, no waits are added for bank conflicts, which
    the simulator then refuses. Of `program` only machine, DRAM and stretches are used. Raises BadInput for a read of a
    location that was not written or does not exist.
    """
    return Inferred(program, written, ports).finished()


@dataclass
class _Asking(Now):
    """An instruction for which a race becomes a wait instead of an error."""

    waits: dict[str, int] = field(default_factory=dict)
    knows: Mapping[str, Sequence[Known]] = field(default_factory=dict)

    def require(self, other: str, count: int, verb: str, place: str, their_verb: str) -> None:
        self.learn(other, count)

    def learn(self, other: str, count: int) -> None:
        """Adds a wait for `count` instructions of a unit, and joins the happens-before vector of the last of them."""
        self.waits[other] = max(count, self.waits.get(other, 0))
        theirs = self.knows[other][count - 1]
        self.known = _joined(self.known, theirs, other, count)

    def needed(self, before: Known) -> Wait:
        """Returns the minimal wait set, given the happens-before vector `before`."""
        if not self.waits:
            return _NO_WAIT
        if len(self.waits) < 2:
            if all(before[INDEX[unit]] >= count for unit, count in self.waits.items()):
                return _NO_WAIT
            return Wait(**self.waits)
        for unit in list(self.waits):
            known = before
            for other, count in self.waits.items():
                if other != unit:
                    known = _joined(known, self.knows[other][count - 1], other, count)
            if known[INDEX[unit]] >= self.waits[unit]:
                del self.waits[unit]
        return Wait(**self.waits)


_NO_WAIT = Wait()


def _joined(known: Known, theirs: Known, other: str, count: int) -> Known:
    """Returns the join of two happens-before vectors, after a wait for `count` instructions of unit `other`.

    `theirs` is the vector of the last of these instructions.
    """
    counts = zip(UNITS, known, theirs, strict=True)
    return tuple(max(own, more, count if unit == other else 0) for unit, own, more in counts)


class _Halves(Ports):
    """A port that records the last user of each half, per unit."""

    def __init__(self, counts: bool) -> None:
        super().__init__("")
        self.counts = counts
        self.last: dict[tuple[str, int], int] = {}
        self.now: _Asking | None = None

    def use(
        self,
        unit: str,
        number: int,
        start: int,
        begin: int,
        cycles: int,
        present: frozenset[int],
        halves: Halves,
        *,
        skew: int = 0,
    ) -> None:
        """Adds waits for the other units' last users of these halves."""
        if not self.counts or not present:
            return
        assert self.now is not None
        for (other, half), last in self.last.items():
            if other != unit and half in present and last >= self.now.known[INDEX[other]]:
                self.now.learn(other, last + 1)
        self.last |= {(unit, half): number for half in sorted(present)}


class Inferred(State):
    """The queues built from an instruction list. Values are computed only for column instructions, which check them."""

    def __init__(self, program: NpuProgram, written: Sequence[Instruction], ports: bool) -> None:
        super().__init__(program)
        self.computes = any(isinstance(own, Reduction | Rewriting) for own in written)
        self.written_down = written
        self.readers: _Halves = _Halves(ports)
        self.writers: _Halves = _Halves(ports)
        self.summers: _Halves = _Halves(ports)
        self.adders: _Halves = _Halves(ports)
        self.queues: dict[str, list[Instruction]] = {unit: [] for unit in UNITS}
        self.knows: dict[str, list[Known]] = {unit: [] for unit in UNITS}
        self.fresh: list[Known] = []

    def finished(self) -> Mapping[str, tuple[Instruction, ...]]:
        for kind in {type(instruction) for instruction in self.written_down}:
            kind.require_all_fit([own for own in self.written_down if type(own) is kind])
        for instruction in self.written_down:
            self.add(instruction)
        return {unit: tuple(queue) for unit, queue in self.queues.items()}

    def add(self, instruction: Instruction) -> None:
        """Appends the next instruction of the list to its queue, with its waits."""
        unit = instruction.unit
        number = len(self.queues[unit])
        before = self._before(instruction, number)
        now = _Asking(unit, number, 0, before, {}, self.knows)
        if instruction.wait != _NO_WAIT:
            for other, count in zip(UNITS, instruction.wait, strict=True):
                if count:
                    now.learn(other, count)
        for port in (self.readers, self.writers, self.summers, self.adders):
            port.now = now
        self.do(now, instruction)
        self.queues[unit].append(replaced(instruction, now.needed(before)))
        self.knows[unit].append(now.known)
        if isinstance(instruction, Stream) and instruction.fresh:
            self.fresh.append(now.known if self.machine.pipelined else after(now.known, unit, number))

    def _before(self, instruction: Instruction, number: int) -> Known:
        """Returns the happens-before vector without new waits: from the queue order and the load/stream interlock."""
        known = [self.knows[instruction.unit][-1]] if number else [(0,) * len(UNITS)]
        if isinstance(instruction, Load) and number <= len(self.fresh):
            known += self.fresh[number - 1 : number] if number else []
        if isinstance(instruction, Stream) and instruction.fresh:
            known += self.knows["load"][len(self.fresh) : len(self.fresh) + 1]
        return tuple(map(max, *known)) if len(known) > 1 else known[0]


def replaced(instruction: _Any, wait: Wait) -> _Any:
    """Returns the instruction with another wait."""
    if instruction.wait is wait or instruction.wait == wait:
        return instruction
    return replace(instruction, wait=wait)  # type: ignore[type-var]
