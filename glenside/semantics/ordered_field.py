"""Computes with exact ordered numbers: a residue identifies a number, a float64 gives its position on the real line.

A prime field has exact sums, products and quotients, but the order of residues is not that of the numbers that they
represent: 1/2 would be the lowest. Here a number is stored as a complex number: the imaginary part is its residue, the
real part its value in float64. Two numbers are equal if their residues are; otherwise the one with the larger real part
is larger. Equal programs round differently, but the order changes only where different numbers are closer than the
rounding error: about once in 1e15 random numbers.

numpy orders complex numbers by their real parts first, so movement, minimum and maximum need no code of their own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fractions import Fraction
from functools import cached_property, partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import DTypeLike

from glenside.ir.blockwise import in_operand_layout, row_major
from glenside.ir.contraction import contract_into, contracted_dims, matmul
from glenside.ir.dtypes import REALS, RECORDS, STORED, fraction_bits
from glenside.ir.operand import Array, distinct
from glenside.ir.primitives import PRIMITIVES
from glenside.ir.rational import over_one_denominator
from glenside.ir.rounding import rounded
from glenside.semantics.linear_maps import map_axis, times
from glenside.semantics.native import Native
from glenside.semantics.prime_field import PART, REDUCED, SUMMED, PrimeField

LARGEST = 1e100
"""Magnitudes are clamped to this: residues still distinguish the numbers, and sums and products of a few stay finite.
"""
_SAME_NUMBER_TOLERANCE = 1e-9
"""Relative distance within which numbers of one residue are the same number."""
_SUM_ERROR = 2.0**-48
"""Relative rounding error of sums and products of some numbers."""
_MAX_EXACT_MAGNITUDE = 3e11
"""Magnitude above which float64 has lost the last bits of an integer, which matter if it wraps: the residue replaces
them.
"""
_WIDEST_INTEGER_BITS = 64  # bits
_PERTURBATION = 2.0**-26
"""Relative perturbation of a function's argument, by the residue of its result.

