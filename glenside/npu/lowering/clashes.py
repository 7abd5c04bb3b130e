"""In which lanes the elements of a pattern are: whether these are distinct, and how many elements one lane has."""

from __future__ import annotations

import numpy as np

from glenside.ir.operand import Array

_FEW = 8
"""Elements by which strides are refused, before all are looked at."""


def lanes_of(pattern: Array, strides: Array, lanes: int) -> Array:
    """In which lane each of a pattern's elements is, for each of the strides, (n)(elements)."""
    if lanes & (lanes - 1) == 0 and lanes <= 1 << 8:  # bytes wrap around where lanes do
        by, coordinates = strides.astype(np.uint8), pattern.astype(np.uint8)
        own = np.zeros((len(strides), len(pattern)), np.uint8)
        for axis in np.flatnonzero(coordinates.any(axis=0)).tolist():
            own += by[:, axis, None] * coordinates[:, axis]
        return own & (lanes - 1)
    at = (strides % lanes).astype(np.float32) @ (pattern % lanes).astype(np.float32).T  # exact
    found: Array = at.astype(np.int32) % lanes
    return found.astype(np.int16)


def are_apart(pattern: Array, strides: Array, lanes: int) -> Array:
    """Whether a pattern's elements are in distinct lanes, for each of the strides, (n)."""
    found = np.zeros(len(strides), bool)
    if len(pattern) <= lanes:
        few = np.flatnonzero(_distinct(lanes_of(pattern[:_FEW], strides, lanes), lanes))  # most are none by these
        found[few] = _distinct(lanes_of(pattern, strides[few], lanes), lanes)
    return found


def _distinct(at: Array, lanes: int) -> Array:
    """Whether lanes side by side, (n)(k), are distinct, (n): a bit for each lane, where there are few."""
    if lanes <= _WORD:
        bits = np.bitwise_or.reduce(_BIT_OF[at], axis=1)
        return np.asarray(np.bitwise_count(bits) == at.shape[1])
    own = np.sort(at, axis=1)
    return np.asarray((own[:, 1:] != own[:, :-1]).all(axis=1))


_WORD = 64
_BIT_OF = np.uint64(1) << np.arange(_WORD, dtype=np.uint64)


def most_in_one(pattern: Array, strides: Array, lanes: int) -> Array:
    """How many of a pattern's elements are in one lane at most, for each of the strides, (n)."""
    at = lanes_of(pattern, strides, lanes)  # (n)(elements)
    most = np.ones(len(at), int)
    several = np.flatnonzero(~_distinct(at, lanes))
    of_lane = (at[several].astype(np.int64) + lanes * np.arange(len(several))[:, None]).reshape(-1)
    most[several] = np.bincount(of_lane, minlength=lanes * len(several)).reshape(-1, lanes).max(axis=1)
    return most
