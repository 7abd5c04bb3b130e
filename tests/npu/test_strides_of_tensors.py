"""Compares the strides of resident tensors with those found by trying them one by one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import permutations, product
from typing import Any, cast

import numpy as np
import pytest

from glenside.ir.operand import Array
from glenside.npu.lowering.allocation.skewed_layout import Writes, skews
from glenside.npu.machine.model import Machine


@dataclass
class _Lanes:
    """Of a machine, what is asked of it."""

    rows: int


@dataclass
class Some:
    """What is asked of those who read a tensor."""

    dims: tuple[int, ...]
    patterns: list[Array]
    zeros: Array

    @property
    def around(self) -> tuple[Array, Array]:
        every = np.concatenate([np.zeros((1, len(self.dims)), int), [np.array(self.dims) - 1], self.zeros])
        return every.min(axis=0), every.max(axis=0)


def one_by_one(
    dims: tuple[int, ...], reads: list[Some], writes: Writes | None, lanes: int
) -> Iterator[tuple[list[int], int, float]]:
    """Of each order of axes the strides, their size, and cycles of stores."""
    ends = [[*own.around[0].tolist(), *own.around[1].tolist()] for own in reads]
    before = [max([0, *(-own[axis] for own in ends)]) for axis in range(len(dims))]
    behind = [max([0, *(own[len(dims) + axis] - dims[axis] + 1 for own in ends)]) for axis in range(len(dims))]
    extents = [size + max(gaps) for size, *gaps in zip(dims, before, behind, strict=True)]
    zeros = [own for each in reads for own in each.zeros.tolist()]
    for order in permutations(axis for axis, size in enumerate(extents) if size > 1):
        tried = []
        for pads in product(*(range(lanes) for _ in order[1:3])):
            strides, stride = [0] * len(dims), 1
            for place, axis in enumerate(order):
                stride += pads[place - 1] if place in (1, 2) else 0
                strides[axis] = stride
                stride *= extents[axis]
            last = order[-1] if order else 0
            size = stride - strides[last] * (extents[last] - dims[last])

            def in_lanes(pattern: Array, strides: list[int] = strides) -> int:
                return max(Counter(int(np.dot(own, strides)) % lanes for own in pattern).values())

            if all(in_lanes(own) == 1 for each in reads for own in each.patterns):
                every = [] if writes is None else writes.patterns
                cycles = sum(in_lanes(own) - -(-len(own) // lanes) for own in every)
                cells = {int(np.dot(own, strides)) for own in zeros}
                filled = max(Counter(cell % lanes for cell in cells).values(), default=0)
                tried.append((cycles * (0 if writes is None else writes.times), size, filled, strides))
        best = sorted(own for own in tried if own[0] == min(tried)[0])
        if best:
            best.sort(key=lambda own: own[1])  # those of one size are in the order of their pads
            extra, size, _, found = min(best, key=lambda own: own[1] / lanes + own[2])
            yield found, size, extra


def pattern(rng: np.random.Generator, dims: tuple[int, ...], most: int) -> Array:
    """Some elements, from the least coordinates on."""
    every = rng.permutation([*product(*(range(min(3, size)) for size in dims))])
    found = every[: rng.integers(1, most + 1)].reshape(-1, len(dims))
    return np.asarray(found - found.min(axis=0))


@pytest.mark.parametrize("seed", range(60))
def test_the_best_strides_are_found(seed: int) -> None:
    rng = np.random.default_rng(seed)
    lanes, dims = int(rng.choice([2, 4, 6, 8])), tuple(rng.integers(1, 6, size=rng.integers(1, 4)).tolist())
    reads = []
    for _ in range(rng.integers(1, 3)):
        patterns = [pattern(rng, dims, lanes // 2) for _ in range(rng.integers(1, 4))]
        gaps = [rng.integers(0, 2, size=2) for _ in dims]
        wide = product(*(range(-low, size + high) for (low, high), size in zip(gaps, dims, strict=True)))
        outside = [at for at in wide if any(not 0 <= i < size for i, size in zip(at, dims, strict=True))]
        zeros = np.array(outside, np.int64).reshape(-1, len(dims))
        reads.append(Some(dims, patterns, zeros[rng.random(len(zeros)) < 0.8]))
    writes = None
    if dims and rng.random() < 0.6:
        writes = Writes([pattern(rng, dims, 9) for _ in range(2)], 2.5)
    machine = cast(Machine, _Lanes(lanes))
    found = skews(dims, cast(Any, reads), writes, machine)
    own = [(skew.strides.tolist(), skew.size, skew.extra) for skew in found]
    assert own == [*one_by_one(dims, reads, writes, lanes)]
