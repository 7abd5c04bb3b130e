"""Rounds numbers to another dtype, once.

numpy casts a wide number to a narrow float of `ml_dtypes` through float32, and so rounds twice: 1 + 2^-8 + 2^-40 would
become the bfloat16 1, because 1 + 2^-8 is halfway to the next bfloat16. Rounding to odd in between prevents that: the
last bit is set if any bits were lost.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from glenside.ir.blockwise import PART, block_size, in_blocks
from glenside.ir.dtypes import RECORDS, STORED, wider
from glenside.ir.operand import Array

_BELOW = 11
"""The bits of a 64-bit integer that exceed the precision of float64."""


def rounded(a: Array, dtype: str) -> Array:
    """Returns a new array of that dtype: floats to integers truncate towards zero, integers wrap.

    To floats it rounds to nearest, ties to even; beyond the largest it gives inf, or nan, or in float4_e2m1fn the
    largest.
    """
    with np.errstate(all="ignore"):
        if _rounds_twice(a.dtype, dtype):
            return in_blocks(lambda part: _odd(part).astype(dtype), a.shape, a, dtype=dtype)
        if _has_no_cast(a.dtype, dtype):
            wide = wider(a.dtype.name)
            return in_blocks(lambda part: part.astype(wide).astype(dtype), a.shape, a, dtype=dtype)
        return a.astype(dtype, order="C")


def rounding_scratch(dims: Sequence[int], given: np.dtype[Any], dtype: str) -> int:
    """Returns the bytes that `rounded` needs besides operand and result."""
    if _has_no_cast(given, dtype):
        return block_size(dims, PART) * (np.dtype(wider(given.name)).itemsize + 1)
    if not _rounds_twice(given, dtype):
        return 0
    wide = 0 if given.kind == "f" else 16  # as float64; floats need no conversion
    return block_size(dims, PART) * (wide + 17 + RECORDS[dtype].numpy.itemsize)


def _has_no_cast(given: np.dtype[Any], dtype: str) -> bool:
    """True if numpy can cast between two stored dtypes only through one of its own."""
    return given != dtype and dtype in STORED and given.name in STORED


def _rounds_twice(given: np.dtype[Any], dtype: str) -> bool:
    """True if a number may have more digits than float32, and is rounded to a narrower float."""
    record = RECORDS.get(dtype)
    narrow = record is not None and record.kind == "float" and record.wider == "float32"
    return narrow and given.kind in "iuf" and given.itemsize >= 4 and given != np.float32


def _odd(a: Array) -> Array:
    """Rounds to odd in float32: truncates towards zero and sets the last bit if anything was lost."""
    wide = np.asarray(a if a.dtype.kind == "f" else _odd_float64(a))
    near = wide.astype(np.float32)
    bits = near.view(np.uint32)
    inexact = (near != wide) & ~np.isnan(wide)
    bits -= inexact & (np.abs(near) > np.abs(wide))  # the neighbour nearer to zero
    bits |= inexact
    return near


def _odd_float64(a: Array) -> Array:
    """Rounds integers to odd in float64: of wider ones, the last kept bit is set if any lost bit was."""
    if a.dtype.itemsize < 8:
        return a.astype(np.float64)
    low = a & a.dtype.type((1 << _BELOW) - 1)
    large = np.abs(a.astype(np.float64)) >= 2.0**53
    kept = (a - low) | ((low != 0).astype(a.dtype) << a.dtype.type(_BELOW))
    return np.where(large, kept, a).astype(np.float64)
