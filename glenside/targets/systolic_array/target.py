"""A systolic array of R rows and C columns, its dataflow, its memory and what stands beside it.

Cycles of matrices (m)(k) and (n)(k), as SCALE-Sim 3.0.0 reports them plus 1 for each product:

    weight-stationary   ceil(k/R) ceil(n/C) (m + 2R + C - 2)          R to load, then the skew through rows and columns
    double-buffered     R + ceil(k/R) ceil(n/C) max(R, m + R + C - 2)     the next weights load while rows stream
    output-stationary   ceil(m/R) ceil(n/C) (k + R + C - 2)

Bytes are those of whole tiles to and from memory outside the chip. Loops run over groups, row tiles, column tiles and
k-tiles, in this order. What the on-chip memory holds is read once: first the rows of one row tile, over column tiles
where there are several, then, beside them, the weights of one group, over row tiles. Sums stay in accumulators until
they are whole.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from glenside.ir.errors import BadInput
from glenside.ir.sizes import ceil_div, if_fits, largest
from glenside.ir.types import AccessType, Dims
from glenside.targets.base import Instruction, Spent, Target
from glenside.targets.registry import target
from rewrites.layout import folding

LARGEST = 4096
UNLIMITED = 1 << 40
DATAFLOWS = ("weight-stationary", "output-stationary", "double-buffered")

_ANALYSES = ("analyses", "mapping-analyses")
_SLICES = (*_ANALYSES, "products", "through-products", "systolic-array", "algebra", "through-computes")
_LOOPS = (*_ANALYSES, "matrices", "algebra", "through-products")


@dataclass(frozen=True)
class Words:
    """Sizes of numbers in bits: of what streams in, of the weights, and of the sums."""

    input: int = 32
    weight: int = 32
    accumulator: int = 32


@dataclass(frozen=True)
class Array:
    """The machine as numbers.

    `max_rows` is the depth of the accumulators, `capacity` the on-chip memory in bytes, `vector_rate` the
    multiply-accumulates per cycle of a unit beside the array, or None.
    """

    rows: int
    columns: int
    dataflow: str = "weight-stationary"
    max_rows: int | None = None
    capacity: int = 0
    words: Words = Words()
    vector_rate: int | None = None

    def tiled(self, g: Any, m: Any, k: Any, n: Any) -> Spent:
        """What matrices (g, m)(k) and (g, n)(k) take, cut into tiles."""
        if self.dataflow == "output-stationary":
            return self.accumulated(g, ceil_div(m, self.rows), ceil_div(n, self.columns), k)
        row_tiles = ceil_div(m, self.max_rows or UNLIMITED)
        rows = ceil_div(m, row_tiles)
        return self.streamed(g, row_tiles, ceil_div(n, self.columns), ceil_div(k, self.rows), rows)

    def streamed(self, g: Any, mt: Any, nt: Any, kt: Any, rows: Any) -> Spent:
        """g groups of mt x nt x kt weight tiles, through each of which a number of rows streams."""
        tiles = g * mt * nt * kt
        if self.dataflow == "double-buffered":
            cycles = self.rows + tiles * largest(self.rows, rows + self.rows + self.columns - 2)
        else:
            cycles = tiles * (rows + 2 * self.rows + self.columns - 2)
        inputs = self._bytes(rows * kt * self.rows, self.words.input)
        weights = self._bytes(nt * self.columns * kt * self.rows, self.words.weight)
        results = self._bytes(mt * rows * nt * self.columns, self.words.accumulator)
        return Spent(cycles, tiles, g * (self._moved(mt, nt, inputs, weights) + results))

    def accumulated(self, g: Any, mt: Any, nt: Any, k: Any) -> Spent:
        """g groups of mt x nt tiles of results, through each of which k pairs of rows and columns stream."""
        inputs = self._bytes(self.rows * k, self.words.input)
        weights = self._bytes(nt * self.columns * k, self.words.weight)
        results = self._bytes(mt * self.rows * nt * self.columns, self.words.accumulator)
        tiles = g * mt * nt
        cycles = tiles * (k + self.rows + self.columns - 2)
        return Spent(cycles, tiles, g * (self._moved(mt, nt, inputs, weights) + results))

    def beside(self, g: Any, m: Any, k: Any, n: Any) -> Spent:
        """What the unit beside the array takes: it keeps nothing, so both factors of each product are read."""
        work = g * m * k * n
        moved = self._bytes(work, self.words.input + self.words.weight) + self._bytes(g * m * n, self.words.accumulator)
        return Spent(ceil_div(work, self.vector_rate or 1), 0, moved)

    def bound(self, work: Any, depth: Any, results: Any, weights: Any) -> Spent:
        """What any mapping takes at least, swapped ones too, that makes none of these less.

        Tiles of k rows and n columns through which m rows stream hold at least m k n / (R C) cycles of streaming, and
        there are at least (depth of all groups) / R of them, each with its skew; results / (R C) where those are tiled.
        """
        rows, columns = self.rows, self.columns
        streaming = ceil_div(work, rows * columns)
        if self.dataflow == "output-stationary":
            cycles = largest(streaming, depth) + ceil_div(results, rows * columns) * (rows + columns - 2)
        elif self.dataflow == "double-buffered":
            cycles = rows + streaming + ceil_div(depth, rows) * (rows + columns - 2)
        else:
            cycles = streaming + ceil_div(depth, rows) * (2 * rows + columns - 2)
        smallest_word = min(self.words.weight, self.words.input)  # swapped, weights stream in
        return Spent(cycles, 0, self._bytes(weights, smallest_word) + self._bytes(results, self.words.accumulator))

    def _moved(self, mt: Any, nt: Any, inputs: Any, weights: Any) -> Any:
        """Bytes of rows and weights of one group: `inputs` are those of one row tile, `weights` all of the group's."""
        rows_again = if_fits(inputs, self.capacity, 1, nt)
        kept = if_fits(nt, 1, 0, if_fits(inputs, self.capacity, inputs, 0))  # rows of one column tile are read once
        return mt * inputs * rows_again + weights * if_fits(weights + kept, self.capacity, 1, mt)

    @staticmethod
    def _bytes(elements: Any, bits: int) -> Any:
        return ceil_div(elements * bits, 8)


