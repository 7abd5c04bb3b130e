"""Sequences of addresses as nested loops: what an address generator counts through."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from operator import add

import numpy as np

from glenside.ir.operand import Array
from glenside.npu.isa.address_generators import Integers, generated
from glenside.npu.isa.fields import LOOPS, Address, Counts

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

    def moved(self, by: tuple[int, ...]) -> Nest:
        """The same, each of the sequences so much further."""
        return Nest(self.counts, tuple(map(add, self.bases, by)), self.strides)

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
    if not len(addresses):
        return []
    first = addresses[0].tolist()
    found = []
    for base, counts, strides in _steps_as_nests((addresses - addresses[0]).astype(np.int64).tobytes(), len(first)):
        found.append(Nest(counts, tuple(map(add, first, base)), strides))
    return found


_Loops = tuple[tuple[int, ...], Counts, tuple[tuple[int, int, int], ...]]


@lru_cache(maxsize=1 << 11)
def _steps_as_nests(content: bytes, width: int) -> Sequence[_Loops]:
    """Bases, counts and strides of sequences that begin at 0, as bytes: those of layers are mostly ones seen before,
    elsewhere.
    """
    bases = np.frombuffer(content, np.int64).reshape(-1, width)
    shapes = np.zeros((len(bases), 0), np.int64)
    # Blocks that are alike and a constant apart become a loop around them, three times.
    for _ in range(LOOPS):
        bases, shapes = _looped(bases, shapes)
    found = list[_Loops]()
    for base, shape in zip(bases.tolist(), shapes.tolist(), strict=True):
        strides = tuple(tuple(shape[1 + which :: 1 + width]) for which in range(width))
        found.append((tuple(base), tuple(shape[:: 1 + width]), strides))  # type: ignore[arg-type]
    return found


def _looped(bases: Array, shapes: Array) -> tuple[Array, Array]:
    """Runs of blocks of one shape whose bases are a constant apart, as one block each."""
    count, width = bases.shape
    if count == 1:
        return bases, np.concatenate([shapes, [[1, *[0] * width]]], axis=1)
    steps = np.diff(bases, axis=0)
    alike = _alike(shapes)
    same = np.zeros(count, bool)  # whether the step after block i goes on like the one before it
    same[1 : count - 1] = alike[1:] & alike[:-1] & _alike(steps)
    ends = np.append(np.flatnonzero(~same), count).tolist()  # where a run that goes on may end
    begins, sizes = list[int](), list[int]()
    at = end = 0
    while at < count:
        size = 1
        if at + 1 < count and alike[at]:
            while ends[end] <= at:
                end += 1
            size = min(ends[end] - at + 1, count - at, _MOST)
        begins.append(at)
        sizes.append(size)
        at += size
    first, many = np.array(begins), np.array(sizes)
    apart, several = np.zeros((len(first), width), np.int64), many > 1
    apart[several] = steps[first[several]]
    return bases[first], np.concatenate([shapes[first], many[:, None], apart], axis=1)


def _alike(blocks: Array) -> Array:
    """Of each but the last of (n)(k) whether the next is equal; column by column, as there are few of these."""
    found = np.ones(max(0, len(blocks) - 1), bool)
    for column in blocks.T:
        found &= column[1:] == column[:-1]
    return found
