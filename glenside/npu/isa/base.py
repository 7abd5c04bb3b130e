"""Declares the instructions, one record each; encoder, decoder, assembler and documents are derived from the records.

Each unit executes its instructions in order. All instructions of a unit share one bit layout: a field name has one bit
position, so that the hardware decodes fields before the operation. An instruction has three nested loops, the first
innermost. All its addresses count through them: base + i0 * stride0 + i1 * stride1 + i2 * stride2.

Scratchpad banks ("lanes" in the records) may also hold rows of R bytes: byte q is in bank q mod R at address q div R.
This skewed storage (Budnik and Kuck, The organization and use of parallel memories, 1971) reads and writes rows,
windows and transposes without bank conflicts. There, address and rotation ("turn") form one number of base R, with
carry from rotation to address.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from math import prod
from operator import attrgetter
from typing import Annotated, Any, ClassVar, Self, get_type_hints

import numpy as np
import numpy.typing as npt

from glenside.ir.errors import BadInput
from glenside.npu.isa.effects import (
    ACCUMULATORS,
    ARRAY,
    COMPLETED,
    DRAM,
    END,
    FUNCTIONS,
    LANES,
    PARAMETERS,
    START,
    TABLES,
    WEIGHTS,
    Delay,
    Effect,
    Interlock,
    Memory,
    reads,
    writes,
)
from glenside.npu.isa.fields import UNITS, Address, Counts, Form, Kind, Part, Wait
from glenside.npu.machine.model import Machine

_Loops = Annotated[Counts, Kind(Form.COUNTS, "how often each of the three loops runs, the innermost first", 16)]
_Waits = Annotated[Wait, Kind(Form.WAIT, "completed instructions of each unit before this one starts", 20)]
_NO_WAIT = Wait()
_ZERO_ADDRESS = Address(0)


_flag = partial(Kind, Form.FLAG)
_lanes = partial(Kind, Form.ADDRESS, bits=24)
_weights = partial(Kind, Form.ADDRESS, bits=24, place="lanes")
_accumulators = _parameters = partial(Kind, Form.ADDRESS, bits=16)
_dram = partial(Kind, Form.ADDRESS, bits=32)
_from = partial(Kind, Form.NUMBER, bits=32, place="dram_base")
_table = partial(Kind, Form.NUMBER, bits=10)
_tables = partial(Kind, Form.NUMBER, bits=16, least=1, place="rows")
_row = partial(Kind, Form.NUMBER, bits=20, place="row")
_rows = partial(Kind, Form.NUMBER, bits=16, least=1)
_turn = partial(Kind, Form.ADDRESS, bits=10, cyclic=True)
_column = partial(Kind, Form.ADDRESS, bits=10)
_function = partial(Kind, Form.NUMBER, bits=4)


def _carry() -> Kind:
    return _flag("address and turn are one number in base R: lanes past the last continue in the next row")


MOST = (1 << 20) - 1
"""Maximum number of instructions per unit: the largest count that a wait field holds."""


_REQUEST, _FILL = Delay(4), Delay(6, latency=True)
"""DMA: a request at the DRAM port; a write of the data of a read. What reads nothing takes as long as a read."""
_FILL_TABLE = Delay(4, latency=True)


class Instruction:
    """An instruction: `unit` executes it, and `operation` is its opcode within that unit.

    effects    its accesses of memories
    interlock  the order that the hardware keeps without waits, if any
    entries    the attribute of `Machine` with the number of table entries that it reads
    purpose    what a DMA instruction transfers: the cause of stalls and transfers; "": its mnemonic
    """

    unit: ClassVar[str]
    operation: ClassVar[int]
    effects: ClassVar[tuple[Effect, ...]] = ()
    interlock: ClassVar[Interlock | None] = None
    entries: ClassVar[str] = "rows"
    purpose: ClassVar[str] = ""

    wait: Wait

    def cycles(self, machine: Machine) -> int:
        """Returns the number of cycles for which the instruction occupies its unit."""
        return prod(getattr(self, "counts", (1,)))

    @classmethod
    def mnemonic(cls) -> str:
        return cls.__name__.lower()

    @classmethod
    @cache
    def effect(cls, memory: Memory, *, writes: bool = False) -> Effect:
        """Returns the instruction's read, or write, of a memory."""
        return next(own for own in cls.effects if own.memory == memory and own.writes == writes)

    @classmethod
    @cache
    def kinds(cls) -> Mapping[str, Kind]:
        """Returns the kind of each field, by name."""
        hints = get_type_hints(cls, include_extras=True)
        return {name: hint.__metadata__[0] for name, hint in hints.items() if hasattr(hint, "__metadata__")}

    @classmethod
    @cache
    def strides(cls) -> Mapping[str, tuple[int, int]]:
        """Returns the smallest and largest stride of each address field, by name."""
        addresses = ((name, kind) for name, kind in cls.kinds().items() if kind.form is Form.ADDRESS)
        return {name: kind.parts(name)[1].range for name, kind in addresses}

    def parts(self) -> Iterator[tuple[Part, int]]:
        """Yields each encoded part of the instruction with its value."""
        for name, kind in self.kinds().items():
            yield from zip(kind.parts(name), kind.numbers(getattr(self, name)), strict=True)

    @classmethod
    @cache
    def part_names(cls) -> Sequence[str]:
        """Returns the names of the encoded parts, in the order of `parts`."""
        return [part.name for name, kind in cls.kinds().items() for part in kind.parts(name)]

    @classmethod
    @cache
    def _ranges(cls) -> Sequence[tuple[str, Kind, Sequence[tuple[int, int]]]]:
        """Returns each field's name, kind, and the (least, greatest) values of its parts."""
        return [(name, kind, [part.range for part in kind.parts(name)]) for name, kind in cls.kinds().items()]

    def require_fit(self) -> None:
        """Checks that each number fits its field. Raises BadInput otherwise."""
        if all(
            least <= number <= most
            for name, kind, ranges in self._ranges()
            for (least, most), number in zip(ranges, kind.numbers(getattr(self, name)), strict=True)
        ):
            return
        for name, kind in self.kinds().items():
            for part, number in zip(kind.parts(name), kind.numbers(getattr(self, name)), strict=True):
                least, most = part.range
                if not least <= number <= most:
                    own = name + part.name.removeprefix(kind.place) if kind.place else part.name
                    raise BadInput(f"{own} of {self.mnemonic()} is from {least:,} to {most:,}, got {number:,}")

    @classmethod
    @cache
    def _fields(cls) -> Callable[[Instruction], tuple[Any, ...]]:
        """Returns a getter of all field values; loop counts and strides stay tuples."""
        forms = {Form.ADDRESS: ("base", "strides"), Form.WAIT: UNITS}
        names = ((name, forms.get(kind.form, ())) for name, kind in cls.kinds().items())
        return attrgetter(*(full for name, more in names for full in ([f"{name}.{m}" for m in more] or [name])))

    @classmethod
    def numbers_of(cls, every: Sequence[Instruction]) -> npt.NDArray[np.int64]:
        """Returns the numbers of instructions of this kind, (n)(parts), in the order of `parts`."""
        columns = [
            np.array(own, np.int64).reshape(len(every), -1) for own in zip(*map(cls._fields(), every), strict=True)
        ]
        return np.concatenate(columns, axis=1)

    @classmethod
    def require_all_fit(cls, every: Sequence[Instruction]) -> npt.NDArray[np.int64]:
        """Returns `numbers_of` the instructions. Raises BadInput for the first one that fails `require_fit`."""
        try:
            numbers = cls.numbers_of(every)
        except OverflowError:
            numbers = np.full((1, 1), -1)
        ranges = [pair for _, _, own in cls._ranges() for pair in own]
        least, most = np.array(ranges, np.int64).T
        if not ((numbers >= least) & (numbers <= most)).all():
            for own in every:
                own.require_fit()
        return numbers

    @classmethod
    def of_numbers(cls, parts: Sequence[Sequence[int]]) -> Sequence[Self]:
        """Builds instructions from columns (parts)(n), in the order of `parts`: the inverse of `numbers_of`."""
        columns, begin = dict[str, Sequence[Any]](), 0
        for name, kind in cls.kinds().items():
            own = parts[begin : begin + len(kind.parts(name))]
            begin += len(own)
            columns[name] = kind.values(own)
        return [cls(**dict(zip(columns, values, strict=True))) for values in zip(*columns.values(), strict=True)]

    @classmethod
    def of_parts(cls, numbers: Mapping[str, int]) -> Self:
        """Builds one instruction from the number of each part, by name."""
        made = {
            name: kind.value(tuple(numbers[part.name] for part in kind.parts(name)))
            for name, kind in cls.kinds().items()
        }
        return cls(**made)


