"""Numbers each once, and in order: by sorting values, which takes far less than hashing, or than sorting places."""

from __future__ import annotations

import numpy as np

from glenside.ir.operand import Array

_BITS = 62


def distinct(numbers: Array) -> Array:
    """Each of them once, in order, (n)."""
    found = np.sort(numbers, axis=None)
    kept: Array = found[np.append(True, found[1:] != found[:-1])] if len(found) else found
    return kept


def ordered(numbers: Array) -> Array:
    """The places of integers in order, (n), of equal ones as they come: a number and its place are sorted as one."""
    if len(numbers) < 2 or (numbers[1:] >= numbers[:-1]).all():
        return np.arange(len(numbers))
    least, bits = int(numbers.min()), len(numbers).bit_length()
    if (int(numbers.max()) - least).bit_length() + bits > _BITS:
        return np.argsort(numbers, kind="stable")
    every = ((numbers.astype(np.int64) - least) << bits) | np.arange(len(numbers))
    every.sort()
    found: Array = every & ((1 << bits) - 1)
    return found


def placed(numbers: Array) -> tuple[Array, Array, Array]:
    """Each of them once, in order; where each of these is first; and which of these every one is, (n)."""
    order = ordered(numbers)
    own = numbers[order]
    fresh = np.append(True, own[1:] != own[:-1])[: len(own)]
    which = np.empty(len(own), np.intp)
    which[order] = np.cumsum(fresh) - 1
    return own[fresh], order[fresh], which
