"""Splits the simulator into two independent halves: one computes the values, the other checks all accesses.

Two processes may run the halves in parallel. Errors are reported by the whole simulator.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from glenside.ir.errors import BadInput
from glenside.npu.isa.address_generators import Integers
from glenside.npu.isa.base import Instruction, Parameters, Tables
from glenside.npu.isa.column_unit import Reduction, Rewriting
from glenside.npu.isa.fields import UNITS
from glenside.npu.model.cycle_model import Times
from glenside.npu.model.execute import Run, State, Timed, in_order
from glenside.npu.model.happens_before import Known, Now, known
from glenside.npu.program.program import NpuProgram

_ALL: Known = (1 << 62,) * len(UNITS)


def require_order(program: NpuProgram, times: Times) -> None:
    """Checks order, bounds and ports of all accesses. Raises BadInput for a fault, and if the check needs values."""
    _Order(program, times, known(program, times)).finished()


def values(program: NpuProgram, times: Times) -> Run:
    """Computes the results of a program whose accesses are legal. Raises BadInput for a sum beyond int32."""
    state = _Values(program)
    for start, unit, number in in_order(times):
        state.do(Now(unit, number, start, _ALL), program.queue(unit)[number])
    return Run(state.dram, times, state.read, state.written)


def require_values(program: NpuProgram, written: Sequence[Instruction]) -> None:
    """Executes a sequential instruction list. Raises BadInput for a value that an instruction does not take."""
    state, numbers = _Values(program), Counter[str]()
    for own in written:
        state.do(Now(own.unit, numbers[own.unit], 0, _ALL), own)
        numbers[own.unit] += 1


class _Order(Timed):
    def __init__(self, program: NpuProgram, times: Times, known: Mapping[str, Any]) -> None:
        super().__init__(program, times, known)
        every = (type(own) for unit in UNITS for own in program.queue(unit))
        self.computes = any(issubclass(kind, Reduction | Rewriting) for kind in every)

    def _tables(self, now: Now, own: Tables) -> None:
        self._require_given(own.dram, own.number * self.machine.table_beats)
        super()._tables(now, own)

    def _parameters(self, now: Now, own: Parameters) -> None:
        self._require_given(own.dram, own.rows * self.machine.parameter_beats)
        super()._parameters(now, own)

    def _require_given(self, dram: int, beats: int) -> None:
        """Checks that the program did not write the tables or parameters that it loads. Raises BadInput if it did."""
        first = dram // self.machine.bandwidth
        if any(writes[first : first + beats].any() for writes in self.of_dram.writes.values()):
            raise BadInput("it reads tables or parameters that it wrote")


class _NoRecords:
    """A memory or a port that accepts each access and records nothing."""

    def read(self, *_: Any, **__: Any) -> None:
        """Does nothing."""

    read_one = write = use = read


class _Values(State):
    def __init__(self, program: NpuProgram) -> None:
        super().__init__(program)
        nobody: Any = _NoRecords()
        self.of_lanes = self.of_weights = self.of_sums = self.of_tables = self.of_parameters = self.of_dram = nobody
        self.columns.of_functions = nobody

    def use_lanes(self, now: Now, own: Instruction, places: Integers, *, writes: bool = False) -> None:
        """Does nothing."""

    def use_sums(self, now: Now, own: Instruction, rows: Integers, *, writes: bool = False) -> None:
        """Does nothing."""
