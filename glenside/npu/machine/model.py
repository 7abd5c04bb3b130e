"""Defines the configuration of the npu: the sizes of its array, memories, queues and DRAM port."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from functools import cached_property
from math import isfinite

from glenside.ir.errors import BadInput

HALVES = 2
"""Scratchpad banks and accumulators have two halves with separate ports, for double buffering."""


@dataclass(frozen=True)
class Energy:
    """Picojoules per operation and per access, with the source of the figures.

    table  name of the published table of energies from which the figures were derived; "" for figures given directly
    """

    product: float
    lane_byte: float
    weight_byte: float
    accumulator_word: float
    dram_byte: float
    source: str
    table: str = ""


@dataclass(frozen=True)
class Machine:
    """The configuration of an npu: an array of R x C multipliers with its memories.

    rows          R, rows of the array and banks ("lanes") of the scratchpad: one byte enters each row per cycle
    columns       C, columns of the array: one int32 sum leaves each column per cycle
    pipelined     True if the next weights are loaded while rows stream
    scratchpad    bytes of scratchpad banks and weight memory together
    weights       bytes of weight memory, in rows of C; None: an eighth of the scratchpad, or two tiles of weights if
                  these need more, up to a quarter
    accumulators  number of rows of C int32
    parameters    number of rows of C entries: bias, scale, zero point, least and greatest
    tables        number of permutation tables
    functions     number of lookup tables, each of 256 int16
    instructions  capacity of each of the four instruction queues
    bandwidth     B, bytes per beat of the DRAM port, one beat per cycle: a power of two
    latency       L, cycles from a beat's request to its data
    clock         hertz; None: times are reported in cycles
    energy        picojoules per operation and access; None: energy is not reported
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
        """True if programs behave the same on both machines: only clock and energy may differ."""
        one, two = (replace(own, weights=own.weight_bytes, clock=None, energy=None) for own in (self, other))
        return one == two

    @cached_property
    def weight_bytes(self) -> int:
        """Returns the bytes of weight memory."""
        if self.weights is not None:
            return self.weights
        return max(self.scratchpad // 8, min(self.scratchpad // 4, 2 * self.rows * self.columns))

    @cached_property
    def weight_rows(self) -> int:
        """Returns the number of rows of weight memory, of C bytes each."""
        return self.weight_bytes // self.columns

    @cached_property
    def depth(self) -> int:
        """Returns the bytes of a scratchpad bank, an even number."""
        return (self.scratchpad - self.weight_bytes) // self.rows // HALVES * HALVES

    @cached_property
    def half_depth(self) -> int:
        """Returns the first address of the upper half of a scratchpad bank."""
        return self.depth // HALVES

    @cached_property
    def half_accumulators(self) -> int:
        """Returns the first row of the upper half of the accumulators."""
        return self.accumulators // HALVES

    @cached_property
    def entries(self) -> int:
        """Returns the entries of a permutation table: enough for each bank, column or byte of a beat."""
        return max(self.rows, self.columns, self.bandwidth)

    def beats(self, size: int) -> int:
        """Returns the number of beats that hold `size` bytes from an aligned address."""
        return -(-size // self.bandwidth)

    @cached_property
    def weight_beats(self) -> int:
        """Returns the beats of a row of weights in DRAM."""
        return self.beats(self.columns)

    @cached_property
    def sum_beats(self) -> int:
        """Returns the beats of a row of sums in DRAM."""
        return self.beats(4 * self.columns)

    @cached_property
    def table_beats(self) -> int:
        """Returns the beats of a permutation table in DRAM."""
        return self.beats(TABLE_ENTRY * self.entries)

    @cached_property
    def function_beats(self) -> int:
        """Returns the beats of a lookup table in DRAM."""
        return self.beats(FUNCTION)

    @cached_property
    def parameter_beats(self) -> int:
        """Returns the beats of a row of parameters in DRAM."""
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
    """Halves `bandwidth` while max(R, C) bytes still fit a beat: wider beats are never full."""
    width = machine.bandwidth
    while width // 2 >= max(machine.rows, machine.columns):
        width //= 2
    return machine if width == machine.bandwidth else replace(machine, bandwidth=width)


TABLE_ENTRY = 8
"""Bytes of a permutation table's entry in DRAM: select (2), enable (2, only bit 0 is used), offset (4)."""
PARAMETER_ENTRY = 16
"""Bytes of a column's parameters in DRAM: bias (4), scale (4), zero point, low, high (1 each), and 5 unused bytes."""
FUNCTION = 512
"""Bytes of a lookup table in DRAM."""
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
