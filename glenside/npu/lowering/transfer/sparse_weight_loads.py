"""Loads weight tiles by dense rows, or by sparse loads if most weights are zeros.

Tiles of depthwise layers are bands and blocks of few values. A sparse load lets each column take its values from a beat
with the values of all columns, one a cycle; the zeros between them remain in weight memory from the tile before.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from hashlib import blake2b

import numpy as np

from glenside.ir.operand import Array
from glenside.npu.lowering.allocation.slot_allocator import Slots
from glenside.npu.lowering.tiling.layer_tiles import Layer
from glenside.npu.lowering.transfer.permutation_table_transfers import Table
from glenside.npu.lowering.util.fast_unique import distinct
from glenside.npu.machine.model import Machine

_BATCH = 64
"""Tiles that are analysed together."""


@dataclass(frozen=True)
class Spreading:
    """The sparse load of a tile.

    rows    rows of the tile
    places  pairs of the number of a value's element in the tile and its byte in the beats, (n)(2)
    beats   number of beats
    steps   for each cycle the beat, and the table with each column's byte and row
    zeros   hash of each column's pattern of zeros; 0 for a zero column, (C)
    """

    rows: int
    places: Array
    beats: int
    steps: tuple[tuple[int, Table], ...]
    zeros: Array


@dataclass(frozen=True, eq=False)
class Remains:
    """The zeros of a slot of weight memory after sparse loads: its rows, and the pattern of nonzeros of each column, 0
    for none, (C).
    """

    rows: int
    patterns: Array
    _known: dict[int, tuple[object, bool]] = field(default_factory=dict, repr=False)

    def takes(self, spread: Spreading, rows: int, used: Array | None, whom: object) -> bool:
        """True if the slot has the zeros of a tile with that many rows and these used columns.

        Memoized by the tile `whom`.
        """
        if id(whom) not in self._known:
            apart = (self.patterns != 0) & (self.patterns != spread.zeros)
            found = rows <= self.rows and not (apart if used is None else apart & used).any()
            self._known[id(whom)] = whom, found  # kept alive, so that its id is not reused
        return self._known[id(whom)][1]


class WeightZeros:
    """The zeros and the permutation tables that earlier sparse loads left in each slot of weight memory."""

    def __init__(self, slots: Slots) -> None:
        self.slots = slots
        self.tables: dict[int, dict[Table, None]] = {}
        self._equal: dict[tuple[int, bytes], Remains] = {}

    def of(self, slot: int) -> Remains | None:
        """Returns the zeros of a slot; None if they are not known."""
        kind = self.slots.kinds.get(slot)
        return kind if isinstance(kind, Remains) else None

    def forget(self, slot: int) -> None:
        """Records dense rows in a slot."""
        self.tables.pop(slot, None)
        self.slots.mark(slot, None)

    def erase(self, slot: int, rows: int, columns: int) -> None:
        """Records zeros in a slot."""
        self.tables[slot] = {}
        self._mark(slot, rows, np.zeros(columns, np.int64))

    def spread(self, slot: int, spread: Spreading) -> None:
        """Records a sparse load into a slot."""
        there = self.of(slot)
        assert there is not None, "a slot is erased before its first sparse load"
        self.tables[slot] |= dict.fromkeys(table for _, table in spread.steps)
        self._mark(slot, there.rows, np.where(spread.zeros, spread.zeros, there.patterns))

    def _mark(self, slot: int, rows: int, patterns: Array) -> None:
        """Sets the zeros of a slot; slots with equal zeros share a record."""
        self.slots.mark(slot, self._equal.setdefault((rows, patterns.tobytes()), Remains(rows, patterns)))


@lru_cache(maxsize=1)
def spreadings(machine: Machine) -> Spreadings:
    """Returns the sparse loads of a machine; those of the last machine are kept."""
    return Spreadings(machine)


class Spreadings:
    """The sparse loads of tiles, memoized for equal tiles."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.known: dict[bytes, Spreading | None] = {}

    def of(self, numbers: Array) -> Spreading | None:
        """Returns the sparse load of a tile of element numbers, (rows)(C); None if rows are loaded faster."""
        return self._of_alike(numbers[None])[0]

    def _of_alike(self, tiles: Array) -> list[Spreading | None]:
        """Returns the sparse loads of tiles with equal row counts, (tiles)(rows)(C)."""
        unsigned = np.dtype(f"u{tiles.dtype.itemsize}")
        least = (
            (tiles - 1).view(unsigned).min(axis=(1, 2), initial=np.iinfo(tiles.dtype).max)
        )  # zeros wrap to the largest
        alike = np.maximum(tiles - least.astype(tiles.dtype)[:, None, None], 0)
        short = np.all(alike <= np.iinfo(np.uint16).max, axis=(1, 2)).tolist()  # fewer bytes to hash
        return [
            self._once(own, own.astype(np.uint16 if few else np.int64)) for own, few in zip(alike, short, strict=True)
        ]

    def _once(self, alike: Array, content: Array) -> Spreading | None:
        key = len(alike).to_bytes(4, "little") + content.tobytes()
        if key not in self.known:
            self.known[key] = self._found(alike)
        return self.known[key]

    def of_all(self, layer: Layer, order: Iterable[int] | None = None) -> list[Spreading | None]:
        """Returns the sparse load of each tile of a layer, in that order: none if rows are loaded faster than
        permutation tables that do not stay loaded.
        """
        key = Spreadings, self.machine
        if key not in layer.known:
            layer.known[key] = self._every(layer)
        found: list[Spreading | None] = layer.known[key]
        steps = [() if own is None else own.steps for own in found]
        tables = {table for own in steps for _, table in own}
        most = self.machine.tables - self.machine.tables // _TABLE_SHARE
        if len(tables) <= most:
            return found
        order = range(len(found)) if order is None else order
        rows = sum(len(own) * self.machine.weight_beats for own, by in zip(layer.weights, steps, strict=True) if by)
        return found if self.beats(found, order) * _MIN_GAIN <= rows else [None] * len(found)

    def _every(self, layer: Layer) -> list[Spreading | None]:
        """Returns the sparse load of each tile; early exit for tiles with too many values in a column."""
        numbers, rows = layer.product.weights.numbers, np.array(layer.loaded)
        found: list[Spreading | None] = [None] * len(numbers)
        for count in distinct(rows).tolist():
            tiles = np.flatnonzero(rows == count)
            own = numbers[:, :count] if len(tiles) == len(numbers) else numbers[tiles, :count]
            most = np.count_nonzero(own, axis=1).max(axis=1)
            may = np.flatnonzero(most * _MIN_GAIN <= count * self.machine.weight_beats)
            for begin in range(0, len(may), _BATCH):
                some = may[begin : begin + _BATCH]
                for tile, spread in zip(tiles[some].tolist(), self._of_alike(own[some]), strict=True):
                    found[tile] = spread
        return found

    def beats(self, spreads: Sequence[Spreading | None], order: Iterable[int]) -> int:
        """Returns the beats of sparse loads in this order, including permutation tables; half of the table slots keep
        their contents.
        """
        slots, found = Slots(max(1, self.machine.tables // 2)), 0
        for tile in dict.fromkeys(order):
            own = spreads[tile]
            steps = () if own is None else own.steps
            new = sum(slots.any(table.key)[1] for _, table in steps)
            found += len(steps) + new * self.machine.table_beats
        return found

    def _worth(self, steps: int, tile: Array) -> bool:
        """True if a sparse load of `steps` steps pays for a tile, (rows)(C)."""
        return (
            steps * _MIN_GAIN <= len(tile) * self.machine.weight_beats and steps <= self.machine.tables // _TABLE_SHARE
        )

    def _found(self, alike: Array) -> Spreading | None:
        machine = self.machine
        row, column = np.nonzero(alike)
        values, value = np.unique(alike[row, column], return_inverse=True)
        if len(distinct(value * alike.shape[1] + column)) < len(value):
            return None  # a column uses a value twice
        if not self._worth(max(int(np.bincount(column).max(initial=0)), -(-len(values) // machine.bandwidth)), alike):
            return None  # a column takes one value a cycle, and a beat has a limited number
        ways = _steps_by_rows(value, row, column, len(values)), _steps(value, column, len(values), machine)
        fits = [own for own in ways if own is not None and np.bincount(own, minlength=1).max() <= machine.bandwidth]
        step = min(fits, key=lambda own: own.max(initial=-1))  # the first of the shortest ones
        count = int(step.max(initial=-1)) + 1
        if not self._worth(count, alike):
            return None
        at = np.zeros(len(values), np.int64)
        steps, beat, used = list[tuple[int, Table]](), 0, 0
        for number in range(count):
            own = np.flatnonzero(step == number)
            if used + len(own) > machine.bandwidth:
                beat, used = beat + 1, 0
            at[own] = beat * machine.bandwidth + used + np.arange(len(own))
            used += len(own)
            taken = np.flatnonzero(step[value] == number)
            entries = np.stack([column[taken], at[value[taken]] % machine.bandwidth, row[taken]], axis=1).tolist()
            steps.append((beat, Table(tuple(sorted((c, byte, r) for c, byte, r in entries)))))
        _, first = np.unique(value, return_index=True)
        pairs = np.stack([row[first] * alike.shape[1] + column[first], at], axis=1)
        return Spreading(len(alike), pairs, beat + 1, tuple(steps), _patterns(alike > 0))


def _patterns(there: Array) -> Array:
    """Returns a hash of each column, (C), equal for equal columns of (rows)(C), 0 for a zero column. It is the same in
    every process, unlike Python's hash of bytes.
    """
    packed = np.packbits(there, axis=0)
    return np.array([_number(own.tobytes()) if own.any() else 0 for own in packed.T], np.int64)


def _number(content: bytes) -> int:
    """Returns a digest of 63 bits that is not 0."""
    return int.from_bytes(blake2b(content, digest_size=8).digest(), "little") >> 1 or 1


def _steps_by_rows(value: Array, row: Array, column: Array, values: int) -> Array | None:
    """Returns the step of each value by rows at a constant distance, so that tiles elsewhere in a band have the same
    tables. None if a value is in several steps, or a column twice in one.
    """
    count = int(np.bincount(column).max(initial=1))
    step = np.zeros(values, np.int64)
    step[value] = row % count
    if (step[value] != row % count).any() or len(distinct(step[value] * (1 + column.max(initial=0)) + column)) < len(
        row
    ):
        return None
    return step


def _steps(value: Array, column: Array, values: int, machine: Machine) -> Array:
    """Assigns each value the cycle in which all of its columns take it. No column takes two values in one cycle, and no
    cycle has more values than a beat.
    """
    of_value: list[list[int]] = [[] for _ in range(values)]
    for each, place in zip(value.tolist(), column.tolist(), strict=True):
        of_value[each].append(place)
    taken, found = [0] * machine.columns, np.zeros(values, np.int64)
    full, count = 0, defaultdict[int, int](int)
    for each, places in enumerate(of_value):
        busy = full
        for place in places:
            busy |= taken[place]
        free = ~busy & (busy + 1)  # the lowest bit that is not set
        found[each] = free.bit_length() - 1
        count[free] += 1
        full |= free if count[free] == machine.bandwidth else 0
        for place in places:
            taken[place] |= free
    return found


_MIN_GAIN = 2
"""Minimum ratio of the beats of dense rows to those of a sparse load."""
_TABLE_SHARE = 4
"""A tile may use 1/4 of the permutation tables; sparse loads leave 1/4 of them free."""
