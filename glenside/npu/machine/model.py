"""The machine as a record: the sizes of its array, memories, queues and memory port, from which everything follows."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from functools import cached_property
from math import isfinite

from glenside.ir.errors import BadInput

HALVES = 2
"""Lanes and accumulators are in two halves, each with ports of its own: one is filled while the other is read."""


@dataclass(frozen=True)
class Energy:
    """Picojoules of what a program does, and where the figures are from; `table` names those of a published one."""

    product: float
    lane_byte: float
    weight_byte: float
    accumulator_word: float
    dram_byte: float
    source: str
    table: str = ""


@dataclass(frozen=True)
class Machine:
    """An array of multipliers with its memories.

    rows          R, lanes of the array: one byte of each enters per cycle
    columns       C, sums of the array: one int32 of each leaves per cycle
    pipelined     whether the next weights are loaded while rows stream
    scratchpad    bytes of lanes and weights together
    weights       bytes of it that are weight memory, in rows of C; where it is None an eighth, or what two tiles need
                  if that is more, up to a quarter
    accumulators  rows of C int32
    parameters    rows of C entries: bias, scale, zero point, least and greatest
    tables        lane tables
    functions     of a byte, each a table of 256 int16
    instructions  how many instructions each of the four queues holds at once
    bandwidth     B, bytes of a beat of the memory port, one beat a cycle: a power of two
    latency       L, cycles from a beat's request to its data
    clock         hertz, or None: then times are cycles
    energy        or None
    """

    rows: int
    columns: int
    pipelined: bool = True
    scratchpad: int = 1 << 20
    weights: int | None = None
    accumulators: int = 512
    parameters: int = 64
    tables: int = 64
    functions: int = 2
    instructions: int = 256
    bandwidth: int = 32
    latency: int = 100
    clock: float | None = None
    energy: Energy | None = None

    def __post_init__(self) -> None:
        for name, (least, most) in _RANGES.items():
            value = getattr(self, name)
            if type(value) is not int or not least <= value <= most:
                raise BadInput(f"{name} of an npu is an integer from {least:,} to {most:,}, got {value!r}")
        if self.bandwidth & (self.bandwidth - 1):
            raise BadInput(f"bandwidth of an npu is a power of two of bytes per cycle, got {self.bandwidth}")
        if self.accumulators % HALVES:
            raise BadInput(
                f"accumulators of an npu are in two halves, so their number is even, got {self.accumulators}"
            )
        self._require_room()
        if self.clock is not None and not (isfinite(self.clock) and self.clock > 0):
            raise BadInput(f"clock of an npu is a positive number of hertz, got {self.clock!r}")

    def _require_room(self) -> None:
        own = self.weights
        if own is not None and (type(own) is not int or own < 0):
            raise BadInput(f"weights of an npu is a number of bytes, got {own!r}")
        if self.weight_rows < self.rows:
            needed, have = self.rows * self.columns, self.weight_bytes
            raise BadInput(
                f"weight memory of an npu holds a tile of {self.rows} rows of {self.columns} bytes, {needed:,} bytes,"
                f" and has {have:,}: {needed - have:,} are missing"
            )
        needed = HALVES * self.rows
        have = self.scratchpad - self.weight_bytes
        if have < needed:
            raise BadInput(
                f"scratchpad of an npu holds two bytes of each of {self.rows} lanes beside {self.weight_bytes:,} bytes"
                f" of weights, and has {have:,} bytes for them: {needed - have:,} are missing"
            )
        if self.depth > MOST_DEPTH or self.weight_rows > MOST_WEIGHT_ROWS:
            raise BadInput(
                f"a lane of an npu has at most {MOST_DEPTH:,} bytes and its weight memory {MOST_WEIGHT_ROWS:,} rows,"
                f" got {self.depth:,} and {self.weight_rows:,}: addresses have no more bits"
            )

    def runs_as(self, other: Machine) -> bool:
        """Whether a program of the one does the same on the other: clock and energy only say what that takes."""
        one, two = (replace(own, weights=own.weight_bytes, clock=None, energy=None) for own in (self, other))
        return one == two

    @cached_property
    def weight_bytes(self) -> int:
        """Bytes of weight memory."""
        if self.weights is not None:
            return self.weights
        return max(self.scratchpad // 8, min(self.scratchpad // 4, 2 * self.rows * self.columns))

    @cached_property
    def weight_rows(self) -> int:
        """Rows of weight memory, of C bytes each."""
        return self.weight_bytes // self.columns

    @cached_property
    def depth(self) -> int:
        """Bytes of a lane, an even number."""
        return (self.scratchpad - self.weight_bytes) // self.rows // HALVES * HALVES

    @cached_property
    def half_depth(self) -> int:
        """The first address of a lane's upper half."""
        return self.depth // HALVES

    @cached_property
    def half_accumulators(self) -> int:
        """The first row of the accumulators' upper half."""
        return self.accumulators // HALVES

    @cached_property
    def entries(self) -> int:
        """Entries of a lane table: of every lane, column or byte of a beat."""
        return max(self.rows, self.columns, self.bandwidth)

    def beats(self, size: int) -> int:
        """Beats of so many bytes from an aligned address."""
        return -(-size // self.bandwidth)

    @cached_property
    def weight_beats(self) -> int:
        """Beats of a row of weights in DRAM."""
        return self.beats(self.columns)

    @cached_property
    def sum_beats(self) -> int:
        """Beats of a row of sums in DRAM."""
        return self.beats(4 * self.columns)

    @cached_property
    def table_beats(self) -> int:
        """Beats of a lane table in DRAM."""
        return self.beats(TABLE_ENTRY * self.entries)

    @cached_property
    def function_beats(self) -> int:
        """Beats of a function in DRAM."""
        return self.beats(FUNCTION)

    @cached_property
    def parameter_beats(self) -> int:
        """Beats of a row of parameters in DRAM."""
        return self.beats(PARAMETER_ENTRY * self.columns)

    def __str__(self) -> str:
        own = [f"{self.rows}x{self.columns}"]
        for field in fields(self):
            value = getattr(self, field.name)
            if field.name not in ("rows", "columns", "energy") and value != field.default:
                own.append(f"{field.name}={value if type(value) is not bool else ('yes' if value else 'no')}")
        own += [f"energy={self.energy.table}"] if self.energy is not None and self.energy.table else []
        return f"npu:{','.join(own)}"


def with_useful_beats(machine: Machine) -> Machine:
    """The same with beats of no more bytes than lanes or columns take in a cycle: wider ones are never full."""
    width = machine.bandwidth
    while width // 2 >= max(machine.rows, machine.columns):
        width //= 2
    return machine if width == machine.bandwidth else replace(machine, bandwidth=width)


TABLE_ENTRY = 8
"""Bytes of an entry of a lane table in DRAM: select (2), enable (2, of which the lowest bit counts), offset (4)."""
PARAMETER_ENTRY = 16
"""Bytes of a column's parameters in DRAM: bias (4), scale (4), zero point, low, high (1 each), and 5 unused."""
FUNCTION = 512
"""Bytes of a function in DRAM."""
MOST_DEPTH = 1 << 23
MOST_WEIGHT_ROWS = 1 << 20
_RANGES = {
    "rows": (1, 1024),
    "columns": (1, 1024),
    "scratchpad": (1, 1 << 30),
    "accumulators": (2, 1 << 15),
    "parameters": (1, 1 << 15),
    "tables": (1, 1 << 10),
    "functions": (1, 1 << 4),
    "instructions": (2, 1 << 16),
    "bandwidth": (1, 1 << 10),
    "latency": (0, 1 << 12),
}
