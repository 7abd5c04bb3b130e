"""Bytes of DRAM to rows of lanes: beats, the lane tables that spread them, and the loops of both."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from glenside.ir.operand import Array
from glenside.npu.addresses import encoded
from glenside.npu.nests import Nest, nests


@dataclass(frozen=True)
class Table:
    """A lane table: of each entry that is enabled what it selects, and its offset; sorted by entries."""

    entries: tuple[tuple[int, int, int], ...]

    def array(self, entries: int) -> Array:
        """As it is in DRAM: select, enabled, offset; 8 bytes an entry."""
        found = np.zeros((3, entries), np.int64)
        for entry, select, offset in self.entries:
            found[:, entry] = select, 1, offset
        return encoded(*found)


@dataclass(frozen=True)
class Spread:
    """Beats that one table spreads: the loops of beats (the first sequence, by number) and of rows of lanes."""

    table: Table
    nests: tuple[Nest, ...]


def spread(sources: Array, lanes: Array, rows: Array, width: int) -> list[Spread]:
    """Each byte at `sources` of DRAM to its lane and row, (n) each, by beats of `width` bytes.

    A lane takes one byte of a beat at a time: a beat is read as often as the lane that takes the most needs it.
    """
    if not len(sources):
        return []
    order, begins = _steps(sources, lanes, rows, width)
    beats, bytes_ = np.divmod(sources[order], width)
    lanes, rows = lanes[order], rows[order]
    bases = np.minimum.reduceat(rows, begins)
    sizes = np.diff(np.append(begins, len(beats)))
    offsets = rows - np.repeat(bases, sizes)
    entries, places = np.stack([lanes, bytes_, offsets], axis=1), np.stack([beats[begins], bases], axis=1)
    return [Spread(table, tuple(nests(places[steps]))) for table, steps in by_table(begins, sizes, entries)]


def steps(sources: Array, lanes: Array, rows: Array, width: int) -> int:
    """How many beats `spread` reads."""
    return len(_steps(sources, lanes, rows, width)[1]) if len(sources) else 0


def _steps(sources: Array, lanes: Array, rows: Array, width: int) -> tuple[Array, Array]:
    """The order in which bytes are taken, (n), and where in it each reading of a beat begins."""
    beats = sources // width
    order = np.lexsort((rows, lanes, beats))
    beats, taken = beats[order], lanes[order]
    fresh = np.append(True, (beats[1:] != beats[:-1]) | (taken[1:] != taken[:-1]))
    starts = np.flatnonzero(fresh)
    times = np.arange(len(beats)) - starts[np.cumsum(fresh) - 1]  # how often the lane took of this beat before
    by_time = np.lexsort((taken, times, beats))
    beats, times = beats[by_time], times[by_time]
    begins = np.flatnonzero(np.append(True, (beats[1:] != beats[:-1]) | (times[1:] != times[:-1])))
    return order[by_time], begins


def by_table(begins: Array, sizes: Array, entries: Array) -> list[tuple[Table, list[int]]]:
    """Steps of the same entries, (n)(3), with their table, in the order of their first one."""
    found: dict[bytes, list[int]] = {}
    for step, (begin, size) in enumerate(zip(begins.tolist(), sizes.tolist(), strict=True)):
        found.setdefault(entries[begin : begin + size].tobytes(), []).append(step)
    made = []
    for steps in found.values():
        begin, size = begins[steps[0]], sizes[steps[0]]
        made.append((Table(tuple(map(tuple, entries[begin : begin + size].tolist()))), steps))
    return made
