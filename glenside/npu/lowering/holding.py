"""Which tensors stay in the lanes between layers, and where."""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from glenside.ir.operand import Array
from glenside.ir.term import Term
from glenside.npu.lowering.skewed import Reads, Skew, Writes, skewed, skews
from glenside.npu.machine import Machine

_WINDOW = 8
"""What part of the lanes a tile reads at most, where tensors come by windows."""


@dataclass(frozen=True)
class Held:
    """A tensor in the lanes.

    base         the cell of its element of coordinates 0
    begin, end   the cells that are its own, in whole rows
    since, until the layers between which it is there, by number
    """

    skew: Skew
    reads: Mapping[str, Reads]
    dims: tuple[int, ...]
    base: int
    begin: int
    end: int
    since: int
    until: int

    @cached_property
    def cells(self) -> Array:
        """Of its elements, (elements)."""
        found = np.full(self.dims, self.base)
        for axis, (size, stride) in enumerate(zip(self.dims, self.skew.strides.tolist(), strict=True)):
            found += (np.arange(size) * stride).reshape([-1 if other == axis else 1 for other in range(len(self.dims))])
        return found.reshape(-1)

    @cached_property
    def gaps(self) -> Array:
        """Cells that are read and are no elements."""
        touched = np.zeros(self.end - self.begin, bool)
        for reads in self.reads.values():
            touched[_touched(reads, self.skew) + self.base - self.begin] = True
        touched[self.cells - self.begin] = False
        return np.flatnonzero(touched) + self.begin


@dataclass(frozen=True)
class Wanted:
    """A tensor that may stay: which layers read it, and how; from which layer until which one it is there."""

    dims: tuple[int, ...]
    reads: Mapping[str, Reads]
    writes: Writes | None
    begin: int
    end: int


@dataclass(frozen=True)
class Passing:
    """A tensor in DRAM, windows of which may be in lanes.

    skews  by the axis that is innermost in DRAM: the strides, whose `extra` are the cycles that bring all of it
    """

    skews: Mapping[int, Skew]
    reads: Mapping[str, Reads]


