"""Predicts the DMA cost of loading a tensor by windows, from the loads that lowering would emit."""

from __future__ import annotations

from math import inf

import numpy as np

from glenside.ir.errors import BadInput
from glenside.ir.operand import Array
from glenside.npu.lowering.allocation.skewed_layout import Reads
from glenside.npu.lowering.emission.emit_layer import Feed, Writer
from glenside.npu.lowering.emission.resident_rows import Windows
from glenside.npu.lowering.transfer.dram_operands import laid_out
from glenside.npu.machine.model import Machine

_EMITTED_WINDOWS = 6
"""Number of windows that are emitted; the others are assumed to cost as the last half of these, which reuse most
tables.
"""


def cycles_of_windows(reads: Reads, strides: Array, axis: int | None, rows: int, machine: Machine) -> float:
    """Predicts the cycles of DMA that load windows of a tensor into `rows` scratchpad rows each. In DRAM `axis` is
    innermost, or None if the host stores it; `strides` are those in the scratchpad. Infinity if a run of rows needs
    more, or rows read several tensors. Memoized in `reads`.
    """
    key = "by windows", reads.dims, strides.tobytes(), axis, rows, machine
    if key not in reads.shapes:
        reads.shapes[key] = _cycles(reads, strides, axis, rows, machine)
    found: float = reads.shapes[key]
    return found


def _cycles(reads: Reads, strides: Array, axis: int | None, rows: int, machine: Machine) -> float:
    if len(reads.layer.product.rows.first) > 1:
        return inf
    size = int(np.prod(reads.dims))
    places = np.arange(size) if axis is None else laid_out(reads.dims, axis, machine.bandwidth)
    writer, bases = Writer(machine), (0, rows * machine.rows)
    try:
        windows = Windows(writer, reads.layer, reads, strides, Feed([]), places, bases, rows * machine.rows)
    except BadInput:
        return inf
    count, taken = len(windows.windows), [0]
    for number in range(min(count, _EMITTED_WINDOWS)):
        windows.bring(number)
        taken.append(writer.busy["dma"])
    last = taken[-1] - taken[len(taken) // 2]
    return taken[-1] + last * max(0, count - _EMITTED_WINDOWS) / max(1, len(taken) - 1 - len(taken) // 2)