def systolic_array(
    rows: int,
    columns: int,
    *,
    dataflow: str = "weight-stationary",
    max_rows: int | None = None,
    capacity: int = 0,
    words: Words | None = None,
    vector_rate: int | None = None,
    objectives: Sequence[str] = ("cycles",),
    max_weight_growth: float | None = None,
    name: str | None = None,
) -> Target:
    """A matrix unit of R x C multipliers with weights that stay; m rows stream through a tile in m + 2R + C - 2 cycles.

    dataflow            weight-stationary, output-stationary or double-buffered
    max_rows            most rows that stream through a tile before its sums are read, or None
    capacity            bytes of on-chip memory that keep operands between tiles
    vector_rate         multiply-accumulates per cycle of a unit beside the array, or None
    objectives          what is made least, "cycles" and "bytes", the first first
    max_weight_growth   how many times as large a mapping may make the weights, or None
    Raises BadInput.
    """
    for size in (rows, columns):
        if not 1 <= size <= LARGEST:
            raise BadInput(f"systolic-array requires sizes from 1 to {LARGEST}, got {rows}x{columns}")
    if dataflow not in DATAFLOWS:
        raise BadInput(f"a dataflow is one of {', '.join(DATAFLOWS)}, got {dataflow!r}")
    if max_rows is not None and max_rows < 1:
        raise BadInput(f"the most rows of a tile are at least 1, got {max_rows}")
    if vector_rate is not None and vector_rate < 1:
        raise BadInput(f"the rate of a vector unit is at least 1 multiply-accumulate per cycle, got {vector_rate}")
    if max_weight_growth is not None and not max_weight_growth >= 1:
        raise BadInput(f"the growth of weights is at least 1, which means none, got {max_weight_growth}")
    array = Array(rows, columns, dataflow, max_rows, capacity, words or Words(), vector_rate)
    stays = "output-stationary" if dataflow == "output-stationary" else "weight-stationary"
    families = {"loops": (*_LOOPS, "windows", "mapping", stays), "usual": (*_LOOPS, "usual-mapping", stays)}
    families["network"] = folding.TOGETHER
    if stays == "weight-stationary" and max_rows is None:
        families["slices"] = _SLICES
    return Target(
        name=name or _name(array),
        doc=systolic_array.__doc__ or "",
        instructions=_instructions(array),
        families=families,
        parameters={"rows": rows, "columns": columns, "max_rows": max_rows or UNLIMITED},
        tile={"M" if stays == "output-stationary" else "K": rows, "N": columns},
        peak=rows * columns + (vector_rate or 0),
        price=array.tiled,
        bound=array.bound,
        objectives=tuple(objectives),
        description=f"{array!r}",
        beside=None if vector_rate is None else array.beside,
        max_weight_growth=max_weight_growth,
    )


