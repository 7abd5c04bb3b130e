"""Residues as loops compute with them: a softmax subtracts the largest element, whose order is that of residues."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

import numpy as np

from glenside.ir.operand import Array
from glenside.semantics.prime_field import PrimeField


class LoopField(PrimeField):
    """A prime field in which nothing is left out that rounded numbers need, so that programs and their loops, which do
    the same to each element, give the same residues.
    """

    own: Mapping[str, Callable[..., Array]] = MappingProxyType({"flushed": np.asarray})  # there is no order of size

    def below_maximum(self, a: Array, axes: tuple[int, ...]) -> Array:
        if a.dtype.kind != "f":
            return super().below_maximum(a, axes)
        return self.subtract(a, np.asarray(a.max(axes, keepdims=True, initial=-self.half)))
