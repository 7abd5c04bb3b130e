"""The order in which tiles stream: runs of rows that fit the accumulators, and the rows of lanes that they read."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from glenside.ir.operand import Array
from glenside.ir.threads import concurrent_cached_property
from glenside.npu.lowering.tiling.layer_tiles import Group, Layer
from glenside.npu.lowering.util.fast_unique import placed
from glenside.npu.machine.model import Machine


@dataclass(frozen=True)
class Run:
    """Rows of a tile that stream one after the other into accumulators of one group.

    group        which one, by number
    tile         which tile, by number
    begin, end   its rows
    first, last  whether sums begin, and are complete
    """

    group: int
    tile: int
    begin: int
    end: int
    first: bool
    last: bool


class Rows:
    """The distinct rows of a layer: what a row of lanes holds.

    numbers  of elements, (distinct rows)(R)
    of_tile  which of them each row of a tile is, (tiles)(m)
    """

    def __init__(self, layer: Layer) -> None:
        every = layer.product.rows.numbers
        tiles, m, width = every.shape
        flat = every.reshape(-1, width)
        hashed = _hashed(flat)
        _, first, which = placed((hashed >> np.uint64(len(flat).bit_length() + 2)).astype(np.int64))
        if not _are_equal(flat, first[which]):
            _, first, which = np.unique(hashed, return_index=True, return_inverse=True)
        if not _are_equal(flat, first[which]):  # two of one number
            _, first, which = np.unique(flat, axis=0, return_index=True, return_inverse=True)
        self.numbers: Array = flat[first]
        self.of_tile: Array = which.reshape(tiles, m)


def _are_equal(rows: Array, others: Array) -> bool:
    """True if each row of (n)(k) equals the row with the number in `others`, (n), mostly its own."""
    apart = np.flatnonzero(others != np.arange(len(others)))
    return np.array_equal(rows[apart], rows[others[apart]])


def _hashed(rows: Array) -> Array:
    """A number for each row, (n), that few others have: sums of products, which wrap around."""
    words = np.ascontiguousarray(rows)
    if words.dtype.itemsize * words.shape[1] % _WORD == 0:
        words = words.view(np.uint64)
    by = np.random.default_rng(0).integers(0, 1 << 63, words.shape[1], np.uint64) * 2 + 1
    found: Array = np.einsum("ij,j->i", words.astype(np.uint64, copy=False), by)
    return found


_WORD = 8


@dataclass(frozen=True)
class Order:
    """A layer's runs, in order.

    Groups stream strip by strip: as many rows as half of the lanes hold of all their tiles, for each group, then the
    next rows. So a beat is read for all of them, and what several tiles read is there once. A group of so many tiles
    that lanes hold fewer rows of each than it takes to load weights streams as many rows as the accumulators hold
    instead: else all of its weights would be brought and loaded again for a few rows.

    depth   rows of half of the lanes that there are for them
    firsts  where these begin in each half
    whole   whether all rows of a group stream one after the other instead
    """

    layer: Layer
    machine: Machine
    depth: int
    firsts: tuple[int, int]
    whole: bool = False

    @concurrent_cached_property
    def rows(self) -> Rows:
        return Rows(self.layer)

    def runs(self) -> Iterator[Run]:
        """All of them."""
        m = int(self.rows.of_tile.shape[1])
        if self.whole:
            for number in range(len(self.layer.groups)):
                yield from self._of_group(number, 0, m)
            return
        for groups in self._together():
            depth = len({tile.tobytes() for number in groups for tile in self._tiles(number)})
            most = m if depth > self._most else max(1, self.depth // depth)
            for begin, end in parts(0, m, most):
                for number in groups:
                    yield from self._of_group(number, begin, end)

    def _tiles(self, number: int) -> Array:
        """The rows of a group's tiles, (tiles)(m)."""
        found: Array = self.rows.of_tile[list(self.layer.groups[number].tiles)]
        return found

    @property
    def _most(self) -> int:
        """Tiles of which lanes hold so many rows that weights load unseen."""
        m = int(self.rows.of_tile.shape[1])
        rows = -(-m // max(1, m // self.machine.rows))  # the shortest part of all rows that no weights wait for
        return max(1, self.depth // max(1, rows))

    def _together(self) -> Iterator[list[int]]:
        """Groups that stream strip by strip: all for which lanes hold as many rows as make weights load unseen."""
        groups, held = list[int](), set[bytes]()
        for number in range(len(self.layer.groups)):
            own = {tile.tobytes() for tile in self._tiles(number)}
            if groups and len(held | own) > self._most:
                yield groups
                groups, held = [], set()
            groups.append(number)
            held |= own
        yield groups

    def _of_group(self, number: int, begin: int, end: int) -> Iterator[Run]:
        group: Group = self.layer.groups[number]
        for first, after in parts(begin, end, min(self.machine.half_accumulators, self.depth)):
            for place, tile in enumerate(group.tiles):
                yield Run(number, tile, first, after, place == 0, place == len(group.tiles) - 1)


def parts(begin: int, end: int, most: int) -> Iterator[tuple[int, int]]:
    """As few parts as there are of at most so many, none much shorter than the others: weights load in the meantime."""
    count = -(-(end - begin) // most)
    ends = [begin + (end - begin) * part // count for part in range(count + 1)]
    yield from pairwise(ends)
