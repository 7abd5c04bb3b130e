"""Defines the number systems of evaluation: numpy's own, from which others derive, and fixed-point numbers.

An operator's meaning asks its arithmetic only for steps that depend on the number system. Movement, comparisons,
minimum and maximum do not: residues (`prime_field`) are stored as signed representatives, which numpy orders.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import DTypeLike

from glenside.ir.blockwise import PART, Index, blocks, in_blocks, reduced, row_major
from glenside.ir.contraction import contract_into, contracted_dims, matmul, summed_in
from glenside.ir.dtypes import DTYPES, FLOATS, REALS, is_float, is_signed, limits, name_of, widen, wider
from glenside.ir.errors import BadInput
from glenside.ir.operand import Array
from glenside.ir.primitives import PRIMITIVES
from glenside.ir.rational import over_one_denominator
from glenside.ir.rounding import rounded


class Native:
    """The numbers of numpy: floats round in their own dtype, integers wrap.

    Arrays are never changed in place: they may be views of each other.
    """

    own: Mapping[str, Callable[..., Array]] = {}
    """Primitives that this number system computes differently from numpy."""

    @cached_property
    def meanings(self) -> dict[Any, Any]:
        """Memoizes the functions of compute types on arrays of these numbers."""
        return {}

    has_blas = True
    """True if numpy multiplies matrices of these floats directly."""

    opaque_below = 100
    """Black boxes give integers from 0 to this bound, exclusive: an int8 holds them, and few axes are shorter."""

    def kept(self, dtype: str) -> DTypeLike:
        """Returns the dtype in which an array is stored."""
        return dtype

    def identity(self, a: Array) -> Array:
        """Returns the part of an array that is equal, to the last bit, whenever the arrays are."""
        return a

    def ranked(self, a: Array) -> Array:
        """Returns numbers by whose order an argmax or argsort ranks elements; of equal ones the first ranks first."""
        return a

    def encode(self, name: str, array: Array, dtype: str) -> Array:
        """Returns the value of a tensor as this arithmetic stores it. Raises BadInput if its dtype differs."""
        if name_of(array.dtype) != dtype:
            raise BadInput(f"tensor {name} requires dtype {dtype}, got {array.dtype}")
        return array

    def constant(self, value: Fraction | int, dtype: str) -> Array:
        """Returns an exact number as an array without axes."""
        return rounded(np.asarray(float(value) if dtype in REALS else int(value)), dtype)

    def lowest(self, dtype: str) -> Array:
        """Returns the neutral element of a maximum."""
        if dtype in FLOATS:
            return np.asarray(-np.inf, dtype)
        return np.asarray(False) if dtype == "bool" else np.asarray(limits(dtype)[0], dtype)

    def add(self, a: Array, b: Array) -> Array:
        return row_major(np.add, a, b)

    def accumulate(self, total: Array, a: Array) -> None:
        """Adds a to an array that no other reader holds yet, in place where the arithmetic can."""
        np.add(total, a, out=total)

    def subtract(self, a: Array, b: Array) -> Array:
        return row_major(np.subtract, a, b)

    def multiply(self, a: Array, b: Array) -> Array:
        return row_major(np.multiply, a, b)

    def divide(self, a: Array, b: Array) -> Array:
        """Returns a / b; integer quotients are truncated towards zero, and n / 0 is 0 for integers."""
        if is_float(a.dtype):
            return row_major(np.divide, a, b)
        a, b = np.broadcast_arrays(a, b)
        return in_blocks(_cut_quotient, a.shape, a, b, dtype=a.dtype)

    def power(self, a: Array, b: Array) -> Array:
        """Returns a to the power b; integer results for b < 0 are truncated towards zero, and 0 for a = 0."""
        if not is_signed(a.dtype):
            return row_major(np.power, a, b)
        a, b = np.broadcast_arrays(a, b)
        return in_blocks(_cut_power, a.shape, a, b, dtype=a.dtype)

    def remainder(self, a: Array, b: Array, rounding: str) -> Array:
        """Returns a - b * q, q being a / b rounded down (floor) or truncated (truncate); n mod 0 is 0 for integers."""
        return row_major(np.mod if rounding == "floor" else np.fmod, a, b)

    def apply(self, function: str, a: Array, keeps_zero: bool) -> Array:
        """Applies a function of reals, by the name of its primitive; `keeps_zero`: the function maps 0 to 0."""
        compute = PRIMITIVES[function].numpy
        wide = wider(a.dtype.name)
        if wide == a.dtype.name:
            return row_major(compute, a)
        return in_blocks(lambda part: row_major(compute, part.astype(wide)), a.shape, a, dtype=a.dtype)

    def below_maximum(self, a: Array, axes: tuple[int, ...]) -> Array:
        """Subtracts the maximum over the axes where exp(a) could overflow; returns a where it cannot."""
        return np.asarray(np.subtract(a, a.max(axes, keepdims=True, initial=-np.inf)))

    def sum(self, a: Array, axes: tuple[int, ...]) -> Array:
        """Sums over the last axes; narrow integers widen."""
        total = reduced(np.add, a, axes, np.dtype(wider(widen(a.dtype.name))))
        return total.astype(widen(a.dtype.name), copy=False)  # bfloat16 is summed in float32 and rounded once

    def mean(self, a: Array, axes: tuple[int, ...]) -> Array:
        length = math.prod(a.shape[a.ndim - len(axes) :])
        total = reduced(np.add, a, axes, summed_in(a.dtype))
        np.true_divide(total, length, out=total)
        return total.astype(a.dtype, copy=False)

    def product(self, a: Array, axes: tuple[int, ...]) -> Array:
        return reduced(np.multiply, a, axes, a.dtype)

    def contract(self, a: Array, b: Array, shared: int, item: int) -> Array:
        """Contracts (G, A)(I) x (G, B)(I) -> (G, A, B) over I; |G| = shared, |I| = item; narrow integers widen."""
        out = np.empty(contracted_dims(a, b, shared, item), widen(a.dtype.name))
        if is_float(a.dtype):
            contract_into(out, a, b, shared, item, summed_in(a.dtype), matmul)
        elif _fits_float(a, b, math.prod(a.shape[a.ndim - item :])):
            contract_into(out, a, b, shared, item, np.float64, _exact_matmul)
        else:
            contract_into(out, a, b, shared, item, out.dtype, matmul)
        return out

    def linear_map(self, a: Array, axis: int, values: Sequence[Sequence[Fraction]], out: Array | None = None) -> Array:
        """Multiplies an axis by a constant matrix, in blocks, row by row, reading only slices with a nonzero
        coefficient.
        """
        result = np.empty((*a.shape[:axis], len(values), *a.shape[axis + 1 :]), a.dtype) if out is None else out
        if not result.size:
            return result
        slices, sums = np.moveaxis(a, axis, 0), np.moveaxis(result, axis, 0)
        for index in blocks(sums.shape[1:], PART):
            for number, row in enumerate(values):
                sums[(number, *index)] = self._sum_of_multiples(slices, index, row)
        return result

    def _sum_of_multiples(self, slices: Array, index: Index, values: Sequence[Fraction]) -> Array:
        """Computes one block of a row: the sum of integer multiples of the slices, over their common denominator."""
        dtype = slices.dtype.name
        zero = self.constant(0, dtype)
        whole, denominator = over_one_denominator(values)
        total: Array | None = None
        for i, value in enumerate(whole):
            if value == 0:
                continue
            part = slices[(i, *index, ...)]
            if abs(value) != 1:
                part = self.multiply(part, self.constant(abs(value), dtype))
            if total is None:
                total = part if value > 0 else self.subtract(zero, part)
            else:
                total = self.add(total, part) if value > 0 else self.subtract(total, part)
        if total is None:
            return zero
        return total if denominator == 1 else self.multiply(total, self.constant(Fraction(1, denominator), dtype))

    def opaque(self, key: str, operands: Sequence[Array], dims: Sequence[int], dtype: str) -> Array:
        """Returns the stand-in of an unknown function: pseudo-random, from the key and the values of the operands
        alone.
        """
        return self.drawn(scattered(key, operands, dims), dtype)

    def opaque_pointwise(self, key: str, a: Array, dtype: str, places: Array | None = None) -> Array:
        """Like the method above, for an unknown function of single elements and, if given, of their numbers in
        `places`.
        """
        return self.drawn(scattered_each(key, a, places), dtype)

    def drawn(self, drawn: Array, dtype: str) -> Array:
        """Converts integers below 2^32 to elements of a dtype."""
        if dtype in FLOATS:  # integers from -3 to 3, whose sums do not round
            return np.subtract(drawn % np.uint64(7), 3, dtype=dtype)
        if dtype in REALS:
            return np.subtract(drawn % np.uint64(7), 3, dtype=wider(dtype)).astype(dtype)
        return np.asarray(drawn % np.uint64(2 if dtype == "bool" else self.opaque_below)).astype(dtype)

    def truncate(self, a: Array) -> Array:
        """Truncates a to the fractional bits of the number system, if it has a limit."""
        return a

    def cast(self, a: Array, dtype: str) -> Array:
        """Casts: floats to integers truncate towards zero, to floats round to nearest; integers wrap."""
        return a if a.dtype == dtype else rounded(a, dtype)

    def reinterpret(self, a: Array, dtype: str) -> Array:
        """Reinterprets the bits of a as another dtype of the same width."""
        return row_major(np.not_equal, a, np.asarray(0, a.dtype), dtype=np.bool_) if dtype == "bool" else a.view(dtype)


Arithmetic: TypeAlias = Native
"""The number system of an evaluation: numpy's own, or one that derives from it."""


