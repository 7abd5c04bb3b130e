"""Emits layers whose rows stream from resident tensors or windows, or whose results stay on chip."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from glenside.analysis.element_sources import Places
from glenside.ir.errors import BadInput
from glenside.ir.operand import Array
from glenside.npu.isa.base import Lanes, Store
from glenside.npu.lowering.allocation.scratchpad_allocation import Held, firsts
from glenside.npu.lowering.allocation.skewed_layout import Reads
from glenside.npu.lowering.emission.emit_layer import Feed, Writer
from glenside.npu.lowering.emission.emit_results import Bytes, BytesOut
from glenside.npu.lowering.tiling.layer_tiles import Layer
from glenside.npu.lowering.tiling.strip_mining import Part, runs_of, side_by_side, whole
from glenside.npu.lowering.tiling.tile_order import Run
from glenside.npu.lowering.transfer.byte_permutations import carried, gone_on
from glenside.npu.lowering.transfer.permutation_table_transfers import Table
from glenside.npu.lowering.transfer.sparse_weight_loads import spreadings
from glenside.npu.lowering.util.fast_unique import placed
from glenside.npu.lowering.util.identity_memo import Memo
from glenside.npu.machine.model import HALVES, Machine
from glenside.quantization.layers import IntegerLayer


class _Skewed:
    """Rows that stream from a tensor in a skewed layout. `layer` has its rows of weights permuted to the banks."""

    def __init__(
        self, layer: Layer, used: Array, places: tuple[Array, Array], machine: Machine, again: Memo | None = None
    ) -> None:
        self.machine, self.used = machine, used
        self.first, self.apart = places
        lanes = np.where(used, self.apart % machine.rows, -1)
        self.layer = (again or Memo()).once(lambda: _moved(layer, lanes, used), "moved", layer, lanes.tobytes())
        known = dict[bytes, Table]()  # most tiles are equal
        self.tables = list[Table]()
        for own, there in zip(self.apart, self.used, strict=True):
            at = own[there]
            if (key := at.tobytes()) not in known:
                entries = ((cell % machine.rows, 0, cell // machine.rows) for cell in at.tolist())
                known[key] = Table(tuple(sorted(entries)))
            self.tables.append(known[key])
        self.runs: Sequence[Run] = ()

    def table(self, tile: int) -> Table:
        return self.tables[tile]


class InPlace(_Skewed):
    """Rows of resident tensors, each tile of one tensor; with `part` only those of one strip."""

    def __init__(
        self,
        layer: Layer,
        every: Sequence[Held],
        name: str,
        machine: Machine,
        part: Part | None = None,
        again: Memo | None = None,
    ) -> None:
        used = np.zeros(layer.product.rows.numbers.shape[::2], bool)
        first, apart = np.zeros(layer.product.rows.numbers.shape[:2], np.int64), np.zeros(used.shape, np.int64)
        for held in every:
            reads = held.reads[name]
            own = reads.used.any(axis=1) if len(every) > 1 else np.ones(len(used), bool)
            begins, distances = firsts(reads, held.skew.strides, held.cut)
            first[own], apart[own], used[own] = begins[own] + held.base, distances[own], reads.used[own]
        super().__init__(layer, used, (first, apart), machine, again)
        every_run = partial(_in_order, self.layer) if part is None else partial(runs_of, layer, part.ranges())
        self.runs = [*every_run(machine)]

    def fill(self, number: int, now: int) -> bool:
        return True

    def cells(self, number: int) -> Array:
        run = self.runs[number]
        found: Array = self.first[run.tile, run.begin : run.end]
        return found


@dataclass(frozen=True)
class _Window:
    """The contents of one of two windows: cells from `low` on, for the runs from `begin` to `end`, exclusive."""

    low: int
    begin: int
    end: int


class Windows(_Skewed):
    """Rows of a tensor in DRAM, read through two windows in the scratchpad: one is filled while rows stream from the
    other.

    addresses  DRAM addresses of the tensor's elements, (elements)
    bases      the first cell of each window

    Raises BadInput if a run of rows needs more cells than a window has.
    """

    def __init__(
        self,
        writer: Writer,
        layer: Layer,
        reads: Reads,
        strides: Array,
        feed: Feed,
        addresses: Array,
        bases: tuple[int, int],
        size: int,
    ) -> None:
        super().__init__(layer, reads.used, reads.places(strides), writer.machine)
        self.runs = _in_order(self.layer, writer.machine)
        self.writer, self.feed, self.addresses, self.bases = writer, feed, addresses.reshape(-1), bases
        self.places = np.stack(np.unravel_index(np.arange(addresses.size), reads.dims), axis=-1) @ strides
        self.windows, self.window_of, self.filled = list[_Window](), list[int](), 0
        ends = [self._cells_of(run) for run in self.runs]
        begin, low, high = 0, *ends[0]
        for number, (least, most) in enumerate(ends):
            if max(high, most) - min(low, least) // self.machine.rows * self.machine.rows > size:
                self._close(low, begin, number)
                begin, low, high = number, least, most
            low, high = min(low, least), max(high, most)
            if high - low // self.machine.rows * self.machine.rows > size:
                raise BadInput(f"streamed rows need {high - low:,} scratchpad bytes at once, a window has {size:,}")
        self._close(low, begin, len(ends))

    def _cells_of(self, run: Run) -> tuple[int, int]:
        """Returns the first cell that a run reads, and the one behind the last."""
        first = self.first[run.tile, run.begin : run.end]
        return int(first.min()), int(first.max()) + int(self.apart[run.tile].max()) + 1

    def _close(self, low: int, begin: int, end: int) -> None:
        self.window_of += [len(self.windows)] * (end - begin)
        self.windows.append(_Window(low // self.machine.rows * self.machine.rows, begin, end))

    def _base(self, number: int) -> int:
        return self.bases[number % HALVES] - self.windows[number].low

    def cells(self, number: int) -> Array:
        run, base = self.runs[number], self._base(self.window_of[number])
        found: Array = self.first[run.tile, run.begin : run.end] + base
        return found

    def fill(self, number: int, now: int) -> bool:
        window = self.window_of[number]
        if window >= HALVES and self.windows[window - HALVES].end > now:
            return False
        if window == self.filled:
            self.bring(window)
            self.filled += 1
        return True

    def bring(self, number: int) -> None:
        """Emits the loads of a window."""
        writer, own, base = self.writer, self.windows[number], self._base(number)
        if self.feed.made[0]:
            writer.settle_before()
        runs = self.runs[own.begin : own.end]
        ends = [self._cells_of(run) for run in runs]
        low = min(least for least, _ in ends)
        touched = np.zeros(max(most for _, most in ends) - low, bool)
        wanted = []
        for tile, begin, end in dict.fromkeys((run.tile, run.begin, run.end) for run in runs):
            apart = self.apart[tile][self.used[tile]]
            touched[self.first[tile, begin:end, None] - low + apart] = True
            wanted.append(self.layer.product.rows.numbers[tile, begin:end].reshape(-1))
        every, first, _ = placed(np.concatenate(wanted))
        elements, first = every[every > 0] - 1, first[every > 0]
        cells = self.places[elements]
        inside = cells[(cells >= low) & (cells < low + len(touched))]
        touched[inside - low] = False
        writer.blank(np.flatnonzero(touched) + low + base, self.feed.zero)
        # Rows wait only for the first part of the first window.
        _fill_in_order(writer, self.addresses[elements], cells + base, first, 1 if number else _LOAD_PARTS)


def _moved(layer: Layer, lanes: Array, used: Array) -> Layer:
    """Returns the layer with the same elements in other banks; `used` are the banks of each tile, (tiles)(R)."""
    rows, weights = layer.product.rows, layer.product.weights
    moved, stays = np.zeros_like(rows.numbers), np.zeros_like(weights.numbers)
    width = used.shape[1]
    for tile, (there, to) in enumerate(zip(used, lanes, strict=True)):
        source = np.flatnonzero(there)
        of_lane = np.full(width, -1)
        of_lane[to[source]] = source
        if (of_lane >= 0).all():
            np.take(rows.numbers[tile], of_lane, axis=1, out=moved[tile])
        else:
            moved[tile][:, of_lane >= 0] = rows.numbers[tile][:, of_lane[of_lane >= 0]]
        stays[tile, to[source]] = weights.numbers[tile, source]
    product = replace(layer.product, rows=Places(moved, rows.first), weights=Places(stays, weights.first))
    return replace(layer, product=product)


def _in_order(layer: Layer, machine: Machine) -> list[Run]:
    """Returns the runs group by group, or interleaved if sparse weight loads then take fewer beats."""
    plain = [*runs_of(layer, whole(layer), machine)]
    m = layer.product.rows.numbers.shape[1]
    if all(len(group.tiles) == 1 for group in layer.groups) or HALVES * m > machine.half_accumulators:
        return plain
    other, spreads = [*side_by_side(layer, machine)], spreadings(machine)
    orders = [run.tile for run in plain], [run.tile for run in other]
    first, second = (spreads.of_all(layer, order) for order in orders)
    if not any(first) or not any(second):
        return other if any(second) else plain
    return other if spreads.beats(second, orders[1]) < spreads.beats(first, orders[0]) else plain


class Kept(BytesOut):
    """A layer's results as bytes in the cells of a resident tensor."""

    def __init__(
        self,
        writer: Writer,
        layer: Layer,
        parameters: Array,
        held: Held,
        zero: int,
        made: IntegerLayer,
        part: Part | None = None,
        again: Memo | None = None,
    ) -> None:
        assert made.requantised is not None, "it becomes bytes"
        every = part.elements if part is not None else None if held.cut is None else held.elements
        cells, table = held.cells if every is None else held.cells[every], made.requantised.table
        super().__init__(writer, layer, Bytes(parameters, every, cells, table, made.normalised), again)
        self.lanes, self.depth = 0, 1 << 30
        self.held, self.zero = held, zero

    def begin(self) -> None:
        """Fills the gaps between elements with zeros."""
        self.writer.blank(self.held.gaps, self.zero)

    def send(self, done: Sequence[tuple[Run, int]], half: int) -> None:
        writer, lanes = self.writer, self.machine.rows
        self.normalise(done)
        writer.settle()
        for batch in self._batches(done):
            rows = self.parameter_rows(batch.items)
            alike = self.alike[batch.items]
            more = np.stack([batch.sums, rows, np.maximum(alike, 0)], axis=1)
            item, column = batch.item[batch.owner], batch.column[batch.owner]
            applies, function = self.applied()
            for every in (False, True):  # a store has one of two parameter modes, so no loop covers both
                own = (alike[item] >= 0) == every
                of_kind = carried(item[own], column[own], batch.address[own], lanes, more)
                for slot, nest in writer.with_tables(of_kind):
                    cells, sums, row, one = (nest.address(which) for which in range(4))
                    to, turn = gone_on(cells, lanes)
                    writer.add(Store(nest.counts, sums, to, slot, row, every, one, turn, True, applies, function))
            writer.forget(batch.address)


