"""Infers the waits with which parallel units execute a sequential instruction list correctly.

An instruction waits for another unit's instruction if both access one location and one of them writes it, or if both
use one port of one half. Accesses and ports are those of the effects in the instruction set; the simulator, which
checks the result, has its own. Waits that other waits imply are left out.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from glenside.ir.errors import BadInput
from glenside.npu.isa.address_generators import Integers
from glenside.npu.isa.base import Instruction, Tables
from glenside.npu.isa.column_unit import Reduction, Rewriting
from glenside.npu.isa.effects import ARRAY, DRAM, MEMORIES, Effect, Memory
from glenside.npu.isa.fields import UNITS, Wait
from glenside.npu.model.access_sets import access_sets
from glenside.npu.model.happens_before import INDEX, Known, guaranteed
from glenside.npu.model.interlocks import Interlocks
from glenside.npu.model.split_execution import require_values
from glenside.npu.program.program import NpuProgram
from glenside.npu.program.table_memory import LaneTables

_Any = TypeVar("_Any", bound=Instruction)


def waiting(
    program: NpuProgram, written: Sequence[Instruction], *, ports: bool = True
) -> Mapping[str, tuple[Instruction, ...]]:
    """Splits a sequential instruction list into queues and adds the inferred waits.

    Existing waits are kept unless other waits imply them. Without `ports`, no waits are added for bank conflicts, which
    the simulator then refuses. Of `program` only machine, DRAM and stretches are used. Raises BadInput for a read of a
    location that was not written or does not exist, and for a value that a column instruction does not take.
    """
    inferred = Inferred(program, ports)
    for kind in {type(own) for own in written}:
        kind.require_all_fit([own for own in written if type(own) is kind])
    for own in written:
        inferred.add(own)
    if any(isinstance(own, Reduction | Rewriting) for own in written):
        require_values(program, written)
    return {unit: tuple(queue) for unit, queue in inferred.queues.items()}


@dataclass
class _Waits:
    """The waits of an instruction, and its happens-before vector with these."""

    known: Known
    knows: Mapping[str, Sequence[Known]]
    counts: dict[str, int] = field(default_factory=dict)

    def add(self, other: str, count: int) -> None:
        """Adds a wait for `count` instructions of a unit, and joins the happens-before vector of the last of them."""
        self.counts[other] = max(count, self.counts.get(other, 0))
        self.known = _joined(self.known, self.knows[other][count - 1], other, count)

    def needed(self, before: Known) -> Wait:
        """Returns the minimal wait set, given the happens-before vector `before`."""
        if not self.counts:
            return _NO_WAIT
        if len(self.counts) < 2:
            if all(before[INDEX[unit]] >= count for unit, count in self.counts.items()):
                return _NO_WAIT
            return Wait(**self.counts)
        for unit in list(self.counts):
            known = before
            for other, count in self.counts.items():
                if other != unit:
                    known = _joined(known, self.knows[other][count - 1], other, count)
            if known[INDEX[unit]] >= self.counts[unit]:
                del self.counts[unit]
        return Wait(**self.counts)


_NO_WAIT = Wait()


def _joined(known: Known, theirs: Known, other: str, count: int) -> Known:
    """Returns the join of two happens-before vectors, after a wait for `count` instructions of unit `other`.

    `theirs` is the vector of the last of these instructions.
    """
    counts = zip(UNITS, known, theirs, strict=True)
    return tuple(max(own, more, count if unit == other else 0) for unit, own, more in counts)


class _History:
    """The last accesses of each location of a memory, and of each half by each port.

    last   (reads, writes): unit -> 1 + number of the last instruction that accessed a location, 0 for none
    ports  (reads, writes): (unit, half) -> number of the last instruction that used the port
    """

    def __init__(self, size: int) -> None:
        self.size = size
        self.last: tuple[dict[str, npt.NDArray[np.int32]], ...] = {}, {}
        self.newest: tuple[dict[str, int], ...] = {}, {}
        self.ports: tuple[dict[tuple[str, int], int], ...] = {}, {}

    def of(self, writes: bool, unit: str) -> npt.NDArray[np.int32]:
        if unit not in self.last[writes]:
            self.last[writes][unit] = np.zeros(self.size, np.int32)
        return self.last[writes][unit]

    def grow(self, size: int) -> None:
        """Appends locations up to a size."""
        for last in self.last:
            for unit, own in last.items():
                last[unit] = np.append(own, np.zeros(size - len(own), np.int32))
        self.size = size


class Inferred:
    """The queues built from an instruction list, whose instructions are added one by one."""

    def __init__(self, program: NpuProgram, ports: bool = True) -> None:
        machine = self.machine = program.machine
        self.program, self.dram, self.has_port_waits = program, program.dram, ports
        self.tables = LaneTables(machine)
        sizes = {memory.name: memory.size(machine) for memory in MEMORIES if memory.size is not None}
        self.history = {name: _History(size) for name, size in sizes.items()}
        self.history[DRAM.name] = _History(self.beats)
        self.queues: dict[str, list[Instruction]] = {unit: [] for unit in UNITS}
        self.knows: dict[str, list[Known]] = defaultdict(list)
        self.interlocks = Interlocks(machine.pipelined)

    @property
    def beats(self) -> int:
        return len(self.dram) // self.machine.bandwidth

    def add(self, own: Instruction) -> None:
        """Appends the next instruction of the list to its queue, with its waits. Raises BadInput."""
        unit, number = own.unit, len(self.queues[own.unit])
        before = self._before(own, number)
        waits = _Waits(before, self.knows)
        if own.wait != _NO_WAIT:
            for other, count in zip(UNITS, own.wait, strict=True):
                if count:
                    waits.add(other, count)
        try:
            for effect, at in access_sets(own, self.machine, self.tables, self.beats):
                self._access(effect, at, unit, number, waits)
            if isinstance(own, Tables):
                self._load_tables(own)
        except BadInput as error:
            raise self.program.located(unit, number, own, error) from None
        self.queues[unit].append(replaced(own, waits.needed(before)))
        self.knows[unit].append(waits.known)
        self.interlocks.add(own, number)

    def _before(self, own: Instruction, number: int) -> Known:
        """Returns the happens-before vector without new waits: from the queue order and the interlock."""
        known = [self.knows[own.unit][-1]] if number else [(0,) * len(UNITS)]
        if (locked := self.interlocks.dependence(own, number)) is not None:
            known += guaranteed(locked, self.knows)
        return tuple(map(max, *known)) if len(known) > 1 else known[0]

    def _access(self, effect: Effect, at: Integers, unit: str, number: int, waits: _Waits) -> None:
        """Adds the waits that an access needs, and records it."""
        memory = effect.memory
        if not at.size or (memory is ARRAY and self.machine.pipelined):
            return
        history = self.history[memory.name]
        conflicting = (True, False) if effect.writes else (True,)
        for writes in conflicting if memory is not ARRAY else conflicting[1:]:  # the interlock orders these
            for other, newest in history.newest[writes].items():
                # A unit accesses memories in order, except that DMA reads may overtake DMA writes.
                if other == unit and (effect.writes or unit != "dma"):
                    continue
                if newest >= waits.known[INDEX[other]]:
                    last = int(history.last[writes][other].take(at).max())
                    if last > waits.known[INDEX[other]]:
                        waits.add(other, last)
        if not effect.writes and memory not in (DRAM, ARRAY):
            self._require_written(memory, at, unit, number)
        history.of(effect.writes, unit)[at] = number + 1
        history.newest[effect.writes][unit] = number
        if memory.ports and self.has_port_waits:
            self._use_port(history.ports[effect.writes], memory, at, unit, number, waits)

    def _use_port(
        self, last: dict[tuple[str, int], int], memory: Memory, at: Integers, unit: str, number: int, waits: _Waits
    ) -> None:
        """Adds waits for other units' last users of the port in the accessed halves, and records the use."""
        half = self.history[memory.name].size // 2
        halves = [upper for upper, there in ((0, at.min() < half), (1, at.max() >= half)) if there]
        for (other, upper), user in last.items():
            if other != unit and upper in halves and user >= waits.known[INDEX[other]]:
                waits.add(other, user + 1)
        last |= {(unit, upper): number for upper in halves}

    def _require_written(self, memory: Memory, at: Integers, unit: str, number: int) -> None:
        """Checks that some instruction wrote each location. Raises BadInput."""
        written = np.zeros(at.shape, np.bool_)
        for last in self.history[memory.name].last[True].values():
            written |= last.take(at) > 0
        if not written.all():
            place = int(at.reshape(-1)[int(written.argmin())])
            what = memory.located(place, self.machine)
            raise BadInput(f"{unit} instruction {number} reads {what} before any instruction has written it")

    def _load_tables(self, own: Tables) -> None:
        """Decodes tables from DRAM. Raises BadInput for tables that the program wrote itself."""
        begin = own.dram // self.machine.bandwidth
        beats = slice(begin, begin + own.cycles(self.machine))
        if any(last[beats].any() for last in self.history[DRAM.name].last[True].values()):
            raise BadInput("it loads tables that the program wrote, and waits are inferred from given tables")
        self.tables.load(self.dram, own.dram, own.table, own.number)


def replaced(instruction: _Any, wait: Wait) -> _Any:
    """Returns the instruction with another wait."""
    if instruction.wait is wait or instruction.wait == wait:
        return instruction
    return replace(instruction, wait=wait)  # type: ignore[type-var]
