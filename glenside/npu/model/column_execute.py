"""Simulates the column instructions: column registers, lookup tables, and accumulator rewrites."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from glenside.ir.errors import BadInput
from glenside.npu.isa.base import Instruction, Store
from glenside.npu.isa.column_unit import Apply, Deviation, Functions, Greatest, Mean, Reduction, Rewriting, Scale, Total
from glenside.npu.machine.model import FUNCTION
from glenside.npu.model.happens_before import Integers, Now, Places
from glenside.npu.program import requantization

if TYPE_CHECKING:
    from glenside.npu.model.execute import State

_ENTRIES = FUNCTION // 2
_SQUARED_LIMIT, _SUM_LIMIT = 1 << 17, 1 << 47
_TINY, _HUGE = np.finfo(np.float32).tiny, np.finfo(np.float32).max


class ColumnRegisters:
    """The offset and the factor of each column, and the lookup tables of 256 int16 ("functions")."""

    def __init__(self, state: State) -> None:
        self.state, machine = state, state.machine
        self.functions = np.zeros((machine.functions, _ENTRIES), np.int64)
        self.of_functions = Places("function", (machine.functions,))
        self.offset: npt.NDArray[np.int64] | None = None
        self.factor: npt.NDArray[np.float32] | None = None
        self.does: Mapping[type[Instruction], Callable[[Now, Any], None]] = {
            Functions: self._functions,
            Greatest: self._greatest,
            Mean: self._mean,
            Deviation: self._deviation,
            Total: self._total,
            Scale: self._scale,
            Apply: self._apply,
        }

    def applied(self, now: Now, own: Store | Apply, values: npt.NDArray[np.int8]) -> npt.NDArray[np.int64]:
        """Looks up bytes in the instruction's function. Raises BadInput if there is no such function."""
        self._require_function(np.array([own.function]))
        self.of_functions.read(np.array([own.function]), now)
        found: npt.NDArray[np.int64] = self.functions[own.function][values.view(np.uint8)]
        return found

    def _require_function(self, numbers: Integers) -> None:
        most = self.state.machine.functions
        if numbers.max() >= most:
            raise BadInput(f"function {numbers.max()} is outside of the {most} there are")

    def _functions(self, now: Now, own: Functions) -> None:
        numbers = own.function + np.arange(own.number)
        self._require_function(numbers)
        content = self.state.fetched(now, np.array([own.dram]), own.number * self.state.machine.function_beats)
        self.of_functions.write(numbers, now)
        self.functions[numbers] = np.ascontiguousarray(content.reshape(own.number, -1)[:, :FUNCTION]).view("<i2")

    def _rows(self, now: Now, own: Reduction | Rewriting) -> tuple[Integers, npt.NDArray[np.int64]]:
        """Reads the accumulator rows of an instruction: returns their indices (n) and their sums (n)(C)."""
        rows = self.state.sum_rows(own.accumulators, own.counts)
        self.state.read_sums(now, own, rows)
        return rows, self.state.sums[rows]

    def _entries(self, now: Now, row: int) -> npt.NDArray[np.void]:
        found: npt.NDArray[np.void] = self.state.entries_of(now, np.array([row]))[0]
        return found

    def _greatest(self, now: Now, own: Greatest) -> None:
        self.offset = -self._rows(now, own)[1].max(axis=0)

    def _mean(self, now: Now, own: Mean) -> None:
        sums = self._rows(now, own)[1].sum(axis=0)
        if np.abs(sums).max() >= 1 << 31:
            raise BadInput(f"the sum {sums[np.abs(sums).argmax()]:,} of a column is not an int32")
        self.offset = -requantization.near(sums, self._entries(now, own.parameters)["scale"])

    def _deviation(self, now: Now, own: Deviation) -> None:
        apart = self._rows(now, own)[1] + self._known(self.offset, "offset")
        entries = self._entries(now, own.parameters)
        if np.abs(apart).max() >= _SQUARED_LIMIT:
            raise BadInput(f"a squared value is less than {_SQUARED_LIMIT:,}, got {np.abs(apart).max():,}")
        squares = entries["bias"] + np.square(apart).sum(axis=0)
        _require_sum(squares)
        self._set_factor(entries["scale"] / np.sqrt(squares.astype(np.float32)))

    def _total(self, now: Now, own: Total) -> None:
        sums, scale = self._rows(now, own)[1].sum(axis=0), self._entries(now, own.parameters)["scale"]
        _require_sum(sums)
        self._set_factor(scale / sums.astype(np.float32))
        self.offset = np.zeros_like(sums)

    def _set_factor(self, factor: npt.NDArray[np.float32]) -> None:
        assert factor.dtype == np.float32, "one rounding each"
        good = (factor >= _TINY) & (factor <= _HUGE)
        if not good.all():
            raise BadInput(f"the factor of column {good.argmin()} is a positive normal float32, got {factor.min()!s}")
        self.factor = factor

    def _scale(self, now: Now, own: Scale) -> None:
        rows, sums = self._rows(now, own)
        sums, factor = sums + self._known(self.offset, "offset"), self._known(self.factor, "factor")
        self._put(now, own, rows, requantization.near(sums, factor))

    def _apply(self, now: Now, own: Apply) -> None:
        rows, sums = self._rows(now, own)
        sums = sums + self._known(self.offset, "offset")
        entries = np.broadcast_to(self._entries(now, own.parameters), sums.shape)
        self._put(now, own, rows, self.applied(now, own, requantization.requantised(sums, entries)))

    def _put(self, now: Now, own: Rewriting, rows: Integers, values: npt.NDArray[np.int64]) -> None:
        if len(np.unique(rows)) < len(rows):
            raise BadInput("a rewrite reads a row of accumulators twice: its rows must be distinct")
        self.state.use_sums(now, own, rows, writes=True)
        self.state.of_sums.write(rows, now)
        self.state.sums[rows] = values

    @staticmethod
    def _known(register: npt.NDArray[Any] | None, what: str) -> npt.NDArray[Any]:
        if register is None:
            raise BadInput(f"it reads the {what} of columns before any instruction has set it")
        return register


def _require_sum(sums: npt.NDArray[np.int64]) -> None:
    if sums.min() <= 0 or sums.max() >= _SUM_LIMIT:
        worst = sums.min() if sums.min() <= 0 else sums.max()
        raise BadInput(f"the sum of a column is above 0 and less than {_SUM_LIMIT:,}, got {worst:,}")
