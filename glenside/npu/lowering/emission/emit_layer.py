"""Emits layers one by one: loads operands from DRAM, streams rows through the array, and stores results to DRAM.

The scratchpad has two halves: one is filled while rows stream from the other; likewise the accumulators. DMA loads data
as soon as there is space, in the order in which it is needed.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
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
from glenside.npu.lowering.transfer.sparse_weight_loads import Remains, WeightZeros
from glenside.npu.machine.model import Machine

_BYTE = 0xFF
_KNOWN = 1 << 8
"""Offset of bytes whose value in a cell is known; unknown cells are 0, so that numpy does not touch their memory."""
_SEND_PARTS = 8
"""Sums are sent as soon as they fill 1/16 of the accumulators, if others can arrive meanwhile."""


@dataclass(frozen=True)
class Feed:
    """A layer's weights in DRAM.

    tiles  how the weights of each tile are loaded, (tiles)
    zero   the byte of elements that a row does not have
    made   True for rows, and for weights, if earlier layers compute them
    """

    tiles: Sequence[Brought]
    zero: int = 0
    made: tuple[bool, bool] = (False, False)


class Sink(Protocol):
    """Moves complete sums out of the accumulators."""

    @property
    def lanes(self) -> int:
        """Rows at the end of each scratchpad half that it needs for itself."""

    @property
    def whole(self) -> bool:
        """True if the rows of a group are sent together."""

    def begin(self) -> None:
        """Emits the loads needed before the first sums."""

    def expect(self, run: Run) -> None:
        """Emits the DRAM loads needed to send the sums of a run."""

    def send(self, done: Sequence[tuple[Run, int]], half: int) -> None:
        """Emits the transfer of the sums of runs, each with its first accumulator row, to DRAM, through that half of
        the scratchpad if needed.
        """


class Writer:
    """A program in progress: its instructions in order, DRAM, and the contents of memories.

    active  the weights in the array
    zeros   for slots of weight memory, which elements are zeros, if known
    cells   the byte in each scratchpad cell, if known
    later   deferred emission, which must run before the first reader of its results
    before  the deferred emission of the layer before
    first   emission deferred until the instructions for the program's first rows are emitted
    counts  instructions of each unit; busy: cycles of each unit on the machine `clock`
    most    limit of cycles, at which emission ends
    enough  busy cycles of each unit at which that limit is reached
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
        self.zeros = WeightZeros(self.weights)
        self.clocks, self.transfers = Clocks(machine), Transfers(machine)
        self.cells = np.zeros(machine.rows * machine.depth, np.int16)

    def expect(self, rest: Rest) -> None:
        """Sets the cycles that are still to come behind the next layer."""
        if self.most is not None:
            self.enough |= enough(self.most, rest, self.clock)

    def layer(self, layer: Layer, source: Source, feed: Feed, sink: Sink, coming: Sequence[Brought] = ()) -> None:
        """Emits a layer, whose results go to a sink; `coming` are the weight tiles of the next layer, if known."""
        if not sink.lanes:  # the layer may fill rows that deferred stores still read
            self.settle()
        self.before = self.later
        _Work(self, layer, source, feed, sink, coming).write()
        self.run += len(source.runs)

    def blank(self, cells: Array, byte: int) -> None:
        """Emits fills of cells with a byte, except those that already hold it."""
        own = cells[self.cells[cells] != byte + _KNOWN]
        for slot, nest in self.with_tables(blank(own, self.machine.rows, byte & _BYTE, self.machine.table_beats)):
            lanes, turn = gone_on(nest.address(0), self.machine.rows)
            self.add(Fill(nest.counts, lanes, slot, turn, True))
        self.cells[own] = byte + _KNOWN

    def forget(self, cells: Array) -> None:
        """Marks cells as unknown."""
        self.cells[cells] = 0

    def go_on(self) -> None:
        """Runs the deferred emission for the first results, once the instructions for the first rows are emitted."""
        first, self.first = self.first, None
        if first is not None:
            first()

    def settle(self) -> None:
        """Runs the deferred emission."""
        later, self.later = self.later, None
        if later is not None:
            later()

    def settle_before(self) -> None:
        """Runs the deferred emission of an earlier layer."""
        if self.later is self.before:
            self.settle()

    def add(self, instruction: Instruction) -> None:
        """Appends an instruction; its producers must come before it, its consumers after. Raises TooLong."""
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
        """Emits loads of DRAM bytes, each to a bank and a row, (n) each."""
        found = self.transfers.of(addresses, lanes, rows)
        self._transfer(Lanes, ((table, nest) for part in found for table in [part.fills()] for nest in part.nests))

    def empty_lanes(self, addresses: Array, lanes: Array, rows: Array) -> None:
        """Emits stores of bytes in banks and rows to DRAM addresses, (n) each."""
        found = self.transfers.of(addresses, lanes, rows)
        self._transfer(Out, ((table, nest) for part in found for table in [part.empties()] for nest in part.nests))

    def _transfer(self, kind: type[Lanes | Out], parts: Iterable[tuple[Table, Nest]]) -> None:
        for slot, nest in self.with_tables(parts):
            beats, turn = nest.address(0, self.machine.bandwidth), modulo(nest.address(2), self.machine.rows)
            self.add(kind(nest.counts, beats, nest.address(1), slot, turn))

    def suits(self, tile: Brought, there: Hashable) -> bool:
        """True if a slot with these zeros has a tile's zeros; dense rows suit slots without known zeros."""
        if tile.spread is None or not isinstance(there, Remains):
            return tile.spread is None and there is None
        return there.takes(tile.spread, tile.rows, tile.used, tile)

    def bring_weights(self, tile: Brought, slot: int) -> None:
        """Emits the load of a tile's weights into a slot, which may still have the zeros of the tile before."""
        self.clocks.take(slot)
        self._bring(tile, slot)
        self.clocks.there(slot)

    def _bring(self, tile: Brought, slot: int) -> None:
        row, own = slot * self.machine.rows, tile.spread
        if own is None:
            self.zeros.forget(slot)
            self.add(Weights(tile.address, row, tile.rows))
            return
        if not self.suits(tile, self.zeros.of(slot)):
            self._erase(tile, slot)
        self.zeros.spread(slot, own)
        self._spread([(tile.address + beat * self.machine.bandwidth, table) for beat, table in own.steps], row)

    def _erase(self, tile: Brought, slot: int) -> None:
        """Emits zeros into a slot: into all rows of a tile, or only where earlier tiles wrote values."""
        row, there = slot * self.machine.rows, self.zeros.of(slot)
        nothing = self.image.packed(np.zeros(self.machine.bandwidth, np.uint8))
        again = [] if there is None else [*self.zeros.tables[slot]]
        beats = sum(1 if own.key in self.tables.held else 1 + self.machine.table_beats for own in again)
        few = beats < tile.rows and len(again) <= self.machine.tables // 2
        if there is not None and tile.rows <= there.rows and few:
            self._spread([(nothing, own) for own in again], row)
            self.zeros.erase(slot, there.rows, self.machine.columns)
            return
        every = Table(tuple((column, 0, 0) for column in range(self.machine.columns)))
        self.add(Spread((tile.rows, 1, 1), Address(nothing), Address(row, (1, 0, 0)), self.table(every)))
        self.zeros.erase(slot, tile.rows, self.machine.columns)

    def _spread(self, steps: Sequence[tuple[int, Table]], row: int) -> None:
        """Emits sparse loads of beats, each by its permutation table, in any order, into weights from a row on."""
        slots = self.tables.side_by_side([table.key for _, table in steps])
        every = [
            Step(slot, beat, self.image.table(table) if is_new else None)
            for (beat, table), (slot, is_new) in zip(steps, slots, strict=True)
        ]
        found = walks(every, self.machine)
        for own in (tables for walk in found for tables in fetched(walk, self.machine)):
            self.add(own)  # all tables first, to hide the latency of DRAM
        for walk in found:
            self.add(spread(walk, row))

    def table(self, table: Table) -> int:
        """Returns the slot of a permutation table, loaded if necessary."""
        slot, is_new = self.tables.any(table.key)
        if is_new:
            self.add(Tables(self.image.table(table), slot, 1))
        return slot

    def function(self, table: Array) -> int:
        """Returns the slot of a lookup table, (256) entries of up to 16 bits, loaded if necessary."""
        content = table.astype("<i2").view(np.uint8)
        slot, is_new = self.functions.any(content.tobytes())
        if is_new:
            self.add(Functions(self.image.function(content), slot, 1))
        return slot

    def parameter_row(self, content: Array) -> int:
        """Returns the row of parameters with these bytes, loaded if necessary."""
        slot, is_new = self.parameters.any(content.tobytes())
        if is_new:
            self.add(Parameters(self.image.parameters(content), slot, 1))
        return slot


class _Work:
    """A layer that is being emitted.

    alone True if no tile is added to another one: sums then leave a half of the accumulators while others arrive
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
        if is_first:  # nothing streams yet, and stores would wait for all loads before them
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
        """Queues the DRAM loads of a run, if there is space for them before run `now` streams."""
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
                and held >= machine.half_accumulators // _SEND_PARTS
            ):
                self._send(number)

    def _base(self, run: Run) -> int:
        """Returns the accumulator of a run's first row, shared by tiles that are added up."""
        key = run.group, run.begin
        if run.first:
            self.bases[key] = self.writer.half * self.machine.half_accumulators + self.used
            self.used += run.end - run.begin
        return self.bases[key]

    def _flip(self, number: int) -> None:
        """Sends the sums of this accumulator half before that run streams, and switches to the other half."""
        if self.done:
            self._send(number)
        self.used = 0
        self.writer.half = 1 - self.writer.half

    def _send(self, number: int) -> None:
        """Sends complete sums through the scratchpad half from which that run does not stream."""
        upper = self.source.cells(number)[0] >= self.machine.half_depth * self.machine.rows
        self.sink.send(self.done, 1 - int(upper))
        self.done = []
