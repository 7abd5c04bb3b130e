"""The DRAM of a program as it grows: weights, lane tables, and room for what comes in and goes out."""

from __future__ import annotations

import numpy as np

from glenside.ir.operand import Array
from glenside.npu.lowering.transfer.permutation_table_transfers import Table
from glenside.npu.machine.model import Machine


class Image:
    """Bytes, each part from a beat on; what is the same is there once."""

    def __init__(self, machine: Machine) -> None:
        self.machine, self.size = machine, 0
        self._parts: list[tuple[int, Array]] = []
        self.read_by_units: list[tuple[int, Array]] = []
        """Where what says what instructions do is, and its bytes: tables, functions, parameters."""
        self._known: dict[tuple[str, bytes], int] = {}

    def room(self, size: int) -> int:
        """The address of so many bytes."""
        begin, beat = self.size, self.machine.bandwidth
        self.size = begin + -(-size // beat) * beat
        return begin

    def put(self, content: Array) -> int:
        """The address of bytes that are there from the begin on."""
        begin = self.room(content.size)
        self._parts.append((begin, content.ravel()))
        return begin

    def weights(self, rows: Array) -> int:
        """Rows of C int8, each of whole beats."""
        width = self.machine.weight_beats * self.machine.bandwidth
        whole = np.ascontiguousarray(rows)
        if width > rows.shape[1]:
            whole = np.zeros((len(rows), width), rows.dtype)
            whole[:, : rows.shape[1]] = rows
        return self._once("weights", whole.view(np.uint8))

    def packed(self, content: Array) -> int:
        """Bytes of whole beats."""
        return self._once("packed", content)

    def table(self, table: Table) -> int:
        """A lane table, of whole beats."""
        return self._once("table", table.array(self.machine.entries))

    def function(self, content: Array) -> int:
        """The bytes of a function, of whole beats."""
        return self._once("function", content)

    def parameters(self, row: Array) -> int:
        """The bytes of a row of parameters, of whole beats."""
        return self._once("parameters", row)

    def _once(self, what: str, content: Array) -> int:
        key = what, content.tobytes()
        if key not in self._known:
            self._known[key] = self.put(content)
            if what not in ("weights", "packed"):
                self.read_by_units.append((self._known[key], content.ravel()))
        return self._known[key]

    def bytes(self) -> Array:
        """All of it; what is only room is 0."""
        found = np.zeros(self.size, np.uint8)
        for begin, content in self._parts:
            found[begin : begin + content.size] = content
        return found