The stand-in of exp has no law of exponents, so numbers that are equal by such laws alone would have no order.
"""

_ZERO_RESIDUE = 314159.0
"""The residue of the divisor in a division by 0."""


class OrderedField(Native):
    """Ordered numbers: floats are residues of a prime field with real positions; integers and bool are numpy's own.

    Functions are total: 1/0 is one number above all others, the square root and the logarithm apply to the magnitude,
    and the inverses of sine and cosine apply to the argument clamped to -1 .. 1. Rounding gives integers.
    """

    has_blas = False

    def __init__(self, field: PrimeField) -> None:
        self.field, self._native = field, Native()
        comparisons = {name: partial(_compare, name) for name in ("lt", "le", "gt", "ge", "eq", "ne")}
        self.own = {**comparisons, "select": _select, "abs": _abs, "sign": _sign}

    def kept(self, dtype: str) -> DTypeLike:
        return np.complex128 if dtype in REALS else dtype

    def identity(self, a: Array) -> Array:
        """Returns the residues, which float32 holds exactly."""
        return a.imag.astype(np.float32) if is_number(a) else np.asarray(a)

    def ranked(self, a: Array) -> Array:
        """Gives equal numbers equal positions, despite rounding errors."""
        if not is_number(a) or a.size < 2:
            return a
        order = np.lexsort((a.real.ravel(), a.imag.ravel()))
        places, residues = a.real.ravel()[order], a.imag.ravel()[order]
        apart = np.diff(places) > _SAME_NUMBER_TOLERANCE * np.maximum(1.0, np.abs(places[1:]))
        begins = np.r_[True, apart | (np.diff(residues) != 0)]
        result = np.empty(a.size, np.complex128)
        result[order] = _number(places[begins][np.cumsum(begins) - 1], residues)
        return result.reshape(a.shape)

    def encode(self, name: str, array: Array, dtype: str) -> Array:
        """Returns the residues of floats with the floats; numbers of this system are returned as they are."""
        if is_number(array):
            return array
        residues = self.field.encode(name, array, dtype)
        return _number(np.asarray(array, np.float64), residues) if dtype in REALS else residues

    def constant(self, value: Fraction | int, dtype: str) -> Array:
        """Returns an exact number of a dtype, or of the stored dtype of this system."""
        if dtype in REALS or dtype == "complex128":
            return _number(float(value), self.field.constant(value, "float32"))
        return self.field.constant(value, dtype)

    def lowest(self, dtype: str) -> Array:
        lowest = self.field.lowest(dtype)
        return _number(-LARGEST, lowest) if dtype in REALS else lowest

    def _both(self, method: str, a: Array, *arguments: Any) -> Array:
        """Applies a method to residues and to real parts; integers use numpy's method."""
        if not is_number(a):
            return np.asarray(getattr(self._native, method)(a, *arguments))
        real = getattr(self._native, method)(_real(a), *map(_real, arguments))
        return _number(real, getattr(self.field, method)(_residue(a), *map(_residue, arguments)))

    def add(self, a: Array, b: Array) -> Array:
        return self._elementwise(np.add, a, b)

    def accumulate(self, total: Array, a: Array) -> None:
        total[...] = self.add(total, a)

    def subtract(self, a: Array, b: Array) -> Array:
        return self._elementwise(np.subtract, a, b)

    def multiply(self, a: Array, b: Array) -> Array:
        return self._elementwise(np.multiply, a, b)

    def _elementwise(self, function: np.ufunc, a: Array, b: Array) -> Array:
        if not is_number(a):
            return row_major(function, a, b)

        def store(out: Array, x: Array, y: Array) -> None:
            function(x.real, y.real, out=out.real)
            out.imag = self.field.reduce(function(x.imag, y.imag))

        return in_operand_layout(store, (a, b), np.complex128, PART)

    def sum(self, a: Array, axes: tuple[int, ...]) -> Array:
        return self._both("sum", a, axes)

    def mean(self, a: Array, axes: tuple[int, ...]) -> Array:
        return self._both("mean", a, axes)

    def product(self, a: Array, axes: tuple[int, ...]) -> Array:
        return self._both("product", a, axes)

    def contract(self, a: Array, b: Array, shared: int, item: int) -> Array:
        if not is_number(a):
            return self._native.contract(a, b, shared, item)
        return contracted(a, b, shared, item, self.field.matmul)

    def linear_map(self, a: Array, axis: int, values: Sequence[Sequence[Fraction]], out: Array | None = None) -> Array:
        """Multiplies an axis by a constant matrix; positions are sums of integer multiples over one denominator.

        That order of operations has the least rounding error.
        """
        if not is_number(a) or not 0 < a.shape[axis] <= SUMMED or not values:
            return super().linear_map(a, axis, values, out)
        rows = [over_one_denominator(row) for row in values]
        whole, residues = np.array([row for row, _ in rows], np.float64), self.field.matrix(values)
        share = np.array([1 / denominator for _, denominator in rows])

        def store(sums: Array, slices: Array) -> None:
            np.multiply(times(whole, slices.real), share.reshape(-1, *[1] * (slices.ndim - 1)), out=sums.real)
            sums.imag = self.field.reduce(times(residues, slices.imag))

        return map_axis(store, a, axis, len(values), np.complex128)

    def divide(self, a: Array, b: Array) -> Array:
        if not is_number(a):
            return self._native.divide(a, b)
        b = distinct(b) if b.shape == a.shape else b  # invert repeated elements once
        if b.size == 1 < a.size:
            return self._divided(a, b.item())
        none, real, residue = b.imag == 0, b.real, b.imag
        if none.any():
            real, residue = np.where(none, 1 / LARGEST, real), np.where(none, _ZERO_RESIDUE, residue)
        if not real.all():
            real = np.where(real == 0, 1 / LARGEST, real)
        return _number(_finite(a.real / real), self.field.divide(a.imag, residue))

    def _divided(self, a: Array, number: complex) -> Array:
        """Divides an array by one number, as `divide` does."""
        real, residue = (number.real or 1 / LARGEST, number.imag) if number.imag else (1 / LARGEST, _ZERO_RESIDUE)
        inverse = float(self.field.inverse(np.asarray(residue)))

        def store(out: Array, x: Array) -> None:
            out.real = _finite(x.real / real)
            out.imag = self.field.reduce(x.imag * inverse)

        return in_operand_layout(store, (a,), np.complex128, PART)

    def power(self, a: Array, b: Array) -> Array:
        if not is_number(a):
            return self._native.power(a, b)
        odd = (a.real < 0) & (np.abs(b.real) % 2 == 1)
        power = _finite(np.power(np.abs(a.real), b.real))
        return _number(np.where(odd, -power, power), self.field.power(a.imag, b.imag))

    def remainder(self, a: Array, b: Array, rounding: str) -> Array:
        """Returns a - b * q, where q is a / b rounded down or truncated."""
        if not is_number(a):
            return self._native.remainder(a, b, rounding)
        quotient = self._whole(np.floor if rounding == "floor" else np.trunc, self.divide(a, b))
        return self.subtract(a, self.multiply(b, quotient))

    def apply(self, function: str, a: Array, keeps_zero: bool) -> Array:
        if function in ("floor", "ceil", "round"):
            return self._whole(PRIMITIVES[function].numpy, a)
        x = np.where(a.imag == 0, 0.0, a.real) if keeps_zero else a.real
        residue = self.field.apply(function, a.imag, keeps_zero)
        x = x * (1 + _PERTURBATION / self.field.half * residue.astype(np.float64))
        real = _on_domain(partial(self._native.apply, function, keeps_zero=keeps_zero), function, x)
        return _number(_finite(real), residue)

    def _whole(self, rounding: Callable[[Array], Array], a: Array) -> Array:
        whole = np.asarray(rounding(self._settled(a)))
        if np.abs(whole).max(initial=0.0) < REDUCED:  # as nearly always
            return _number(whole, self.field.reduce(whole.copy()))
        return self.encode("", np.clip(whole, -(2.0**52), 2.0**52), "float64")

    def _settled(self, a: Array, bits: int | None = None) -> Array:
        """Returns positions, with integers and half-integers exact: their residues identify them, whatever the rounding
        error.

        With `bits`, the same for floats with `bits` fraction bits and for the midpoints between two of them. A number
        within the rounding error of such a point is moved to it too.
        """
        if bits is None:
            twice = np.asarray(np.rint(a.real * 2))
            halves, residue = twice * 0.5, self.field.reduce(self.field.reduce(twice) * self._half)
        else:
            least = np.frexp(a.real)[1] - bits - 2
            halves = np.ldexp(np.rint(np.ldexp(a.real, -least)), least)
            residue = self.field.encode("", halves, "float64")
        same = (residue == a.imag) | (np.abs(a.real - halves) <= _SUM_ERROR * np.abs(halves))
        return np.where(same, halves, a.real)

    @cached_property
    def _half(self) -> float:
        return float(self.field.constant(Fraction(1, 2), "float32"))

    def below_maximum(self, a: Array, axes: tuple[int, ...]) -> Array:
        """Returns a: nothing overflows here, and exp of a difference is not a quotient."""
        return a

    def opaque(self, key: str, operands: Sequence[Array], dims: Sequence[int], dtype: str) -> Array:
        """Returns the black box of the residues alone: the real parts of equal numbers differ by rounding."""
        self.field.opaque_below = self.opaque_below
        return self._drawn(self.field.opaque(key, list(map(_residue, operands)), dims, dtype), dtype)

    def opaque_pointwise(self, key: str, a: Array, dtype: str, places: Array | None = None) -> Array:
        self.field.opaque_below = self.opaque_below
        return self._drawn(self.field.opaque_pointwise(key, _residue(a), dtype, places), dtype)

    def cast(self, a: Array, dtype: str) -> Array:
        if dtype in REALS and dtype in STORED:
            return self._stored(a, dtype)
        if dtype in REALS:
            return a if is_number(a) else _number(a.astype(np.float64), self.field.cast(a, dtype))
        if not is_number(a):
            return self._native.cast(a, dtype)
        if dtype == "bool":
            return np.asarray(a.imag != 0)
        cut = np.asarray(np.minimum(np.maximum(a.real, -(2.0**62)), 2.0**62))
        whole = np.asarray(np.rint(cut))
        whole = whole if (whole == cut).all() else np.trunc(np.clip(self._settled(a), -(2.0**62), 2.0**62))
        far = np.abs(whole) > _MAX_EXACT_MAGNITUDE
        if RECORDS[dtype].bits < _WIDEST_INTEGER_BITS and far.any():
            whole = np.where(far, a.imag, whole)
        return self._native.cast(whole.astype(np.int64), dtype)

    def _stored(self, a: Array, dtype: str) -> Array:
        """Rounds to a float of few bits; numbers within the rounding error of a midpoint round alike."""
        real = self._settled(a, fraction_bits(dtype)) if is_number(a) else a.astype(np.float64)
        kept = rounded(real, dtype).astype(np.float64)
        return self.encode("", np.where(np.isfinite(kept), kept, np.copysign(LARGEST, real)), "float64")

    def reinterpret(self, a: Array, dtype: str) -> Array:
        if is_number(a) and dtype in REALS:
            return a
        return self._drawn(self.field.reinterpret(_residue(a), dtype), dtype)

    def _drawn(self, residue: Array, dtype: str) -> Array:
        """Gives pseudo-random residues positions near 0, where comparisons have both outcomes."""
        return _number(8 * residue.astype(np.float64) / self.field.half, residue) if dtype in REALS else residue