@dataclass(frozen=True)
class Load(Instruction):
    """Row k of the shadow weights <- weights[row + k] for k < rows, and zeros for the rest of the array's rows."""

    unit = "load"
    operation = 0
    effects = reads(WEIGHTS, "weights", 1, count="rows"), writes(ARRAY, "", 2)
    interlock = Interlock(
        "stream", START, COMPLETED, 1, "waits for a fresh stream to take the weights before it, and none does"
    )

    weights: Annotated[int, _row("the first row in weight memory")]
    rows: Annotated[int, _rows("the number of rows read, at most those of the array; the others become zeros")]
    wait: _Waits = _NO_WAIT

    def cycles(self, machine: Machine) -> int:
        return machine.rows


@dataclass(frozen=True)
class Stream(Instruction):
    """A row enters the array per cycle: where entry l of the table enables it, its element l is the byte of lane
    (l + turn) mod R at address + offset[l], and one address further where l + turn >= R; else 0.

    Address and turn are always one number in base R, as for a store with `carry`. The C sums of the row are added to
    accumulators[address] with `accumulate`, and replace them without it; with `greatest` and `accumulate` each
    accumulator takes the maximum instead of the sum.
    """

    unit = "stream"
    operation = 0
    effects = (
        reads(ARRAY, "", 3),
        reads(TABLES, "table", 0),
        reads(LANES, "lanes", 2, through="lane"),
        reads(ACCUMULATORS, "accumulators", Delay(3, rows=True), when="accumulate", skewed=True),
        writes(ACCUMULATORS, "accumulators", Delay(3, rows=True), skewed=True),
    )
    interlock = Interlock("load", END, END, 0, "waits for weights that no load brings", "fresh")
    carry = True

    counts: _Loops
    lanes: Annotated[Address, _lanes("the address read in each lane")]
    table: Annotated[int, _table("the permutation table: the enabled elements of a row, and their offsets")]
    accumulators: Annotated[Address, _accumulators("the row of sums")]
    accumulate: Annotated[bool, _flag("add to the row instead of replacing it")]
    fresh: Annotated[bool, _flag("switch to the weights loaded last; else keep those in use")]
    turn: Annotated[Address, _turn("the number of lanes by which the table is rotated")] = _ZERO_ADDRESS
    greatest: Annotated[bool, _flag("keep the maximum instead of the sum; only with `accumulate`")] = False
    wait: _Waits = _NO_WAIT


