"""Converts address sequences to nested loops, as an address generator counts them, and back."""

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
"""Maximum trip count of a loop."""


@dataclass(frozen=True)
class Nest:
    """The address loops of one instruction: trip counts, and the base and strides of each address sequence."""

    counts: Counts
    bases: tuple[int, ...]
    strides: tuple[tuple[int, int, int], ...]

    def address(self, which: int, times: int = 1) -> Address:
        """Returns sequence `which` as an address, with base and strides multiplied by `times`."""
        first, second, third = self.strides[which]
        return Address(self.bases[which] * times, (first * times, second * times, third * times))

    def moved(self, by: tuple[int, ...]) -> Nest:
        """Returns the nest with `by[i]` added to the base of sequence i."""
        return Nest(self.counts, tuple(map(add, self.bases, by)), self.strides)

    def addresses(self, which: int = 0) -> Integers:
        """Returns the addresses of sequence `which`, (n), in iteration order."""
        return generated(self.address(which), self.counts)


def addresses_of(every: Sequence[Nest], which: int = 0) -> Integers:
    """Returns the addresses of sequence `which` of all nests, concatenated, (n)."""
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
    """Splits q parallel address sequences, (n)(q), into nests: greedily, the longest prefix first."""
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
    """Returns bases, counts and strides of sequences that begin at 0, given as bytes.

    Memoized: most sequences of a layer occur again at another base.
    """
    bases = np.frombuffer(content, np.int64).reshape(-1, width)
    shapes = np.zeros((len(bases), 0), np.int64)
    # Equal blocks at a constant stride become one loop around the block, once per loop level.
    for _ in range(LOOPS):
        bases, shapes = _looped(bases, shapes)
    found = list[_Loops]()
    for base, shape in zip(bases.tolist(), shapes.tolist(), strict=True):
        strides = tuple(tuple(shape[1 + which :: 1 + width]) for which in range(width))
        found.append((tuple(base), tuple(shape[:: 1 + width]), strides))  # type: ignore[arg-type]
    return found


def _looped(bases: Array, shapes: Array) -> tuple[Array, Array]:
    """Merges each run of equal blocks with a constant stride into one block with one more loop."""
    count, width = bases.shape
    if count == 1:
        return bases, np.concatenate([shapes, [[1, *[0] * width]]], axis=1)
    steps = np.diff(bases, axis=0)
    alike = _alike(shapes)
    same = np.zeros(count, bool)  # True if the step after block i equals the step before it
    same[1 : count - 1] = alike[1:] & alike[:-1] & _alike(steps)
    ends = np.append(np.flatnonzero(~same), count).tolist()  # possible last blocks of a run
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
    """Returns (n - 1) flags, True if row i of (n)(k) equals row i + 1. Compares column by column: k is small."""
    found = np.ones(max(0, len(blocks) - 1), bool)
    for column in blocks.T:
        found &= column[1:] == column[:-1]
    return found
