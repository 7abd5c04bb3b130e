"""What numbers are while a program is evaluated: numpy's own, from which others derive, and fixed-point numbers.

An operator's meaning asks its arithmetic only for what depends on the numbers. Movement, comparisons, minimum and
maximum need none: residues (`prime_field`) are kept as signed representatives, whose order numpy sees.
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
    """numpy's numbers: floats round in their own dtype, integers wrap.

    Arrays are never changed in place: they may be views of each other.
    """

    own: Mapping[str, Callable[..., Array]] = {}
    """The primitives, of those that numpy has for every arithmetic, that are something else here."""

    @cached_property
    def meanings(self) -> dict[Any, Any]:
        """What compute types do to arrays of these numbers, so that it is found out once."""
        return {}

    has_blas = True
    """Whether numpy multiplies its matrices of floats as they are."""

    opaque_below = 100
    """The whole numbers that a black box gives are from 0 to one less: an int8 holds them, and few axes are shorter."""

    def kept(self, dtype: str) -> DTypeLike:
        """What arrays of a dtype are in memory."""
        return dtype

    def identity(self, a: Array) -> Array:
        """What equal arrays have alike, to the last bit."""
        return a

    def ranked(self, a: Array) -> Array:
        """Numbers in whose order positions are found: of equal ones the first comes first."""
        return a

    def encode(self, name: str, array: Array, dtype: str) -> Array:
        """The value of a tensor as this arithmetic keeps it. Raises BadInput when it is not of that dtype."""
        if name_of(array.dtype) != dtype:
            raise BadInput(f"tensor {name} requires dtype {dtype}, got {array.dtype}")
        return array

    def constant(self, value: Fraction | int, dtype: str) -> Array:
        """An exact number, as an array without axes."""
        return rounded(np.asarray(float(value) if dtype in REALS else int(value)), dtype)

    def lowest(self, dtype: str) -> Array:
        """What a maximum ignores."""
        if dtype in FLOATS:
            return np.asarray(-np.inf, dtype)
        return np.asarray(False) if dtype == "bool" else np.asarray(limits(dtype)[0], dtype)

    def add(self, a: Array, b: Array) -> Array:
        return row_major(np.add, a, b)

    def accumulate(self, total: Array, a: Array) -> None:
        """Add a to an array that is not given to anybody yet, in place where the arithmetic can."""
        np.add(total, a, out=total)

    def subtract(self, a: Array, b: Array) -> Array:
        return row_major(np.subtract, a, b)

    def multiply(self, a: Array, b: Array) -> Array:
        return row_major(np.multiply, a, b)

    def divide(self, a: Array, b: Array) -> Array:
        """a / b; integers are cut towards zero and n / 0 is 0 for them."""
        if is_float(a.dtype):
            return row_major(np.divide, a, b)
        a, b = np.broadcast_arrays(a, b)
        return in_blocks(_cut_quotient, a.shape, a, b, dtype=a.dtype)

    def power(self, a: Array, b: Array) -> Array:
        """a to the power of b; of integers, powers below 0 are cut towards zero, and those of 0 are 0."""
        if not is_signed(a.dtype):
            return row_major(np.power, a, b)
        a, b = np.broadcast_arrays(a, b)
        return in_blocks(_cut_power, a.shape, a, b, dtype=a.dtype)

    def remainder(self, a: Array, b: Array, rounding: str) -> Array:
        """a - b * (a / b) with that quotient rounded down (floor) or cut (truncate); n mod 0 is 0 for integers."""
        return row_major(np.mod if rounding == "floor" else np.fmod, a, b)

    def apply(self, function: str, a: Array, keeps_zero: bool) -> Array:
        """A function of reals, by its name as a primitive; keeps_zero says that it maps 0 to 0."""
        compute = PRIMITIVES[function].numpy
        wide = wider(a.dtype.name)
        if wide == a.dtype.name:
            return row_major(compute, a)
        return in_blocks(lambda part: row_major(compute, part.astype(wide)), a.shape, a, dtype=a.dtype)

    def below_maximum(self, a: Array, axes: tuple[int, ...]) -> Array:
        """a less its maximum over the axes, where exp(a) could overflow; a itself, where it cannot."""
        return np.asarray(np.subtract(a, a.max(axes, keepdims=True, initial=-np.inf)))

    def sum(self, a: Array, axes: tuple[int, ...]) -> Array:
        """The sum over the last axes; narrow integers widen."""
        total = reduced(np.add, a, axes, np.dtype(wider(widen(a.dtype.name))))
        return total.astype(widen(a.dtype.name), copy=False)  # bfloat16 is added up in float32 and rounded once

    def mean(self, a: Array, axes: tuple[int, ...]) -> Array:
        length = math.prod(a.shape[a.ndim - len(axes) :])
        total = reduced(np.add, a, axes, summed_in(a.dtype))
        np.true_divide(total, length, out=total)
        return total.astype(a.dtype, copy=False)

    def product(self, a: Array, axes: tuple[int, ...]) -> Array:
        return reduced(np.multiply, a, axes, a.dtype)

    def contract(self, a: Array, b: Array, shared: int, item: int) -> Array:
        """(G, A)(I) x (G, B)(I) -> (G, A, B), summed over I; |G| = shared and |I| = item; narrow integers widen."""
        out = np.empty(contracted_dims(a, b, shared, item), widen(a.dtype.name))
        if is_float(a.dtype):
            contract_into(out, a, b, shared, item, summed_in(a.dtype), matmul)
        elif _fits_float(a, b, math.prod(a.shape[a.ndim - item :])):
            contract_into(out, a, b, shared, item, np.float64, _exact_matmul)
        else:
            contract_into(out, a, b, shared, item, out.dtype, matmul)
        return out

    def linear_map(self, a: Array, axis: int, values: Sequence[Sequence[Fraction]], out: Array | None = None) -> Array:
        """A constant matrix times an axis: one row of the result at a time, from the slices that have a part in it, in
        blocks.
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
        """One block of a row: the slices, each times a whole number, and the sum over their denominator."""
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
        """What stands for a function that nobody knows: pseudo-random, from the key and the operands' values alone."""
        return self.drawn(scattered(key, operands, dims), dtype)

    def opaque_pointwise(self, key: str, a: Array, dtype: str, places: Array | None = None) -> Array:
        """The same of a function of each element by itself, and of the number of its place where there are such."""
        return self.drawn(scattered_each(key, a, places), dtype)

    def drawn(self, drawn: Array, dtype: str) -> Array:
        """Whole numbers below 2^32 as elements of a dtype."""
        if dtype in FLOATS:  # whole numbers from -3 to 3: sums of them do not round
            return np.subtract(drawn % np.uint64(7), 3, dtype=dtype)
        if dtype in REALS:
            return np.subtract(drawn % np.uint64(7), 3, dtype=wider(dtype)).astype(dtype)
        return np.asarray(drawn % np.uint64(2 if dtype == "bool" else self.opaque_below)).astype(dtype)

    def truncate(self, a: Array) -> Array:
        """a with the fractional bits of a number, where numbers have so many."""
        return a

    def cast(self, a: Array, dtype: str) -> Array:
        """Floats are cut towards zero, and rounded to the nearest float; integers wrap."""
        return a if a.dtype == dtype else rounded(a, dtype)

    def reinterpret(self, a: Array, dtype: str) -> Array:
        """The bits of a as another dtype of the same width."""
        return row_major(np.not_equal, a, np.asarray(0, a.dtype), dtype=np.bool_) if dtype == "bool" else a.view(dtype)


