"""Sequences of addresses as nested loops: what an address generator counts through."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from glenside.ir.operand import Array
from glenside.npu.addresses import Integers, generated
from glenside.npu.fields import LOOPS, Address, Counts

_MOST = (1 << 16) - 1
"""How often a loop runs, at most."""


@dataclass(frozen=True)
class Nest:
    """Addresses that one instruction counts through: of each sequence the first, and the strides of the loops."""

    counts: Counts
    bases: tuple[int, ...]
    strides: tuple[tuple[int, int, int], ...]

    def address(self, which: int, times: int = 1) -> Address:
        """Of one of the sequences, in units of so many."""
        first, second, third = self.strides[which]
        return Address(self.bases[which] * times, (first * times, second * times, third * times))

    def addresses(self, which: int = 0) -> Integers:
        """Those of one of the sequences, (n), in order."""
        return generated(self.address(which), self.counts)


def addresses_of(every: Sequence[Nest], which: int = 0) -> Integers:
    """One of the sequences of nests, one nest after the other, (n)."""
    counts = np.array([own.counts for own in every], np.int64).reshape(-1, LOOPS)
    strides = np.array([own.strides[which] for own in every], np.int64).reshape(-1, LOOPS)
    found = np.array([own.bases[which] for own in every], np.int64)
    for loop in reversed(range(LOOPS)):
        sizes = counts[:, loop]
        ends = np.cumsum(sizes)
        at = np.arange(int(sizes.sum())) - np.repeat(ends - sizes, sizes)
        found = np.repeat(found, sizes) + at * np.repeat(strides[:, loop], sizes)
        counts, strides = (np.repeat(own, sizes, axis=0) for own in (counts, strides)) if loop else (counts, strides)
    return found


def nests(addresses: Array) -> list[Nest]:
    """Sequences side by side, (n)(q), cut into as few nests as are found by taking the longest from the front on."""
    count, width = addresses.shape
    if not count:
        return []
    # Blocks that are alike and a constant apart become a loop around them, three times.
    bases, shapes = addresses.astype(np.int64), np.zeros((count, 0), np.int64)
    for _ in range(LOOPS):
        bases, shapes = _looped(bases, shapes)
    found = []
    for base, shape in zip(bases.tolist(), shapes.tolist(), strict=True):
        loops = [shape[at : at + 1 + width] for at in range(0, len(shape), 1 + width)]
        counts = tuple(loop[0] for loop in loops)
        strides = tuple(tuple(loop[1 + which] for loop in loops) for which in range(width))
        found.append(Nest(counts, tuple(base), strides))  # type: ignore[arg-type]
    return found


def _looped(bases: Array, shapes: Array) -> tuple[Array, Array]:
    """Runs of blocks of one shape whose bases are a constant apart, as one block each."""
    count, width = bases.shape
    steps = np.diff(bases, axis=0)
    alike = (shapes[1:] == shapes[:-1]).all(axis=1)
    same = np.zeros(count, bool)  # whether the step after block i goes on like the one before it
    same[1 : count - 1] = alike[1:] & alike[:-1] & (steps[1:] == steps[:-1]).all(axis=1)
    ends = np.append(np.flatnonzero(~same), count)  # where a run that goes on may end
    made_bases, made_shapes, at = [], [], 0
    while at < count:
        if at + 1 < count and alike[at]:
            after = int(ends[np.searchsorted(ends, at + 1)])
            size, step = min(after - at + 1, count - at, _MOST), steps[at]
        else:
            size, step = 1, np.zeros(width, np.int64)
        made_bases.append(bases[at])
        made_shapes.append([*shapes[at], size, *step])
        at += size
    return np.array(made_bases), np.array(made_shapes)
