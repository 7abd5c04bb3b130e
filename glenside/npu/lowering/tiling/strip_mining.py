"""Strip-mines chains of layers: only a part of a tensor that does not fit the scratchpad is resident at a time.

The last layer's result is cut along one axis. The part of each layer that a strip needs follows backwards: the rows of
sums with the needed elements, and the elements that these rows read. Elements that two strips read are computed twice.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from glenside.ir.operand import Array
from glenside.ir.threads import concurrent_cached_property
from glenside.npu.lowering.tiling.layer_tiles import Layer
from glenside.npu.lowering.tiling.tile_order import Run, parts
from glenside.npu.machine.model import HALVES, Machine

_MIN_ROWS = 16
"""Least number of rows of a run, for which separate instructions pay."""


@dataclass(frozen=True, eq=False)
class Part:
    """The part of a layer that a strip needs: flags of the streaming rows of each group, (groups)(m), and the numbers
    of the kept elements, (n).
    """

    layer: Layer
    rows: Array
    elements: Array

    @concurrent_cached_property
    def reads(self) -> Array:
        """Numbers of the elements of the streamed tensor that the part reads, (n)."""
        numbers, first = self.layer.product.rows.numbers, self.layer.product.rows.first
        seen = np.zeros(1 + sum(leaf.access.size for leaf in first), bool)
        seen[numbers[self.streaming()].astype(np.intp)] = True  # half the time of int32
        return np.flatnonzero(seen[1:])

    def streaming(self) -> Array:
        """Returns flags of the streaming rows of each tile, (tiles)(m)."""
        return _streaming(self.layer, self.rows)

    def ranges(self) -> Iterator[tuple[int, int, int]]:
        """Yields the contiguous ranges of streaming rows: group, begin, end."""
        yield from zip(*(own.tolist() for own in self._ranges), strict=True)

    @concurrent_cached_property
    def _ranges(self) -> tuple[Array, Array, Array]:
        return _ranges(self.rows)

    def cycles(self, machine: Machine) -> int:
        """Returns the array cycles; a range of few rows takes at least the cycles of loading the next weights."""
        return _cycles(self.layer, self._ranges, machine)


def _streaming(layer: Layer, rows: Array) -> Array:
    """Returns flags of the streaming rows of each tile, (tiles)(m), from those of each group, (groups)(m)."""
    found = np.zeros(layer.product.rows.numbers.shape[:2], bool)
    for group, own in zip(layer.groups, rows, strict=True):
        found[list(group.tiles)] = own
    return found


def _ranges(rows: Array) -> tuple[Array, Array, Array]:
    """Returns the contiguous ranges of flagged rows, (groups)(m): group, begin and end of each."""
    group, edges = np.nonzero(np.diff(rows.astype(np.int8), prepend=0, append=0, axis=1))
    return group[::2], edges[::2], edges[1::2]


def _cycles(layer: Layer, ranges: tuple[Array, Array, Array], machine: Machine) -> int:
    group, begin, end = ranges
    tiles = np.array([len(own.tiles) for own in layer.groups])
    return int((np.maximum(end - begin, machine.rows) * tiles[group]).sum())


def runs_of(layer: Layer, ranges: Iterator[tuple[int, int, int]], machine: Machine) -> Iterator[Run]:
    """Yields runs range by range, with as many rows as half of the accumulators holds; with fewer if no tiles are added
    up: results are then stored while others arrive, and soon after the last row.
    """
    alone = all(len(group.tiles) == 1 for group in layer.groups)
    few = max(_MIN_ROWS, (machine.rows + machine.columns) // HALVES)
    most = max(1, min(machine.half_accumulators // HALVES, few) if alone else machine.half_accumulators)
    for number, low, high in ranges:
        group = layer.groups[number]
        for begin, end in parts(low, high, most):
            for place, tile in enumerate(group.tiles):
                yield Run(number, tile, begin, end, place == 0, place == len(group.tiles) - 1)


def whole(layer: Layer) -> Iterator[tuple[int, int, int]]:
    """Yields all rows of all groups as ranges."""
    m = layer.product.rows.numbers.shape[1]
    yield from ((number, 0, m) for number in range(len(layer.groups)))


def side_by_side(layer: Layer, machine: Machine) -> Iterator[Run]:
    """Yields all rows of as many groups as half of the accumulators holds: the first tile of each, then the second of
    each. Their sparse weight loads are mostly equal.
    """
    m = layer.product.rows.numbers.shape[1]
    most = machine.half_accumulators // m
    for turn, begin in enumerate(range(0, len(layer.groups), most)):
        own = [*enumerate(layer.groups)][begin : begin + most]
        for place in range(max(len(group.tiles) for _, group in own)):
            for number, group in own:
                if place < len(group.tiles):
                    tiles = group.tiles[::-1] if turn % 2 else group.tiles  # the last tables are still loaded
                    yield Run(number, tiles[place], 0, m, place == 0, place == len(tiles) - 1)


def strips(layers: Sequence[Layer], dims: Sequence[int], axis: int, count: int) -> list[list[Part]]:
    """Returns the parts of all layers for each strip; `dims` are those of the last result."""
    every = np.arange(int(np.prod(dims))).reshape(-1, dims[axis], int(np.prod(dims[axis + 1 :])))
    lines = [layer.lines()[0].reshape(-1) for layer in layers]
    found = []
    for low, high in _ends(dims[axis], count):
        wanted, own = every[:, low:high].reshape(-1), list[Part]()
        for layer, line in zip(reversed(layers), reversed(lines), strict=True):
            m = layer.product.rows.numbers.shape[1]
            rows = np.zeros(len(layer.groups) * m, bool)
            rows[line.take(wanted)] = True
            own.insert(0, Part(layer, rows.reshape(-1, m), wanted))
            if len(own) < len(layers):
                wanted = own[0].reads
        found.append(own)
    return found


class Pair:
    """A layer and the only reader of its result. The rows of sums that each row of the reader needs are computed once
    for all ways to cut the result.
    """

    def __init__(self, made: Layer, read: Layer, machine: Machine) -> None:
        self.made, self.read, self.machine = made, read, machine
        self.m = made.product.rows.numbers.shape[1]
        self.none = len(made.groups) * self.m
        line = np.append(self.none, made.lines()[0].reshape(-1)).astype(np.int32)
        self.lines = line.take(read.product.rows.numbers)  # row of the sum that each bank reads, (tiles)(m)(R)

    def cycles(self, axis: int, count: int) -> int:
        """Returns the array cycles if both layers are strip-mined in `count` strips along an axis
        of the second result.
        """
        dims, total = self.read.elements.shape, 0
        lines = self.read.lines()[0].reshape(-1, dims[axis], int(np.prod(dims[axis + 1 :])))
        for low, high in _ends(dims[axis], count):
            rows = np.zeros((len(self.read.groups), self.read.product.rows.numbers.shape[1]), bool)
            rows.reshape(-1)[lines[:, low:high].reshape(-1)] = True
            before = np.zeros(self.none + 1, bool)
            before[self.lines[_streaming(self.read, rows)].astype(np.intp)] = True
            for layer, own in ((self.read, rows), (self.made, before[:-1].reshape(-1, self.m))):
                total += _cycles(layer, _ranges(own), self.machine)
        return total


def _ends(size: int, count: int) -> Iterator[tuple[int, int]]:
    """Yields the begin and end of each strip."""
    yield from pairwise([size * number // count for number in range(count + 1)])
