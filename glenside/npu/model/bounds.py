"""Checks static limits of programs: field widths, memory sizes, one address per bank and cycle, int32 sums."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from glenside.ir.errors import BadInput
from glenside.npu.isa.address_generators import Integers, Table
from glenside.npu.isa.base import MOST, Instruction
from glenside.npu.isa.fields import UNITS
from glenside.npu.program.program import NpuProgram

_INT32 = np.iinfo(np.int32)


def require_fit(program: NpuProgram) -> None:
    """Checks a program's DRAM, queue lengths, units and fields. Raises BadInput."""
    if program.dram.dtype != np.uint8 or program.dram.ndim != 1 or len(program.dram) % program.machine.bandwidth:
        raise BadInput(f"DRAM of a program is bytes, in whole beats of {program.machine.bandwidth}")
    for unit in UNITS:
        queue = program.queue(unit)
        if len(queue) > MOST:
            raise BadInput(f"a program has at most {MOST:,} instructions of a unit, got {len(queue):,} of {unit}")
        kinds = {type(instruction) for instruction in queue}
        try:
            for kind in kinds:
                kind.require_all_fit([own for own in queue if type(own) is kind])
        except BadInput:
            _require_each_fits(unit, queue)
            raise
        if any(kind.unit != unit for kind in kinds):
            _require_each_fits(unit, queue)


def _require_each_fits(unit: str, queue: Sequence[Instruction]) -> None:
    """Checks the unit and the fields of each instruction. Raises BadInput for the first wrong one."""
    for number, instruction in enumerate(queue):
        if instruction.unit != unit:
            raise BadInput(f"{unit} instruction {number} is {instruction.mnemonic()}, which {instruction.unit} takes")
        try:
            instruction.require_fit()
        except BadInput as error:
            raise BadInput(f"{unit} instruction {number}: {error.message}") from None


def require_within(what: str, at: Integers, most: int) -> None:
    """Checks that all numbers are in 0..most - 1; `what` names them in the message. Raises BadInput."""
    if at.size and not (at.min() >= 0 and at.max() < most):
        worst = at.min() if at.min() < 0 else at.max()
        raise BadInput(f"{what} {worst:,} is outside of the {most:,} there are")


def require_one_address(table: Table) -> None:
    """Checks that bytes of a beat from one lane have one offset, as a bank reads one address per cycle.

    With a carry the check is the same: both bytes of a lane are past the last lane, or neither is. Raises BadInput.
    """
    order = np.argsort(table.select, kind="stable")
    select, offset = table.select[order], table.offset[order]
    clash = (select[1:] == select[:-1]) & (offset[1:] != offset[:-1])
    if clash.any():
        lane = select[1:][clash.argmax()]
        raise BadInput(
            f"two bytes of its beats are of lane {lane} at two offsets, and a lane is read at one address a cycle"
        )


def require_int32(sums: npt.NDArray[np.int64]) -> None:
    """Checks that all sums fit an accumulator. Raises BadInput."""
    if sums.size and not (sums.min() >= _INT32.min and sums.max() <= _INT32.max):
        worst = sums.min() if sums.min() < _INT32.min else sums.max()
        raise BadInput(f"the sum {worst:,} is not an int32")
