"""Computes residues for which functions of reals keep the laws by which they are differentiated.

In a prime field a function of reals is pseudo-random. A derivative can be written in several ways, such as s (1 - s)
and exp(-x) / (1 + exp(-x))^2 for a sigmoid, which are equal only by laws that pseudo-random functions break. In this
field the following laws hold for all arguments:

  exp(-x) = 1 / exp(x), exp(0) = 1; sigmoid, sinh, cosh and tanh are computed from exp(x)
  sin(x)^2 + cos(x)^2 = 1, tan(x) = sin(x) / cos(x); sin and tan are odd, cos is even
  tan, asin, atan, asinh, atanh and erf are odd
  x^n is a product for integer n, and x^(n + 1/2) a product of square roots, for exponents up to 64

The law of exponents does not hold, exp(log x) is not x, and sqrt(x)^2 is not x: a program and its gradient must both
use such a law, or neither.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np

from glenside.ir.dtypes import REALS
from glenside.ir.operand import Array
from glenside.semantics.ordered_field import OrderedField
from glenside.semantics.prime_field import MAX_EXPONENT, PrimeField

_SAME_NUMBER_TOLERANCE = 1e-9  # relative distance within which equal residues are the same number
_ODD = ("asin", "atan", "asinh", "atanh", "erf")
_OF_EXP = ("exp", "sigmoid", "sinh", "cosh", "tanh")
_OF_ANGLES = ("sin", "cos", "tan")


class FormalField(PrimeField):
    """A prime field in which the laws above hold; everything else is inherited."""

    def apply(self, function: str, a: Array, keeps_zero: bool) -> Array:
        if function in _OF_EXP:
            return self._of_exp(function, a)
        if function in _OF_ANGLES:
            return self._of_angle(function, a)
        if function not in _ODD:
            return super().apply(function, a, keeps_zero)
        return np.sign(a) * super().apply(function, np.abs(a), True)

    def _of_exp(self, function: str, a: Array) -> Array:
        one, drawn = self._one, super().apply("exp", np.abs(a), False)
        drawn = np.where(a == 0, one, np.where(drawn == 0, one + one, drawn))
        other = self.inverse(drawn)
        power, inverse = np.where(a < 0, other, drawn), np.where(a < 0, drawn, other)
        if function == "exp":
            return power
        if function == "sigmoid":
            return self.divide(power, self.add(one, power))
        less, more = self.subtract(power, inverse), self.add(power, inverse)
        if function == "tanh":
            return self.divide(less, more)
        return self.divide(less if function == "sinh" else more, one + one)

    def _of_angle(self, function: str, a: Array) -> Array:
        """Computes sin, cos and tan from the tangent of half the angle, which is an odd function."""
        half = np.sign(a) * super().apply("tan", np.abs(a), True)
        square = self.multiply(half, half)
        if function == "cos":
            return self.divide(self.subtract(self._one, square), self.add(self._one, square))
        of = self.add if function == "sin" else self.subtract
        return self.divide(self.add(half, half), of(self._one, square))

    def power(self, a: Array, b: Array) -> Array:
        """Returns powers, of which those of halves are powers of the square root."""
        if a.dtype.kind != "f":
            return super().power(a, b)
        a, b = np.broadcast_arrays(a, b)
        twice = self.add(b, b)
        half = (np.abs(twice) <= 2 * MAX_EXPONENT) & (twice % 2 == 1) & (np.abs(b) > MAX_EXPONENT)
        result = np.array(super().power(a, b))
        if half.any():
            result[half] = super().power(super().apply("sqrt", a[half], True), twice[half])
        return result

    @property
    def _one(self) -> Array:
        return self.constant(1, "float32")


class FormalNumbers(OrderedField):
    """Numbers of a formal field, with residue and position drawn independently, so that a drawn number can be any real.

    Two numbers are equal if both their residues and their positions are, so no number becomes 0 by chance on its way to
    a comparison.
    """

    def __init__(self, field: FormalField) -> None:
        super().__init__(field)
        compared = {name: partial(self._compared, name, known) for name, known in self.own.items() if name in _ORDER}
        self.own = {**self.own, **compared, "sign": self._sign}

    def cast(self, a: Array, dtype: str) -> Array:
        """Returns casts between float widths unchanged: rounding is not differentiated."""
        return a if a.dtype.kind == "c" and dtype in REALS else super().cast(a, dtype)

    def _compared(self, name: str, known: Callable[..., Array], a: Array, b: Array) -> Array:
        if a.dtype.kind != "c":
            return known(a, b)
        apart = ~_same(a, b)
        if name in ("eq", "ne"):
            return apart if name == "ne" else ~apart
        below = np.asarray(a.real < b.real if name in ("lt", "le") else a.real > b.real)
        return np.where(apart, below, name in ("le", "ge"))

    def _sign(self, a: Array) -> Array:
        if a.dtype.kind != "c":
            return np.sign(a)
        sign = np.where(_same(a, np.zeros((), a.dtype)), 0.0, np.sign(a.real))
        return np.asarray(sign + 1j * sign)


_ORDER = ("lt", "le", "gt", "ge", "eq", "ne")


def _same(a: Array, b: Array) -> Array:
    near = np.abs(a.real - b.real) <= _SAME_NUMBER_TOLERANCE * np.maximum(1.0, np.abs(b.real))
    return np.asarray((a.imag == b.imag) & near)
