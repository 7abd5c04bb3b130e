"""Residues as loops compute with them: a softmax subtracts the largest element, whose order is that of residues."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

import numpy as np

from glenside.ir.dtypes import REALS, is_float
from glenside.ir.operand import Array
from glenside.semantics.prime_field import PrimeField


class LoopField(PrimeField):
    """A prime field in which nothing is left out that rounded numbers need, so that programs and their loops, which do
    the same to each element, give the same residues.
    """

    def encode(self, name: str, array: Array, dtype: str) -> Array:
        """Residues, of numbers that are not finite too: one for each infinity and one for NaN, as a mask has them."""
        if dtype not in REALS or not is_float(array.dtype) or np.isfinite(array).all():
            return super().encode(name, array, dtype)
        real = array.astype(np.float64)
        residues = super().encode(name, np.nan_to_num(real, nan=0.0, posinf=0.0, neginf=0.0), dtype)
        residues[np.isinf(real)] = np.copysign(self.half // 3, real[np.isinf(real)])
        residues[np.isnan(real)] = self.half // 5
        return residues

    own: Mapping[str, Callable[..., Array]] = MappingProxyType({"flushed": np.asarray})  # there is no order of size

    def below_maximum(self, a: Array, axes: tuple[int, ...]) -> Array:
        if a.dtype.kind != "f":
            return super().below_maximum(a, axes)
        return self.subtract(a, np.asarray(a.max(axes, keepdims=True, initial=-self.half)))
