"""What a product takes on the array of an NPU: cycles of its tiles, and bytes of its memories.

Cycles of matrices (m)(k) and (n)(k), the rows cut into tiles that half of the accumulators and of the lanes hold:

    pipelined   R + tiles max(R, m) + drain    the next weights load while rows stream; one drain for a layer
    serial      tiles (R + m + drain)          load, stream, wait until the last sum is there

where the drain is what a row takes through the array into the accumulators, R + C + 2 (`npu.model.cycle_model`). A last
tile of fewer rows than R is over sooner: the pipelined count is at most R - 1 cycles above that of its instructions.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from glenside.ir.types import ceil_div, largest
from glenside.targets.base import InstructionCost
from glenside.targets.systolic_array.array import UNLIMITED, Array, BitWidths

INT8 = BitWidths(8, 8, 32)


@dataclass(frozen=True)
class NpuArray(Array):
    """The array of an NPU; `drain` are the cycles from the last row of a tile to its last sum.

    Bytes are those of rows of weights, which are C bytes however few columns are used, `row_bytes` each with what fills
    its last beat.
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
        """Bytes of the weights (g, k)(n) as they are loaded: rows of the array's columns, filled up with zeros."""
        return g * k * ceil_div(n, self.columns) * self.row_bytes

    def streaming(self, g: Any, m: Any, k: Any) -> Any:
        """Bytes of the lanes that hold the rows (g, m)(k): each lane of a tile has a byte of each row.

        Tiles over columns stream the same rows again.
        """
        row_tiles = ceil_div(m, self.max_rows or UNLIMITED)
        return g * row_tiles * ceil_div(m, row_tiles) * k

    def bound(self, work: Any, depth: Any, results: Any, weights: Any) -> InstructionCost:
        """As that of every array; pipelined, no tile takes less than loading the next one.

        Tiles take each k-tile at least once, so the m n results of a group take m n / C rows at least.
        """
        streaming = largest(ceil_div(work, self.rows * self.columns), ceil_div(results, self.columns))
        loads = ceil_div(depth, self.rows)
        if self.pipelined:
            cycles = self.rows + largest(streaming, loads * self.rows) + self.drain
        else:
            cycles = streaming + loads * (self.rows + self.drain)
        return InstructionCost(cycles, 0, ceil_div(weights, self.columns) * 0)
