"""Lane tables on chip as arrays: what was decoded for an instruction stays until somebody writes the table."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

from glenside.npu.isa.address_generators import ENTRY, Table, decoded
from glenside.npu.machine.model import Machine


class LaneTables:
    """Those in each slot."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self._held: list[npt.NDArray[np.void]] = [np.zeros(machine.entries, ENTRY)] * machine.tables
        self._known: dict[tuple[int, int, int], Table] = {}

    def of(self, first: int, number: int, used: int) -> Table:
        """So many of them, from one on, as one: of each its first `used` entries."""
        key = first, number, used
        if key not in self._known:
            own = [Table.of(self._held[first + each], used) for each in range(number)]
            self._known[key] = own[0] if number == 1 else Table.joined(own)
        return self._known[key]

    def write(self, first: int, contents: Iterable[npt.NDArray[np.uint8]]) -> None:
        """The bytes of tables to slots, from one on. Raises BadInput: what is no table."""
        for slot, content in enumerate(contents, first):
            self._held[slot] = decoded(content, self.machine.entries)
            for key in [own for own in self._known if own[0] <= slot < own[0] + own[1]]:
                del self._known[key]
