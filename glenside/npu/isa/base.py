"""The instructions of the machine, one record each, of which encoder, decoder, assembler and documents follow.

A unit takes its instructions in order. All those of a unit have one layout of bits: fields of one name are at one
place, so that the machine decodes without looking at the operation first. Addresses are of three nested loops, the
first innermost, which all addresses of an instruction share: base + i0 * stride0 + i1 * stride1 + i2 * stride2.

Lanes may be used as a memory of rows of R bytes, in which byte q is at address q div R of lane q mod R: skewed storage
(Budnik and Kuck, The organization and use of parallel memories, 1971), of which rows, windows and transposes are read
and written without conflicts. There address and turn are together one number of base R, which carries.
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
from glenside.npu.isa.fields import UNITS, Address, Counts, Form, Kind, Part, Wait
from glenside.npu.machine.model import Machine

_Loops = Annotated[Counts, Kind(Form.COUNTS, "how often each of the three loops runs, the innermost first", 16)]
_Waits = Annotated[Wait, Kind(Form.WAIT, "completed instructions of each unit before this one starts", 20)]
_NOW = Wait()
_STILL = Address(0)


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
    return _flag("address and turn are one number of base R: lanes past the last go on in the next row")


MOST = (1 << 20) - 1
"""Instructions that a program may have of one unit: as many can be waited for."""


class Instruction:
    """One instruction; `unit` takes it, `operation` tells it from others of the unit."""

    unit: ClassVar[str]
    operation: ClassVar[int]

    wait: Wait

    def cycles(self, machine: Machine) -> int:
        """How many cycles its unit is busy with it."""
        return prod(getattr(self, "counts", (1,)))

    @classmethod
    def mnemonic(cls) -> str:
        return cls.__name__.lower()

    @classmethod
    @cache
    def kinds(cls) -> Mapping[str, Kind]:
        """What each field holds."""
        hints = get_type_hints(cls, include_extras=True)
        return {name: hint.__metadata__[0] for name, hint in hints.items() if hasattr(hint, "__metadata__")}

    @classmethod
    @cache
    def strides(cls) -> Mapping[str, tuple[int, int]]:
        """The least and the greatest stride of each address."""
        addresses = ((name, kind) for name, kind in cls.kinds().items() if kind.form is Form.ADDRESS)
        return {name: kind.parts(name)[1].range for name, kind in addresses}

    def parts(self) -> Iterator[tuple[Part, int]]:
        """Every number of it with what it is."""
        for name, kind in self.kinds().items():
            yield from zip(kind.parts(name), kind.numbers(getattr(self, name)), strict=True)

    @classmethod
    @cache
    def part_names(cls) -> Sequence[str]:
        """Those of its numbers."""
        return [part.name for name, kind in cls.kinds().items() for part in kind.parts(name)]

    @classmethod
    @cache
    def _ranges(cls) -> Sequence[tuple[str, Kind, Sequence[tuple[int, int]]]]:
        """Of each field what its numbers are from and to."""
        return [(name, kind, [part.range for part in kind.parts(name)]) for name, kind in cls.kinds().items()]

    def require_fit(self) -> None:
        """Raises BadInput: a number that its field cannot hold."""
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
        """All numbers of it, those of loops and strides together."""
        forms = {Form.ADDRESS: ("base", "strides"), Form.WAIT: UNITS}
        names = ((name, forms.get(kind.form, ())) for name, kind in cls.kinds().items())
        return attrgetter(*(full for name, more in names for full in ([f"{name}.{m}" for m in more] or [name])))

    @classmethod
    def numbers_of(cls, every: Sequence[Instruction]) -> npt.NDArray[np.int64]:
        """The numbers of instructions of this kind, (n)(parts), as `parts` has them."""
        columns = [
            np.array(own, np.int64).reshape(len(every), -1) for own in zip(*map(cls._fields(), every), strict=True)
        ]
        return np.concatenate(columns, axis=1)

    @classmethod
    def require_all_fit(cls, every: Sequence[Instruction]) -> npt.NDArray[np.int64]:
        """`numbers_of` instructions. Raises BadInput: as `require_fit`, of the first that does not."""
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
        """Instructions, of each part the numbers of all, as `parts` has them."""
        columns, begin = dict[str, Sequence[Any]](), 0
        for name, kind in cls.kinds().items():
            own = parts[begin : begin + len(kind.parts(name))]
            begin += len(own)
            columns[name] = kind.values(own)
        return [cls(**dict(zip(columns, values, strict=True))) for values in zip(*columns.values(), strict=True)]

    @classmethod
    def of_parts(cls, numbers: Mapping[str, int]) -> Self:
        """The instruction whose parts have these numbers."""
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

    weights: Annotated[int, _row("the first row in weight memory")]
    rows: Annotated[int, _rows("rows that are read, at most those of the array; the others are zeros")]
    wait: _Waits = _NOW

    def cycles(self, machine: Machine) -> int:
        return machine.rows


@dataclass(frozen=True)
class Stream(Instruction):
    """A row enters the array per cycle: where entry l of the table enables it, its element l is the byte of lane
    (l + turn) mod R at address + offset[l], and one address further where l + turn >= R; else 0.

    Address and turn are always one number of base R, as those of a store that carries are. The C sums of the row are
    added to, or with `accumulate` unset take the place of, accumulators[address]; with `greatest` beside `accumulate`
    each takes the place of what is there where it is greater, and is not added.
    """

    unit = "stream"
    operation = 0
    carry = True

    counts: _Loops
    lanes: Annotated[Address, _lanes("where rows are read")]
    table: Annotated[int, _table("the lane table: which elements of a row are read, and their offsets")]
    accumulators: Annotated[Address, _accumulators("the row of sums")]
    accumulate: Annotated[bool, _flag("add to what the row holds")]
    fresh: Annotated[bool, _flag("take the weights that were loaded last; else go on with those in use")]
    turn: Annotated[Address, _turn("by how many lanes the table is turned")] = _STILL
    greatest: Annotated[bool, _flag("keep the greater one where it would add; only with `accumulate`")] = False
    wait: _Waits = _NOW


@dataclass(frozen=True)
class Store(Instruction):
    """v[c] = requantised(accumulators[address][c] + bias[c]); for each enabled entry l of the table, lane
    (l + turn) mod R takes v[select[l]] at address + offset[l].

    The turn is less than R in every iteration, counted modulo R. With `carry`, address and turn are one number of base
    R instead, address * R + turn, that counts on through the loops; and where l + turn >= R the byte goes one address
    further. Column c has its own entry of the row of parameters, or, where they are alike, every column that of one:
    then sums of one channel, whose parameters are one entry, may lie in any columns.
    """

    unit = "store"
    operation = 0

    counts: _Loops
    accumulators: Annotated[Address, _accumulators("the row of sums")]
    lanes: Annotated[Address, _lanes("where lanes are written")]
    table: Annotated[int, _table("the lane table: which lanes are enabled, the column each takes, and their offsets")]
    parameters: Annotated[Address, _parameters("the row of parameters")]
    alike: Annotated[bool, _flag("every column takes one entry of that row")] = False
    column: Annotated[Address, _column("which one that is; 0 where they are not alike")] = _STILL
    turn: Annotated[Address, _turn("by how many lanes the table is turned, modulo R")] = _STILL
    carry: Annotated[bool, _carry()] = False
    applies: Annotated[bool, _flag("lanes take the lower byte of a function of v")] = False
    function: Annotated[int, _function("which function; 0 where none is applied")] = 0
    wait: _Waits = _NOW


@dataclass(frozen=True)
class Weights(Instruction):
    """Rows of C bytes, each of whole beats in DRAM, go to weight memory."""

    unit = "dma"
    operation = 0

    dram: Annotated[int, _from("where the first row is, aligned to beats")]
    weights: Annotated[int, _row("the first row in weight memory")]
    rows: Annotated[int, _rows("how many rows")]
    wait: _Waits = _NOW

    def cycles(self, machine: Machine) -> int:
        return self.rows * machine.weight_beats


@dataclass(frozen=True)
class Lanes(Instruction):
    """A beat from DRAM per cycle: for each enabled entry l of the table, lane (l + turn) mod R takes byte select[l] of
    it at address + offset[l]. Turn and carry are as those of a store.
    """

    unit = "dma"
    operation = 1

    counts: _Loops
    dram: Annotated[Address, _dram("the beats, aligned")]
    lanes: Annotated[Address, _lanes("where lanes are written")]
    table: Annotated[int, _table("the lane table: which lanes are enabled, the byte each takes, and their offsets")]
    turn: Annotated[Address, _turn("by how many lanes the table is turned, modulo R")] = _STILL
    carry: Annotated[bool, _carry()] = False
    wait: _Waits = _NOW


@dataclass(frozen=True)
class Fill(Instruction):
    """For each enabled entry l of the table, lane (l + turn) mod R takes the byte select[l] itself at address +
    offset[l]; nothing is read. Turn and carry are as those of a store.
    """

    unit = "dma"
    operation = 2

    counts: _Loops
    lanes: Annotated[Address, _lanes("where lanes are written")]
    table: Annotated[int, _table("the lane table: which lanes are enabled, the byte of each, and their offsets")]
    turn: Annotated[Address, _turn("by how many lanes the table is turned, modulo R")] = _STILL
    carry: Annotated[bool, _carry()] = False
    wait: _Waits = _NOW


@dataclass(frozen=True)
class Tables(Instruction):
    """Lane tables from DRAM, each of whole beats, 8 bytes an entry."""

    unit = "dma"
    operation = 3

    dram: Annotated[int, _from("where the first table is, aligned to beats")]
    table: Annotated[int, _table("the first table that is written")]
    number: Annotated[int, _tables("how many tables")]
    wait: _Waits = _NOW

    def cycles(self, machine: Machine) -> int:
        return self.number * machine.table_beats


@dataclass(frozen=True)
class Parameters(Instruction):
    """Rows of C parameters from DRAM, each of whole beats, 16 bytes an entry."""

    unit = "dma"
    operation = 4

    dram: Annotated[int, _from("where the first row is, aligned to beats")]
    parameters: Annotated[int, _row("the first row of parameters that is written")]
    rows: Annotated[int, _rows("how many rows")]
    wait: _Waits = _NOW

    def cycles(self, machine: Machine) -> int:
        return self.rows * machine.parameter_beats


@dataclass(frozen=True)
class Out(Instruction):
    """A beat to DRAM per cycle: byte j, where enabled, is lanes[(select[j] + turn) mod R][address + offset[j]]; others
    stay. Turn and carry are as those of a store: with `carry`, one address further where select[j] + turn >= R.
    """

    unit = "dma"
    operation = 5

    counts: _Loops
    dram: Annotated[Address, _dram("the beats, aligned")]
    lanes: Annotated[Address, _lanes("where lanes are read")]
    table: Annotated[int, _table("the lane table, by bytes of a beat: which are written, of which lane, and offsets")]
    turn: Annotated[Address, _turn("by how many lanes the table is turned, modulo R")] = _STILL
    carry: Annotated[bool, _carry()] = False
    wait: _Waits = _NOW


@dataclass(frozen=True)
class Sums(Instruction):
    """Rows of C int32 to DRAM, little-endian, each of whole beats; bytes behind the last sum stay."""

    unit = "dma"
    operation = 6

    counts: _Loops
    dram: Annotated[Address, _dram("where rows begin, aligned to beats")]
    accumulators: Annotated[Address, _accumulators("the row of sums")]
    wait: _Waits = _NOW

    def cycles(self, machine: Machine) -> int:
        return prod(self.counts) * machine.sum_beats


@dataclass(frozen=True)
class Spread(Instruction):
    """A beat from DRAM per cycle: for each enabled entry c of the table, column c takes byte select[c] of it in the row
    of weights at address + offset[c]: tiles of many zeros, and of few values in regular places, need no whole rows.
    With `increment`, an iteration's table is table + i0: the beats of a tile come one after the other, each by its own.
    """

    unit = "dma"
    operation = 7

    counts: _Loops
    dram: Annotated[Address, _dram("the beats, aligned")]
    weights: Annotated[Address, _weights("the row in weight memory")]
    table: Annotated[int, _table("the lane table, by columns: which are written, the byte each takes, and offsets")]
    increment: Annotated[bool, _flag("each iteration of the innermost loop takes the table behind the one before")] = (
        False
    )
    wait: _Waits = _NOW

    @property
    def tables(self) -> int:
        """How many tables it looks at, from the first one on."""
        return self.counts[0] if self.increment else 1


ThroughLanes = Stream | Store | Lanes | Fill | Out
"""Those that read or write lanes through a table."""
