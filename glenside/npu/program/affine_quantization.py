"""Converts between integers and real numbers by affine quantization: real = scale * (integer - zero)."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from glenside.ir.dtypes import limits
from glenside.ir.errors import BadInput
from glenside.ir.operand import Array


@dataclass(frozen=True)
class Numbers:
    """Numbers that broadcast to a tensor: their dims, and their values in row-major order."""

    dims: tuple[int, ...]
    values: tuple[float, ...]

    @staticmethod
    def of(given: Any) -> Numbers:
        """Reads a number, an array or nested lists. Raises BadInput for other values and for numbers not finite."""
        try:
            found = np.asarray(given)
        except ValueError:
            found = np.asarray(None)
        if found.dtype.kind not in "iuf" or not np.isfinite(found).all():
            raise BadInput(
                "scales and zero points are finite numbers: one number, or nested lists with rows of equal length"
            )
        return Numbers(found.shape, tuple(map(float, found.ravel().tolist())))

    @property
    def array(self) -> Array:
        """Returns the numbers as float64, (dims)."""
        return np.array(self.values, np.float64).reshape(self.dims)

    @property
    def plain(self) -> Any:
        """Returns a number or nested lists, which `of` reads back."""
        return self.values[0] if not self.dims else np.array(self.values).reshape(self.dims).tolist()

    def fit(self, shape: tuple[int, ...]) -> bool:
        """True if the numbers broadcast to that shape."""
        own = (1,) * (len(shape) - len(self.dims)) + self.dims
        return len(own) == len(shape) and all(n in (1, size) for n, size in zip(own, shape, strict=True))

    def __str__(self) -> str:
        if prod(self.dims) == 1:
            return f"{self.values[0]:.6g}"
        return f"{min(self.values, default=0):.6g} .. {max(self.values, default=0):.6g}"


def narrow(numbers: Array) -> Array:
    """Shrinks each axis along which all numbers are equal to size 1; a single number becomes shape ()."""
    for axis in range(numbers.ndim):
        first = numbers.take([0], axis)
        numbers = first if (numbers == first).all() else numbers
    return numbers.reshape(()) if numbers.size == 1 else numbers


@dataclass(frozen=True)
class StandsFor:
    """The affine quantization of a tensor, real = scale * (integer - zero): scale and zero broadcast to the tensor.

    Sums without their bias have the negated bias as zero.
    """

    scale: Numbers
    zero: Numbers

    @staticmethod
    def of(scale: Any, zero: Any) -> StandsFor:
        """Reads scale and zero as `Numbers.of` does. Raises BadInput for a scale that is not positive."""
        found = StandsFor(Numbers.of(scale), Numbers.of(zero))
        if min(found.scale.values, default=1) <= 0:
            raise BadInput("a scale is a positive number")
        return found

    def real(self, integers: Array) -> Array:
        """Dequantizes to float32; with scales of 1 and integral zeros to int32, which float32 would round."""
        if all(scale == 1 for scale in self.scale.values) and all(zero.is_integer() for zero in self.zero.values):
            return (integers.astype(np.int64) - self.zero.array.astype(np.int64)).astype(np.int32)
        return ((integers.astype(np.float64) - self.zero.array) * self.scale.array).astype(np.float32)

    def integers(self, real: Array, dtype: str) -> Array:
        """Quantizes in float32 as ONNX does: rounds half to even and saturates to the dtype."""
        low, high = limits(dtype)
        steps = np.rint(real.astype(np.float32) / self.scale.array.astype(np.float32)).astype(np.float64)
        found: Array = np.clip(steps + self.zero.array, low, high).astype(dtype)
        return found

    def __str__(self) -> str:
        return f"{self.scale} x (integer - {self.zero})"
