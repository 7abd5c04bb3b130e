"""How the weights of a tile come from DRAM: row by row, or, where most are zeros, the others alone, over columns.

Tiles of depthwise layers are bands and blocks of few values: a column takes each of its own from a beat that holds them
for all columns, one a cycle, and the zeros between them stay in weight memory from the tile before.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from glenside.ir.operand import Array
from glenside.npu.lowering.distinct import distinct
from glenside.npu.lowering.filling import Table
from glenside.npu.lowering.slots import Slots
from glenside.npu.machine import Machine


@dataclass(frozen=True)
class Spreading:
    """The values of a tile, in beats.

    rows   rows of the tile
    places where in the beats each value is: pairs of the number of a value's element in the tile and a byte, (n)(2)
    beats  how many there are
    steps  of each cycle the beat, and of each column the byte of it and the row
    zeros  which elements are zeros, as a key
    """

    rows: int
    places: Array
    beats: int
    steps: tuple[tuple[int, Table], ...]
    zeros: bytes


class Spreadings:
    """Those of tiles, known once where tiles are alike."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.known: dict[bytes, Spreading | None] = {}

    def of(self, numbers: Array) -> Spreading | None:
        """Of a tile's elements by number, (rows)(C), 0 being zeros; None where it is brought sooner row by row."""
        least = numbers[numbers > 0].min(initial=np.iinfo(numbers.dtype).max)
        alike = np.where(numbers > 0, numbers - least + 1, 0)
        key = len(numbers).to_bytes(4, "little") + alike.tobytes()
        if key not in self.known:
            self.known[key] = self._found(alike)
        return self.known[key]

    def of_all(self, tiles: Sequence[Array], order: Iterable[int] | None = None) -> list[Spreading | None]:
        """Of a layer's tiles, which come in that order: none where rows are brought sooner than lane tables that do not
        stay on chip.
        """
        found = [self.of(numbers) for numbers in tiles]
        steps = [() if own is None else own.steps for own in found]
        tables = {table for own in steps for _, table in own}
        most = self.machine.tables - self.machine.tables // _TABLES
        if len(tables) <= most:
            return found
        slots, beats, rows = Slots(most), 0, 0
        for tile in dict.fromkeys(range(len(tiles)) if order is None else order):
            new = sum(slots.any(table.key)[1] for _, table in steps[tile])
            beats += len(steps[tile]) + new * self.machine.table_beats
            rows += len(tiles[tile]) * self.machine.weight_beats if steps[tile] else 0
        return found if beats * _WORTH <= rows else [None] * len(found)

    def _found(self, alike: Array) -> Spreading | None:
        machine = self.machine
        row, column = np.nonzero(alike)
        values, value = np.unique(alike[row, column], return_inverse=True)
        if len(distinct(value * alike.shape[1] + column)) < len(value):
            return None  # a column takes a value twice
        step = _steps_by_rows(value, row, column, len(values))
        step = _steps(value, column, len(values), alike.shape[1]) if step is None else step
        count = int(step.max(initial=-1)) + 1
        slow = count * _WORTH > len(alike) * machine.weight_beats
        if slow or count > machine.tables // _TABLES or np.bincount(step, minlength=1).max() > machine.bandwidth:
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
        return Spreading(len(alike), pairs, beat + 1, tuple(steps), np.packbits(alike > 0).tobytes())


def _steps_by_rows(value: Array, row: Array, column: Array, values: int) -> Array | None:
    """The same by rows that are equally far apart: tiles that begin elsewhere in a band then have the same tables. None
    where a value is in rows of several of these, or a column twice in one.
    """
    count = int(np.bincount(column).max(initial=1))
    step = np.zeros(values, np.int64)
    step[value] = row % count
    if (step[value] != row % count).any() or len(distinct(step[value] * (1 + column.max(initial=0)) + column)) < len(
        row
    ):
        return None
    return step


def _steps(value: Array, column: Array, values: int, columns: int) -> Array:
    """A cycle for each value, in which all columns take it that have it: none takes two in one."""
    of_value: list[list[int]] = [[] for _ in range(values)]
    for each, place in zip(value.tolist(), column.tolist(), strict=True):
        of_value[each].append(place)
    taken, found = [0] * columns, np.zeros(values, np.int64)
    for each, places in enumerate(of_value):
        busy = 0
        for place in places:
            busy |= taken[place]
        free = ~busy & (busy + 1)  # the lowest bit that is not set
        found[each] = free.bit_length() - 1
        for place in places:
            taken[place] |= free
    return found


_WORTH = 2
"""How many times as long rows would take, at least."""
_TABLES = 4
"""What part of the lane tables a tile may use, and others have."""
