"""Bank-conflict tests of access patterns: distinct banks of elements, and the most elements of one bank."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from glenside.ir.operand import Array
from glenside.npu.lowering.util.fast_divmod import divided
from glenside.npu.lowering.util.fast_unique import distinct

_FIRST_DISTANCES = 16
"""Distances by which most strides are rejected, before all distances are tested."""


def lanes_of(pattern: Array, strides: Array, lanes: int) -> Array:
    """Returns the bank of each element of a pattern, for each of the strides, (n)(elements)."""
    if lanes & (lanes - 1) == 0 and lanes <= 1 << 8:  # bytes wrap around where lanes do
        by, coordinates = strides.astype(np.uint8), pattern.astype(np.uint8, order="F")
        own = np.zeros((len(strides), len(pattern)), np.uint8)
        for axis in np.flatnonzero(coordinates.any(axis=0)).tolist():
            own += by[:, axis, None] * coordinates[:, axis]
        return own & (lanes - 1)
    at = (strides % lanes).astype(np.float32) @ (pattern % lanes).astype(np.float32).T  # exact in float32
    found: Array = at.astype(np.int32) % lanes
    return found.astype(np.int16)


def distances(patterns: Sequence[Array], axes: int) -> Array:
    """Returns the distances between any two elements of a pattern, (n)(axes): each once up to sign, shortest first."""
    most = [max(int(own[:, axis].max(initial=0)) for own in patterns) if patterns else 0 for axis in range(axes)]
    wide = np.cumprod([1, *(2 * size + 1 for size in reversed(most))])[:-1][::-1]  # one number for all coordinates
    every = [np.zeros(0, np.int64)]
    for own in patterns:
        numbers = np.sort(own @ wide)
        first, second = np.triu_indices(len(numbers), 1)
        every.append(distinct(numbers[second] - numbers[first]))
    rest, found = distinct(np.concatenate(every)) + int(np.dot(wide, most)), []
    for size, stride in zip(most, wide.tolist(), strict=True):
        digit, rest = divided(rest, stride)
        found.append(digit - size)
    apart = np.stack(found, axis=1) if axes else np.zeros((len(rest), 0), np.int64)
    return apart[np.argsort(np.abs(apart).sum(axis=1), kind="stable")]


def are_apart(apart: Array, strides: Array, lanes: int) -> Array:
    """Returns the numbers of the strides, (n), with which elements at these distances, (k)(axes), are in distinct
    banks.
    """
    few = np.flatnonzero(_are_apart(apart[:_FIRST_DISTANCES], strides, lanes))  # these reject most strides
    return few[_are_apart(apart[_FIRST_DISTANCES:], strides[few], lanes)]


def _are_apart(apart: Array, strides: Array, lanes: int) -> Array:
    """Returns a flag for each of the strides, (n): True if such elements are in distinct banks."""
    return np.asarray(lanes_of(strides, apart, lanes).min(axis=0, initial=1) > 0)


def _distinct(at: Array, lanes: int) -> Array:
    """Returns (n) flags, True if the banks of a row of (n)(k) are distinct: by a bit mask, if there are few banks."""
    if lanes <= _WORD:
        bits = np.bitwise_or.reduce(_BIT_OF[at], axis=1)
        return np.asarray(np.bitwise_count(bits) == at.shape[1])
    own = np.sort(at, axis=1)
    return np.asarray((own[:, 1:] != own[:, :-1]).all(axis=1))


_WORD = 64
_BIT_OF = np.uint64(1) << np.arange(_WORD, dtype=np.uint64)


def most_in_one(pattern: Array, strides: Array, lanes: int) -> Array:
    """Returns the most elements of a pattern in one bank, for each of the strides, (n)."""
    at = lanes_of(pattern, strides, lanes)  # (n)(elements)
    most = np.ones(len(at), int)
    several = np.flatnonzero(~_distinct(at, lanes))
    of_lane = (at[several].astype(np.int64) + lanes * np.arange(len(several))[:, None]).reshape(-1)
    most[several] = np.bincount(of_lane, minlength=lanes * len(several)).reshape(-1, lanes).max(axis=1)
    return most
