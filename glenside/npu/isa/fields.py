"""The fields of instructions, and how each is made of numbers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

LOOPS = 3
UNITS = ("dma", "load", "stream", "store")
"""What runs side by side, each with a queue of its own."""


@dataclass(frozen=True, slots=True)
class Wait:
    """How many instructions each unit must have completed before this one starts."""

    dma: int = 0
    load: int = 0
    stream: int = 0
    store: int = 0

    def __iter__(self) -> Iterator[int]:
        return iter((self.dma, self.load, self.stream, self.store))


@dataclass(frozen=True, slots=True)
class Address:
    """Where an instruction's iteration (i0, i1, i2) reads or writes: base + i0 * s0 + i1 * s1 + i2 * s2."""

    base: int
    strides: tuple[int, int, int] = (0, 0, 0)


Counts = tuple[int, int, int]


class Form(Enum):
    """How a field is made of numbers."""

    NUMBER = "number"
    FLAG = "flag"
    COUNTS = "counts"
    ADDRESS = "address"
    WAIT = "wait"


@dataclass(frozen=True)
class Part:
    """A number within an instruction: its name, bits, whether it has a sign, and the least it may be."""

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
    """What a field holds, in bits and in words.

    place   the name of the number, or of the address, whose place it takes: DRAM bases are at one place
    cyclic  an address counts in lanes, all its numbers less than those, so its strides have no sign
    """

    form: Form
    doc: str
    bits: int = 0
    least: int | None = None
    place: str = ""
    cyclic: bool = False

    def parts(self, name: str) -> tuple[Part, ...]:
        """The numbers of a field of that name, in the order of `numbers`."""
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
        """The numbers that a value is made of."""
        if self.form is Form.ADDRESS:
            return (value.base, *value.strides)
        if self.form in (Form.COUNTS, Form.WAIT):
            return tuple(value)
        return (int(value),)

    def value(self, numbers: tuple[int, ...]) -> Any:
        """The value that is made of the numbers."""
        if self.form is Form.ADDRESS:
            return Address(numbers[0], numbers[1:])  # type: ignore[arg-type]
        if self.form is Form.WAIT:
            return Wait(*numbers)
        if self.form is Form.COUNTS:
            return numbers
        return bool(numbers[0]) if self.form is Form.FLAG else numbers[0]

    def values(self, parts: Sequence[Sequence[int]]) -> Sequence[Any]:
        """Those that are made of many numbers, of each part a sequence: equal ones once."""
        if self.form is Form.NUMBER:
            return parts[0]
        every = [*zip(*parts, strict=True)]
        known = {numbers: self.value(numbers) for numbers in {*every}}
        return [known[numbers] for numbers in every]
