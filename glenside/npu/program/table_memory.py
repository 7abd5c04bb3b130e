"""Holds the permutation tables on chip; memoizes decoded tables until their slot is written."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

from glenside.ir.operand import Array
from glenside.npu.isa.address_generators import ENTRY, Table, decoded
from glenside.npu.machine.model import Machine


class LaneTables:
    """The permutation tables by slot."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self._held: list[npt.NDArray[np.void]] = [np.zeros(machine.entries, ENTRY)] * machine.tables
        self._known: dict[tuple[int, int, int], Table] = {}

    def of(self, first: int, number: int, used: int) -> Table:
        """Returns `number` tables from slot `first` on, concatenated; of each table the first `used` entries."""
        key = first, number, used
        if key not in self._known:
            own = [Table.of(self._held[first + each], used) for each in range(number)]
            self._known[key] = own[0] if number == 1 else Table.joined(own)
        return self._known[key]

    def write(self, first: int, contents: Iterable[npt.NDArray[np.uint8]]) -> None:
        """Writes tables, as bytes, to slots from `first` on. Raises BadInput for an offset that does not fit."""
        for slot, content in enumerate(contents, first):
            self._held[slot] = decoded(content, self.machine.entries)
            for key in [own for own in self._known if own[0] <= slot < own[0] + own[1]]:
                del self._known[key]

    def load(self, dram: Array, address: int, first: int, number: int) -> None:
        """Loads `number` tables from an address in DRAM to slots from `first` on. Raises BadInput."""
        size = number * self.machine.table_beats * self.machine.bandwidth
        self.write(first, dram[address : address + size].reshape(number, -1))
