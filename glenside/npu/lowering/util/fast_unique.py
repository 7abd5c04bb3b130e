"""Sorts and deduplicates integers: with a lookup table if their range is small, else by sorting values.

Both are much faster than hashing, or than sorting indices.
"""

from __future__ import annotations

import numpy as np

from glenside.ir.operand import Array

_BITS = 62
_TABLE_BYTES_PER_NUMBER = 32
"""Maximum table size per number; scanning a larger table is slower than sorting."""
_MIN_RUN = 4
"""Average length of ascending runs from which on merging them is faster than sorting."""
_MAX_SORTED_DIRECTLY = 64
"""Number of integers up to which sorting is fastest."""


def distinct(numbers: Array) -> Array:
    """Returns the distinct numbers in ascending order, (n)."""
    if numbers.size > _MAX_SORTED_DIRECTLY:
        least = int(numbers.min())
        if (size := int(numbers.max()) - least + 1) <= _TABLE_BYTES_PER_NUMBER * numbers.size:
            seen = np.zeros(size, bool)
            seen[np.subtract(numbers, least, dtype=np.intp)] = True
            return (np.flatnonzero(seen) + least).astype(numbers.dtype, copy=False)
    found = np.sort(numbers, axis=None)
    kept: Array = found[np.append(True, found[1:] != found[:-1])] if len(found) else found
    return kept


def ordered(numbers: Array) -> Array:
    """Returns the indices that sort integers stably, (n). Long ascending runs are merged; otherwise each number is
    sorted together with its index as one integer.
    """
    falls = int(np.count_nonzero(numbers[1:] < numbers[:-1]))
    if not falls:
        return np.arange(len(numbers))
    if falls * _MIN_RUN < len(numbers):
        return np.argsort(numbers, kind="stable")
    least = int(numbers.min())
    size, bits = int(numbers.max()) - least + 1, len(numbers).bit_length()
    if len(numbers) > _MAX_SORTED_DIRECTLY and 4 * size <= _TABLE_BYTES_PER_NUMBER * len(numbers):
        table = np.full(size, -1, np.int32)
        table[np.subtract(numbers, least, dtype=np.intp)] = np.arange(len(numbers))
        if len(found := table[table >= 0]) == len(numbers):  # no two are equal
            return found.astype(np.intp)
    if size.bit_length() + bits > _BITS:
        return np.argsort(numbers, kind="stable")
    every = ((numbers.astype(np.int64) - least) << bits) | np.arange(len(numbers))
    every.sort()
    found = every & ((1 << bits) - 1)
    return found


def placed(numbers: Array) -> tuple[Array, Array, Array]:
    """Returns the distinct numbers in order, the index of the first of each, and the number's
    position among them, (n).
    """
    order = ordered(numbers)
    own = numbers[order]
    fresh = np.append(True, own[1:] != own[:-1])[: len(own)]
    which = np.empty(len(own), np.intp)
    which[order] = np.cumsum(fresh) - 1
    return own[fresh], order[fresh], which