Arithmetic: TypeAlias = Native
"""The numbers of an evaluation: numpy's own, or others that derive from them."""


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
        if not is_float(a.dtype):
            return a
        return np.ldexp(np.floor(np.ldexp(a, self.bits)), -self.bits)

    def _nearest(self, a: Array) -> Array:
        return np.ldexp(np.rint(np.ldexp(np.asarray(a, np.float64), self.bits)), -self.bits)


def hash_array(state: hashlib.blake2b, array: Array) -> None:
    """Feed dims, dtype and elements to a hash, such that equal arrays give equal hashes."""
    # Adding 0 makes -0.0 what it equals.
    value = array.astype(wider(array.dtype.name), copy=False) if array.dtype.name in DTYPES else array
    plain = np.add(value, value.dtype.type(0), order="C") if value.dtype.kind == "f" else np.ascontiguousarray(value)
    state.update(f"{array.shape} {array.dtype};".encode())
    state.update(plain.data if plain.size else b"")


def scattered(key: str, operands: Sequence[Array], dims: Sequence[int]) -> Array:
    """Whole numbers below 2^32 in uint64, each depending on the key and on every element of every operand.

    Equal operands give equal ones, others as good as none in common.
    """
    state = hashlib.blake2b(key.encode(), digest_size=16)
    for array in operands:
        state.update(b"; ")
        hash_array(state, array)
    generator = np.random.Philox(key=np.frombuffer(state.digest(), np.uint64))
    return np.asarray(generator.random_raw(math.prod(dims)) >> np.uint64(32)).reshape(tuple(dims))


def scattered_each(key: str, a: Array, places: Array | None = None) -> Array:
    """The same, each depending on the key, on the element at its place and on the number of that: by splitmix64's
    increment and finalizer (Steele et al., Fast Splittable Pseudorandom Number Generators, 2014).
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
    """a / b of integers, cut towards zero."""
    quotient: Array = np.floor_divide(a, b)
    cut = (b != 0) & (quotient * b != a) & ((a < 0) != (b < 0))
    return np.asarray(quotient + cut.astype(a.dtype))


def _cut_power(a: Array, b: Array) -> Array:
    """a to the power of b, of signed integers."""
    one, odd = a.dtype.type(1), (b & 1).astype(bool)
    inverse = np.where(a == 1, one, np.where(a == -1, np.where(odd, -one, one), a.dtype.type(0)))
    return np.where(b < 0, inverse, np.power(a, np.maximum(b, 0)))


def _exact_matmul(a: Array, b: Array, out: Array) -> Array:
    """Integers below 2^53 in float64, as integers again, so that they wrap when they are stored."""
    whole = matmul(a, b, out).view(np.int64)
    for index in blocks(out.shape, PART):
        whole[index] = out[index].astype(np.int64)
    return whole


def _fits_float(a: Array, b: Array, length: int) -> bool:
    """Whether sums of `length` products stay below 2^53, so that float64 BLAS is exact: numpy has none for integers."""
    extremes = [_magnitude_of_dtype(a), _magnitude_of_dtype(b)]
    if extremes[0] * extremes[1] * length >= 2**53:
        extremes = [_magnitude(a), _magnitude(b)]
    return extremes[0] * extremes[1] * length < 2**53


def _magnitude_of_dtype(a: Array) -> int:
    low, high = limits(a.dtype.name)
    return max(-low, high)


def _magnitude(a: Array) -> int:
    return max(-int(a.min()), int(a.max())) if a.size else 0