_LOAD_PARTS = 16
"""Number of parts of a load from DRAM, so that layers can start before it is complete."""


def bring(writer: Writer, addresses: Array, held: Held, zero: int) -> None:
    """Emits the load of a tensor from its DRAM addresses to its resident cells."""
    writer.blank(held.gaps, zero)
    _fill_in_order(writer, addresses.reshape(-1), held.cells, _firsts_of(held), _LOAD_PARTS)


def _firsts_of(held: Held) -> Array:
    """Returns the number of the first row that reads each element, (elements), in the first reader."""
    reads = next(iter(held.reads.values()))
    rows, apart = firsts(reads, held.skew.strides, held.cut)
    found = np.full(held.end - held.begin, rows.size)
    for tile in reversed(range(len(rows))):
        for lane in np.flatnonzero(reads.used[tile]).tolist():
            numbers = tile * rows.shape[1] + np.arange(rows.shape[1])
            at = rows[tile] + apart[tile, lane] + held.base - held.begin
            np.minimum.at(found, at, numbers)
    own: Array = found[held.cells - held.begin]
    return own


def _fill_in_order(writer: Writer, addresses: Array, cells: Array, first: Array, parts: int) -> None:
    """Emits loads of DRAM bytes into cells, in parts of whole beats; beats with the least number
    in `first` come first.
    """
    beats, _, which = placed(addresses // writer.machine.bandwidth)
    least = np.full(len(beats), np.iinfo(np.int64).max)
    np.minimum.at(least, which, first)
    part = np.empty(len(beats), np.int64)
    part[np.lexsort((beats, least))] = np.arange(len(beats)) * parts // max(1, len(beats))
    for number in range(parts):
        there = part[which] == number
        if there.any():
            fill_cells(writer, addresses[there], cells[there])
            writer.go_on()


def fill_cells(writer: Writer, addresses: Array, cells: Array) -> None:
    """Emits loads of DRAM bytes, each into a cell, (n) each."""
    machine = writer.machine
    writer.forget(cells)
    beat, byte = np.divmod(addresses, machine.bandwidth)
    beats, _, which = placed(beat)
    for slot, nest in writer.with_tables(carried(which, byte, cells, machine.rows, beats[:, None])):
        to, turn = gone_on(nest.address(0), machine.rows)
        writer.add(Lanes(nest.counts, nest.address(1, machine.bandwidth), to, slot, turn, True))
