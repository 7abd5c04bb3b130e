"""The traffic of SEMI2K: two parties hold every number as two shares in the ring of integers modulo 2^field.

The formulas are those of SPU 0.9.5 with a trusted dealer of random triples, whose traffic is not counted. Counts are
bytes sent by one party; it receives as many. Operations on public operands alone send nothing; neither do additions,
subtractions and movement. `None`: no exact formula is known.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

FIELDS = (32, 64, 128)
"""The bits of a share, one for each ring."""

FRACTION_BITS: Mapping[int, int] = {32: 8, 64: 18, 128: 26}
"""field -> SPU's default number of fractional bits of a fixed-point number."""

# A truncation sends 4 bytes for each element in every field.
_TRUNCATED_ELEMENT = 4


@dataclass(frozen=True, slots=True)
class Traffic:
    """The traffic of one party.

    bytes      bytes sent
    messages   messages sent, which equals the rounds, since each waits for a message of the other party
    truncated  elements that are truncated to the fractional bits after a product
    """

    bytes: int = 0
    messages: int = 0
    truncated: int = 0

    def __add__(self, other: Traffic) -> Traffic:
        return Traffic(self.bytes + other.bytes, self.messages + other.messages, self.truncated + other.truncated)

    @property
    def truncation_bytes(self) -> int:
        """The bytes that truncations send."""
        return _TRUNCATED_ELEMENT * self.truncated

    def times(self, count: int) -> Traffic:
        """Returns the traffic of `count` repetitions in sequence."""
        return Traffic(self.bytes * count, self.messages * count, self.truncated * count)


NOTHING = Traffic()


def of_elements(m: int, k: int, n: int) -> bool:
    """True if a product [m,k] x [k,n] is written elementwise, not as a matrix product.

    SPU's compiler may turn a product of one column into an elementwise one, depending on its other simplifications. So
    `export_jax` writes a form that the compiler does not change. It is elementwise if that needs no more elements than
    a column of zeros adds to the operands; otherwise the product gets this second column.
    """
    return k == 1 and (m - 1) * (n - 1) <= 1


# Functions that SPU approximates: field -> (bytes per element, messages). SPU does not support the missing fields.
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
    """The protocol over one field. Arguments count elements; operands are secret unless stated otherwise."""

    field: int = 64

    @property
    def share(self) -> int:
        """Bytes of one share."""
        return self.field // 8

    def matmul(self, m: int, k: int, n: int, groups: int = 1) -> Traffic:
        """Returns the traffic of `groups` products [m,k] x [k,n] of two secrets in sequence, without truncation.

        A product with a public operand sends nothing; for a single column see `of_elements`.
        """
        if not groups * m * k * n:
            return NOTHING
        if of_elements(m, k, n):
            return self.multiplication(groups * m * n)
        return Traffic(self.share * max(k, 2) * (m + n), 1).times(groups)

    def matmul_truncation(self, m: int, k: int, n: int, groups: int = 1) -> Traffic:
        """Returns the traffic to truncate the results of `matmul`; SPU truncates each matmul of a batch separately."""
        return self.truncation(groups * m * n if k else 0, 1 if of_elements(m, k, n) else groups)

    def multiplication(self, elements: int) -> Traffic:
        """Returns the traffic of elementwise products of two secrets, without truncation."""
        return self._each(elements, 2 * self.share)

    def truncation(self, elements: int, messages: int = 1) -> Traffic:
        """Returns the traffic to truncate products to the fractional bits."""
        if not elements:
            return NOTHING
        return Traffic(_TRUNCATED_ELEMENT * elements, messages, elements)

    def sign(self, elements: int) -> Traffic:
        """Returns the traffic of a sign, or of <, <=, > or >= with a secret or public operand."""
        return self._each(elements, 6 * self.share + 8, self._depth + 1)

    def equality(self, elements: int) -> Traffic:
        """Returns the traffic of an equality of two secrets."""
        return self._each(elements, self.share * (2 * self._depth + 1), self._depth + 1)

    def bits(self, elements: int) -> Traffic:
        """Returns the traffic of a conversion to shares of bits, such as for rounding down."""
        return self._each(elements, 2 * self.share * (2 * self._depth + 1), self._depth + 1)

    def ring_number(self, elements: int) -> Traffic:
        """Returns the traffic of a conversion of equality bits to numbers."""
        return self._each(elements, self.share)

    def absolute(self, elements: int) -> Traffic:
        """Returns the traffic of an absolute value: the sign bit becomes a number (one byte) and is multiplied."""
        return self.sign(elements) + self._each(elements, 1) + self.multiplication(elements)

    def whole(self, elements: int) -> Traffic:
        """Returns the traffic of rounding towards zero to an integer."""
        return self.sign(elements) + self.bits(elements) + self._each(elements, 1)

    def selection(self, elements: int) -> Traffic:
        """Returns the traffic of a selection by a secret condition."""
        return self._each(elements, 2 * self.share)

    def maximum(self, elements: int) -> Traffic:
        """Returns the traffic of a maximum with a secret or public operand; also of a minimum, and of relu."""
        return self.sign(elements) + self.selection(elements)

    def function(self, name: str, elements: int) -> Traffic | None:
        """Returns the traffic of a function of `_FUNCTIONS`; a reciprocal is any public number by a secret."""
        cost = _FUNCTIONS[name].get(self.field)
        return None if cost is None else self._each(elements, *cost)

    @property
    def _depth(self) -> int:
        """Rounds of a circuit that halves the number of bits in each round."""
        return self.field.bit_length() - 1

    def _each(self, elements: int, size: int, messages: int = 1) -> Traffic:
        return Traffic(size * elements, messages) if elements else NOTHING
