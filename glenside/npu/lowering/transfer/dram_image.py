"""Builds the DRAM contents of a program: weights, permutation tables, and space for inputs and results."""

from __future__ import annotations

import numpy as np

from glenside.ir.operand import Array
from glenside.npu.lowering.transfer.permutation_table_transfers import Table
from glenside.npu.machine.model import Machine


class Image:
    """DRAM contents in parts of whole beats; equal parts are stored once."""

    def __init__(self, machine: Machine) -> None:
        self.machine, self.size = machine, 0
        self._parts: list[tuple[int, Array]] = []
        self.read_by_units: list[tuple[int, Array]] = []
        """Address and bytes of data that control instructions: permutation tables, lookup tables, parameters."""
        self._known: dict[tuple[str, bytes], int] = {}

    def room(self, size: int) -> int:
        """Allocates a number of bytes; returns their address."""
        begin, beat = self.size, self.machine.bandwidth
        self.size = begin + -(-size // beat) * beat
        return begin

    def put(self, content: Array) -> int:
        """Stores bytes that are there from the start; returns their address."""
        begin = self.room(content.size)
        self._parts.append((begin, content.ravel()))
        return begin

    def weights(self, rows: Array) -> int:
        """Stores rows of C int8 weights, each in whole beats; returns their address."""
        width = self.machine.weight_beats * self.machine.bandwidth
        whole = np.ascontiguousarray(rows)
        if width > rows.shape[1]:
            whole = np.zeros((len(rows), width), rows.dtype)
            whole[:, : rows.shape[1]] = rows
        return self._once("weights", whole.view(np.uint8))

    def packed(self, content: Array) -> int:
        """Stores bytes of whole beats; returns their address."""
        return self._once("packed", content)

    def table(self, table: Table) -> int:
        """Stores a permutation table of whole beats; returns its address."""
        return self._once("table", table.array(self.machine.entries))

    def function(self, content: Array) -> int:
        """Stores the bytes of a lookup table of whole beats; returns their address."""
        return self._once("function", content)

    def parameters(self, row: Array) -> int:
        """Stores a row of parameters of whole beats; returns its address."""
        return self._once("parameters", row)

    def _once(self, what: str, content: Array) -> int:
        key = what, content.tobytes()
        if key not in self._known:
            self._known[key] = self.put(content)
            if what not in ("weights", "packed"):
                self.read_by_units.append((self._known[key], content.ravel()))
        return self._known[key]

    def bytes(self) -> Array:
        """Returns all bytes; allocated space is 0."""
        found = np.zeros(self.size, np.uint8)
        for begin, content in self._parts:
            found[begin : begin + content.size] = content
        return found