class FixedPoint(Native):
    """Fixed-point numbers: floats are multiples of 2^-bits in float64, exact while products stay below 2^(53 - 2 bits).

    Tensors and constants are rounded to nearest. A matrix product is exact until it is truncated; an element-wise
    product is truncated at once. Truncation rounds down, like dropping low bits.
    """

    def __init__(self, bits: int) -> None:
        self.bits = bits

    def encode(self, name: str, array: Array, dtype: str) -> Array:
        """Encodes a tensor of any float dtype."""
        return self._nearest(array) if dtype in FLOATS else super().encode(name, array, dtype)

    def constant(self, value: Fraction | int, dtype: str) -> Array:
        """Returns the nearest multiple."""
        return self._nearest(np.asarray(float(value))) if dtype in FLOATS else super().constant(value, dtype)

    def multiply(self, a: Array, b: Array) -> Array:
        """Returns the truncated product."""
        return self.truncate(np.multiply(a, b))

    def truncate(self, a: Array) -> Array:
        """Rounds down to a multiple."""
        if not is_float(a.dtype):
            return a
        return np.ldexp(np.floor(np.ldexp(a, self.bits)), -self.bits)

    def _nearest(self, a: Array) -> Array:
        return np.ldexp(np.rint(np.ldexp(np.asarray(a, np.float64), self.bits)), -self.bits)


