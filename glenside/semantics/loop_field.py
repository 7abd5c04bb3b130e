"""Computes residues as generated loops do: a softmax subtracts the largest element, by the order of residues."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

import numpy as np

from glenside.ir.dtypes import REALS, is_float
from glenside.ir.operand import Array
from glenside.semantics.prime_field import PrimeField


class LoopField(PrimeField):
    """A prime field that keeps the steps that only rounded numbers need, as generated loops do.

    A program and its loops then apply the same steps to each element, and give the same residues.
    """

    def encode(self, name: str, array: Array, dtype: str) -> Array:
        """Encodes residues, also of infinities and NaN, as masks have them: one residue each for inf, -inf and NaN."""
        if dtype not in REALS or not is_float(array.dtype) or np.isfinite(array).all():
            return super().encode(name, array, dtype)
        real = array.astype(np.float64)
        residues = super().encode(name, np.nan_to_num(real, nan=0.0, posinf=0.0, neginf=0.0), dtype)
        residues[np.isinf(real)] = np.copysign(self.half // 3, real[np.isinf(real)])
        residues[np.isnan(real)] = self.half // 5
        return residues

    # residues have no order of magnitude
    own: Mapping[str, Callable[..., Array]] = MappingProxyType({"flushed": np.asarray})

    def below_maximum(self, a: Array, axes: tuple[int, ...]) -> Array:
        if a.dtype.kind != "f":
            return super().below_maximum(a, axes)
        return self.subtract(a, np.asarray(a.max(axes, keepdims=True, initial=-self.half)))
