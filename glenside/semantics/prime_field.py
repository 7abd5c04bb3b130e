"""Computes with residues modulo a prime in float64 BLAS, to check real-valued programs exactly.

A residue is stored as its signed representative, |r| <= (p - 1) / 2 < 2^21, in float32: exact, in half the memory. The
order of representatives replaces the order of reals in relu, maximum and comparisons.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Sequence
from fractions import Fraction
from functools import cached_property, lru_cache

import numpy as np
from numpy.typing import DTypeLike

from glenside.ir.blockwise import blocks, in_operand_layout
from glenside.ir.contraction import contract_into, contracted_dims
from glenside.ir.dtypes import REALS, STORED, is_float, name_of, wider
from glenside.ir.errors import BadInput
from glenside.ir.operand import Array, distinct
from glenside.semantics.linear_maps import map_axis, times
from glenside.semantics.native import Native

# The two largest primes below 2^22.
PRIMES = (4194301, 4194287)

# Products of representatives are below 2^42. Sums of 512, plus one representative, stay below 2^51, so that one
# multiplication by 1/p finds the nearest multiple of p (see PrimeField.reduce). Sums of 2048 stay below 2^53: they are
# exact in float64, and seldom reach 2^51.
SUMMED = 512
_EXACT = 2048
REDUCED = 2.0**51

PART = 1 << 17
"""Elements per block: few enough to stay in the cache, enough that threads seldom wait."""
_SUM_BLOCK_ELEMENTS = 1 << 16
_SINGLE_INVERSES_ELEMENTS = 100  # up to this size, single inverses are as fast as three products per element
_FINE = 2.0**20  # drawn floats are multiples of 1 / _FINE

_STORED_DTYPE = np.float32
MAX_EXPONENT = 64
"""The largest exponent whose power is a product; larger powers are pseudo-random."""


@lru_cache(maxsize=64)
def function_seed(function: str) -> np.uint64:
    """Returns the seed of the pseudo-random function that replaces a function of reals."""
    return np.uint64(int.from_bytes(hashlib.blake2b(function.encode(), digest_size=8).digest(), "big"))


class PrimeField(Native):
    """Residues modulo p for floats; integers (indices) and bool are numpy's own.

    Division multiplies by the inverse, and the inverse of 0 is 0. Literals and given floats are exact rationals. exp,
    sqrt and similar functions are fixed pseudo-random functions of the residue, one for each name.
    """

    has_blas = False

    def __init__(self, p: int = PRIMES[0]) -> None:
        prime = 2**21 < p < 2**22 and all(p % d for d in range(2, math.isqrt(p) + 1))
        if not prime:
            raise BadInput(f"PrimeField requires a prime between 2^21 and 2^22, got {p}")
        self.p = p
        self.half = (p - 1) // 2

    def kept(self, dtype: str) -> DTypeLike:
        return _STORED_DTYPE if dtype in REALS else dtype

    def reduce(self, x: Array) -> Array:
        """Reduces in place to signed representatives: integers below 2^51 in float64, or below 2^22 in float32.

        The nearest multiple q * p is exact: rounding moves x * (1/p) by less than 2^-23, and x / p is at least 1/2p >
        2^-23 away from where the nearest integer changes.
        """
        x = np.asarray(x)  # numpy turns a product of scalars into a number
        q = np.asarray(np.multiply(x, 1.0 / self.p))
        np.rint(q, out=q)
        np.multiply(q, float(self.p), out=q)
        return np.asarray(np.subtract(x, q, out=x))

    def _blockwise(self, function: Callable[..., Array], *arrays: Array) -> Array:
        """Applies an elementwise function of float64 arrays in blocks that stay in the cache."""

        def store(out: Array, *parts: Array) -> None:
            out[...] = function(*(x.astype(np.float64) for x in parts))

        return in_operand_layout(store, arrays, _STORED_DTYPE, PART)

    def encode(self, name: str, array: Array, dtype: str) -> Array:
        """Returns residues of integers and of floats: a finite float is an integer times a power of 2."""
        if dtype not in REALS:
            return super().encode(name, array, dtype)
        if is_float(array.dtype):
            array = array.astype(wider(name_of(array.dtype)), copy=False)
        elif array.dtype.kind not in "iu":
            raise BadInput(f"tensor {name} requires dtype {dtype}, got {array.dtype}")
        if array.dtype.kind != "f":
            return self._integers(array)
        if not np.isfinite(array).all():
            raise BadInput(f"tensor {name} requires finite values for exact checking, got inf or nan")
        return self._blockwise(self._of_floats, array)

    def _of_floats(self, x: Array) -> Array:
        """Returns residues of float64 numbers, which mostly are small multiples of a power of 2."""
        scaled = x * _FINE
        if np.abs(scaled).max(initial=0.0) < REDUCED and (np.rint(scaled) == scaled).all():
            return self.reduce(self.reduce(scaled) * self._fine)
        mantissa, exponent = np.frexp(x)
        scale = self._powers_of_two[exponent - 53 - self._least_exponent]
        return self.reduce(self._integers(np.ldexp(mantissa, 53).astype(np.int64)) * scale.astype(np.float64))

    @cached_property
    def _fine(self) -> float:
        return float(self.constant(Fraction(1, int(_FINE)), "float32"))

    _least_exponent = -1074 - 53

    @cached_property
    def _powers_of_two(self) -> Array:
        """Returns 2^e for each exponent of a float64 whose mantissa is an integer."""
        exponents = range(self._least_exponent, 1025)
        return np.array([self._signed(pow(2, e % (self.p - 1), self.p)) for e in exponents], _STORED_DTYPE)

    def _signed(self, residue: int) -> int:
        return residue - self.p if residue > self.half else residue

    def _integers(self, array: Array) -> Array:
        if array.dtype.itemsize <= 2:  # already representatives
            return array.astype(_STORED_DTYPE)
        if array.dtype.itemsize <= 4:
            return self.reduce(array.astype(np.float64)).astype(_STORED_DTYPE)
        residues = np.mod(array, np.asarray(self.p, array.dtype if array.dtype.itemsize > 4 else np.int64))
        signed = residues.astype(np.int64)
        return np.asarray(np.where(signed > self.half, signed - self.p, signed), _STORED_DTYPE)

    def constant(self, value: Fraction | int, dtype: str) -> Array:
        if dtype not in REALS:
            return super().constant(value, dtype)
        rational = Fraction(value)
        residue = rational.numerator * pow(rational.denominator, self.p - 2, self.p) % self.p
        return np.asarray(self._signed(residue), _STORED_DTYPE)

    def lowest(self, dtype: str) -> Array:
        return np.asarray(-self.half, _STORED_DTYPE) if dtype in REALS else super().lowest(dtype)

    def add(self, a: Array, b: Array) -> Array:
        return super().add(a, b) if a.dtype.kind != "f" else self._reduced(np.add, a, b)

    def accumulate(self, total: Array, a: Array) -> None:
        total[...] = self.add(total, a)

    def subtract(self, a: Array, b: Array) -> Array:
        return super().subtract(a, b) if a.dtype.kind != "f" else self._reduced(np.subtract, a, b)

    def _reduced(self, function: np.ufunc, a: Array, b: Array) -> Array:
        """Reduces sums or differences of two representatives, which float32 holds exactly."""

        def store(out: Array, x: Array, y: Array) -> None:
            self.reduce(function(x, y, out=out, casting="same_kind"))

        return in_operand_layout(store, (a, b), _STORED_DTYPE, PART)

    def multiply(self, a: Array, b: Array) -> Array:
        if a.dtype.kind != "f":
            return super().multiply(a, b)

        def store(out: Array, x: Array, y: Array) -> None:
            out[...] = self.reduce(np.multiply(x, y, dtype=np.float64))

        return in_operand_layout(store, (a, b), _STORED_DTYPE, PART)

    def divide(self, a: Array, b: Array) -> Array:
        if a.dtype.kind != "f":
            return super().divide(a, b)
        return self.multiply(a, self.inverse(distinct(b) if b.shape == a.shape else b))

    def inverse(self, a: Array) -> Array:
        """Returns 1 / a, and 0 where a is 0: multiplies halves down to one number, with 3 products per element."""
        if a.size <= _SINGLE_INVERSES_ELEMENTS:
            inverses = [self._signed(pow(x, -1, self.p)) if x else 0 for x in map(int, a.ravel().tolist())]
            return np.array(inverses, _STORED_DTYPE).reshape(a.shape)
        levels = [np.where(a == 0, _STORED_DTYPE(1), a).ravel()]
        while levels[-1].size > 1:
            x = levels[-1]
            half = x.size // 2
            levels.append(np.concatenate([self.multiply(x[:half], x[half : 2 * half]), x[2 * half :]]))
        result = np.array([self._signed(pow(int(x) % self.p, -1, self.p)) for x in levels.pop()], _STORED_DTYPE)
        while levels:
            x = levels.pop()
            half = x.size // 2
            first, second = self.multiply(result[:half], x[half : 2 * half]), self.multiply(result[:half], x[:half])
            result = np.concatenate([first, second, result[half:]])
        return np.where(a == 0, _STORED_DTYPE(0), result.reshape(a.shape))

    def power(self, a: Array, b: Array) -> Array:
        """Returns powers: products for small whole exponents, pseudo-random numbers for others."""
        if a.dtype.kind != "f":
            return super().power(a, b)
        a, b = np.broadcast_arrays(a, b)
        whole = np.abs(b) <= MAX_EXPONENT
        result = np.empty(a.shape, a.dtype) if whole.all() else np.array(self._scatter_pairs("pow", a, b))
        for exponent in np.unique(b[whole]):
            where = b == exponent
            result[where] = self._whole_power(a[where], int(exponent))
        return result

    def _whole_power(self, x: Array, exponent: int) -> Array:
        if exponent < 0:
            x, exponent = self.inverse(x), -exponent
        result = np.full_like(x, self.constant(1, "float32"))
        while exponent:
            if exponent % 2:
                result = self.multiply(result, x)
            x, exponent = self.multiply(x, x), exponent // 2
        return result

    def remainder(self, a: Array, b: Array, rounding: str) -> Array:
        if a.dtype.kind != "f":
            return super().remainder(a, b, rounding)
        return self._scatter_pairs(f"mod {rounding}", a, b)

    def _scatter_pairs(self, function: str, a: Array, b: Array) -> Array:
        return self._blockwise(lambda x, y: self._scatter(function, x + y * 2.0**22), a, b)

    def apply(self, function: str, a: Array, keeps_zero: bool) -> Array:
        if keeps_zero:
            return self._blockwise(lambda x: np.where(x == 0, 0.0, self._scatter(function, x)), a)
        return self._blockwise(lambda x: self._scatter(function, x), a)

    def _scatter(self, function: str, x: Array) -> Array:
        """Returns a pseudo-random residue for each integer of a float64 array: multiply, mix, multiply, keep the top
        bits.
        """
        key = np.atleast_1d(x).astype(np.int64).view(np.uint64)  # arrays wrap around silently, numpy's scalars warn
        key += function_seed(function)
        key *= np.uint64(0x9E3779B97F4A7C15)
        key ^= key >> np.uint64(32)
        key *= np.uint64(0xD6E8FEB86659FD93)
        key >>= np.uint64(42)
        key *= np.uint64(self.p)
        key >>= np.uint64(22)
        return (key.astype(np.float64) - self.half).reshape(x.shape)

    def below_maximum(self, a: Array, axes: tuple[int, ...]) -> Array:
        """Returns a: nothing overflows here, and exp of a difference is not a quotient."""
        return a

    def sum(self, a: Array, axes: tuple[int, ...]) -> Array:
        if a.dtype.kind != "f":
            return super().sum(a, axes)
        lead, length = a.shape[: a.ndim - len(axes)], math.prod(a.shape[a.ndim - len(axes) :])
        if length == 1:
            return a.reshape(lead)
        out = np.empty(lead, _STORED_DTYPE)
        trailing = tuple(range(-len(axes), 0))
        for index in blocks(lead, max(1, 4 * _SUM_BLOCK_ELEMENTS // max(length, 1))):
            out[index] = self.reduce(np.asarray(a[index].sum(trailing, dtype=np.float64)))
        return out

    def mean(self, a: Array, axes: tuple[int, ...]) -> Array:
        length = math.prod(a.shape[axis] for axis in axes)
        return self.multiply(self.sum(a, axes), self.constant(Fraction(1, length), "float32"))

    def product(self, a: Array, axes: tuple[int, ...]) -> Array:
        if a.dtype.kind != "f":
            return super().product(a, axes)
        lead, length = a.shape[: a.ndim - len(axes)], math.prod(a.shape[a.ndim - len(axes) :])
        x = a.reshape((*lead, length)) if length else np.ones((*lead, 1), _STORED_DTYPE)
        while x.shape[-1] > 1:
            half = x.shape[-1] // 2
            paired = self.multiply(x[..., :half], x[..., half : 2 * half])
            x = np.concatenate([paired, x[..., 2 * half :]], -1)
        return x.reshape(lead)

    def contract(self, a: Array, b: Array, shared: int, item: int) -> Array:
        if a.dtype.kind != "f":
            return super().contract(a, b, shared, item)
        out = np.empty(contracted_dims(a, b, shared, item), _STORED_DTYPE)
        contract_into(out, a, b, shared, item, np.float64, self.matmul, any_order=True)
        return out

    def matmul(self, a: Array, b: Array, total: Array) -> Array:
        """Multiplies (g, m, k) x (g, n, k) -> the sums over k, reduced, into `total` (g, m, n); all float64."""
        columns = b.swapaxes(1, 2)
        if a.shape[2] <= _EXACT:
            np.matmul(a, columns, out=total)
            if a.shape[2] <= SUMMED or max(total.max(initial=0), -total.min(initial=0)) < REDUCED:
                return self.reduce(total)
        np.matmul(a[..., :SUMMED], columns[:, :SUMMED], out=total)
        self.reduce(total)
        for start in range(SUMMED, a.shape[2], SUMMED):
            part = slice(start, start + SUMMED)
            total += np.matmul(a[..., part], columns[:, part])
            self.reduce(total)
        return total

    def linear_map(self, a: Array, axis: int, values: Sequence[Sequence[Fraction]], out: Array | None = None) -> Array:
        if a.dtype.kind != "f" or not 0 < a.shape[axis] <= SUMMED or not values:
            return super().linear_map(a, axis, values, out)
        matrix = self.matrix(values)

        def store(sums: Array, slices: Array) -> None:
            sums[...] = self.reduce(times(matrix, slices))

        return map_axis(store, a, axis, len(values), _STORED_DTYPE)

    def matrix(self, values: Sequence[Sequence[Fraction]]) -> Array:
        """Returns the residues of exact numbers."""
        return np.array([[float(self.constant(value, "float32")) for value in row] for row in values], np.float64)

    def drawn(self, drawn: Array, dtype: str) -> Array:
        if dtype not in REALS:
            return super().drawn(drawn, dtype)
        return np.asarray((drawn * np.uint64(self.p) >> np.uint64(32)).astype(np.float64) - self.half, _STORED_DTYPE)

    def cast(self, a: Array, dtype: str) -> Array:
        """Casts: a float that is computed in stands for a real, so casts between such floats change nothing.

        Rounding to a dtype that is only stored is a pseudo-random function that maps 0 to 0.
        """
        if dtype in REALS and dtype in STORED:
            return self.apply(f"cast {dtype}", self.cast(a, "float32"), keeps_zero=True)
        if dtype in REALS:
            return a if a.dtype.kind == "f" else self._integers(a.astype(np.int64) if a.dtype == bool else a)
        return super().cast(a.astype(np.int64) if a.dtype.kind == "f" else a, dtype)

    def reinterpret(self, a: Array, dtype: str) -> Array:
        """Reinterprets bits: residues have none, so float to integer, or back, is a fixed pseudo-random function."""
        if a.dtype.kind != "f" and dtype not in REALS:
            return super().reinterpret(a, dtype)
        if a.dtype.kind == "f" and dtype in REALS:
            return a
        scattered = self._blockwise(lambda x: self._scatter("bitcast", x), a)
        return scattered if dtype in REALS else self.cast(scattered, dtype)