def hash_array(state: hashlib.blake2b, array: Array) -> None:
    """Feeds dims, dtype and elements to a hash; equal arrays give equal hashes."""
    # Adding 0 turns -0.0 into 0.0, which it equals.
    value = array.astype(wider(array.dtype.name), copy=False) if array.dtype.name in DTYPES else array
    plain = np.add(value, value.dtype.type(0), order="C") if value.dtype.kind == "f" else np.ascontiguousarray(value)
    state.update(f"{array.shape} {array.dtype};".encode())
    state.update(plain.data if plain.size else b"")


def scattered(key: str, operands: Sequence[Array], dims: Sequence[int]) -> Array:
    """Returns integers below 2^32 in uint64, each a hash of the key and of every element of every operand.

    Equal operands give equal integers; different operands give independent ones.
    """
    state = hashlib.blake2b(key.encode(), digest_size=16)
    for array in operands:
        state.update(b"; ")
        hash_array(state, array)
    generator = np.random.Philox(key=np.frombuffer(state.digest(), np.uint64))
    return np.asarray(generator.random_raw(math.prod(dims)) >> np.uint64(32)).reshape(tuple(dims))


def scattered_each(key: str, a: Array, places: Array | None = None) -> Array:
    """Returns the same, but each depends on the key, on its own element, and on that element's number in `places`.

    The hash is splitmix64's increment and finalizer (Steele et al., Fast Splittable Pseudorandom Number Generators,
    2014).
    """
    seed = int.from_bytes(hashlib.blake2b(key.encode(), digest_size=8).digest(), "little")
    wide = a.astype(wider(a.dtype.name), copy=False) if a.dtype.name in DTYPES else a
    numbers = wide.astype(np.float64) + 0.0 if wide.dtype.kind == "f" else wide.astype(np.int64)  # -0.0 is 0.0
    state = numbers.view(np.uint64) ^ np.uint64(seed)
    if places is not None:
        state = state + places.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        state = (state ^ (state >> np.uint64(shift))) * np.uint64(factor)
    return np.asarray((state ^ (state >> np.uint64(31))) >> np.uint64(32))


def _cut_quotient(a: Array, b: Array) -> Array:
    """Divides integers, truncating towards zero."""
    quotient: Array = np.floor_divide(a, b)
    cut = (b != 0) & (quotient * b != a) & ((a < 0) != (b < 0))
    return np.asarray(quotient + cut.astype(a.dtype))


def _cut_power(a: Array, b: Array) -> Array:
    """Returns a to the power of b, for signed integers."""
    one, odd = a.dtype.type(1), (b & 1).astype(bool)
    inverse = np.where(a == 1, one, np.where(a == -1, np.where(odd, -one, one), a.dtype.type(0)))
    return np.where(b < 0, inverse, np.power(a, np.maximum(b, 0)))


def _exact_matmul(a: Array, b: Array, out: Array) -> Array:
    """Multiplies integers in float64, exactly below 2^53, and converts back, so that they wrap when they are stored."""
    whole = matmul(a, b, out).view(np.int64)
    for index in blocks(out.shape, PART):
        whole[index] = out[index].astype(np.int64)
    return whole


def _fits_float(a: Array, b: Array, length: int) -> bool:
    """True if sums of `length` products stay below 2^53, so that float64 BLAS is exact; numpy has no integer BLAS."""
    extremes = [_magnitude_of_dtype(a), _magnitude_of_dtype(b)]
    if extremes[0] * extremes[1] * length >= 2**53:
        extremes = [_magnitude(a), _magnitude(b)]
    return extremes[0] * extremes[1] * length < 2**53


def _magnitude_of_dtype(a: Array) -> int:
    low, high = limits(a.dtype.name)
    return max(-low, high)


def _magnitude(a: Array) -> int:
    return max(-int(a.min()), int(a.max())) if a.size else 0
