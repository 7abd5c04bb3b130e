"""Fixed-point numbers while a program is evaluated: what secure computation gives, but for its random roundings."""

from __future__ import annotations

from fractions import Fraction

import numpy as np

from glenside.ir.operand import Array
from glenside.ir.types import FLOATS
from glenside.semantics import Native


class FixedPoint(Native):
    """Floats are multiples of 2^-bits, kept in float64: exact while products stay below 2^(53 - 2 bits).

    A tensor and a constant are rounded to the nearest; a product of matrices is exact until it is truncated, an
    element-wise one is truncated at once. Truncation rounds down, as cutting bits off does.
    """

    def __init__(self, bits: int) -> None:
        self.bits = bits

    def encode(self, name: str, array: Array, dtype: str) -> Array:
        """Any float dtype is taken."""
        return self._nearest(array) if dtype in FLOATS else super().encode(name, array, dtype)

    def constant(self, value: Fraction | int, dtype: str) -> Array:
        """The nearest multiple."""
        return self._nearest(np.asarray(float(value))) if dtype in FLOATS else super().constant(value, dtype)

    def multiply(self, a: Array, b: Array) -> Array:
        """The product, truncated."""
        return self.truncate(np.multiply(a, b))

    def truncate(self, a: Array) -> Array:
        """Rounded down to a multiple."""
        if a.dtype.kind != "f":
            return a
        return np.ldexp(np.floor(np.ldexp(a, self.bits)), -self.bits)

    def _nearest(self, a: Array) -> Array:
        return np.ldexp(np.rint(np.ldexp(np.asarray(a, np.float64), self.bits)), -self.bits)
