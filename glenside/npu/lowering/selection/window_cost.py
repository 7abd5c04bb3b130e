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

_SOME = 6
"""Windows that are written; the others are taken to be as the last half of these, which find most tables there."""


def cycles_of_windows(reads: Reads, strides: Array, axis: int | None, rows: int, machine: Machine) -> float:
    """Cycles of DMA that bring windows of a tensor in DRAM with that axis innermost, or as a host puts it, to so many
    rows of lanes each, with these strides there; infinitely many where a run of rows needs more, or is made of several
    tensors, of which no windows come. Known to who reads so.
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
    for number in range(min(count, _SOME)):
        windows.bring(number)
        taken.append(writer.busy["dma"])
    last = taken[-1] - taken[len(taken) // 2]
    return taken[-1] + last * max(0, count - _SOME) / max(1, len(taken) - 1 - len(taken) // 2)
