"""Emits copies within DRAM: beats are loaded into the scratchpad and stored to all target addresses."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from glenside.ir.operand import Array
from glenside.npu.lowering.emission.emit_layer import Writer
from glenside.npu.lowering.emission.emit_results import turned
from glenside.npu.lowering.transfer.permutation_table_transfers import beats_and_tables
from glenside.npu.lowering.util.fast_unique import ordered, placed
from glenside.npu.machine.model import HALVES, Machine


def write_copy(writer: Writer, sources: Array, targets: Array) -> None:
    """Emits a copy of bytes from source addresses, (n), to target addresses, (n); a source may have several targets."""
    for number, part in enumerate(_parts(sources, targets, writer.machine)):
        first = (writer.chunk + number) % HALVES * writer.machine.half_depth
        writer.fill_lanes(part.sources, part.lanes, first + part.rows)
        writer.empty_lanes(part.targets, part.lanes[part.owner], first + part.rows[part.owner])


def cycles_of_copy(sources: Array, targets: Array, machine: Machine) -> float:
    """Estimates the DMA cycles of a copy: extrapolated from its first part, with one DRAM latency for each part."""
    part = next(_parts(sources, targets, machine, min(machine.half_depth, -(-_SAMPLE_BYTES // machine.rows))), None)
    if part is None:
        return 0.0
    times, cycles = len(sources) / len(part.targets), 0.0
    parts = np.ceil(times * (int(part.rows[-1]) + 1) / machine.half_depth)
    for addresses, which in ((part.sources, slice(None)), (part.targets, part.owner)):
        beats, tables = beats_and_tables(addresses, part.lanes[which], part.rows[which], machine)
        again = times if tables > machine.tables // 2 else 1  # otherwise they stay loaded
        cycles += beats * times + tables * machine.table_beats * again + float(parts) * machine.latency
    return cycles


_SAMPLE_BYTES = 1 << 17
"""Bytes of the scratchpad in the sample for a cost."""


@dataclass(frozen=True)
class _Part:
    """The beats that are in half of the scratchpad at once.

    sources, lanes, rows  DRAM address, bank and row of each byte, (bytes) each
    targets, owner        DRAM addresses to write, and the number of the byte for each, (n) each
    """

    sources: Array
    lanes: Array
    rows: Array
    targets: Array
    owner: Array


def _parts(sources: Array, targets: Array, machine: Machine, depth: int | None = None) -> Iterator[_Part]:
    """Yields parts of `depth` rows. Each piece of a beat that banks take in one cycle has its own row, rotated so that
    the bytes of a written beat are in different banks.
    """
    width, depth = min(machine.rows, machine.bandwidth), machine.half_depth if depth is None else depth
    order = ordered(sources)
    own = sources[order]
    piece = -(-machine.bandwidth // width) * (own // machine.bandwidth)
    piece += own % machine.bandwidth // width
    row = np.cumsum(np.diff(piece, prepend=piece[:1]) > 0)
    ends = np.searchsorted(row, np.arange(0, int(row.max(initial=-1)) + 1 + depth, depth))
    for begin, end in zip(ends[:-1].tolist(), ends[1:].tolist(), strict=True):
        which, rows = order[begin:end], row[begin:end] - row[begin]
        addresses, first, owner = placed(own[begin:end])
        lanes = addresses % machine.bandwidth % width
        _, _, beat = placed(targets[which] // machine.bandwidth)
        turns = turned(rows, lanes[owner], beat, int(rows[-1]) + 1, machine.rows)
        yield _Part(addresses, (lanes + turns[rows[first]]) % machine.rows, rows[first], targets[which], owner)
