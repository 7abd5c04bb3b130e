"""Emits results as bytes: requantizes sums into scratchpad rows, and stores beats to DRAM.

In between a byte has a bank and a row. A store writes a row of sums to distinct banks; a beat takes one byte of each
bank a cycle. So the bytes of a beat should be in distinct banks, too: each row of sums is rotated by a number of banks
that achieves this. It is an edge colouring: banks colour the edges between rows of sums and beats.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import pairwise

import numpy as np

from glenside.ir.errors import BadInput
from glenside.ir.operand import Array
from glenside.npu.isa.address_loops import Nest, nests
from glenside.npu.isa.base import Store
from glenside.npu.lowering.allocation.requantization_parameters import as_seen, distinct_parameters, ends_of, rows_of
from glenside.npu.lowering.emission.emit_columns import write_columns
from glenside.npu.lowering.emission.emit_layer import Writer
from glenside.npu.lowering.tiling.layer_tiles import Layer
from glenside.npu.lowering.tiling.tile_order import Run
from glenside.npu.lowering.transfer.permutation_table_transfers import Table, modulo, unwrapped
from glenside.npu.lowering.util.fast_divmod import divided
from glenside.npu.lowering.util.fast_unique import distinct, ordered, placed
from glenside.npu.lowering.util.identity_memo import Memo
from glenside.npu.machine.model import HALVES, Machine
from glenside.npu.program import requantization
from glenside.quantization.layers import Normalised


@dataclass(frozen=True)
class Bytes:
    """The int8 results of a layer: the parameters of each element, (dims), and pairs (n) of elements and DRAM
    addresses; an element may have several. `elements` is None for all elements in order.
    """

    parameters: Array
    elements: Array | None
    addresses: Array
    table: Array | None = None
    normalised: Normalised | None = None


def rows_needed(machine: Machine) -> int:
    """Returns the rows of each scratchpad half through which bytes pass.

    Twice the rows of half of the accumulators, since DMA empties one part while the other is filled; at most a quarter
    of the scratchpad rows. Raises BadInput if the scratchpad is too small.
    """
    passes = -(-machine.columns // machine.rows)
    found = _SIDES * max(1, min(machine.half_accumulators * passes, machine.half_depth // (4 * _SIDES)))
    if found >= machine.half_depth:
        needed, have = HALVES * (found + 1) * machine.rows, machine.depth * machine.rows
        raise BadInput(
            f"scratchpad of {machine} has {have:,} bytes beside {machine.weight_bytes:,} of weights; results that"
            f" pass through {found} rows of each half need {needed:,}: {needed - have:,} are missing"
        )
    return found


_SIDES = 2
_MAX_EARLY_SHARE = 32
"""Parameters of a run are loaded early if they are at most 1/32 of all parameter rows."""


class BytesOut:
    """A layer's results as bytes. The part of a row of sums that is stored in one cycle is an item. Items pass through
    the first rows of the lower scratchpad half, and the last rows of the upper one.

    Raises BadInput: lanes are too few, or a sum is needed twice.
    """

    def __init__(self, writer: Writer, layer: Layer, result: Bytes, again: Memo | None = None) -> None:
        self.writer, self.layer, self.machine = writer, layer, writer.machine
        self.m = layer.product.rows.numbers.shape[1]
        self.lanes = rows_needed(self.machine)
        self.depth, self.side = self.lanes // _SIDES, 0
        self.table, self.normalised = result.table, result.normalised
        self.again = again = again or Memo()
        entries, entry = again.once(partial(distinct_parameters, result.parameters), "alike", result.parameters)
        entry, numbers = again.once(partial(as_seen, entry), "seen", entry)
        find, shape = partial(_Items.of, layer, entry, self.machine), str(entry.shape).encode()
        own = self.own = again.once(find, "items", layer, shape, entry.tobytes())
        find_rows, by = partial(_Rows.of, own, numbers, self.machine), b"" if own.differ else numbers.tobytes()
        rows = again.once(find_rows, "rows", own, by)
        self.item, self.column, self.passes, self.items = own.item, own.column, own.passes, own.items
        self.alike, self.content = rows.alike, rows.content
        self.contents = rows.contents(entries[numbers] if own.differ else entries, entries["scale"][:1])
        if result.elements is None:
            self.owner, by_owner = again.once(partial(_owners, own.place), "owners", own)
        else:
            self.owner, by_owner = _owners(own.place[result.elements])
        self.address = result.addresses[by_owner]
        self.turns: dict[bytes, Array] = {}

    @property
    def whole(self) -> bool:
        """True if items are normalized, which needs all of their rows."""
        return self.normalised is not None

    def begin(self) -> None:
        pass

    def expect(self, run: Run) -> None:
        """Emits early loads of a run's parameter rows, if they are few."""
        begin = (run.group * self.m + run.begin) * self.passes
        first, last = np.searchsorted(self.items, (begin, begin + (run.end - run.begin) * self.passes))
        rows = distinct(self.content[first:last])
        if len(rows) * _MAX_EARLY_SHARE <= self.machine.parameters:
            for row in rows.tolist():
                self.writer.parameter_row(self.contents[row])

    def parameter_rows(self, items: Array) -> Array:
        """Returns the row of parameters of each item, (items), loaded if necessary."""
        content = self.content[items]
        new = np.append(True, content[1:] != content[:-1])[: len(content)]  # most are equal to the one before
        begins = np.flatnonzero(new)
        rows = [self.writer.parameter_row(self.contents[own]) for own in content[begins].tolist()]
        return np.repeat(np.array(rows, np.int64), np.diff(np.append(begins, len(content))))

    def normalise(self, done: Sequence[tuple[Run, int]]) -> None:
        """Emits the normalization of sums, if the layer has one."""
        if self.normalised is not None:
            write_columns(self.writer, self.normalised, done)

    def send(self, done: Sequence[tuple[Run, int]], half: int) -> None:
        self.normalise(done)
        for batch in self._batches(done):
            if len(batch.items):
                self.side = (self.side + 1) % _SIDES
                self._send(batch, half * (self.machine.depth - self.lanes) + self.side * self.depth)

    def _send(self, batch: _Batch, base: int) -> None:
        """Emits stores now, and defers their beats until the next stores: DMA would wait for the stores."""
        self.writer.settle()
        rows = self.machine.rows
        self.writer.forget(base * rows + np.arange(len(batch.items) * rows))
        turns = self._turned(batch)
        self._store(batch, turns, base)
        self.writer.later = lambda: self._out(batch, turns, base)

    def _batches(self, done: Sequence[tuple[Run, int]]) -> Iterator[_Batch]:
        """Yields as many items at a time as fit the scratchpad rows and the parameters; whole rows
        of sums if one fits.
        """
        machine = self.machine
        room = self.depth if len(self.contents) <= machine.parameters else min(self.depth, machine.parameters)
        room = room // self.passes * self.passes or room
        lines = np.concatenate([run.group * self.m + np.arange(run.begin, run.end) for run, _ in done])
        sums = np.concatenate([base + np.arange(run.end - run.begin) for run, base in done])
        items = (lines[:, None] * self.passes + np.arange(self.passes)).reshape(-1)
        sums = np.repeat(sums, self.passes)
        for begin in range(0, len(items), room):
            part = slice(begin, begin + room)
            yield self._batch(items[part], sums[part])

    def _batch(self, items: Array, sums: Array) -> _Batch:
        """Returns the batch of these items, with the accumulator rows of their sums."""
        own = self.again.once(partial(self._found_batch, items), "batch", self.owner, items.tobytes())
        return _Batch(own.items, sums[own.sums], own.item, own.lane, own.column, own.owner, self.address[own.address])

    def _found_batch(self, every: Array) -> _Batch:
        """Returns a batch with numbers in place of accumulators and addresses; equal layers share it."""
        begin, end = np.searchsorted(self.item, every), np.searchsorted(self.item, every + 1)
        first, last = np.searchsorted(self.owner, begin), np.searchsorted(self.owner, end)
        sizes, pairs = end - begin, _ranges(first, last)
        which = np.repeat(np.arange(len(every)), last - first)
        column = self.column[_ranges(begin, end)]
        there, _, item = placed(np.repeat(np.arange(len(every)), sizes))
        return _Batch(
            np.searchsorted(self.items, every[there]),
            there,
            item,
            divided(column, self.machine.rows)[1],
            column,
            self.owner[pairs] - begin[which] + (np.cumsum(sizes) - sizes)[which],
            pairs,
        )

    def _turned(self, batch: _Batch) -> Array:
        """Returns the rotation of each item, (items). Memoized."""
        _, _, local = placed(batch.address // self.machine.bandwidth)
        key = b"".join(own.tobytes() for own in (batch.item, batch.lane, batch.owner, local))
        if key not in self.turns:
            owner_item, owner_lane = batch.item[batch.owner], batch.lane[batch.owner]
            self.turns[key] = turned(owner_item, owner_lane, local, len(batch.items), self.machine.rows)
        return self.turns[key]

    def _store(self, batch: _Batch, turns: Array, base: int) -> None:
        """Emits stores of items to scratchpad rows from a first one on; items of equal columns share a table."""
        begins = np.searchsorted(batch.item, np.arange(len(batch.items) + 1))
        rows = self.parameter_rows(batch.items)
        alike = self.alike[batch.items]
        places = np.stack(
            [
                batch.sums,
                base + np.arange(len(batch.items)),
                rows,
                np.maximum(alike, 0),
                unwrapped(turns, self.machine.rows),
                alike >= 0,
            ],
            axis=1,
        )
        found: dict[tuple[bool, bytes], list[int]] = {}
        for item, (begin, end) in enumerate(pairwise(begins.tolist())):
            found.setdefault((bool(alike[item] >= 0), batch.column[begin:end].tobytes()), []).append(item)
        parts = list[tuple[Table, Nest]]()
        for items in found.values():
            own = slice(begins[items[0]], begins[items[0] + 1])
            entries = zip(batch.lane[own].tolist(), batch.column[own].tolist(), strict=True)
            table = Table(tuple((lane, column, 0) for lane, column in entries))
            parts += [(table, nest) for nest in nests(places[items])]
        applies, function = self.applied()
        for slot, nest in self.writer.with_tables(parts):
            sums, lanes, row, column, turn, same = (nest.address(which) for which in range(6))
            turn = modulo(turn, self.machine.rows)
            one = same.base > 0
            self.writer.add(Store(nest.counts, sums, lanes, slot, row, one, column, turn, False, applies, function))

    def applied(self) -> tuple[bool, int]:
        """Returns whether stores apply a function, and its slot; loads the function before."""
        return (False, 0) if self.table is None else (True, self.writer.function(self.table))

    def _out(self, batch: _Batch, turns: Array, base: int) -> None:
        """Emits the beats that store the batch to DRAM."""
        item = batch.item[batch.owner]
        lane = (batch.lane[batch.owner] + turns[item]) % self.machine.rows
        self.writer.empty_lanes(batch.address, lane, base + item)


@dataclass(frozen=True)
class _Items:
    """The items of a layer, in order: the sums of one accumulator row that are stored together.

    item, column  of each sum that is an element: its accumulator row times passes plus its pass; its column
    place         for each element the index of its sum; -1 for zeros
    entry         for each sum the number of its parameters, in order of appearance
    passes        items per accumulator row
    items         numbers of the items that exist
    begins        index of the first sum of each item
    """

    item: Array
    column: Array
    place: Array
    entry: Array
    passes: int
    items: Array
    begins: Array

    @staticmethod
    def of(layer: Layer, entry: Array, machine: Machine) -> _Items:
        """Returns the items of a layer; `entry` has parameter numbers, which broadcast to its elements. Raises BadInput
        if a sum is needed twice.
        """
        elements = layer.elements.reshape(-1).astype(np.intp)
        tiles, m, _ = layer.product.rows.numbers.shape
        element = np.zeros(1 + tiles * m * machine.columns, np.int32)  # for each sum of each tile, its element plus one
        element[elements] = np.arange(1, len(elements) + 1, dtype=np.int32)
        sums = layer.of_first(element[1:].reshape(tiles, -1)).reshape(-1)
        key = np.flatnonzero(sums)
        order = (sums[key] - 1).astype(np.intp)
        if len(order) < np.count_nonzero(elements > 0):
            raise BadInput("one sum is stored as two elements of its layer")
        place = np.full(len(elements), -1)
        place[order] = np.arange(len(order))
        line, column = divided(key, machine.columns)
        passes = -(-machine.columns // machine.rows)
        item = line if passes == 1 else line * passes + column // machine.rows
        begins = np.flatnonzero(np.append(True, item[1:] != item[:-1])[: len(item)])
        entry = np.broadcast_to(entry, layer.elements.shape).reshape(-1)[order]
        return _Items(item, column, place, entry, passes, item[begins], begins)

    @cached_property
    def differ(self) -> bool:
        """True if no item has one parameter entry for all its columns, so that the numbers of entries do not matter."""
        low, high = ends_of(self.entry, self.begins)
        return not (low == high).any()


@dataclass(frozen=True)
class _Rows:
    """The rows of parameters that items share.

    alike    column of the entry that all columns of an item use, -1 for none
    content  row of parameters of each item
    entries  parameter number in each column of those rows, -1 for any; renumbered by appearance if items differ
    """

    alike: Array
    content: Array
    entries: Array

    @staticmethod
    def of(items: _Items, numbers: Array, machine: Machine) -> _Rows:
        """Returns the parameter rows of items; `numbers` maps their entries to parameters."""
        entry = items.entry if items.differ else numbers[items.entry]
        return _Rows(*rows_of(entry, len(numbers), items.column, items.begins, machine))

    def contents(self, entries: Array, scale: Array) -> Sequence[Array]:
        """Returns the bytes of the parameter rows. Unused columns have the given scale."""
        found = np.zeros(self.entries.shape, requantization.PARAMETER)
        found["scale"] = scale  # the scale must not be zero
        there = self.entries >= 0
        found[there] = entries[self.entries[there]]
        return [*found.view(np.uint8)]


@dataclass(frozen=True)
class _Batch:
    """Items that are in the scratchpad at once.

    items, sums         number of each item in the layer, and its accumulator, (items)
    item, lane, column  for each byte its item, its bank before rotation, and its column of sums, (bytes)
    owner, address      bytes and the DRAM addresses that they are stored to, (n)
    """

    items: Array
    sums: Array
    item: Array
    lane: Array
    column: Array
    owner: Array
    address: Array


def turned(item: Array, lane: Array, beat: Array, items: int, lanes: int) -> Array:
    """Returns the rotation of each item, (items), with few bank conflicts among the bytes of a beat.

    Greedy: keeps the step from the item before if that is no worse.
    """
    order = ordered(item)
    item, lane, beat = item[order], lane[order], beat[order]
    begins = np.searchsorted(item, np.arange(items + 1))
    used, first = np.zeros((2, (int(beat.max(initial=0)) + 1) * lanes), np.int32)  # places: banks of beats
    found, every = np.zeros(items, np.int64), np.arange(lanes)[:, None]
    number = last = step = 0
    ahead = 1
    while number < items:
        # As many items as have no place in common with others.
        turns = (last + step * np.arange(1, min(ahead, items - number) + 1)) % lanes
        part = slice(begins[number], begins[number + len(turns)])
        own = item[part] - number
        place = beat[part] * lanes + (lane[part] + turns[own]) % lanes
        at = np.arange(len(place))
        first[place[::-1]] = at[::-1]  # the first one of each place
        before = first[place]
        clashing = own[(used[place] > 0) | (own[before] < own)]
        free = int(clashing[0]) if len(clashing) else len(turns)
        size = begins[number + free] - begins[number]
        if np.array_equal(before[:size], at[:size]):  # all places are distinct
            used[place[:size]] = 1
        else:
            np.add.at(used, place[:size], 1)
        found[number : number + free] = turns[:free]
        number, ahead = number + free, 2 * free + 1
        if len(clashing):
            part = slice(begins[number], begins[number + 1])
            row, likely = beat[part] * lanes, int(turns[free])
            clashes = used[row + (lane[part] + every) % lanes].sum(axis=1)
            best = int(clashes.argmin())
            if clashes[best] < clashes[likely]:
                step, likely = (best - int(found[number - 1])) % lanes, best
            np.add.at(used, row + (lane[part] + likely) % lanes, 1)
            found[number] = likely
            number += 1
        last = int(found[number - 1])
    return found


def _owners(owner: Array) -> tuple[Array, Array]:
    """Returns the owners that are sums, in order and without zeros, (n), and the index of each."""
    order = ordered(owner)
    first = np.searchsorted(owner[order], 0)
    return owner[order][first:], order[first:]


def _ranges(begin: Array, end: Array) -> Array:
    """Concatenates the ranges from each begin to before its end."""
    sizes = end - begin
    first = np.cumsum(sizes) - sizes
    found: Array = np.arange(int(sizes.sum())) - np.repeat(first - begin, sizes)
    return found