@dataclass(frozen=True)
class Store(Instruction):
    """v[c] = requantised(accumulators[address][c] + bias[c]); for each enabled entry l of the table, lane
    (l + turn) mod R takes v[select[l]] at address + offset[l].

    The turn is modulo R in every iteration. With `carry`, address and turn are one number in base R instead,
    address * R + turn, which the loops increment; if l + turn >= R, the byte is stored one address further. Column c
    uses its own entry of the row of parameters; with `alike` every column uses one entry, so that sums of one channel
    may be in any columns.
    """

    unit = "store"
    operation = 0
    effects = (
        reads(TABLES, "table", 6),
        reads(PARAMETERS, "parameters", 1),
        reads(ACCUMULATORS, "accumulators", 1),
        reads(FUNCTIONS, "function", 7, when="applies"),
        writes(LANES, "lanes", 9, through="lane"),
    )

    counts: _Loops
    accumulators: Annotated[Address, _accumulators("the row of sums")]
    lanes: Annotated[Address, _lanes("the address written in each lane")]
    table: Annotated[int, _table("the permutation table: the enabled lanes, the column of each, and their offsets")]
    parameters: Annotated[Address, _parameters("the row of parameters")]
    alike: Annotated[bool, _flag("every column uses one entry of that row")] = False
    column: Annotated[Address, _column("the column of that entry; 0 without `alike`")] = _ZERO_ADDRESS
    turn: Annotated[Address, _turn("the number of lanes by which the table is rotated, modulo R")] = _ZERO_ADDRESS
    carry: Annotated[bool, _carry()] = False
    applies: Annotated[bool, _flag("lanes take the lower byte of a function of v")] = False
    function: Annotated[int, _function("the function; 0 if none is applied")] = 0
    wait: _Waits = _NO_WAIT


