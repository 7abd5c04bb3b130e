"""What integers of a program stand for: real numbers, in steps of a scale from a zero point."""

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
    """Numbers that broadcast to a tensor: of those dims, in row-major order."""

    dims: tuple[int, ...]
    values: tuple[float, ...]

    @staticmethod
    def of(given: Any) -> Numbers:
        """Of a number, of an array, or of lists within lists. Raises BadInput: they are none, or not finite."""
        try:
            found = np.asarray(given)
        except ValueError:
            found = np.asarray(None)
        if found.dtype.kind not in "iuf" or not np.isfinite(found).all():
            raise BadInput("numbers that tensors are scaled by are finite, one or as many in each row")
        return Numbers(found.shape, tuple(map(float, found.ravel().tolist())))

    @property
    def array(self) -> Array:
        """The numbers, (dims), in float64."""
        return np.array(self.values, np.float64).reshape(self.dims)

    @property
    def plain(self) -> Any:
        """A number, or lists within lists, as `of` reads them."""
        return self.values[0] if not self.dims else np.array(self.values).reshape(self.dims).tolist()

    def fit(self, shape: tuple[int, ...]) -> bool:
        """Whether they broadcast to that shape."""
        own = (1,) * (len(shape) - len(self.dims)) + self.dims
        return len(own) == len(shape) and all(n in (1, size) for n, size in zip(own, shape, strict=True))

    def __str__(self) -> str:
        if prod(self.dims) == 1:
            return f"{self.values[0]:.6g}"
        return f"{min(self.values, default=0):.6g} .. {max(self.values, default=0):.6g}"


def narrow(numbers: Array) -> Array:
    """The same by broadcasting: one along axes where all are alike."""
    for axis in range(numbers.ndim):
        first = numbers.take([0], axis)
        numbers = first if (numbers == first).all() else numbers
    return numbers.reshape(()) if numbers.size == 1 else numbers


@dataclass(frozen=True)
class StandsFor:
    """real = scale * (integer - zero), both of which broadcast to the tensor. Sums that lack a bias have its negative
    as their zero.
    """

    scale: Numbers
    zero: Numbers

    @staticmethod
    def of(scale: Any, zero: Any) -> StandsFor:
        """Raises BadInput: a scale that is not positive."""
        found = StandsFor(Numbers.of(scale), Numbers.of(zero))
        if min(found.scale.values, default=1) <= 0:
            raise BadInput("a scale is a positive number")
        return found

    def real(self, integers: Array) -> Array:
        """The numbers, float32; the int32 that they are, which floats would round, where scales are 1."""
        if all(scale == 1 for scale in self.scale.values) and all(zero.is_integer() for zero in self.zero.values):
            return (integers.astype(np.int64) - self.zero.array.astype(np.int64)).astype(np.int32)
        return ((integers.astype(np.float64) - self.zero.array) * self.scale.array).astype(np.float32)

    def integers(self, real: Array, dtype: str) -> Array:
        """The nearest integers, halves to the even one, within the dtype: computed in float32, as ONNX quantizes."""
        low, high = limits(dtype)
        steps = np.rint(real.astype(np.float32) / self.scale.array.astype(np.float32)).astype(np.float64)
        found: Array = np.clip(steps + self.zero.array, low, high).astype(dtype)
        return found

    def __str__(self) -> str:
        return f"{self.scale} x (integer - {self.zero})"
