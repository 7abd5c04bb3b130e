"""Instructions of columns: what is known of all sums of a column, in rows of accumulators, becomes two registers of it,
an offset (int32) and a factor (float32), and rows become others by these. The store unit takes them.

With them softmax is `greatest`, `apply` (a table of powers), `total`, `scale`; and a layer norm `mean`, `deviation`,
`scale`: all C columns at once, a row of them a cycle. round() is half to even, float32() and what is computed of such
numbers are rounded so too, as IEEE 754 says; int16() is the nearest of -32767 to 32767.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from glenside.npu.isa.base import _NOW, Instruction, _accumulators, _function, _Loops, _row, _tables, _Waits
from glenside.npu.isa.fields import Address, Counts, Form, Kind
from glenside.npu.machine.model import Machine

TAIL = 64
"""Cycles from the last row to the registers: a square root and a quotient, a bit of each in a cycle, and rounding."""
DRAIN = 8
"""Cycles until the last row is in the accumulators again."""
_own = Kind(Form.NUMBER, "a row of parameters, an entry of each column", 16, place="parameters_base")


@dataclass(frozen=True)
class Functions(Instruction):
    """Functions from DRAM, each of whole beats: 256 int16, little-endian, that of byte v being number v modulo 256."""

    unit = "dma"
    operation = 8

    dram: Annotated[int, Kind(Form.NUMBER, "where the first one is, aligned to beats", 32, place="dram_base")]
    function: Annotated[int, _row("the first function that is written")]
    number: Annotated[int, _tables("how many functions")]
    wait: _Waits = _NOW

    def cycles(self, machine: Machine) -> int:
        return self.number * machine.function_beats


class Reduction(Instruction):
    """What sets registers of all columns."""

    counts: Counts
    accumulators: Address

    def cycles(self, machine: Machine) -> int:
        return super().cycles(machine) + TAIL


class Rewriting(Instruction):
    """What makes other rows of rows of accumulators."""

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
    wait: _Waits = _NOW


@dataclass(frozen=True)
class _Scaled(Reduction):
    """One with parameters of each column."""

    unit = "store"

    counts: _Loops
    accumulators: Annotated[Address, _accumulators("the row of sums")]
    parameters: Annotated[int, _own]
    wait: _Waits = _NOW


@dataclass(frozen=True)
class Mean(_Scaled):
    """offset[c] <- - int16(round(float32(the sum of accumulators[address][c], int32) * scale)), of column c's scale."""

    operation = 2


@dataclass(frozen=True)
class Deviation(_Scaled):
    """factor[c] <- scale / sqrt(float32(bias + the sum of the squares of accumulators[address][c] + offset[c])), of
    column c's bias and scale. What is squared is less than 2^17, and the sum less than 2^47 and above 0.
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
    """accumulators[address][c] <- int16(round(float32(accumulators[address][c] + offset[c]) * factor[c])). No row comes
    twice.
    """

    unit = "store"
    operation = 5

    counts: _Loops
    accumulators: Annotated[Address, _accumulators("the row of sums")]
    wait: _Waits = _NOW


@dataclass(frozen=True)
class Apply(Rewriting):
    """accumulators[address][c] <- function(requantised(accumulators[address][c] + offset[c])), of column c's parameters
    but for its bias. No row comes twice.
    """

    unit = "store"
    operation = 6

    counts: _Loops
    accumulators: Annotated[Address, _accumulators("the row of sums")]
    parameters: Annotated[int, _own]
    function: Annotated[int, _function("which function")]
    wait: _Waits = _NOW