@dataclass(frozen=True)
class Weights(Instruction):
    """Copies rows of C bytes, each of whole beats in DRAM, to weight memory."""

    unit = "dma"
    operation = 0
    effects = reads(DRAM, "dram", _REQUEST), writes(WEIGHTS, "weights", _FILL, count="rows")
    purpose = "weights"

    dram: Annotated[int, _from("the address of the first row, aligned to beats")]
    weights: Annotated[int, _row("the first row in weight memory")]
    rows: Annotated[int, _rows("the number of rows")]
    wait: _Waits = _NO_WAIT

    def cycles(self, machine: Machine) -> int:
        return self.rows * machine.weight_beats


@dataclass(frozen=True)
class Lanes(Instruction):
    """A beat from DRAM per cycle: for each enabled entry l of the table, lane (l + turn) mod R takes its byte select[l]
    at address + offset[l]. Turn and carry as in a store.
    """

    unit = "dma"
    operation = 1
    effects = (
        reads(TABLES, "table", _FILL_TABLE),
        reads(DRAM, "dram", _REQUEST),
        writes(LANES, "lanes", _FILL, through="lane"),
    )
    purpose = "inputs"

    counts: _Loops
    dram: Annotated[Address, _dram("the addresses of beats, aligned")]
    lanes: Annotated[Address, _lanes("the address written in each lane")]
    table: Annotated[int, _table("the permutation table: the enabled lanes, the byte of each, and their offsets")]
    turn: Annotated[Address, _turn("the number of lanes by which the table is rotated, modulo R")] = _ZERO_ADDRESS
    carry: Annotated[bool, _carry()] = False
    wait: _Waits = _NO_WAIT


@dataclass(frozen=True)
class Fill(Instruction):
    """For each enabled entry l of the table, lane (l + turn) mod R takes the byte select[l] itself
    at address + offset[l]; nothing is read. Turn and carry as in a store.
    """

    unit = "dma"
    operation = 2
    effects = reads(TABLES, "table", _FILL_TABLE), writes(LANES, "lanes", _FILL, through="lane")
    purpose = "fills"

    counts: _Loops
    lanes: Annotated[Address, _lanes("the address written in each lane")]
    table: Annotated[int, _table("the permutation table: the enabled lanes, the byte of each, and their offsets")]
    turn: Annotated[Address, _turn("the number of lanes by which the table is rotated, modulo R")] = _ZERO_ADDRESS
    carry: Annotated[bool, _carry()] = False
    wait: _Waits = _NO_WAIT


@dataclass(frozen=True)
class Tables(Instruction):
    """Loads permutation tables from DRAM, each of whole beats, 8 bytes an entry."""

    unit = "dma"
    operation = 3
    effects = reads(DRAM, "dram", _REQUEST), writes(TABLES, "table", _FILL, count="number")
    purpose = "tables"

    dram: Annotated[int, _from("the address of the first table, aligned to beats")]
    table: Annotated[int, _table("the first table to write")]
    number: Annotated[int, _tables("the number of tables")]
    wait: _Waits = _NO_WAIT

    def cycles(self, machine: Machine) -> int:
        return self.number * machine.table_beats


