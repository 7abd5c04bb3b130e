"""The cost model of a product on the array of an npu: cycles of its tiles, and bytes of its memories.

Cycles of matrices (m)(k) and (n)(k). Rows are tiled to half of the accumulators and half of a scratchpad bank:

    pipelined   R + tiles max(R, m) + drain    the next weights load while rows stream; one drain for a layer
    serial      tiles (R + m + drain)          load, stream, wait for the last sum

The drain is the latency of a row through the array into the accumulators, R + C + 2 (`npu.model.cycle_model`). A last
tile with fewer rows than R ends earlier: the pipelined count is at most R - 1 cycles above that of the instructions.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from glenside.ir.types import ceil_div, largest
from glenside.targets.arrays.array import UNLIMITED, Array, BitWidths
from glenside.targets.base import InstructionCost

INT8 = BitWidths(8, 8, 32)


@dataclass(frozen=True)
class NpuArray(Array):
    """The array of an npu; `drain`: cycles from the last row of a tile to its last sum.

    Bytes count weight rows: C bytes each, even if fewer columns are used, padded to whole beats: `row_bytes`.
    """

    widths: BitWidths = INT8
    pipelined: bool = True
    drain: int = 0
    row_bytes: int = 0

    def streamed(self, g: Any, mt: Any, nt: Any, kt: Any, rows: Any) -> InstructionCost:
        tiles = g * mt * nt * kt
        if self.pipelined:
            cycles = self.rows + tiles * largest(self.rows, rows) + self.drain
        else:
            cycles = tiles * (self.rows + rows + self.drain)
        return InstructionCost(cycles, tiles, g * nt * kt * self.rows * self.row_bytes)

    def stationary(self, g: Any, k: Any, n: Any) -> Any:
        """Returns the loaded bytes of the weights (g, k)(n): rows padded with zeros to the columns of the array."""
        return g * k * ceil_div(n, self.columns) * self.row_bytes

    def streaming(self, g: Any, m: Any, k: Any) -> Any:
        """Returns the scratchpad bytes of the rows (g, m)(k): each bank of a tile holds one byte of each row.

        Column tiles stream the same rows again.
        """
        row_tiles = ceil_div(m, self.max_rows or UNLIMITED)
        return g * row_tiles * ceil_div(m, row_tiles) * k

    def bound(self, work: Any, depth: Any, results: Any, weights: Any) -> InstructionCost:
        """Returns a lower bound as for every array; pipelined, a tile takes at least the load of the next one.

        Each k-tile is streamed at least once, so that the m n results of a group need at least m n / C rows. Bytes
        are not bounded: the search compares cycles with the bound.
        """
        streaming = largest(ceil_div(work, self.rows * self.columns), ceil_div(results, self.columns))
        loads = ceil_div(depth, self.rows)
        if self.pipelined:
            cycles = self.rows + largest(streaming, loads * self.rows) + self.drain
        else:
            cycles = streaming + loads * (self.rows + self.drain)
        return InstructionCost(cycles, 0, 0)
