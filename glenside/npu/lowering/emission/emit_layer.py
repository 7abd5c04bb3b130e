"""Layers one by one: operands from DRAM into lanes and weights, rows through the array, and results back to DRAM.

The lanes are two halves, of which one is filled while rows stream from the other; so are accumulators. DMA brings what
comes next as soon as there is room for it, in the order in which it is needed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from math import inf
from typing import Protocol

import numpy as np

from glenside.ir.operand import Array
from glenside.npu.isa.address_loops import Nest, nests
from glenside.npu.isa.base import Fill, Instruction, Lanes, Load, Out, Parameters, Spread, Stream, Tables, Weights
from glenside.npu.isa.column_unit import Functions
from glenside.npu.isa.fields import UNITS, Address
from glenside.npu.lowering.allocation.slot_allocator import Slots
from glenside.npu.lowering.emission.cycle_cutoff import Rest, TooLong, enough
from glenside.npu.lowering.emission.instruction_list import Written
from glenside.npu.lowering.emission.legalize_loops import unrolled
from glenside.npu.lowering.emission.row_sources import Source
from glenside.npu.lowering.emission.weight_prefetch import Clocks, Coming, slots_for
from glenside.npu.lowering.tiling.layer_tiles import Layer
from glenside.npu.lowering.tiling.tile_order import Run
from glenside.npu.lowering.transfer.byte_permutations import blank, gone_on
from glenside.npu.lowering.transfer.dram_image import Image
from glenside.npu.lowering.transfer.dram_operands import Brought
from glenside.npu.lowering.transfer.merge_sparse_loads import Step, fetched, spread, walks
from glenside.npu.lowering.transfer.permutation_table_transfers import Table, Transfers, batches, modulo
from glenside.npu.lowering.transfer.sparse_weight_loads import Remains
from glenside.npu.machine.model import Machine

_BYTE = 0xFF
_KNOWN = 1 << 8
"""What is added to a byte that is known to be in a cell: what is not known is 0, which takes no memory unread."""
_SENT = 8
"""What part of half of the accumulators is sent at a time where others may come in the meantime."""


@dataclass(frozen=True)
class Feed:
    """A layer's weights in DRAM.

    tiles  how the weights of each tile are brought, (tiles)
    zero   the byte in lanes where a row has no element
    made   whether layers before it make rows, and whether they make weights
    """

    tiles: Sequence[Brought]
    zero: int = 0
    made: tuple[bool, bool] = (False, False)


class Sink(Protocol):
    """Moves complete sums out of the accumulators."""

    @property
    def lanes(self) -> int:
        """Rows of each half of the lanes that it needs for itself, the last ones."""

    @property
    def whole(self) -> bool:
        """True if the rows of a group are sent together."""

    def begin(self) -> None:
        """Write down what is to be done beforehand."""

    def expect(self, run: Run) -> None:
        """The sums of a run will be sent: write down what that needs from DRAM."""

    def send(self, done: Sequence[tuple[Run, int]], half: int) -> None:
        """Write down what brings the sums of runs, each from an accumulator on, to DRAM; by way of that half of lanes
        where it takes any.
        """


class Writer:
    """A program of layers as it grows: its instructions one after the other, DRAM, and what memories hold.

    active  the weights that are in the array
    zeros   of slots of weights which elements are zeros, where that is known
    cells   of each byte of the lanes what it holds, where that is known
    later   what is to be written down before anybody reads what it makes
    before  that of the layer before
    first   what is to be written down behind what the program's first rows need
    counts  instructions of each unit, and busy its cycles on the machine `clock`
    most    cycles, where nobody wants a program that takes as many
    enough  cycles of each unit with which it does
    """

    def __init__(self, machine: Machine, most: int | None = None) -> None:
        self.machine, self.clock, self.image = machine, machine, Image(machine)
        self.written = Written()
        self.counts, self.busy = dict.fromkeys(UNITS, 0), dict.fromkeys(UNITS, 0)
        self.most, self.enough = most, dict[str, float](dict.fromkeys(UNITS, inf))
        self.expect(Rest())
        self.weights = Slots(machine.weight_rows // machine.rows)
        self.tables, self.parameters = Slots(machine.tables), Slots(machine.parameters)
        self.functions = Slots(machine.functions)
        self.run = self.chunk = self.half = 0
        self.active = b""
        self.later: Callable[[], None] | None = None
        self.before: Callable[[], None] | None = None
        self.first: Callable[[], None] | None = None
        self.zeros: dict[int, Remains] = {}
        self.clocks, self.transfers = Clocks(machine), Transfers(machine)
        self.cells = np.zeros(machine.rows * machine.depth, np.int16)

    def expect(self, rest: Rest) -> None:
        """Sets the cycles that are still to come behind the next layer."""
        if self.most is not None:
            self.enough |= enough(self.most, rest, self.clock)

    def layer(self, layer: Layer, source: Source, feed: Feed, sink: Sink, coming: Sequence[Brought] = ()) -> None:
        """The instructions of a layer, whose results go to a sink; `coming` are the tiles of the runs of the next one,
        known already.
        """
        if not sink.lanes:  # the layer may fill all lanes, those too which what was put off is still in
            self.settle()
        self.before = self.later
        _Work(self, layer, source, feed, sink, coming).write()
        self.run += len(source.runs)

    def blank(self, cells: Array, byte: int) -> None:
        """A byte in cells of the lanes that do not hold it."""
        own = cells[self.cells[cells] != byte + _KNOWN]
        for slot, nest in self.with_tables(blank(own, self.machine.rows, byte & _BYTE, self.machine.table_beats)):
            lanes, turn = gone_on(nest.address(0), self.machine.rows)
            self.add(Fill(nest.counts, lanes, slot, turn, True))
        self.cells[own] = byte + _KNOWN

    def forget(self, cells: Array) -> None:
        """Cells of the lanes that hold what is not known."""
        self.cells[cells] = 0

    def go_on(self) -> None:
        """Runs the deferred emission for the first results, once the instructions for the first rows are emitted."""
        first, self.first = self.first, None
        if first is not None:
            first()

    def settle(self) -> None:
        """Write down what was put off."""
        later, self.later = self.later, None
        if later is not None:
            later()

    def settle_before(self) -> None:
        """Write down what another layer put off."""
        if self.later is self.before:
            self.settle()

    def add(self, instruction: Instruction) -> None:
        """One more: those of other units that it needs or that need it come before or after it."""
        for own in unrolled(instruction, self.machine.rows):
            self.written.add(own)
            self.counts[own.unit] += 1
            self.busy[own.unit] += own.cycles(self.clock)
            if self.busy[own.unit] >= self.enough[own.unit]:
                raise TooLong(len(self.written))
            self.clocks.count(own)

    def with_tables(self, parts: Iterable[tuple[Table, Nest]]) -> Iterator[tuple[int, Nest]]:
        """Yields each part with the slot of its permutation table.

        Tables are loaded in batches of half of the slots, ahead of their use, to hide DRAM latency.
        """
        for batch in batches(parts, max(1, self.machine.tables // 2)):
            slots = {table: self.table(table) for table, _ in batch}
            yield from ((slots[table], nest) for table, nest in batch)

    def fill_lanes(self, addresses: Array, lanes: Array, rows: Array) -> None:
        """Bytes of DRAM, each to a lane and a row of it, (n) each."""
        found = self.transfers.of(addresses, lanes, rows)
        self._transfer(Lanes, ((table, nest) for part in found for table in [part.fills()] for nest in part.nests))

    def empty_lanes(self, addresses: Array, lanes: Array, rows: Array) -> None:
        """The other way."""
        found = self.transfers.of(addresses, lanes, rows)
        self._transfer(Out, ((table, nest) for part in found for table in [part.empties()] for nest in part.nests))

    def _transfer(self, kind: type[Lanes | Out], parts: Iterable[tuple[Table, Nest]]) -> None:
        for slot, nest in self.with_tables(parts):
            beats, turn = nest.address(0, self.machine.bandwidth), modulo(nest.address(2), self.machine.rows)
            self.add(kind(nest.counts, beats, nest.address(1), slot, turn))

    def suits(self, tile: Brought, slot: int) -> bool:
        """True if a slot of weight memory has a tile's zeros; dense rows suit slots without known zeros."""
        there = self.zeros.get(slot)
        if tile.spread is None or there is None:
            return tile.spread is None and there is None
        return there.takes(tile.spread, tile.rows, tile.used, tile)

    def bring_weights(self, tile: Brought, slot: int) -> None:
        """The weights of a tile to a slot of weight memory, which may have its zeros from the tile before."""
        self.clocks.take(slot)
        self._bring(tile, slot)
        self.clocks.there(slot)

    def _bring(self, tile: Brought, slot: int) -> None:
        row, own = slot * self.machine.rows, tile.spread
        if own is None:
            self.zeros.pop(slot, None)
            self.add(Weights(tile.address, row, tile.rows))
            return
        if not self.suits(tile, slot):
            self._erase(tile, slot)
        self.zeros[slot].spread(own)
        self._spread([(tile.address + beat * self.machine.bandwidth, table) for beat, table in own.steps], row)

    def _erase(self, tile: Brought, slot: int) -> None:
        """Zeros to a slot: to all of its rows that a tile has, or where those before wrote anything else."""
        row, there = slot * self.machine.rows, self.zeros.get(slot)
        nothing = self.image.packed(np.zeros(self.machine.bandwidth, np.uint8))
        again = [] if there is None else [*there.tables]
        beats = sum(1 if own.key in self.tables.held else 1 + self.machine.table_beats for own in again)
        few = beats < tile.rows and len(again) <= self.machine.tables // 2
        if there is not None and tile.rows <= there.rows and few:
            self._spread([(nothing, own) for own in again], row)
            self.zeros[slot] = Remains(there.rows, np.zeros_like(there.patterns))
            return
        every = Table(tuple((column, 0, 0) for column in range(self.machine.columns)))
        self.add(Spread((tile.rows, 1, 1), Address(nothing), Address(row, (1, 0, 0)), self.table(every)))
        self.zeros[slot] = Remains(tile.rows, np.zeros(self.machine.columns, np.int64))

    def _spread(self, steps: Sequence[tuple[int, Table]], row: int) -> None:
        """Beats, each by its table, in any order, to weights from a row on."""
        slots = self.tables.side_by_side([table.key for _, table in steps])
        every = [
            Step(slot, beat, self.image.table(table) if is_new else None)
            for (beat, table), (slot, is_new) in zip(steps, slots, strict=True)
        ]
        found = walks(every, self.machine)
        for own in (tables for walk in found for tables in fetched(walk, self.machine)):
            self.add(own)  # all of them, as DRAM takes a while
        for walk in found:
            self.add(spread(walk, row))

    def table(self, table: Table) -> int:
        """The slot of a lane table, filled before."""
        slot, is_new = self.tables.any(table.key)
        if is_new:
            self.add(Tables(self.image.table(table), slot, 1))
        return slot

    def function(self, table: Array) -> int:
        """The slot of a function of bytes, (256) of up to 16 bits, filled before."""
        content = table.astype("<i2").view(np.uint8)
        slot, is_new = self.functions.any(content.tobytes())
        if is_new:
            self.add(Functions(self.image.function(content), slot, 1))
        return slot

    def parameter_row(self, content: Array) -> int:
        """The row of parameters that holds these bytes, filled before."""
        slot, is_new = self.parameters.any(content.tobytes())
        if is_new:
            self.add(Parameters(self.image.parameters(content), slot, 1))
        return slot