@dataclass(frozen=True)
class Parameters(Instruction):
    """Loads rows of C parameters from DRAM, each of whole beats, 16 bytes an entry."""

    unit = "dma"
    operation = 4
    effects = reads(DRAM, "dram", _REQUEST), writes(PARAMETERS, "parameters", _FILL, count="rows")
    purpose = "parameters"

    dram: Annotated[int, _from("the address of the first row, aligned to beats")]
    parameters: Annotated[int, _row("the first row of parameters to write")]
    rows: Annotated[int, _rows("the number of rows")]
    wait: _Waits = _NO_WAIT

    def cycles(self, machine: Machine) -> int:
        return self.rows * machine.parameter_beats


@dataclass(frozen=True)
class Out(Instruction):
    """A beat to DRAM per cycle: byte j, if enabled, is lanes[(select[j] + turn) mod R][address + offset[j]]; others are
    not written. Turn and carry as in a store: with `carry`, one address further if select[j] + turn >= R.
    """

    unit = "dma"
    operation = 5
    effects = (
        reads(TABLES, "table", 0),
        reads(LANES, "lanes", 2, through="select"),
        writes(DRAM, "dram", _REQUEST),
    )
    entries = "bandwidth"
    purpose = "outputs"

    counts: _Loops
    dram: Annotated[Address, _dram("the addresses of beats, aligned")]
    lanes: Annotated[Address, _lanes("the address read in each lane")]
    table: Annotated[int, _table("the permutation table: the enabled bytes of a beat, the lane of each, and offsets")]
    turn: Annotated[Address, _turn("the number of lanes by which the table is rotated, modulo R")] = _ZERO_ADDRESS
    carry: Annotated[bool, _carry()] = False
    wait: _Waits = _NO_WAIT


@dataclass(frozen=True)
class Sums(Instruction):
    """Stores rows of C int32 to DRAM, little-endian, each of whole beats; bytes behind the last sum are not written."""

    unit = "dma"
    operation = 6
    effects = (
        reads(ACCUMULATORS, "accumulators", 2, every="sum_beats"),
        writes(DRAM, "dram", _REQUEST),
    )
    purpose = "sums"

    counts: _Loops
    dram: Annotated[Address, _dram("the addresses of rows, aligned to beats")]
    accumulators: Annotated[Address, _accumulators("the row of sums")]
    wait: _Waits = _NO_WAIT

    def cycles(self, machine: Machine) -> int:
        return prod(self.counts) * machine.sum_beats


@dataclass(frozen=True)
class Spread(Instruction):
    """A beat from DRAM per cycle: for each enabled entry c of the table, column c takes byte select[c] of it in the row
    of weights at address + offset[c]: tiles of mostly zeros need no dense rows. With `increment`, an iteration's table
    is table + i0: consecutive beats of a tile have consecutive tables.
    """

    unit = "dma"
    operation = 7
    effects = (
        reads(TABLES, "table", _FILL_TABLE, count="tables"),
        reads(DRAM, "dram", _REQUEST),
        writes(WEIGHTS, "weights", _FILL, through="column"),
    )
    entries = "columns"
    purpose = "weights"

    counts: _Loops
    dram: Annotated[Address, _dram("the addresses of beats, aligned")]
    weights: Annotated[Address, _weights("the row in weight memory")]
    table: Annotated[int, _table("the permutation table: the enabled columns, the byte of each, and offsets")]
    increment: Annotated[bool, _flag("each iteration of the innermost loop uses the next table")] = False
    wait: _Waits = _NO_WAIT

    @property
    def tables(self) -> int:
        """Returns the number of consecutive permutation tables that the instruction reads."""
        return self.counts[0] if self.increment else 1


ThroughLanes = Stream | Store | Lanes | Fill | Out
"""Instructions that access scratchpad banks through a permutation table."""
