"""Sources of a layer's streamed rows: copied into halves of the banks, or resident."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

import numpy as np

from glenside.ir.operand import Array
from glenside.npu.isa.address_loops import nests
from glenside.npu.isa.base import Fill
from glenside.npu.lowering.allocation.double_buffering import Chunk, Plan
from glenside.npu.lowering.tiling.tile_order import Order, Run
from glenside.npu.lowering.transfer.permutation_table_transfers import Table
from glenside.npu.machine.model import HALVES

if TYPE_CHECKING:
    from glenside.npu.lowering.emission.emit_layer import Feed, Writer

_BYTE = 0xFF


class Source(Protocol):
    """The rows of a layer in the scratchpad.

    runs  in order
    """

    runs: Sequence[Run]

    def fill(self, number: int, now: int) -> bool:
        """Queues the loads of a run's rows, if there is space for them before run `now` streams."""

    def table(self, tile: int) -> Table:
        """Returns the permutation table of a tile: the banks that its rows read, and their offsets."""

    def cells(self, number: int) -> Array:
        """Returns, for each row of a run, the cell that the table's offsets are relative to."""


class Copied:
    """Rows that are copied from DRAM into halves of the scratchpad: one is filled while the other streams. `elements`
    has the DRAM address of each element by number; number 0 is no element.
    """

    def __init__(self, writer: Writer, order: Order, feed: Feed, elements: Array) -> None:
        self.writer, self.order, self.feed, self.elements = writer, order, feed, elements
        self.machine = writer.machine
        self.plan = Plan.of(order, writer.chunk % HALVES)
        self.runs: Sequence[Run] = self.plan.runs
        enabled = order.layer.enabled
        self.lanes = np.flatnonzero(enabled.any(axis=0))
        known = {own.tobytes(): own for own in enabled}  # most tiles are equal
        alike = {key: Table(tuple((lane, 0, 0) for lane in np.flatnonzero(own).tolist())) for key, own in known.items()}
        self.tables = [alike[own.tobytes()] for own in enabled]
        self.empty = Table(tuple((lane, feed.zero & _BYTE, 0) for lane in range(self.machine.rows)))
        self.filled = 0
        writer.chunk += len(self.plan.chunks)

    def table(self, tile: int) -> Table:
        return self.tables[tile]

    def cells(self, number: int) -> Array:
        return self.plan.addresses[number] * self.machine.rows

    def fill(self, number: int, now: int) -> bool:
        chunks, chunk = self.plan.chunks, self.plan.chunk_of[number]
        if chunk >= HALVES and chunks[chunk - HALVES].end > now:
            return False
        if chunk == self.filled:
            self._fill_lanes(chunks[chunk])
            self.filled += 1
        return True

    def _fill_lanes(self, chunk: Chunk) -> None:
        machine, writer = self.machine, self.writer
        if self.feed.made[0]:
            writer.settle_before()
        elements = self.order.rows.numbers[chunk.rows]
        row, lane = np.nonzero(elements)
        first = self.order.firsts[chunk.half]
        writer.forget(first * machine.rows + np.arange(len(elements) * machine.rows))
        self._fill_empty(first, elements)
        self.writer.fill_lanes(self.elements[elements[row, lane]], lane, first + row)

    def _fill_empty(self, first: int, elements: Array) -> None:
        """Emits zeros for the enabled banks that hold no element."""
        empty: Array = elements[:, self.lanes] == 0
        rows = np.flatnonzero(empty.any(axis=1))
        if len(rows):
            table = self.writer.table(self.empty)
            for nest in nests(first + rows[:, None]):
                self.writer.add(Fill(nest.counts, nest.address(0), table))
