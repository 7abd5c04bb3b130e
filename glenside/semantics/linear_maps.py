"""Constant matrices times an axis, as products of matrices: for numbers of which a sum may be taken in any order."""

from __future__ import annotations

from collections.abc import Callable
from math import prod

import numpy as np
from numpy.typing import DTypeLike

from glenside.ir.blockwise import blocks
from glenside.ir.operand import Array
from glenside.ir.threads import in_parallel

_PART = 1 << 16
"""Numbers of slices and sums at a time: they stay in the cache."""


def map_axis(store: Callable[[Array, Array], None], a: Array, axis: int, rows: int, dtype: DTypeLike) -> Array:
    """A new array like a, with so many rows along an axis: `store(sums, slices)` fills them, part by part, where sums
    are (rows)(..) and slices (count)(..). The rows lie one after the other in memory, and each as a does.
    """
    slices = np.moveaxis(a, axis, 0)
    order = sorted(range(1, a.ndim), key=lambda other: -abs(slices.strides[other]))
    slices = slices.transpose(0, *order)
    sums = np.empty((rows, *slices.shape[1:]), dtype)
    parts = blocks(slices.shape[1:], _PART // max(1, rows + slices.shape[0]))
    in_parallel(
        lambda index, _: store(sums[(slice(None), *index)], slices[(slice(None), *index)]), parts, lambda _: None
    )
    return np.moveaxis(sums.transpose(np.argsort([0, *order])), 0, axis)


def times(matrix: Array, slices: Array) -> Array:
    """(R, C) x (C)(..) -> (R)(..), in float64."""
    columns = np.ascontiguousarray(slices, np.float64).reshape(slices.shape[0], prod(slices.shape[1:]))
    return (matrix @ columns).reshape(matrix.shape[0], *slices.shape[1:])
