"""The cost model of a systolic array of R rows and C columns with on-chip memory and an optional vector unit.

Cycles of matrices (m)(k) and (n)(k), as SCALE-Sim 3.0.0 reports them plus 1 for each product:

    weight-stationary   ceil(k/R) ceil(n/C) (m + 2R + C - 2)          R to load, then the skew through rows and columns
    double-buffered     R + ceil(k/R) ceil(n/C) max(R, m + R + C - 2)     the next weights load while rows stream
    output-stationary   ceil(m/R) ceil(n/C) (k + R + C - 2)

Bytes are whole tiles to and from off-chip memory. The loop order is groups, row tiles, column tiles, k-tiles. Operands
that fit on chip are read once: first the rows of one row tile, reused over column tiles; then, in the remaining
capacity, the weights of one group, reused over row tiles. Accumulators hold sums until they are complete.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from glenside.ir.bounds import MOST_COUNT, is_whole, whole
from glenside.ir.errors import BadInput
from glenside.ir.types import AccessType, Dims, ceil_div, if_fits, largest
from glenside.targets.base import Instruction, InstructionCost

UNLIMITED = 1 << 40
LARGEST = 4096
DATAFLOWS = ("weight-stationary", "output-stationary", "double-buffered")


@dataclass(frozen=True)
class BitWidths:
    """Bits per number of streamed inputs, weights and accumulators."""

    input: int = 32
    weight: int = 32
    accumulator: int = 32


@dataclass(frozen=True)
class Array:
    """The parameters of the machine.

    `max_rows` is the depth of the accumulators, `capacity` the on-chip memory in bytes, `vector_rate` the
    multiply-accumulates per cycle of a vector unit, or None. Raises BadInput for values out of range.
    """

    rows: int
    columns: int
    dataflow: str = "weight-stationary"
    max_rows: int | None = None
    capacity: int = 0
    widths: BitWidths = BitWidths()
    vector_rate: int | None = None

    def __post_init__(self) -> None:
        sizes = (self.rows, self.columns)
        if not all(is_whole(size) and 1 <= size <= LARGEST for size in sizes):
            raise BadInput(f"systolic-array requires sizes from 1 to {LARGEST}, got {self.rows}x{self.columns}")
        if self.dataflow not in DATAFLOWS:
            raise BadInput(f"a dataflow is one of {', '.join(DATAFLOWS)}, got {self.dataflow!r}")
        if self.max_rows is not None:
            whole("the number of rows of a tile", self.max_rows, 1, MOST_COUNT)
        if self.vector_rate is not None and self.vector_rate < 1:
            rate = self.vector_rate
            raise BadInput(f"the rate of a vector unit is at least 1 multiply-accumulate per cycle, got {rate}")

    @property
    def tile(self) -> dict[str, int]:
        """The axes of an instruction with a fixed size, by name."""
        return {"M" if self.dataflow == "output-stationary" else "K": self.rows, "N": self.columns}

    def tiled(self, g: Any, m: Any, k: Any, n: Any) -> InstructionCost:
        """Returns the cost of the product of (g, m)(k) and (g, n)(k), cut into tiles."""
        if self.dataflow == "output-stationary":
            return self.accumulated(g, ceil_div(m, self.rows), ceil_div(n, self.columns), k)
        row_tiles = ceil_div(m, self.max_rows or UNLIMITED)
        rows = ceil_div(m, row_tiles)
        return self.streamed(g, row_tiles, ceil_div(n, self.columns), ceil_div(k, self.rows), rows)

    def streamed(self, g: Any, mt: Any, nt: Any, kt: Any, rows: Any) -> InstructionCost:
        """Returns the cost of g groups of mt x nt x kt weight tiles, with `rows` rows streamed through each."""
        tiles = g * mt * nt * kt
        if self.dataflow == "double-buffered":
            cycles = self.rows + tiles * largest(self.rows, rows + self.rows + self.columns - 2)
        else:
            cycles = tiles * (rows + 2 * self.rows + self.columns - 2)
        inputs = self._bytes(rows * kt * self.rows, self.widths.input)
        weights = self._bytes(nt * self.columns * kt * self.rows, self.widths.weight)
        results = self._bytes(mt * rows * nt * self.columns, self.widths.accumulator)
        return InstructionCost(cycles, tiles, g * (self._moved(mt, nt, inputs, weights) + results))

    def accumulated(self, g: Any, mt: Any, nt: Any, k: Any) -> InstructionCost:
        """Returns the cost of g groups of mt x nt result tiles, with k pairs of rows and columns streamed to each."""
        inputs = self._bytes(self.rows * k, self.widths.input)
        weights = self._bytes(nt * self.columns * k, self.widths.weight)
        results = self._bytes(mt * self.rows * nt * self.columns, self.widths.accumulator)
        tiles = g * mt * nt
        cycles = tiles * (k + self.rows + self.columns - 2)
        return InstructionCost(cycles, tiles, g * (self._moved(mt, nt, inputs, weights) + results))

    def vector(self, g: Any, m: Any, k: Any, n: Any) -> InstructionCost:
        """Returns the cost of a product on the vector unit: without reuse, both factors of each product are read."""
        work = g * m * k * n
        factors = self._bytes(work, self.widths.input + self.widths.weight)
        moved = factors + self._bytes(g * m * n, self.widths.accumulator)
        return InstructionCost(ceil_div(work, self.vector_rate or 1), 0, moved)

    def bound(self, work: Any, depth: Any, results: Any, weights: Any) -> InstructionCost:
        """Returns a lower bound over all mappings, swapped ones too, that reduce none of the arguments.

        Streaming m rows through the tiles of k rows and n columns takes at least m k n / (R C) cycles. There are at
        least (depth of all groups) / R tiles, each with its skew; if results are tiled, results / (R C).
        """
        rows, columns = self.rows, self.columns
        streaming = ceil_div(work, rows * columns)
        if self.dataflow == "output-stationary":
            cycles = largest(streaming, depth) + ceil_div(results, rows * columns) * (rows + columns - 2)
        elif self.dataflow == "double-buffered":
            cycles = rows + streaming + ceil_div(depth, rows) * (rows + columns - 2)
        else:
            cycles = streaming + ceil_div(depth, rows) * (2 * rows + columns - 2)
        smallest_word = min(self.widths.weight, self.widths.input)  # swapped weights are streamed
        moved = self._bytes(weights, smallest_word) + self._bytes(results, self.widths.accumulator)
        return InstructionCost(cycles, 0, moved)

    def _moved(self, mt: Any, nt: Any, inputs: Any, weights: Any) -> Any:
        """Returns the bytes read for one group; `inputs`: bytes of one row tile, `weights`: bytes of the group."""
        rows_again = if_fits(inputs, self.capacity, 1, nt)
        kept = if_fits(nt, 1, 0, if_fits(inputs, self.capacity, inputs, 0))  # with one column tile rows are read once
        return mt * inputs * rows_again + weights * if_fits(weights + kept, self.capacity, 1, mt)

    @staticmethod
    def _bytes(elements: Any, bits: int) -> Any:
        return ceil_div(elements * bits, 8)

    def instructions(self) -> tuple[Instruction, ...]:
        """Returns the instructions with their accepted operands and prices."""
        size = (self.rows, self.columns)
        if self.dataflow == "output-stationary":
            accepts = f"(G.., {self.rows})(K) and (G..)(K, {self.columns})"
            return (Instruction("systolic-array-output-stationary", self._price_of_results, accepts, size),)
        tile = f"(G.., M)({self.rows}) and (G..)({self.rows}, {self.columns})"
        blocks = "(M)(K) and ()(K, N), whole tiles"
        return (
            Instruction("systolic-array", self._price_of_stream, tile, size),
            Instruction("systolic-array-with-blocking", self._price_of_blocks, blocks, size),
        )

    def _price_of_stream(self, _: Any, children: Sequence[AccessType], own: AccessType) -> InstructionCost:
        a, b = children
        groups, mt, nt, kt = _loops(b.shape, 4)
        return self.streamed(groups, mt, nt, kt, a.dims.get(b.split) if a.split > b.split else 1)

    def _price_of_blocks(self, _: Any, children: Sequence[AccessType], own: AccessType) -> InstructionCost:
        """Returns the price of an instruction that tiles K and N itself."""
        a, b = children
        rows = a.dims.get(0) if a.split else 1
        return self.streamed(1, 1, b.item.get(1) // self.columns, b.item.get(0) // self.rows, rows)

    def _price_of_results(self, _: Any, children: Sequence[AccessType], own: AccessType) -> InstructionCost:
        b = children[1]
        groups, mt, nt = _loops(b.shape, 3)
        return self.accumulated(groups, mt, nt, b.item.get(0))


def _loops(leading: Dims, count: int) -> tuple[int, ...]:
    """Returns the trip counts of the loops over groups and tiles; other leading axes count as single tiles."""
    return tuple(leading) if len(leading) == count else (leading.product(), *(1,) * (count - 1))
