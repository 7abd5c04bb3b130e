"""Declares the column instructions, which the store unit executes: column reductions and rewrites of accumulators.

Each column has two registers: an offset (int32) and a factor (float32). A reduction over accumulator rows sets them; a
rewrite replaces accumulator rows by values computed from them. All C columns are processed at once, a row per cycle.

Softmax is `greatest`, `apply` (a table of powers), `total`, `scale`. Layer normalization is `mean`, `deviation`,
`scale`. round() rounds half to even; float32() and float32 arithmetic do too (IEEE 754). int16() saturates to
-32767..32767.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar

from glenside.npu.isa.base import (
    _FILL,
    _NO_WAIT,
    _REQUEST,
    Instruction,
    _accumulators,
    _function,
    _Loops,
    _row,
    _tables,
    _Waits,
)
from glenside.npu.isa.effects import ACCUMULATORS, DRAM, FUNCTIONS, PARAMETERS, Effect, reads, writes
from glenside.npu.isa.fields import Address, Counts, Form, Kind
from glenside.npu.machine.model import Machine

TAIL = 64
"""Cycles from the last row to the registers: a square root and a division, one bit of each per cycle, and rounding."""
DRAIN = 8
"""Cycles from an iteration until its row is written back to the accumulators."""
_READS_ROWS = reads(ACCUMULATORS, "accumulators", 1)
_READS_PARAMETERS = reads(PARAMETERS, "parameters", 1)
_own = Kind(Form.NUMBER, "a row of parameters, an entry of each column", 16, place="parameters_base")


@dataclass(frozen=True)
class Functions(Instruction):
    """Loads lookup tables from DRAM, in whole beats. A table is 256 little-endian int16; the int8 v selects entry v
    modulo 256.
    """

    unit = "dma"
    operation = 8
    effects = reads(DRAM, "dram", _REQUEST), writes(FUNCTIONS, "function", _FILL, count="number")
    purpose = "functions"

    dram: Annotated[int, Kind(Form.NUMBER, "the address of the first one, aligned to beats", 32, place="dram_base")]
    function: Annotated[int, _row("the first function to write")]
    number: Annotated[int, _tables("the number of functions")]
    wait: _Waits = _NO_WAIT

    def cycles(self, machine: Machine) -> int:
        return self.number * machine.function_beats


class Reduction(Instruction):
    """An instruction that reduces accumulator rows to the registers of all columns."""

    effects: ClassVar[tuple[Effect, ...]] = (_READS_ROWS,)

    counts: Counts
    accumulators: Address

    def cycles(self, machine: Machine) -> int:
        return super().cycles(machine) + TAIL


class Rewriting(Instruction):
    """An instruction that rewrites accumulator rows in place."""

    effects: ClassVar[tuple[Effect, ...]] = (_READS_ROWS, writes(ACCUMULATORS, "accumulators", DRAIN))

    counts: Counts
    accumulators: Address

    def cycles(self, machine: Machine) -> int:
        return super().cycles(machine) + DRAIN


@dataclass(frozen=True)
class Greatest(Reduction):
    """offset[c] <- - the greatest accumulators[address][c]."""

    unit = "store"
    operation = 1

    counts: _Loops
    accumulators: Annotated[Address, _accumulators("the row of sums")]
    wait: _Waits = _NO_WAIT


@dataclass(frozen=True)
class _Scaled(Reduction):
    """A reduction with one parameter entry per column."""

    unit = "store"
    effects: ClassVar[tuple[Effect, ...]] = (*Reduction.effects, _READS_PARAMETERS)

    counts: _Loops
    accumulators: Annotated[Address, _accumulators("the row of sums")]
    parameters: Annotated[int, _own]
    wait: _Waits = _NO_WAIT


@dataclass(frozen=True)
class Mean(_Scaled):
    """offset[c] <- - int16(round(float32(the sum of accumulators[address][c], int32) * scale)), of column c's scale."""

    operation = 2


@dataclass(frozen=True)
class Deviation(_Scaled):
    """factor[c] <- scale / sqrt(float32(bias + the sum of the squares of accumulators[address][c] + offset[c])), of
    column c's bias and scale. The squared numbers are less than 2^17, and the sum is less than 2^47 and above 0.
    """

    operation = 3


@dataclass(frozen=True)
class Total(_Scaled):
    """factor[c] <- scale / float32(the sum of accumulators[address][c]), of column c's scale; offset[c] <- 0.

    The sum is less than 2^47 and above 0.
    """

    operation = 4


@dataclass(frozen=True)
class Scale(Rewriting):
    """accumulators[address][c] <- int16(round(float32(accumulators[address][c] + offset[c]) * factor[c])). Each row
    occurs once.
    """

    unit = "store"
    operation = 5

    counts: _Loops
    accumulators: Annotated[Address, _accumulators("the row of sums")]
    wait: _Waits = _NO_WAIT


@dataclass(frozen=True)
class Apply(Rewriting):
    """accumulators[address][c] <- function(requantised(accumulators[address][c] + offset[c])), of column c's parameters
    but for its bias. Each row occurs once.
    """

    unit = "store"
    operation = 6
    effects = *Rewriting.effects, _READS_PARAMETERS, reads(FUNCTIONS, "function", 7)

    counts: _Loops
    accumulators: Annotated[Address, _accumulators("the row of sums")]
    parameters: Annotated[int, _own]
    function: Annotated[int, _function("the function")]
    wait: _Waits = _NO_WAIT
