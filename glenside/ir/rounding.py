"""Numbers as those of another dtype, rounded once.

numpy casts a wide number to a narrow float of `ml_dtypes` by way of float32, and rounds twice: 1 + 2^-8 + 2^-40 would
become the bfloat16 1, to which 1 + 2^-8 alone is as near as to the next one. Rounding to odd on the way keeps what is
between two numbers between them: the last bit is set where anything is left over.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from glenside.ir.blockwise import PART, block_size, in_blocks
from glenside.ir.dtypes import RECORDS, STORED, wider
from glenside.ir.operand import Array

_BELOW = 11
"""The bits of a 64-bit integer that float64 has no place for."""


def rounded(a: Array, dtype: str) -> Array:
    """A new array of that dtype: floats are cut towards zero in integers, which wrap; to floats, the nearest, halves to
    the even one, and beyond the largest inf, or what there is in its place: nan, or in float4_e2m1fn the largest.
    """
    with np.errstate(all="ignore"):
        if _rounds_twice(a.dtype, dtype):
            return in_blocks(lambda part: _odd(part).astype(dtype), a.shape, a, dtype=dtype)
        if _has_no_cast(a.dtype, dtype):
            wide = wider(a.dtype.name)
            return in_blocks(lambda part: part.astype(wide).astype(dtype), a.shape, a, dtype=dtype)
        return a.astype(dtype, order="C")


def rounding_scratch(dims: Sequence[int], given: np.dtype[Any], dtype: str) -> int:
    """Bytes that `rounded` needs beside operand and result."""
    if _has_no_cast(given, dtype):
        return block_size(dims, PART) * (np.dtype(wider(given.name)).itemsize + 1)
    if not _rounds_twice(given, dtype):
        return 0
    wide = 0 if given.kind == "f" else 16  # as float64, which floats are
    return block_size(dims, PART) * (wide + 17 + RECORDS[dtype].numpy.itemsize)


def _has_no_cast(given: np.dtype[Any], dtype: str) -> bool:
    """Whether numpy casts between two dtypes that are not its own only by way of one that is."""
    return given != dtype and dtype in STORED and given.name in STORED


def _rounds_twice(given: np.dtype[Any], dtype: str) -> bool:
    """Whether a number may have more digits than float32, of which a narrower float is made."""
    record = RECORDS.get(dtype)
    narrow = record is not None and record.kind == "float" and record.wider == "float32"
    return narrow and given.kind in "iuf" and given.itemsize >= 4 and given != np.float32


def _odd(a: Array) -> Array:
    """Numbers as float32, cut towards zero, with the last bit set where something was cut off."""
    wide = np.asarray(a if a.dtype.kind == "f" else _odd_float64(a))
    near = wide.astype(np.float32)
    bits = near.view(np.uint32)
    inexact = (near != wide) & ~np.isnan(wide)
    bits -= inexact & (np.abs(near) > np.abs(wide))  # the number next to it that is nearer to zero
    bits |= inexact
    return near


def _odd_float64(a: Array) -> Array:
    """Integers as float64: where they have more bits than that, the last one that is kept says if any was lost."""
    if a.dtype.itemsize < 8:
        return a.astype(np.float64)
    low = a & a.dtype.type((1 << _BELOW) - 1)
    large = np.abs(a.astype(np.float64)) >= 2.0**53
    kept = (a - low) | ((low != 0).astype(a.dtype) << a.dtype.type(_BELOW))
    return np.where(large, kept, a).astype(np.float64)
