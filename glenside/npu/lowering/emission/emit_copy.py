"""Copies within DRAM by the machine's own instructions: beats to lanes, and from there to where they are wanted too."""

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
    """Bytes at some addresses, (n), to others, (n): one may go to several. What is there is there already."""
    for number, part in enumerate(_parts(sources, targets, writer.machine)):
        first = (writer.chunk + number) % HALVES * writer.machine.half_depth
        writer.fill_lanes(part.sources, part.lanes, first + part.rows)
        writer.empty_lanes(part.targets, part.lanes[part.owner], first + part.rows[part.owner])


def cycles_of_copy(sources: Array, targets: Array, machine: Machine) -> float:
    """Estimates the DMA cycles of a copy: extrapolated from its first part, with one DRAM latency for each part."""
    part = next(_parts(sources, targets, machine, min(machine.half_depth, -(-_SOME // machine.rows))), None)
    if part is None:
        return 0.0
    times, cycles = len(sources) / len(part.targets), 0.0
    parts = np.ceil(times * (int(part.rows[-1]) + 1) / machine.half_depth)
    for addresses, which in ((part.sources, slice(None)), (part.targets, part.owner)):
        beats, tables = beats_and_tables(addresses, part.lanes[which], part.rows[which], machine)
        again = times if tables > machine.tables // 2 else 1  # else they stay
        cycles += beats * times + tables * machine.table_beats * again + float(parts) * machine.latency
    return cycles


_SOME = 1 << 17
"""Bytes of lanes that are looked at for a price."""


@dataclass(frozen=True)
class _Part:
    """Beats that are in half of the lanes at once.

    sources, lanes, rows  the bytes that they have: their addresses, and where they are in lanes, (bytes) each
    targets, owner        where bytes go, and which of them does, (n) each
    """

    sources: Array
    lanes: Array
    rows: Array
    targets: Array
    owner: Array


def _parts(sources: Array, targets: Array, machine: Machine, depth: int | None = None) -> Iterator[_Part]:
    """Each piece of a beat that lanes take in a cycle has a row of them, turned so that bytes of a beat that is
    written are in different lanes; so many rows at a time.
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