class _Work:
    """A layer that is being written.

    alone  no tile is added to another: then sums leave a half of the accumulators while others come to it
    """

    def __init__(
        self, writer: Writer, layer: Layer, source: Source, feed: Feed, sink: Sink, coming: Sequence[Brought]
    ) -> None:
        self.writer, self.layer, self.source, self.feed, self.sink = writer, layer, source, feed, sink
        self.machine, self.runs = writer.machine, source.runs
        patterns = {own.spread.zeros.tobytes() for own in feed.tiles if own.spread is not None}
        self.patterns = max(1, len(patterns))
        self.coming = Coming(coming, writer.run + len(self.runs), writer.weights)
        self.used = 0
        self.alone = all(run.first and run.last for run in self.runs)
        self.done: list[tuple[Run, int]] = []
        self.bases: dict[tuple[int, int], int] = {}

    def write(self) -> None:
        ahead, is_first = 0, not self.writer.run
        if is_first:  # nothing streams yet, and stores would wait for all that comes before
            self.writer.first = self.sink.begin
        for now, run in enumerate(self.runs):
            self.writer.written.ahead = len(self.writer.written)
            while ahead < len(self.runs) and self._fill(ahead, now):
                if self.runs[ahead].last and ahead > now:
                    self.sink.expect(self.runs[ahead])
                ahead += 1
            if not now and not is_first:
                self.sink.begin()
            self.writer.go_on()
            self.coming.bring(writer := self.writer, writer.run + now, max(self.machine.rows, run.end - run.begin))
            self._stream(now, run)
        self._flip(len(self.runs) - 1)
        self.writer.written.ahead = None

    def _fill(self, number: int, now: int) -> bool:
        """Queue what a run needs from DRAM, if there is room for it before run `now` streams."""
        return self._fill_weights(number, now) and self.source.fill(number, now)

    def _fill_weights(self, number: int, now: int) -> bool:
        own = self.feed.tiles[self.runs[number].tile]
        base = self.writer.run
        suits = partial(self.writer.suits, own)
        enough = slots_for(own, self.writer.weights.count, self.patterns)
        found = self.writer.weights.take(own.key, base + number, base + now, suits, enough)
        if found is None:
            return False
        slot, is_new = found
        if is_new:
            if self.feed.made[1]:
                self.writer.settle_before()
            self.writer.bring_weights(own, slot)
        return True

    def _stream(self, number: int, run: Run) -> None:
        writer, machine = self.writer, self.machine
        size = run.end - run.begin
        together = self.layer.product.rows.numbers.shape[1] if self.sink.whole and not run.begin else size
        if run.first and self.used + together > machine.half_accumulators:
            self._flip(number)
        own = self.feed.tiles[run.tile]
        fresh = own.key != writer.active
        if fresh:
            writer.active = own.key
            writer.clocks.load(slot := writer.weights.held[own.key])
            writer.add(Load(slot * machine.rows, own.rows))
        table = writer.table(self.source.table(run.tile))
        base = self._base(run)
        places = np.stack([self.source.cells(number), base + np.arange(size)], axis=1)
        for nest in nests(places):
            lanes, turn = gone_on(nest.address(0), machine.rows)
            adds = not run.first
            greatest = adds and self.layer.greatest
            writer.add(Stream(nest.counts, lanes, table, nest.address(1), adds, fresh, turn, greatest))
            fresh = False
        if run.last:
            self.done.append((run, base))
            held = sum(own.end - own.begin for own, _ in self.done)
            if (
                self.alone
                and not self.sink.lanes
                and not self.sink.whole
                and held >= machine.half_accumulators // _SENT
            ):
                self._send(number)

    def _base(self, run: Run) -> int:
        """The accumulator of the first row of a run, which tiles that are added up share."""
        key = run.group, run.begin
        if run.first:
            self.bases[key] = self.writer.half * self.machine.half_accumulators + self.used
            self.used += run.end - run.begin
        return self.bases[key]

    def _flip(self, number: int) -> None:
        """Send the sums of this half away before that run streams, and go on in the other."""
        if self.done:
            self._send(number)
        self.used = 0
        self.writer.half = 1 - self.writer.half

    def _send(self, number: int) -> None:
        """By way of the half of the lanes from which that run does not stream."""
        upper = self.source.cells(number)[0] >= self.machine.half_depth * self.machine.rows
        self.sink.send(self.done, 1 - int(upper))
        self.done = []
