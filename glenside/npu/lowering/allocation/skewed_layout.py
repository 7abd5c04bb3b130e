"""Skewed (bank-interleaved) layouts: byte q of the scratchpad is in bank q mod R, row q div R.

A tensor is stored once; an element is stored at base + sum of stride * coordinate. The R bytes that the array reads at
once, or that a row of sums becomes, take one cycle if they are in distinct banks. Strides are chosen so that this holds
for all readers and writers (Budnik and Kuck, The organization and use of parallel memories, 1971). Windows and
transposes then cost nothing, and are never copied.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import permutations
from typing import Any

import numpy as np

from glenside.ir.operand import Array
from glenside.ir.term import Term
from glenside.ir.threads import concurrent_cached_property
from glenside.npu.lowering.allocation.conflict_free_strides import are_apart, distances, most_in_one
from glenside.npu.lowering.tiling.layer_tiles import Layer
from glenside.npu.lowering.util.fast_divmod import divided
from glenside.npu.lowering.util.fast_unique import distinct
from glenside.npu.machine.model import Machine

_SAMPLE_ROWS = 256
"""Number of rows of sums by which strides are chosen."""
_MAX_AXES = 4
"""Maximum number of axes for which all orders are tried."""
_MAX_CANDIDATES = 64
"""Number of strides for which the cycles of filling padding are counted."""
_BATCH = 512
"""Strides that are tested together."""


@dataclass(frozen=True, eq=False)
class Reads:
    """The reads of a tensor by the rows of a product: bank l of row r of a tile reads the element with coordinates
    rows[tile][r] + lanes[tile][l], or a zero outside of the tensor. Tiles of other tensors use none.

    rows    (tiles)(m)(axes)
    lanes   (tiles)(R)(axes)
    used    whether a lane reads at all, (tiles)(R)
    """

    layer: Layer
    dims: tuple[int, ...]
    rows: Array
    lanes: Array
    used: Array

    @staticmethod
    def of(layer: Layer, dims: Sequence[int], leaf: Term | None = None) -> Reads | None:
        """Returns the reads of a leaf of the layer's rows, by default the only leaf. None if banks have no constant
        distances, or a tile also reads other leaves.
        """
        key = Reads, tuple(dims), leaf
        if key not in layer.known:
            layer.known[key] = Reads._of(layer, dims, leaf)
        return layer.known[key]  # type: ignore[no-any-return]

    @staticmethod
    def _of(layer: Layer, dims: Sequence[int], leaf: Term | None) -> Reads | None:
        numbers = layer.product.rows.numbers
        if leaf is not None and len(layer.product.rows.first) > 1:
            first = layer.product.rows.first[leaf]
            own = (numbers >= first) & (numbers < first + leaf.access.size)
            if (own.any(axis=(1, 2)) & ((numbers > 0) & ~own).any(axis=(1, 2))).any():
                return None
            numbers = np.where(own, numbers - (first - 1), 0)
        there = numbers > 0
        dims = tuple(dims)
        # One number encodes all coordinates, with a range for their differences.
        wide = _wide(dims)
        most = int(4 * max(1, dims[0]) * wide[0]) if dims else 1
        every = np.zeros(1, np.int32 if most < 1 << 31 else np.int64)
        for size, stride in zip(dims, wide.astype(every.dtype), strict=True):
            every = (every[:, None] + np.arange(size, dtype=every.dtype) * stride).reshape(-1)
        at = np.append(every[:1], every).take(numbers)  # any value for zeros
        rows, lanes, used = _differences(at, there)
        for tile in range(len(at)):
            if ((rows[tile, :, None] + lanes[tile] != at[tile]) & there[tile]).any():
                return None
        return Reads(layer, dims, _coordinates(rows, dims), _coordinates(lanes, dims), used)

    @concurrent_cached_property
    def shapes(self) -> dict[Any, Any]:
        """Memoized strides, by the other readers and the writer."""
        return {}

    @concurrent_cached_property
    def zeros(self) -> Array:
        """Returns the coordinates of zeros that affect a sum, each once, (n)(axes)."""
        wide, found, numbers = _wide(self.dims), [np.zeros(0, np.int64)], self.layer.product.rows.numbers
        some = np.flatnonzero((self.used & (numbers.min(axis=1, initial=1) == 0)).any(axis=1))
        if len(some):
            counting, rows, lanes = _Counting(self.layer), self.rows[some] @ wide, self.lanes[some] @ wide
        for place, tile in enumerate(some.tolist()):
            counts = (numbers[tile] == 0) & self.used[tile] & ~self.nothing[tile, :, None] & counting.of(tile)
            row, lane = np.nonzero(counts)
            found.append(distinct(rows[place, row] + lanes[place, lane]))
        return _coordinates(distinct(np.concatenate(found)), self.dims)

    @property
    def has_zeros(self) -> bool:
        """True if zeros are read, of any byte value."""
        return bool(len(self.zeros) or self.nothing.any())

    @concurrent_cached_property
    def nothing(self) -> Array:
        """Flags of rows without elements, (tiles)(m): they have no coordinates, and read cells behind the tensor."""
        return np.asarray(self.layer.product.rows.numbers.max(axis=2, initial=0) == 0)

    @property
    def patterns(self) -> Iterator[Array]:
        """Yields the elements that a row reads at once, as coordinates, (lanes)(axes): each kind of row once."""
        known = set[bytes]()
        for tile, used in enumerate(self.used):
            own = self.lanes[tile][used]
            if not len(own):
                continue
            own = own - own.min(axis=0)
            if own.tobytes() not in known:
                known.add(own.tobytes())
                yield own

    @property
    def around(self) -> tuple[Array, Array]:
        """Returns the least and the greatest coordinates of elements and of zeros that affect a sum, (axes) each."""
        every = np.concatenate([np.zeros((1, len(self.dims)), int), [np.array(self.dims) - 1], self.zeros])
        return every.min(axis=0), every.max(axis=0)

    def places(self, strides: Array) -> tuple[Array, Array]:
        """Returns the cell of each row, (tiles)(m), and the distance of each bank's read from it, at least 0,
        (tiles)(R).
        """
        apart = np.where(self.used, self.lanes @ strides, np.iinfo(np.int64).max)
        least = apart.min(axis=1, keepdims=True)
        least = np.where(self.used.any(axis=1, keepdims=True), least, 0)
        first, apart = self.rows @ strides + least, np.where(self.used, apart - least, 0)
        if self.nothing.any():
            elements = int((np.array(self.dims) - 1) @ strides)
            behind = np.where(self.nothing, 0, first + apart.max(axis=1, keepdims=True)).max(initial=elements)
            first = np.where(self.nothing, behind + 1, first)
        return first, apart


def _wide(dims: Sequence[int]) -> Array:
    """Returns strides that encode coordinate differences from -2 * size to 2 * size uniquely."""
    found = np.ones(len(dims), np.int64)
    for axis in reversed(range(len(dims) - 1)):
        found[axis] = found[axis + 1] * 4 * max(1, dims[axis + 1])
    return found


def _coordinates(numbers: Array, dims: Sequence[int]) -> Array:
    """Decodes numbers to coordinate differences, (..)(axes)."""
    wide, found = _wide(dims), []
    begin = sum(2 * max(1, size) * int(stride) for size, stride in zip(dims, wide, strict=True))
    rest = numbers.astype(np.int64) + begin
    for size, stride in zip(dims, wide, strict=True):
        digit, rest = divided(rest, int(stride))
        found.append(digit - 2 * max(1, size))
    return np.stack(found, axis=-1)


def _differences(at: Array, there: Array) -> tuple[Array, Array, Array]:
    """Decomposes numbers (tiles)(m)(R), defined where `there` is True, into one number per row plus one per bank, if
    possible. Also returns which banks are used.
    """
    tiles, _, _ = at.shape
    every = np.arange(tiles)
    used = np.asarray(there.any(axis=1))
    first = np.count_nonzero(there, axis=2).argmax(axis=1)  # the fullest row
    rows, lanes = np.zeros(at.shape[:2], at.dtype), np.zeros((tiles, at.shape[2]), at.dtype)
    known, seen = there[every, first], np.zeros(at.shape[:2], bool)
    lanes[known] = at[every, first][known]
    seen[every, first] = True
    while True:
        all_known = not (used & ~known).any()  # mostly true after the first row
        by = there if all_known else there & known[:, None, :]
        lane = by.argmax(axis=2)
        fresh = np.take_along_axis(by, lane[:, :, None], 2)[:, :, 0] & ~seen
        found = np.take_along_axis(at, lane[:, :, None], 2)[:, :, 0] - np.take_along_axis(lanes, lane, 1)
        rows[fresh], seen = found[fresh], seen | fresh
        if all_known:
            return rows, lanes, used
        of = there & seen[:, :, None]
        more = of.any(axis=1) & ~known
        if not more.any():
            return rows, lanes, used
        row = of.argmax(axis=1)
        own = np.take_along_axis(at, row[:, None, :], 1)[:, 0] - np.take_along_axis(rows, row, 1)
        lanes[more], known = own[more], known | more


class _Counting:
    """Finds the bank reads that contribute to a sum which is an element."""

    def __init__(self, layer: Layer) -> None:
        self.layer = layer
        self.wanted = layer.wanted()
        self.alike = (self.wanted == self.wanted[:, :1]).all(axis=(1, 2))  # all rows of a group, as is usual
        weights = layer.product.weights.numbers
        group = np.zeros(len(weights), int)
        for number, each in enumerate(layer.groups):
            group[list(each.tiles)] = number
        self.any = ((weights > 0) & self.wanted[group, 0][:, None, :]).any(
            axis=2
        )  # for rows with the same wanted columns
        self.kinds: dict[int, tuple[Array, Array]] = {}
        self.group = {tile: number for number, each in enumerate(layer.groups) for tile in each.tiles}

    def of(self, tile: int) -> Array:
        """Returns the flags of a tile, (m)(R), or (1)(R) if all rows are equal."""
        group = self.group.get(tile, 0)
        if self.alike[group]:
            return np.asarray(self.any[tile : tile + 1])
        kinds, which = self._kinds(group)
        weights = (self.layer.product.weights.numbers[tile] > 0).astype(np.float32)
        found: Array = (kinds @ weights.T > 0)[which]
        return found

    def _kinds(self, group: int) -> tuple[Array, Array]:
        """Returns the distinct sets of wanted columns in a group, and the number of the set of each row."""
        if group not in self.kinds:
            every = np.packbits(self.wanted[group], axis=1)
            every = every.view(f"S{every.shape[1]}").reshape(-1)  # numpy finds these ten times as fast
            _, first, which = np.unique(every, return_index=True, return_inverse=True)
            self.kinds[group] = self.wanted[group][first].astype(np.float32), which.reshape(-1)
        return self.kinds[group]


@dataclass(frozen=True, eq=False)
class Writes:
    """The writes of a tensor: coordinates of the elements in one accumulator row, (columns)(axes) for each kind of row,
    and the number of rows per kind.
    """

    patterns: Sequence[Array]
    times: float

    @staticmethod
    def of(layer: Layer, dims: Sequence[int]) -> Writes:
        key = Writes, tuple(dims)
        if key not in layer.known:
            layer.known[key] = Writes._of(layer, dims)
        return layer.known[key]  # type: ignore[no-any-return]

    @staticmethod
    def _of(layer: Layer, dims: Sequence[int]) -> Writes:
        line, column = (own.reshape(-1) for own in layer.lines())
        there, count = layer.elements.reshape(-1) > 0, len(layer.groups) * layer.product.rows.numbers.shape[1]
        chosen, seen = np.zeros((2, count), bool)
        seen[line if there.all() else line[there]] = True
        lines = np.flatnonzero(seen)
        chosen[lines[distinct(np.linspace(0, len(lines) - 1, _SAMPLE_ROWS).astype(int))]] = True
        own = np.flatnonzero(chosen.take(line) & there)
        own = own[np.lexsort((column[own], line[own]))]
        coordinates = np.stack(np.unravel_index(own, tuple(dims)), axis=-1)
        patterns = dict[bytes, Array]()
        for each in np.split(coordinates, np.flatnonzero(np.diff(line[own])) + 1):
            each = each - each[0]
            patterns.setdefault(each.tobytes(), each)
        return Writes([*patterns.values()], len(lines) / max(1, len(patterns)))


@dataclass(frozen=True)
class Skew:
    """Strides of a tensor's axes in scratchpad bytes.

    size   cells from the first to the last element, gaps included
    extra  cycles of stores beyond one for each row of sums
    """

    strides: Array
    size: int
    extra: float


def skewed(dims: Sequence[int], reads: Sequence[Reads], writes: Writes | None, machine: Machine) -> Skew | None:
    """Returns the strides with the fewest store cycles, then the fewest cells, for which every row reads distinct
    banks. None if none of the strides tried does.
    """
    every = every_skew(dims, reads, writes, machine)
    return min(every, key=lambda own: (own.extra, own.size), default=None)


def every_skew(dims: Sequence[int], reads: Sequence[Reads], writes: Writes | None, machine: Machine) -> Sequence[Skew]:
    """Returns the best strides for each order of axes, memoized with the first reader."""
    known: dict[Any, Sequence[Skew]] = reads[0].shapes if reads else {}
    key = tuple(dims), (*reads,), writes, machine.rows
    if key not in known:
        known[key] = [*skews(dims, reads, writes, machine)]
    return known[key]


def skews(dims: Sequence[int], reads: Sequence[Reads], writes: Writes | None, machine: Machine) -> Iterator[Skew]:
    """Yields the best strides for each order of axes."""
    around = [own.around for own in reads]
    low = np.minimum.reduce([np.zeros(len(dims), int), *(own for own, _ in around)])
    high = np.maximum.reduce([np.array(dims) - 1, *(own for _, own in around)])
    # A gap serves both sides: the cells before a line are behind the line before it.
    extents = np.array(dims) + np.maximum(-low, high - (np.array(dims) - 1))
    axes = [axis for axis in range(len(dims)) if extents[axis] > 1]
    if len(axes) > _MAX_AXES:
        return
    apart = distances([own for each in reads for own in each.patterns], len(dims))
    zeros = np.concatenate([np.zeros((0, len(dims)), np.int64), *(own.zeros for own in reads)])
    fewest = np.max([np.zeros(len(dims), int), *(_fewest(own.zeros, low, high, extents) for own in reads)], axis=0)
    for order in permutations(axes):
        few = -(-int(fewest[order[-1]]) // machine.rows) if order else 0
        found = _padded(np.array(dims), extents, order, apart, (zeros, few), writes, machine.rows)
        if found is not None:
            yield found


def _fewest(zeros: Array, low: Array, high: Array, extents: Array) -> Array:
    """Returns for each axis, as the outermost one, a lower bound on the distinct cells of zeros for any strides,
    (axes). Counted are zeros within the extents of a tensor along the other axes, from the lowest coordinates or up to
    the highest.
    """
    sides = []
    for outside in (zeros >= low + extents, zeros <= high - extents):
        along = np.count_nonzero(outside, axis=1)
        sides.append(np.count_nonzero(along[:, None] == outside, axis=0))
    found: Array = np.maximum(*sides)
    return found


def _padded(
    dims: Array,
    extents: Array,
    order: Sequence[int],
    apart: Array,
    zeros: tuple[Array, int],
    writes: Writes | None,
    lanes: int,
) -> Skew | None:
    """Returns the best strides for this order of axes, innermost first; the second and the third axis are padded by
    less than a row. `zeros` are the zeros to fill, and a lower bound on those in one bank.
    """
    every = np.arange(lanes)
    strides = np.zeros((lanes, lanes, len(dims)), np.int64)
    stride = np.ones((lanes, lanes), np.int64)
    for place, axis in enumerate(order):
        if place in (1, 2):
            pads = every[:, None] if place == 1 else every[None, :]
            stride = stride + pads
        strides[:, :, axis] = stride
        stride = stride * extents[axis]
    last = order[-1] if order else 0
    sizes = stride - strides[:, :, last] * (extents[last] - dims[last])
    if len(order) < 3:
        strides, sizes = strides[:, :1], sizes[:, :1]
    if len(order) < 2:
        strides, sizes = strides[:1], sizes[:1]
    found = _near(strides.reshape(-1, len(dims)), sizes.reshape(-1), apart, writes, lanes)
    if found is None:
        return None
    tried, cells, extra = found
    few = np.lexsort((cells, extra))[:_MAX_CANDIDATES]
    best, least = few[0], float("inf")
    filled, fewest = zeros
    for own in few.tolist():
        # Later candidates have no fewer cells.
        if extra[own] > extra[few[0]] or cells[own] / lanes + fewest >= least:
            break
        taken = cells[own] / lanes + _filled(filled @ tried[own], lanes)
        if taken < least:
            best, least = own, taken
    return Skew(tried[best], int(cells[best]), float(extra[best]))


def _near(
    strides: Array, sizes: Array, apart: Array, writes: Writes | None, lanes: int
) -> tuple[Array, Array, Array] | None:
    """Returns strides that put elements at distances `apart` into distinct banks, sorted by size; their sizes; and
    their store cycles beyond one per row of sums. Stops after _MAX_CANDIDATES strides without extra cycles, since no
    later one is better. None if there are none.
    """
    some, found = are_apart(apart, strides, lanes), list[tuple[Array, Array, Array]]()
    some = some[np.argsort(sizes[some], kind="stable")]
    none = 0
    for begin in range(0, len(some), _BATCH):
        part = some[begin : begin + _BATCH]
        tried, extra = strides[part], np.zeros(len(part))
        for own in writes.patterns if writes is not None else ():
            passes = -(-len(own) // lanes)
            extra += (most_in_one(own, tried, lanes) - passes) * (writes.times if writes is not None else 0)
        found.append((tried, sizes[part], extra))
        none += int((extra == 0).sum())
        if none >= _MAX_CANDIDATES:
            break
    if not found:
        return None
    tried, cells, extra = (np.concatenate(own) for own in zip(*found, strict=True))
    return tried, cells, extra


def _filled(cells: Array, lanes: int) -> int:
    """Returns a lower bound on the cycles of filling cells, (n): the most cells in one bank."""
    return int(np.bincount(distinct(cells) % lanes).max(initial=0))
