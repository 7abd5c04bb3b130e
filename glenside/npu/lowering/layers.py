"""Layers one by one: operands from DRAM into lanes and weights, rows through the array, and sums back to DRAM.

The lanes are two halves, of which one is filled while rows stream from the other; so are accumulators. DMA brings what
comes next as soon as there is room for it, in the order in which it is needed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from glenside.ir.operand import Array
from glenside.ir.term import Term
from glenside.npu.instructions import Address, Fill, Instruction, Lanes, Load, Stream, Sums, Tables, Weights
from glenside.npu.lowering.filling import Table, spread
from glenside.npu.lowering.image import Image
from glenside.npu.lowering.runs import Order, Run
from glenside.npu.lowering.tiles import Layer
from glenside.npu.machine import HALVES, Machine
from glenside.npu.nests import nests


@dataclass(frozen=True)
class Chunk:
    """What half of the lanes holds at a time: rows by their numbers, from its first address on, for the runs from
    `begin` until before `end`.
    """

    rows: Array
    half: int
    begin: int
    end: int


@dataclass(frozen=True)
class Plan:
    """Where the runs of a layer find their rows: the addresses of each, and the chunk in which they are."""

    runs: list[Run]
    addresses: list[Array]
    chunks: list[Chunk]
    chunk_of: list[int]

    @staticmethod
    def of(order: Order, half: int) -> Plan:
        """Of a layer whose first chunk is in that half."""
        machine, of_tile = order.machine, order.rows.of_tile
        where = np.full(len(order.rows.numbers), -1)
        plan, held, used = Plan([], [], [], []), list[Array](), 0

        def close() -> None:
            nonlocal half, used
            begin = plan.chunks[-1].end if plan.chunks else 0
            plan.chunks.append(Chunk(np.concatenate(held), half, begin, len(plan.runs)))
            where[:], used, half = -1, 0, 1 - half
            held.clear()

        for run in order.runs():
            wanted = of_tile[run.tile, run.begin : run.end]
            new = _distinct(wanted[where[wanted] < 0])
            if used + len(new) > machine.half_depth:
                close()
                new = _distinct(wanted)
            where[new] = half * machine.half_depth + used + np.arange(len(new))
            held.append(new)
            used += len(new)
            plan.runs.append(run)
            plan.addresses.append(where[wanted])
            plan.chunk_of.append(len(plan.chunks))
        close()
        return plan


def _distinct(numbers: Array) -> Array:
    """Each once, in the order in which they appear."""
    _, first = np.unique(numbers, return_index=True)
    found: Array = numbers[np.sort(first)]
    return found


@dataclass
class Slots:
    """Places of one size that are taken again when what they hold is not needed any more."""

    count: int
    held: dict[bytes, int] = field(default_factory=dict)
    until: dict[int, int] = field(default_factory=dict)
    """Slot -> the last run that needs what it holds."""

    def take(self, key: bytes, run: int, now: int) -> tuple[int, bool] | None:
        """A slot for what a run needs, and whether it must be filled; None where all are needed from run `now` on."""
        if key in self.held:
            slot = self.held.pop(key)
            self.held[key] = slot  # the one that was needed last
            self.until[slot] = max(self.until[slot], run)
            return slot, False
        if len(self.held) < self.count:
            slot = len(self.held)
        else:
            old = next((k for k, s in self.held.items() if self.until[s] < now), None)
            if old is None:
                return None
            slot = self.held.pop(old)
        self.held[key], self.until[slot] = slot, run
        return slot, True


class Writer:
    """A program of layers as it grows: its instructions one after the other, DRAM, and what memories hold.

    active  the weights that are in the array
    tiles   of the last layer: the DRAM address of the first row of weights of each, and how many rows there are
    """

    def __init__(self, machine: Machine) -> None:
        self.machine, self.image = machine, Image(machine)
        self.written: list[Instruction] = []
        self.weights = Slots(machine.weight_rows // machine.rows)
        self.tables = Slots(machine.tables)
        self.run = self.chunk = self.half = 0
        self.active = b""
        self.tiles: dict[int, tuple[int, int]] = {}
        self.every = Table(tuple((lane, 0, 0) for lane in range(machine.rows)))

    def layer(self, layer: Layer, values: Mapping[Term, Array], addresses: Array) -> Array:
        """The instructions of a layer, from `values` of its weights and the DRAM addresses of the elements that rows
        are made of (by number; element 0 is none). Addresses of its elements, int32 each; -1 where they are 0.
        """
        self.tiles.clear()
        work = _Work(self, layer, values, addresses)
        work.write()
        self.run += len(work.plan.runs)
        self.chunk += len(work.plan.chunks)
        return work.elements()

    def add(self, instruction: Instruction) -> None:
        """One more: those of other units that it needs or that need it come before or after it."""
        self.written.append(instruction)

    def table(self, table: Table) -> int:
        """The slot of a lane table, filled before."""
        found = self.tables.take(repr(table.entries).encode(), 0, 1)  # whoever needs another is queued
        assert found is not None, "all are free"
        slot, is_new = found
        if is_new:
            self.add(Tables(self.image.table(table), slot, 1))
        return slot


class _Work:
    """A layer that is being written."""

    def __init__(self, writer: Writer, layer: Layer, values: Mapping[Term, Array], addresses: Array) -> None:
        self.writer, self.layer, self.machine = writer, layer, writer.machine
        self.order = Order(layer, writer.machine)
        self.plan = Plan.of(self.order, writer.chunk % HALVES)
        self.weights = layer.product.weights.values(values, "int8")
        self.addresses = addresses
        m = self.order.rows.of_tile.shape[1]
        self.row_bytes = writer.machine.sum_beats * writer.machine.bandwidth
        self.base = writer.image.room(len(layer.groups) * m * self.row_bytes)
        every = layer.product.rows.numbers
        self.enabled: Array = np.any(every > 0, axis=1)
        self.lanes = np.flatnonzero(self.enabled.any(axis=0))
        self.filled = 0
        self.done: list[tuple[Run, int]] = []
        self.used = 0

    def write(self) -> None:
        ahead = 0
        for now, run in enumerate(self.plan.runs):
            while ahead < len(self.plan.runs) and self._fill(ahead, now):
                ahead += 1
            self._stream(now, run)
        self._flip()

    def elements(self) -> Array:
        """The address of each element of the layer; -1 of zeros."""
        found, m, columns = self.layer.elements, self.order.rows.of_tile.shape[1], self.machine.columns
        tile, place = np.divmod(found - 1, m * columns)
        row, column = np.divmod(place, columns)
        group = np.zeros(len(self.layer.product.rows.numbers), np.int64)
        for number, each in enumerate(self.layer.groups):
            group[each.tiles[0]] = number
        where = self.base + (group[tile] * m + row) * self.row_bytes + 4 * column
        made: Array = np.where(found > 0, where, -1)
        return made

    def _fill(self, number: int, now: int) -> bool:
        """Queue what a run needs from DRAM, if there is room for it before run `now` streams."""
        chunks, chunk = self.plan.chunks, self.plan.chunk_of[number]
        if chunk >= HALVES and chunks[chunk - HALVES].end > now:
            return False
        if not self._fill_weights(number, now):
            return False
        if chunk == self.filled:
            self._fill_lanes(chunks[chunk])
            self.filled += 1
        return True

    def _fill_weights(self, number: int, now: int) -> bool:
        tile = self.plan.runs[number].tile
        content = self._content(tile)
        base = self.writer.run
        found = self.writer.weights.take(content.tobytes(), base + number, base + now)
        if found is None:
            return False
        slot, is_new = found
        dram = self.writer.image.weights(content)
        self.writer.tiles[tile] = dram, len(content)
        if is_new:
            instruction = Weights(dram, slot * self.machine.rows, len(content))
            self.writer.add(instruction)
        return True

    def _content(self, tile: int) -> Array:
        """The rows of a tile's weights up to the last lane that is enabled."""
        lanes = np.flatnonzero(self.enabled[tile])
        found: Array = self.weights[tile, : int(lanes[-1]) + 1 if len(lanes) else 1]
        return found

    def _fill_lanes(self, chunk: Chunk) -> None:
        machine, writer = self.machine, self.writer
        elements = self.order.rows.numbers[chunk.rows]
        row, lane = np.nonzero(elements)
        first = chunk.half * machine.half_depth
        self._zero(first, elements)
        for part in spread(self.addresses[elements[row, lane]], lane, first + row, machine.bandwidth):
            table = writer.table(part.table)
            for nest in part.nests:
                instruction = Lanes(nest.counts, nest.address(0, machine.bandwidth), nest.address(1), table)
                writer.add(instruction)

    def _zero(self, first: int, elements: Array) -> None:
        """Zeros where lanes that are enabled hold none of the elements."""
        empty: Array = elements[:, self.lanes] == 0
        rows = np.flatnonzero(empty.any(axis=1))
        if len(rows):
            writer = self.writer
            table = writer.table(writer.every)
            for nest in nests(first + rows[:, None]):
                instruction = Fill(nest.counts, nest.address(0), table)
                writer.add(instruction)

    def _stream(self, number: int, run: Run) -> None:
        writer, machine, plan = self.writer, self.machine, self.plan
        size = run.end - run.begin
        if run.first:
            self._room(size)
        content = self._content(run.tile)
        key = content.tobytes()
        fresh = key != writer.active
        if fresh:
            writer.active, slot = key, writer.weights.held[key]
            load = Load(slot * machine.rows, len(content))
            writer.add(load)
        lanes = np.flatnonzero(self.enabled[run.tile])
        table = writer.table(Table(tuple((int(lane), 0, 0) for lane in lanes)))
        base = writer.half * machine.half_accumulators + self.used
        rows = np.stack([plan.addresses[number], base + np.arange(size)], axis=1)
        for nest in nests(rows):
            writer.add(Stream(nest.counts, nest.address(0), table, nest.address(1), not run.first, fresh))
            fresh = False
        if run.last:
            self.done.append((run, base))
            self.used += size

    def _room(self, size: int) -> None:
        """Room for so many sums: in the other half where there is none left in this one."""
        if self.used + size > self.machine.half_accumulators:
            self._flip()

    def _flip(self) -> None:
        """Send the sums of this half to DRAM, and go on in the other."""
        writer, m = self.writer, self.order.rows.of_tile.shape[1]
        for run, base in self.done:
            dram = self.base + (run.group * m + run.begin) * self.row_bytes
            size = run.end - run.begin
            instruction = Sums(
                (size, 1, 1), Address(dram, (self.row_bytes, 0, 0)), Address(base, (1, 0, 0))
            )  # fmt: skip
            writer.add(instruction)
        self.done, self.used = [], 0
        writer.half = 1 - writer.half
