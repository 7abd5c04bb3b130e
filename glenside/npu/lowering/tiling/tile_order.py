"""Orders the streaming of tiles: runs of rows that fit the accumulators, and the scratchpad rows that they read."""

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
    """Rows of a tile that stream one after another into accumulators of one group.

    group        its number
    tile         its number
    begin, end   its rows
    first, last  True if the run starts sums, and if it completes them
    """

    group: int
    tile: int
    begin: int
    end: int
    first: bool
    last: bool


class Rows:
    """The distinct rows of a layer, each stored in one scratchpad row.

    numbers  element numbers, (distinct rows)(R)
    of_tile  number of the distinct row of each row of a tile, (tiles)(m)
    """

    def __init__(self, layer: Layer) -> None:
        every = layer.product.rows.numbers
        tiles, m, width = every.shape
        flat = every.reshape(-1, width)
        hashed = _hashed(flat)
        _, first, which = placed((hashed >> np.uint64(len(flat).bit_length() + 2)).astype(np.int64))
        if not _are_equal(flat, first[which]):
            _, first, which = np.unique(hashed, return_index=True, return_inverse=True)
        if not _are_equal(flat, first[which]):  # two distinct rows with one hash
            _, first, which = np.unique(flat, axis=0, return_index=True, return_inverse=True)
        self.numbers: Array = flat[first]
        self.of_tile: Array = which.reshape(tiles, m)


def _are_equal(rows: Array, others: Array) -> bool:
    """True if each row of (n)(k) equals the row with the number in `others`, (n), mostly its own."""
    apart = np.flatnonzero(others != np.arange(len(others)))
    return np.array_equal(rows[apart], rows[others[apart]])


def _hashed(rows: Array) -> Array:
    """Returns a hash of each row, (n): sums of products, which wrap around."""
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

    Groups are strip-mined: as many rows as half of the scratchpad holds of all their tiles stream for each group, then
    the next rows. So a beat is loaded once for all groups, and rows that several tiles read are stored once. If the
    scratchpad holds so few rows of each tile that weight loads are exposed, a group streams as many rows as the
    accumulators hold instead: otherwise all of its weights would be loaded again for a few rows.

    depth   available rows of half of the scratchpad
    firsts  begin of these rows in each half
    whole   True if all rows of a group stream one after another instead
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
        """Yields all runs."""
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
        """Returns the distinct rows of a group's tiles, (tiles)(m)."""
        found: Array = self.rows.of_tile[list(self.layer.groups[number].tiles)]
        return found

    @property
    def _most(self) -> int:
        """Number of tiles for which the scratchpad holds enough rows to hide weight loads."""
        m = int(self.rows.of_tile.shape[1])
        rows = -(-m // max(1, m // self.machine.rows))  # the shortest part of all rows that hides weight loads
        return max(1, self.depth // max(1, rows))

    def _together(self) -> Iterator[list[int]]:
        """Yields groups that are strip-mined together: as many as allow enough rows of each to hide weight loads."""
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
    """Splits a range into the fewest parts of at most `most` rows, of nearly equal length, so that each hides weight
    loads.
    """
    count = -(-(end - begin) // most)
    ends = [begin + (end - begin) * part // count for part in range(count + 1)]
    yield from pairwise(ends)
