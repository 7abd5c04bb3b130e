"""Numbers each once, and in order: by the places of a table where there is one for few numbers that are not there, else
by sorting values, which takes far less than hashing, or than sorting places.
"""

from __future__ import annotations

import numpy as np

from glenside.ir.operand import Array

_BITS = 62
_BYTES = 32
"""How many bytes a table has for each number, at most: to go through it takes less than to sort."""
_RUN = 4
"""How many numbers are in order before one is less, where it takes less to put such runs together than to sort."""
_FEW = 64
"""Numbers that are sorted as soon as it is known how far apart they are."""


def distinct(numbers: Array) -> Array:
    """Each of them once, in order, (n)."""
    if numbers.size > _FEW:
        least = int(numbers.min())
        if (size := int(numbers.max()) - least + 1) <= _BYTES * numbers.size:
            seen = np.zeros(size, bool)
            seen[np.subtract(numbers, least, dtype=np.intp)] = True
            return (np.flatnonzero(seen) + least).astype(numbers.dtype, copy=False)
    found = np.sort(numbers, axis=None)
    kept: Array = found[np.append(True, found[1:] != found[:-1])] if len(found) else found
    return kept


def ordered(numbers: Array) -> Array:
    """The places of integers in order, (n), of equal ones as they come. Runs that are in order are put together; of
    others a number and its place are sorted as one.
    """
    falls = int(np.count_nonzero(numbers[1:] < numbers[:-1]))
    if not falls:
        return np.arange(len(numbers))
    if falls * _RUN < len(numbers):
        return np.argsort(numbers, kind="stable")
    least = int(numbers.min())
    size, bits = int(numbers.max()) - least + 1, len(numbers).bit_length()
    if len(numbers) > _FEW and 4 * size <= _BYTES * len(numbers):
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
    """Each of them once, in order; where each of these is first; and which of these every one is, (n)."""
    order = ordered(numbers)
    own = numbers[order]
    fresh = np.append(True, own[1:] != own[:-1])[: len(own)]
    which = np.empty(len(own), np.intp)
    which[order] = np.cumsum(fresh) - 1
    return own[fresh], order[fresh], which
