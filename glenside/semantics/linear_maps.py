"""Multiplies an axis by a constant matrix, as matrix products, for numbers whose sums may be taken in any order."""

from __future__ import annotations

from collections.abc import Callable
from itertools import permutations
from math import prod
from typing import NamedTuple

import numpy as np
from numpy.lib.stride_tricks import as_strided
from numpy.typing import DTypeLike

from glenside.ir.blockwise import blocks
from glenside.ir.operand import Array
from glenside.ir.threads import in_parallel

_BLOCK_ELEMENTS = 1 << 16
"""Elements of slices and sums per block, so that a block stays in the cache."""


class _Overlap(NamedTuple):
    """Two axes that overlap in memory: `outer` has `size` windows `step` apart, of `window` elements along `inner`."""

    outer: int
    inner: int
    size: int
    step: int
    window: int

    @property
    def place(self) -> int:
        """The index of the axis into which both are merged."""
        return self.outer - (self.inner < self.outer)

    def merged(self, a: Array) -> Array:
        dims, strides = list(a.shape), list(a.strides)
        dims[self.outer], strides[self.outer] = (self.size - 1) * self.step + self.window, strides[self.inner]
        del dims[self.inner], strides[self.inner]
        return as_strided(a, dims, strides, writeable=False)

    def split(self, a: Array) -> Array:
        dims, strides = list(a.shape), list(a.strides)
        stride = strides[self.place]
        dims[self.place], strides[self.place] = self.size, self.step * stride
        dims.insert(self.inner, self.window)
        strides.insert(self.inner, stride)
        return as_strided(a, dims, strides, writeable=False)


def _overlap(a: Array) -> _Overlap | None:
    """Returns two overlapping axes, as those of windows are, or None; the first axis is excluded."""
    for inner, outer in permutations(range(1, a.ndim), 2):
        (size, window), stride = (a.shape[outer], a.shape[inner]), a.strides[inner]
        if stride > 0 and size > 1 and a.strides[outer] % stride == 0 and 0 < a.strides[outer] // stride < window:
            return _Overlap(outer, inner, size, a.strides[outer] // stride, window)
    return None


def map_axis(store: Callable[[Array, Array], None], a: Array, axis: int, rows: int, dtype: DTypeLike) -> Array:
    """Returns an array like a, with `rows` elements along `axis`; `store(sums, slices)` fills it block by block.

    `sums` is (rows)(..) and `slices` is (count)(..). The rows are contiguous in memory, each in the layout of a.
    Elements that overlap in a are computed once and overlap in the result too.
    """
    slices, overlaps = np.moveaxis(a, axis, 0), list[_Overlap]()
    while (overlap := _overlap(slices)) is not None:
        overlaps.append(overlap)
        slices = overlap.merged(slices)
    order = sorted(range(1, slices.ndim), key=lambda other: -abs(slices.strides[other]))
    slices = slices.transpose(0, *order)
    sums = np.empty((rows, *slices.shape[1:]), dtype)
    parts = blocks(slices.shape[1:], _BLOCK_ELEMENTS // max(1, rows + slices.shape[0]))
    in_parallel(
        lambda index, _: store(sums[(slice(None), *index)], slices[(slice(None), *index)]), parts, lambda _: None
    )
    result = sums.transpose(np.argsort([0, *order]))
    for overlap in reversed(overlaps):
        result = overlap.split(result)
    return np.moveaxis(result, 0, axis)


def times(matrix: Array, slices: Array) -> Array:
    """Multiplies (R, C) x (C)(..) -> (R)(..), in float64."""
    columns = np.ascontiguousarray(slices, np.float64).reshape(slices.shape[0], prod(slices.shape[1:]))
    return (matrix @ columns).reshape(matrix.shape[0], *slices.shape[1:])