def held(
    wanted: Mapping[Term, Wanted], machine: Machine, rows: range, stay: Container[Term]
) -> tuple[dict[Term, Held], dict[Term, Passing]]:
    """Those of `stay` that fit between these rows of the lanes, the first ones first, from both ends in turn; and the
    others.
    """
    found: dict[Term, Held] = {}
    lives: list[tuple[int, int, int, int]] = []
    low = True
    for term, own in sorted(wanted.items(), key=lambda pair: pair[1].begin):
        shape = _shape(own, machine) if term in stay else None
        if shape is None:
            continue
        skew, least, most = shape
        need = -(-(most - least) // machine.rows)
        taken = [(begin, end) for begin, end, since, until in lives if since <= own.end and own.begin <= until]
        row = _room(need, taken, rows, low)
        if row is None:
            continue
        low = not low
        lives.append((row, row + need, own.begin, own.end))
        begin = row * machine.rows
        end = begin + need * machine.rows
        found[term] = Held(skew, own.reads, own.dims, begin - least, begin, end, own.begin, own.end)
    others = {term: Passing(_for_windows(own, machine), own.reads) for term, own in wanted.items() if term not in found}
    return found, others


def _room(need: int, taken: Sequence[tuple[int, int]], rows: range, low: bool) -> int | None:
    """The lowest or the highest place of so many rows that are free."""
    edges, at = list[tuple[int, int]](), rows.start
    for begin, end in [*sorted(taken), (rows.stop, rows.stop)]:
        if begin - at >= need:
            edges.append((at, begin))
        at = max(at, end)
    if not edges:
        return None
    return edges[0][0] if low else edges[-1][1] - need


def _shape(own: Wanted, machine: Machine) -> tuple[Skew, int, int] | None:
    """Strides, and from which cell until before which one is touched, seen from that of coordinates 0. None where a
    zero would have to be where an element is.
    """
    reads = [*own.reads.values()]
    key = "shape", own.dims, (*reads,), own.writes, machine.rows
    if key not in reads[0].shapes:
        reads[0].shapes[key] = _shaped(own, machine)
    return reads[0].shapes[key]  # type: ignore[no-any-return]


def _shaped(own: Wanted, machine: Machine) -> tuple[Skew, int, int] | None:
    skew = skewed(own.dims, [*own.reads.values()], own.writes, machine)
    if skew is None:
        return None
    every = [np.zeros(1, np.int64), np.array([(np.array(own.dims) - 1) @ skew.strides])]
    every += [_touched(reads, skew) for reads in own.reads.values()]
    cells = np.concatenate(every)
    least, most = int(cells.min()), 1 + int(cells.max())
    elements = np.zeros(most - least, bool)
    elements[_of(own.dims, skew) - least] = True
    for reads in own.reads.values():
        if elements[reads.zeros @ skew.strides - least].any():
            return None
    return skew, least, most


def _for_windows(own: Wanted, machine: Machine) -> dict[int, Skew]:
    """Strides with which beats of DRAM go to distinct lanes, and tiles read few cells from the first to the last."""
    reads = [*own.reads.values()]
    key = "windows", own.dims, (*reads,), machine
    if key not in reads[0].shapes:
        reads[0].shapes[key] = _windowed(own, machine)
    return reads[0].shapes[key]  # type: ignore[no-any-return]


def _windowed(own: Wanted, machine: Machine) -> dict[int, Skew]:
    limit = machine.depth * machine.rows // _WINDOW

    def reach(skew: Skew) -> int:
        found = 0
        for reads in own.reads.values():
            first, apart = reads.places(skew.strides)
            found = max(found, int((first.max(axis=1) - first.min(axis=1) + apart.max(axis=1)).max()))
        return found

    found = {}
    for axis, size in enumerate(own.dims):
        if size > 1 or max(own.dims) == 1:
            beat = np.zeros((min(size, machine.bandwidth), len(own.dims)), np.int64)
            beat[:, axis] = np.arange(len(beat))
            beats = int(np.prod(own.dims)) / len(beat)
            every = [*skews(own.dims, [*own.reads.values()], Writes([beat], beats), machine)]
            if every:
                best = min(every, key=lambda skew: (reach(skew) > limit, skew.extra, reach(skew)))
                passes = -(-len(beat) // machine.rows)
                found[axis] = replace(best, extra=best.extra + passes * beats)
    return found


def _of(dims: Sequence[int], skew: Skew) -> Array:
    coordinates = np.stack(np.unravel_index(np.arange(int(np.prod(dims))), tuple(dims)), axis=-1)
    found: Array = coordinates @ skew.strides
    return found


def _touched(reads: Reads, skew: Skew) -> Array:
    """Cells that lanes read, seen from that of coordinates 0."""
    first, apart = reads.places(skew.strides)
    low, high = int(first.min(initial=0)), int(first.max(initial=0) + apart.max(initial=0)) + 1
    touched = np.zeros(high - low, bool)
    for rows, own, used in zip(first - low, apart, reads.used, strict=True):
        touched[(rows[:, None] + own[used]).reshape(-1)] = True
    return np.flatnonzero(touched) + low


def free(taken: Sequence[Held], machine: Machine, reserved: int) -> tuple[int, tuple[int, int]]:
    """How many rows there are twice, beside tensors that are held and `reserved` ones at both ends of the lanes, and
    where they begin: in each half, or in one of them where that is more.
    """
    (low, first), (high, second) = gaps(taken, machine, reserved)
    most, begin = max((low, first), (high, second))
    if most // 2 > min(low, high):
        return most // 2, (begin, begin + most // 2)
    return min(low, high), (first, second)


def gaps(taken: Sequence[Held], machine: Machine, reserved: int) -> list[tuple[int, int]]:
    """Of each half the most rows that are free side by side, and the first of them."""
    rows = [(own.begin // machine.rows, own.end // machine.rows) for own in taken]
    halves = range(reserved, machine.half_depth), range(machine.half_depth, machine.depth - reserved)
    return [_largest(rows, half) for half in halves]


def _largest(taken: Sequence[tuple[int, int]], rows: range) -> tuple[int, int]:
    """The size of the largest gap, and where it begins."""
    found, at = (0, rows.start), rows.start
    for begin, end in [*sorted(taken), (rows.stop, rows.stop)]:
        size = min(begin, rows.stop) - at
        found = max(found, (size, at), key=lambda gap: gap[0])
        at = max(at, end)
    return found
