"""Layers whose rows stream from where a tensor is held in the lanes, or whose results are held there."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from glenside.analysis.places import Places
from glenside.ir.operand import Array
from glenside.npu.instructions import Lanes, Store
from glenside.npu.lowering.carrying import carried, gone_on
from glenside.npu.lowering.filling import Table
from glenside.npu.lowering.holding import Held
from glenside.npu.lowering.layers import Writer
from glenside.npu.lowering.runs import Run, parts
from glenside.npu.lowering.storing import Bytes, BytesOut
from glenside.npu.lowering.tiles import Layer
from glenside.npu.machine import Machine


class InPlace:
    """Rows that stream from a tensor in the lanes. `layer` is the layer with rows of weights where its lanes are."""

    def __init__(self, layer: Layer, held: Held, name: str, machine: Machine) -> None:
        self.machine = machine
        first, apart = held.reads[name].places(held.skew.strides)
        used = held.reads[name].used
        self.first = first + held.base
        self.layer = _moved(layer, apart % machine.rows, used)
        self.tables = [
            Table(tuple(sorted((at % machine.rows, 0, at // machine.rows) for at in own[there].tolist())))
            for own, there in zip(apart, used, strict=True)
        ]
        self.runs: Sequence[Run] = [*_runs(layer, machine)]

    def fill(self, number: int, now: int) -> bool:
        return True

    def table(self, tile: int) -> Table:
        return self.tables[tile]

    def cells(self, number: int) -> Array:
        run = self.runs[number]
        found: Array = self.first[run.tile, run.begin : run.end]
        return found

    def half(self, number: int) -> int:
        return int(self.cells(number)[0] >= self.machine.half_depth * self.machine.rows)


def _moved(layer: Layer, lanes: Array, used: Array) -> Layer:
    """The layer with other lanes for the same elements: of each tile those that are used, (tiles)(R)."""
    rows, weights = layer.product.rows, layer.product.weights
    tile, lane = np.nonzero(used)
    to = lanes[tile, lane]
    moved = np.zeros_like(rows.numbers)
    moved[tile, :, to] = rows.numbers[tile, :, lane]
    stays = np.zeros_like(weights.numbers)
    stays[tile, to] = weights.numbers[tile, lane]
    product = replace(layer.product, rows=Places(moved, rows.first), weights=Places(stays, weights.first))
    return replace(layer, product=product)


def _runs(layer: Layer, machine: Machine) -> Iterator[Run]:
    """Group by group, as many rows at a time as half of the accumulators hold."""
    m = layer.product.rows.numbers.shape[1]
    for number, group in enumerate(layer.groups):
        for begin, end in parts(0, m, machine.half_accumulators):
            for place, tile in enumerate(group.tiles):
                yield Run(number, tile, begin, end, place == 0, place == len(group.tiles) - 1)


class Kept(BytesOut):
    """A layer's results as bytes where they are held."""

    def __init__(self, writer: Writer, layer: Layer, parameters: Array, held: Held, zero: int) -> None:
        every = np.arange(held.cells.size)
        super().__init__(writer, layer, Bytes(parameters, every, held.cells))
        self.lanes, self.depth = 0, 1 << 30
        self.held, self.zero = held, zero

    def begin(self) -> None:
        """Gaps between elements are zeros."""
        self.writer.blank(self.held.gaps, self.zero)

    def send(self, done: Sequence[tuple[Run, int]], half: int) -> None:
        writer, lanes = self.writer, self.machine.rows
        writer.settle()
        for batch in self._batches(done):
            rows = np.array([writer.parameter_row(self.contents[self.content[item]]) for item in batch.items])
            alike = self.alike[batch.items]
            more = np.stack([batch.sums, rows, np.maximum(alike, 0), alike >= 0], axis=1)
            item, column = batch.item[batch.owner], batch.column[batch.owner]
            for slot, nest in writer.with_tables(carried(item, column, batch.address, lanes, more)):
                cells, sums, row, one, same = (nest.address(which) for which in range(5))
                to, turn = gone_on(cells, lanes)
                writer.add(Store(nest.counts, sums, to, slot, row, same.base > 0, one, turn, True))
            writer.forget(batch.address)


_PARTS = 16
"""Into how many parts what comes from DRAM is cut, so that layers may begin before all of it is there."""


def bring(writer: Writer, addresses: Array, held: Held, zero: int) -> None:
    """A tensor from DRAM, the address of each element, to where it is held."""
    machine = writer.machine
    writer.blank(held.gaps, zero)
    writer.forget(held.cells)
    beat, byte = np.divmod(addresses.reshape(-1), machine.bandwidth)
    order = np.argsort(beat, kind="stable")
    for own in np.array_split(order, _PARTS):
        beats, which = np.unique(beat[own], return_inverse=True)
        found = carried(which, byte[own], held.cells[own], machine.rows, beats[:, None])
        for slot, nest in writer.with_tables(found):
            to, turn = gone_on(nest.address(0), machine.rows)
            writer.add(Lanes(nest.counts, nest.address(1, machine.bandwidth), to, slot, turn, True))
