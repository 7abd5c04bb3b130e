"""What SEMI2K sends: two parties that hold every number as two shares in the ring of integers modulo 2^field.

The formulas are those of SPU 0.9.5 with a trusted dealer of random triples, which sends nothing that counts here: what
one party sends, which is what it receives. An operation of public operands alone sends nothing, and neither do
additions, subtractions and whatever only moves elements. `None` stands for what has no exact formula here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

FIELDS = (32, 64, 128)
"""The rings: bits of a share."""

FRACTION_BITS: Mapping[int, int] = {32: 8, 64: 18, 128: 26}
"""Bits of a fixed-point number behind its point, for each field, where SPU is not told another number of them."""

# A truncation sends 4 bytes for each element in every field.
_TRUNCATED_ELEMENT = 4


@dataclass(frozen=True, slots=True)
class Traffic:
    """What one party sends: bytes, messages (each waits for one of the other party, so also rounds), and how many
    elements are cut to the fractional bits of a number after a product.
    """

    bytes: int = 0
    messages: int = 0
    truncated: int = 0

    def __add__(self, other: Traffic) -> Traffic:
        return Traffic(self.bytes + other.bytes, self.messages + other.messages, self.truncated + other.truncated)

    @property
    def truncation_bytes(self) -> int:
        """The part of the bytes that truncations send."""
        return _TRUNCATED_ELEMENT * self.truncated

    def times(self, count: int) -> Traffic:
        """The same, so many times one after the other."""
        return Traffic(self.bytes * count, self.messages * count, self.truncated * count)


NOTHING = Traffic()


def of_elements(m: int, k: int, n: int) -> bool:
    """Whether a product [m,k] x [k,n] is multiplied element by element, not as matrices.

    A product of one column is what SPU's compiler makes into one of elements, or leaves, by what else it simplifies
    in the program. So `export_jax` writes what it leaves alone: elements, where they are no more than what a column of
    zeros adds to the operands, else two columns.
    """
    return k == 1 and (m - 1) * (n - 1) <= 1


# Functions that SPU approximates: field -> bytes for each element, messages. SPU has no scale for those left out.
_FUNCTIONS: Mapping[str, Mapping[int, tuple[int, int]]] = {
    "exp": {32: (68, 17), 64: (100, 17), 128: (164, 17)},
    "log": {64: (510, 26), 128: (1046, 28)},
    "sqrt": {64: (513, 35), 128: (1065, 37)},
    "rsqrt": {64: (429, 26), 128: (917, 28)},
    "sigmoid": {64: (605, 53), 128: (1229, 56)},
    "tanh": {32: (192, 34), 64: (324, 36), 128: (588, 38)},
    "erf": {64: (721, 60), 128: (1457, 65)},
    "quotient": {64: (525, 38), 128: (1101, 41)},
    "reciprocal": {64: (505, 36), 128: (1065, 39)},
}


@dataclass(frozen=True, slots=True)
class Semi2k:
    """The protocol over one field. Every count is of elements; operands are secret unless a name says otherwise."""

    field: int = 64

    @property
    def share(self) -> int:
        """Bytes of one share."""
        return self.field // 8

    def matmul(self, m: int, k: int, n: int, groups: int = 1) -> Traffic:
        """`groups` products [m,k] x [k,n] of two secrets, one after the other, not truncated.

        A product with a public operand sends nothing; one of a single column is sent as `of_elements` says.
        """
        if not groups * m * k * n:
            return NOTHING
        if of_elements(m, k, n):
            return self.multiplication(groups * m * n)
        return Traffic(self.share * max(k, 2) * (m + n), 1).times(groups)

    def matmul_truncation(self, m: int, k: int, n: int, groups: int = 1) -> Traffic:
        """The results of `matmul` cut to the fractional bits of a number: in SPU each matmul of a batch by itself."""
        return self.truncation(groups * m * n if k else 0, 1 if of_elements(m, k, n) else groups)

    def multiplication(self, elements: int) -> Traffic:
        """Elements of two secrets times each other, not truncated; one times a public one sends nothing."""
        return self._each(elements, 2 * self.share)

    def truncation(self, elements: int, messages: int = 1) -> Traffic:
        """Products cut to the fractional bits of a number."""
        if not elements:
            return NOTHING
        return Traffic(_TRUNCATED_ELEMENT * elements, messages, elements)

    def sign(self, elements: int) -> Traffic:
        """Whether each is below 0: also any of <, <=, > and >= with another, secret or public."""
        return self._each(elements, 6 * self.share + 8, self._depth + 1)

    def equality(self, elements: int) -> Traffic:
        """Whether each is equal to another secret one."""
        return self._each(elements, self.share * (2 * self._depth + 1), self._depth + 1)

    def bits(self, elements: int) -> Traffic:
        """Each as shares of its bits, such as to round it down."""
        return self._each(elements, 2 * self.share * (2 * self._depth + 1), self._depth + 1)

    def ring_number(self, elements: int) -> Traffic:
        """Each bit of an equality as a number."""
        return self._each(elements, self.share)

    def absolute(self, elements: int) -> Traffic:
        """Each without its sign: a bit becomes a number, a byte of traffic, and is multiplied by."""
        return self.sign(elements) + self._each(elements, 1) + self.multiplication(elements)

    def whole(self, elements: int) -> Traffic:
        """Each cut towards zero to an integer."""
        return self.sign(elements) + self.bits(elements) + self._each(elements, 1)

    def selection(self, elements: int) -> Traffic:
        """One of two for each by a secret condition."""
        return self._each(elements, 2 * self.share)

    def maximum(self, elements: int) -> Traffic:
        """The larger of each and another, secret or public: also the smaller, and relu."""
        return self.sign(elements) + self.selection(elements)

    def function(self, name: str, elements: int) -> Traffic | None:
        """exp, log, sqrt, sigmoid, tanh, erf, a quotient of secrets, a reciprocal (a public one by a secret)."""
        cost = _FUNCTIONS[name].get(self.field)
        return None if cost is None else self._each(elements, *cost)

    @property
    def _depth(self) -> int:
        """Rounds of a circuit that halves the bits in each."""
        return self.field.bit_length() - 1

    def _each(self, elements: int, size: int, messages: int = 1) -> Traffic:
        return Traffic(size * elements, messages) if elements else NOTHING
