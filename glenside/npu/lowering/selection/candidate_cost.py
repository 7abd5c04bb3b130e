"""Predicts the cost of a mapping of a layer from a sample: cycles of the array, and beats of DMA.

The sample is the rows that first fill half of the scratchpad, and the first sums that leave the accumulators; costs are
scaled to all rows. So a predicted cost is approximate; exact are the cycles of the emitted program.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import inf

import numpy as np

from glenside.ir.errors import BadInput
from glenside.ir.operand import Array
from glenside.ir.term import Term
from glenside.ir.threads import concurrent_cached_property
from glenside.npu.lowering.allocation.double_buffering import Plan
from glenside.npu.lowering.allocation.scratchpad_allocation import Wanted, for_windows
from glenside.npu.lowering.allocation.skewed_layout import Reads
from glenside.npu.lowering.allocation.slot_allocator import Slots
from glenside.npu.lowering.emission.emit_results import turned
from glenside.npu.lowering.selection.window_cost import cycles_of_windows
from glenside.npu.lowering.tiling.layer_tiles import Layer
from glenside.npu.lowering.tiling.tile_order import Order
from glenside.npu.lowering.transfer.dram_operands import laid_out_at
from glenside.npu.lowering.transfer.permutation_table_transfers import beats_and_tables
from glenside.npu.lowering.transfer.sparse_weight_loads import spreadings
from glenside.npu.lowering.util.fast_divmod import divided
from glenside.npu.lowering.util.fast_unique import ordered, placed
from glenside.npu.machine.model import HALVES, Machine

_SAMPLE_BYTES = 1 << 15
"""Bytes of the scratchpad in a sample."""


@dataclass
class Priced:
    """A mapping, and the cycles of the array that its tiles take.

    tiles     computes the tiles, when they are needed
    reserved  rows of each half of the scratchpad that results pass through
    refused   why it cannot be tiled, if that was tried
    """

    tiles: Callable[[], Layer]
    machine: Machine
    cycles: int
    reserved: int
    refused: BadInput | None = None

    @concurrent_cached_property
    def layer(self) -> Layer:
        return self.tiles()

    @property
    def is_cut(self) -> bool:
        return "layer" in self.__dict__

    def cut(self) -> None:
        """Computes the tiles, or records why that is not possible."""
        try:
            _ = self.layer
        except BadInput as error:
            self.refused = error

    @concurrent_cached_property
    def order(self) -> Order:
        depth = self.machine.half_depth - self.reserved
        return Order(self.layer, self.machine, depth, (self.reserved, self.machine.half_depth))

    @concurrent_cached_property
    def plan(self) -> Plan:
        return Plan.of(self.order, 0)

    @concurrent_cached_property
    def weights(self) -> int:
        """Beats of DMA that load weights; a tile is loaded again after others replaced it."""
        slots, beats = Slots(self.machine.weight_rows // self.machine.rows), 0
        spreads = spreadings(self.machine).of_all(self.layer)
        for run in self.plan.runs:
            _, is_new = slots.any(str(run.tile).encode())
            spread = spreads[run.tile]
            rows = self.layer.loaded[run.tile] * self.machine.weight_beats
            beats += is_new * (rows if spread is None else len(spread.steps))
        return beats

    @concurrent_cached_property
    def _sample(self) -> tuple[Array, Array, Array, float]:
        """Elements in the sampled scratchpad rows, their banks and rows, and the ratio of all rows
        to the sampled ones.
        """
        rows = self.plan.chunks[0].rows[: max(1, _SAMPLE_BYTES // self.machine.rows)]
        every = sum(len(chunk.rows) for chunk in self.plan.chunks)
        numbers = self.order.rows.numbers[rows]
        row, lane = np.nonzero(numbers)
        return numbers[row, lane], lane, row, every / max(1, len(rows))

    def filled(self, leaf: Term, axis: int) -> float:
        """Predicts the cycles of DMA that load a streamed operand, with that axis innermost in DRAM."""
        elements, lane, row, times = self._sample
        first = self.layer.product.rows.first[leaf]
        own = (elements >= first) & (elements < first + leaf.access.size)
        where = laid_out_at(elements[own] - first, tuple(leaf.access.dims), axis, self.machine.bandwidth)
        return self._taken(*beats_and_tables(where, lane[own], row[own], self.machine), times)

    def windowed(self, dims: tuple[int, ...], axis: int) -> float:
        """Predicts the cycles in which DMA loads the only streamed operand by windows with the given innermost axis, if
        the scratchpad is otherwise empty; infinity if the layer cannot read windows.
        """
        reads = Reads.of(self.layer, dims)
        if reads is None:
            return inf
        skew = for_windows(Wanted(dims, {"": reads}, None, 0, 0), self.machine).get(axis)
        rows = (self.machine.half_depth - self.reserved) // HALVES
        return inf if skew is None else cycles_of_windows(reads, skew.strides, axis, rows, self.machine)

    @concurrent_cached_property
    def _sums(self) -> tuple[Array, Array, Array, float]:
        """Numbers of the elements whose sums leave the accumulators first, their items and banks, and the ratio of all
        to them.
        """
        lines, m = list[Array](), self.layer.product.rows.numbers.shape[1]
        count = 0
        for run in self.plan.runs:
            if run.last:
                if count + run.end - run.begin > self.machine.half_accumulators and count:
                    break
                lines.append(run.group * m + np.arange(run.begin, run.end))
                count += run.end - run.begin
        own = np.concatenate(lines)
        place = np.full(len(self.layer.groups) * m, -1)
        place[own] = np.arange(len(own))
        line, column = self._lines
        elements = np.flatnonzero(place.take(line) >= 0)
        item, lane = place[line[elements]], column[elements]
        passes = -(-self.machine.columns // self.machine.rows)
        part, lane = divided(lane, self.machine.rows)
        item = item * passes + part
        order = ordered(item)
        return elements[order], item[order], lane[order], len(place) / len(own)

    @concurrent_cached_property
    def _lines(self) -> tuple[Array, Array]:
        line, column = self.layer.lines()
        nothing = self.layer.elements.reshape(-1) <= 0
        return np.where(nothing, 0, line.reshape(-1)), column.reshape(-1)

    @property
    def first_to_leave(self) -> Array:
        """Numbers of the elements whose store cost is sampled, (n)."""
        return self._sums[0]

    def emptied(self, addresses: Array) -> float:
        """Predicts the cycles of DMA that store results to given addresses: sorted pairs (element, address), (n)(2).
        Only the sampled elements are used.
        """
        elements, *_ = self._sums
        first, last = (np.searchsorted(addresses[:, 0], elements, side=side) for side in ("left", "right"))
        sizes = last - first
        owner = np.repeat(np.arange(len(elements)), sizes)
        at = np.arange(int(sizes.sum())) - np.repeat(np.cumsum(sizes) - sizes, sizes) + np.repeat(first, sizes)
        return self._emptied(owner, addresses[at, 1])

    def emptied_in_order(self, dims: tuple[int, ...], axis: int) -> float:
        """Predicts the beats that store results to a tensor in DRAM with that axis innermost."""
        elements, *_ = self._sums
        where = laid_out_at(elements, dims, axis, self.machine.bandwidth)
        return self._emptied(np.arange(len(elements)), where)

    def _emptied(self, owner: Array, where: Array) -> float:
        """Predicts the beats that store some of the first elements, (n), each to an address, (n)."""
        _, item, lane, times = self._sums
        _, _, beat = placed(where // self.machine.bandwidth)
        turns = turned(item[owner], lane[owner], beat, int(item.max(initial=-1)) + 1, self.machine.rows)
        lanes = (lane[owner] + turns[item[owner]]) % self.machine.rows
        return self._taken(*beats_and_tables(where, lanes, item[owner], self.machine), times)

    def _taken(self, beats: int, tables: int, times: float) -> float:
        """Returns the beats of a part that occurs `times` times; tables stay loaded if half of the slots suffice."""
        again = times if tables > self.machine.tables // 2 else 1
        return beats * times + tables * self.machine.table_beats * again
