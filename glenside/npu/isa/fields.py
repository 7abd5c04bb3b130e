"""Declares the kinds of instruction fields, and converts field values to encoded numbers and back."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

LOOPS = 3
UNITS = ("dma", "load", "stream", "store")
"""The units that execute in parallel, each with its own instruction queue."""
ARRAY_UNIT = "stream"
"""The unit in whose cycles the array multiplies."""


@dataclass(frozen=True, slots=True)
class Wait:
    """The number of instructions that each unit must have completed before the instruction starts."""

    dma: int = 0
    load: int = 0
    stream: int = 0
    store: int = 0

    def __iter__(self) -> Iterator[int]:
        return iter((self.dma, self.load, self.stream, self.store))


@dataclass(frozen=True, slots=True)
class Address:
    """An address of iteration (i0, i1, i2): base + i0 * s0 + i1 * s1 + i2 * s2."""

    base: int
    strides: tuple[int, int, int] = (0, 0, 0)


Counts = tuple[int, int, int]


class Form(Enum):
    """The form of a field: which numbers encode it."""

    NUMBER = "number"
    FLAG = "flag"
    COUNTS = "counts"
    ADDRESS = "address"
    WAIT = "wait"


@dataclass(frozen=True)
class Part:
    """An encoded number of an instruction: its name, width in bits, signedness and least value."""

    name: str
    bits: int
    signed: bool = False
    least: int | None = None

    @property
    def range(self) -> tuple[int, int]:
        least, most = (-(1 << self.bits - 1), (1 << self.bits - 1) - 1) if self.signed else (0, (1 << self.bits) - 1)
        return least if self.least is None else self.least, most


@dataclass(frozen=True)
class Kind:
    """The kind of a field: its form, its sentence in the documents, and its width in bits.

    place   name of the part whose bit position the field shares, if not its own: all DRAM bases share one position
    cyclic  the address counts modulo the number of lanes, so its strides are unsigned
    """

    form: Form
    doc: str
    bits: int = 0
    least: int | None = None
    place: str = ""
    cyclic: bool = False

    def parts(self, name: str) -> tuple[Part, ...]:
        """Returns the encoded parts of a field of that name, in the order of `numbers`."""
        place = self.place or name
        if self.form is Form.WAIT:
            return tuple(Part(f"wait_{unit}", self.bits) for unit in UNITS)
        if self.form is Form.COUNTS:
            return tuple(Part(f"count{i}", self.bits, least=1) for i in range(LOOPS))
        if self.form is Form.ADDRESS:
            strides = (Part(f"{place}_stride{i}", self.bits, signed=not self.cyclic) for i in range(LOOPS))
            return (Part(f"{place}_base", self.bits), *strides)
        return (Part(place, self.bits or 1, least=self.least),)

    def numbers(self, value: Any) -> tuple[int, ...]:
        """Returns the numbers that encode a value."""
        if self.form is Form.ADDRESS:
            return (value.base, *value.strides)
        if self.form in (Form.COUNTS, Form.WAIT):
            return tuple(value)
        return (int(value),)

    def value(self, numbers: tuple[int, ...]) -> Any:
        """Returns the value that the numbers encode: the inverse of `numbers`."""
        if self.form is Form.ADDRESS:
            return Address(numbers[0], numbers[1:])  # type: ignore[arg-type]
        if self.form is Form.WAIT:
            return Wait(*numbers)
        if self.form is Form.COUNTS:
            return numbers
        return bool(numbers[0]) if self.form is Form.FLAG else numbers[0]

    def values(self, parts: Sequence[Sequence[int]]) -> Sequence[Any]:
        """Decodes n values from one sequence of n numbers per part; equal values share one object."""
        if self.form is Form.NUMBER:
            return parts[0]
        every = [*zip(*parts, strict=True)]
        known = {numbers: self.value(numbers) for numbers in {*every}}
        return [known[numbers] for numbers in every]
