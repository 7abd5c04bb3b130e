"""Emits the column instructions of layers whose items are columns of the accumulators: softmax and layer norms."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from glenside.npu.isa.base import Instruction
from glenside.npu.isa.column_unit import Apply, Deviation, Greatest, Mean, Scale, Total
from glenside.npu.isa.fields import Address, Counts
from glenside.npu.lowering.emission.emit_layer import Writer
from glenside.npu.lowering.tiling.tile_order import Run
from glenside.npu.program import requantization
from glenside.quantization.layers import Normalised


def write_columns(writer: Writer, own: Normalised, done: Sequence[tuple[Run, int]]) -> None:
    """Emits column instructions on complete sums: whole items, group by group."""
    for first, counts in _rows_of_groups(done).values():
        sums = Address(first, (1, 0, 0))
        for instruction in _operations(writer, own, counts, sums):
            writer.add(instruction)


def _rows_of_groups(done: Sequence[tuple[Run, int]]) -> Mapping[int, tuple[int, Counts]]:
    """Returns the first accumulator row of each group, and the number of rows."""
    found: dict[int, tuple[int, Counts]] = {}
    for run, base in done:
        first, (before, _, _) = found.get(run.group, (base, (0, 1, 1)))
        assert base == first + before == first + run.begin, "the rows of a group follow each other"
        found[run.group] = first, (run.end, 1, 1)
    return found


def _operations(writer: Writer, own: Normalised, counts: Counts, sums: Address) -> Iterator[Instruction]:
    """Yields instructions one by one. The caller adds each one before the parameters of the next are loaded, so both
    may use the same row.
    """
    if own.table is None:
        yield Mean(counts, sums, _entry(writer, 0, own.first, 0))
        yield Deviation(counts, sums, _entry(writer, own.added, own.second, 0))
    else:
        function = writer.function(own.table)
        yield Greatest(counts, sums)
        yield Apply(counts, sums, _entry(writer, 0, own.first, 127), function)
        yield Total(counts, sums, _entry(writer, 0, own.second, 0))
    yield Scale(counts, sums)


def _entry(writer: Writer, bias: int, scale: float, zero: int) -> int:
    """Returns a row with the same parameters in all columns."""
    every = np.zeros(writer.machine.columns, np.int64)
    return writer.parameter_row(requantization.encoded(every + bias, np.float32(scale), zero, -128, 127))