def is_number(a: object) -> bool:
    """True if an array holds numbers of a field, which are complex, rather than integers or bool."""
    return isinstance(a, np.ndarray | np.generic) and a.dtype.kind == "c"


def _real(a: Any) -> Any:
    return a.real if is_number(a) else a


def _residue(a: Any) -> Any:
    return a.imag if is_number(a) else a


def contracted(a: Array, b: Array, shared: int, item: int, residues: Callable[[Array, Array, Array], Array]) -> Array:
    """Contracts the real positions as floats, and the imaginary parts by `residues`."""
    out = np.empty(contracted_dims(a, b, shared, item), np.complex128)
    contract_into(out.real, a.real, b.real, shared, item, np.float64, matmul, any_order=True)
    contract_into(out.imag, a.imag, b.imag, shared, item, np.float64, residues, any_order=True)
    return out


def _number(real: Any, residue: Array) -> Array:
    number = np.empty(residue.shape, np.complex128)
    number.real, number.imag = real, residue
    return number


def _compare(name: str, a: Array, b: Array) -> Array:
    function = PRIMITIVES[name].numpy
    if not is_number(a) or name in ("eq", "ne"):
        return np.asarray(function(_residue(a), _residue(b)))
    return np.where(a.imag == b.imag, name in ("le", "ge"), function(a.real, b.real))


