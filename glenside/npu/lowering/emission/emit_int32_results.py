"""Emits the stores of int32 sums from the accumulators to DRAM, for a host or for layers that read int32."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from glenside.ir.operand import Array
from glenside.npu.isa.base import Sums
from glenside.npu.isa.fields import Address
from glenside.npu.lowering.emission.emit_layer import Writer
from glenside.npu.lowering.tiling.layer_tiles import Layer
from glenside.npu.lowering.tiling.tile_order import Run


class SumsOut:
    """Stores a layer's int32 sums to DRAM, in rows with one sum for each array column."""

    lanes = 0
    whole = False

    def __init__(self, writer: Writer, layer: Layer) -> None:
        self.writer, self.layer = writer, layer
        self.m = layer.product.rows.numbers.shape[1]
        self.row_bytes = writer.machine.sum_beats * writer.machine.bandwidth
        self.base = writer.image.room(len(layer.groups) * self.m * self.row_bytes)

    def send(self, done: Sequence[tuple[Run, int]], half: int) -> None:
        for run, base in done:
            dram = Address(self.base + (run.group * self.m + run.begin) * self.row_bytes, (self.row_bytes, 0, 0))
            self.writer.add(Sums((run.end - run.begin, 1, 1), dram, Address(base, (1, 0, 0))))

    def begin(self) -> None:
        pass

    def expect(self, run: Run) -> None:
        pass

    @property
    def addresses(self) -> Array:
        """Returns the address of each int32 element; -1 for zeros."""
        line, column = self.layer.lines()
        where = self.base + line * self.row_bytes + 4 * column
        made: Array = np.where(self.layer.elements > 0, where, -1)
        return made