@target("systolic-array", "systolic-array:RxC", options=systolic_array)
def _weight_stationary(rows: int, columns: int, **options: Any) -> Target:
    """A weight-stationary matrix unit of R x C multipliers; M rows stream through a tile in M + 2R + C - 2 cycles."""
    return systolic_array(rows, columns, **options)


@target("output-stationary", "output-stationary:RxC", options=systolic_array)
def _output_stationary(rows: int, columns: int, **options: Any) -> Target:
    """An array of R x C sums that stay; a tile takes K + R + C - 2 cycles for products of depth K."""
    return systolic_array(rows, columns, dataflow="output-stationary", **options)


@target("double-buffered", "double-buffered:RxC", options=systolic_array)
def _double_buffered(rows: int, columns: int, **options: Any) -> Target:
    """A weight-stationary array that loads the next weights while rows stream: max(R, M + R + C - 2) cycles a tile."""
    return systolic_array(rows, columns, dataflow="double-buffered", **options)


def _name(array: Array) -> str:
    kind = "systolic-array" if array.dataflow == "weight-stationary" else array.dataflow
    return f"{kind}:{array.rows}x{array.columns}"


def _instructions(array: Array) -> tuple[Instruction, ...]:
    size = (array.rows, array.columns)
    if array.dataflow == "output-stationary":
        accepts = f"(G.., {array.rows})(K) and (G..)(K, {array.columns})"
        return (Instruction("systolic-array-output-stationary", _price_of_results(array), accepts, size),)
    tile = f"(G.., M)({array.rows}) and (G..)({array.rows}, {array.columns})"
    return (
        Instruction("systolic-array", _price_of_stream(array), tile, size),
        Instruction("systolic-array-with-blocking", _price_of_blocks(array), "(M)(K) and ()(K, N), whole tiles", size),
    )


def _loops(leading: Dims, count: int) -> tuple[int, ...]:
    """Loops over groups and tiles where the leading axes are those; anything else is so many tiles for themselves."""
    return tuple(leading) if len(leading) == count else (leading.product(), *(1,) * (count - 1))


def _price_of_stream(array: Array) -> Any:
    def price(attributes: Sequence[Any], children: Sequence[AccessType], own: AccessType) -> Spent:
        a, b = children
        groups, mt, nt, kt = _loops(b.shape, 4)
        return array.streamed(groups, mt, nt, kt, a.dims.get(b.split) if a.split > b.split else 1)

    return price


def _price_of_blocks(array: Array) -> Any:
    """The same for an instruction that cuts K and N itself."""

    def price(attributes: Sequence[Any], children: Sequence[AccessType], own: AccessType) -> Spent:
        a, b = children
        rows = a.dims.get(0) if a.split else 1
        return array.streamed(1, 1, b.item.get(1) // array.columns, b.item.get(0) // array.rows, rows)

    return price


def _price_of_results(array: Array) -> Any:
    def price(attributes: Sequence[Any], children: Sequence[AccessType], own: AccessType) -> Spent:
        b = children[1]
        groups, mt, nt = _loops(b.shape, 3)
        return array.accumulated(groups, mt, nt, b.item.get(0))

    return price