def _select(condition: Array, then: Array, otherwise: Array) -> Array:
    return np.where(_residue(condition) != 0, then, otherwise)


def _abs(a: Array) -> Array:
    return np.where(a.real < 0, -a, a) if is_number(a) else np.abs(a)


def _sign(a: Array) -> Array:
    sign = np.sign(_real(a))
    return _number(sign, np.where(a.imag == 0, 0.0, sign)) if is_number(a) else np.asarray(sign)


def _finite(x: Array) -> Array:
    if np.abs(x).max(initial=0.0) <= LARGEST:  # as nearly always
        return x
    return np.asarray(np.nan_to_num(np.clip(x, -LARGEST, LARGEST)))


class _Tail(NamedTuple):
    """The range of arguments in which float64 distinguishes the values of a function.

    at         beyond this magnitude it approaches its limits as 1/x does, or grows as x
    low, high  its limits below and above; None where it grows
    """

    at: float
    low: float | None = None
    high: float | None = None


_TAILS = {
    "exp": _Tail(8.0, low=0.0),
    "sigmoid": _Tail(8.0, 0.0, 1.0),
    "tanh": _Tail(4.0, -1.0, 1.0),
    "erf": _Tail(3.0, -1.0, 1.0),
    "sinh": _Tail(8.0),
    "cosh": _Tail(8.0),
    "atanh": _Tail(1 - 2.0**-26),
}
"""Functions that reach their limits in float64 early.

Each stand-in is monotone with the same limits, so that the order of different numbers is known.
"""


def _on_domain(apply: Callable[[Array], Array], function: str, x: Array) -> Array:
    """Applies a function; outside its domain, or near its limits, applies its stand-in."""
    tail = _TAILS.get(function)
    if function in ("asin", "acos"):  # other numbers than the ends, so that sums of them are not 0 by chance
        beyond = np.maximum(np.abs(x) - 1.0, 0.0)
        return apply(np.clip(x, -1, 1)) + np.copysign(beyond / (1.0 + beyond), x if function == "asin" else -x)
    if tail is None:
        return apply(_domain(function, x))
    inside = apply(np.clip(x, -tail.at, tail.at))
    beyond = np.maximum(np.abs(x) - tail.at, 0.0)
    if not beyond.any():  # as for most arrays
        return inside
    far = 1.0 + beyond
    ends = [inside * far if limit is None else limit + (inside - limit) / far for limit in (tail.low, tail.high)]
    return np.where(x < 0, *ends)


def _domain(function: str, x: Array) -> Array:
    """Returns x, moved into the domain of a function of reals."""
    match function:
        case "sqrt":
            return np.asarray(np.abs(x))
        case "acosh":
            return np.asarray(np.abs(x) + 1)
        case "log":
            return np.asarray(np.maximum(np.abs(x), 1 / LARGEST))
    return x
