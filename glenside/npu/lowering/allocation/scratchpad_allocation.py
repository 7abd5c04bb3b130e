"""Scratchpad allocation: chooses the tensors that stay on chip between layers, and their addresses."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import TypeVar

import numpy as np

from glenside.ir.operand import Array
from glenside.ir.term import Term
from glenside.npu.lowering.allocation.skewed_layout import Reads, Skew, Writes, every_skew, skews
from glenside.npu.lowering.tiling.strip_slices import Cut
from glenside.npu.machine.model import Machine

_WINDOW = 8
"""What part of the lanes a tile reads at most, where tensors come by windows."""
_WAYS = 2
"""How often a tensor passes the memory port that is in DRAM, at least."""
_BEAM = 24
"""Ways to place tensors that are followed."""

_Found = TypeVar("_Found")


@dataclass(frozen=True)
class Held:
    """A tensor in the lanes, or what of it each strip needs, one after the other at one place.

    base         the cell of its element of coordinates 0
    begin, end   the cells that are its own, in whole rows
    since, until the layers between which it is there, by number
    cut          what of it is there; None: all
    strips       of each strip what of it is there, and the cell of its element of coordinates 0 then
    """

    skew: Skew
    reads: Mapping[str, Reads]
    dims: tuple[int, ...]
    base: int
    begin: int
    end: int
    since: int
    until: int
    cut: Cut | None = None
    strips: tuple[tuple[Cut, int], ...] = ()

    def at(self, strip: int) -> Held:
        """Returns the allocation in a strip; itself if the tensor is stored whole."""
        if not self.strips:
            return self
        cut, base = self.strips[strip]
        return replace(self, cut=cut, base=base, strips=())

    @cached_property
    def elements(self) -> Array:
        """Returns the numbers of the elements that are stored."""
        return np.arange(len(self.cells)) if self.cut is None else self.cut.elements

    @cached_property
    def cells(self) -> Array:
        """Returns the cells of the tensor's elements, (elements)."""
        return _cells(self.dims, self.skew) + self.base

    @cached_property
    def gaps(self) -> Array:
        """Cells that are read and are no elements."""
        touched = np.zeros(self.end - self.begin, bool)
        for reads in self.reads.values():
            touched[_touched(reads, self.skew, self.cut) + self.base - self.begin] = True
        touched[self.cells[self.elements] - self.begin] = False
        return np.flatnonzero(touched) + self.begin


@dataclass(frozen=True)
class Wanted:
    """A tensor that may stay: which layers read it, and how; from which layer until which one it is there; and what of
    it is there in each strip, or () where that is all of it.
    """

    dims: tuple[int, ...]
    reads: Mapping[str, Reads]
    writes: Writes | None
    begin: int
    end: int
    cuts: tuple[Cut, ...] = ()

    def spares(self, machine: Machine) -> float:
        """Cycles of DMA of its ways through DRAM."""
        return _WAYS * int(np.prod(self.dims)) / machine.bandwidth


@dataclass(frozen=True)
class Passing:
    """A tensor in DRAM, windows of which may be in lanes; `axis` is innermost there where that was chosen by prices of
    these.
    """

    wanted: Wanted
    machine: Machine
    axis: int | None = None

    def ordered(self, axis: int | None) -> Passing:
        """Returns a copy with that axis innermost."""
        return replace(self, axis=axis)

    @property
    def reads(self) -> Mapping[str, Reads]:
        return self.wanted.reads

    @property
    def skews(self) -> Mapping[int, Skew]:
        """By the axis that is innermost in DRAM: the strides, whose `extra` are the cycles that bring all of it."""
        return for_windows(self.wanted, self.machine)


@dataclass(frozen=True)
class _Placed:
    """Tensors that have a place: cycles that this spares; the last of them, its shape and first row, and those before
    it; `low` if the next one is better at the low end.

    alive  of those that are there yet the first row, how many, and until which layer
    """

    spared: float = 0.0
    last: tuple[Term, Wanted, _Shape, int, int] | None = None
    others: _Placed | None = None
    low: bool = True
    alive: tuple[tuple[int, int, int], ...] = ()

    def every(self) -> Iterator[tuple[Term, Wanted, _Shape, int, int]]:
        """All of them, the last one first."""
        at: _Placed | None = self
        while at is not None and at.last is not None:
            yield at.last
            at = at.others

    def seen(self, since: int) -> tuple[object, ...]:
        """Returns a key of what matters to tensors from that layer on."""
        return (self.low, *sorted(own for own in self.alive if own[2] >= since))

    def more(
        self, term: Term, own: Wanted, ways: float, shapes: Sequence[tuple[_Shape, int]], rows: range
    ) -> list[_Placed]:
        """With one more at either end, of the first shape for which there is room, each with the rows that it needs;
        `ways` are the cycles of its ways through DRAM. Tensors come in the order in which they begin: those that are
        there no more when this one is do not come again.
        """
        alive = tuple([other for other in self.alive if other[2] >= own.begin])
        taken = sorted([(row, row + need) for row, need, _ in alive])
        for shape, need in shapes:
            ends = {end: row for end in (self.low, not self.low) if (row := _room(need, taken, rows, end)) is not None}
            if ends:
                return [
                    _Placed(
                        self.spared + ways - shape.skew.extra,
                        (term, own, shape, row, need),
                        self,
                        not self.low,
                        (*alive, (row, need, own.end)),
                    )
                    for row in dict.fromkeys(ends.values())
                ]
        return []


def held(
    wanted: Mapping[Term, Wanted], machine: Machine, rows: range, stay: Container[Term]
) -> tuple[dict[Term, Held], dict[Term, Passing]]:
    """Allocates scratchpad rows to tensors of `stay` by a beam search that maximizes the DMA cycles saved.

    Returns the resident tensors, and the others.
    """
    beam = [_Placed()]
    for term, own in sorted(wanted.items(), key=lambda pair: pair[1].begin):
        if term in stay:
            ways = own.spares(machine)
            shapes = [(shape, shape.rows(machine)) for shape in _shapes(own, machine)]
            every = [new for each in beam for new in (*each.more(term, own, ways, shapes, rows), each)]
            every.sort(key=lambda each: -each.spared)
            beam = [*{each.seen(own.begin): each for each in reversed(every)}.values()][::-1][:_BEAM]
    found = {}
    for term, own, shape, row, need in [*max(beam, key=lambda each: each.spared).every()][::-1]:
        bases = [row * machine.rows - least for least, _ in shape.extents]
        ends = row * machine.rows, (row + need) * machine.rows
        strips = tuple(zip(own.cuts, bases, strict=bool(own.cuts)))
        found[term] = Held(shape.skew, own.reads, own.dims, bases[0], *ends, own.begin, own.end, None, strips)
    others = {term: Passing(own, machine) for term, own in wanted.items() if term not in found}
    return found, others


def find_shapes(own: Wanted, machine: Machine) -> None:
    """Computes the layouts that `held` needs of a tensor; they are memoized."""
    _shapes(own, machine)


def fit_together(dims: tuple[int, ...], reads: Sequence[Reads], machine: Machine) -> bool:
    """True if some strides let all readers stream a tensor, wherever it is stored."""
    return bool(_shapes(Wanted(dims, {str(number): own for number, own in enumerate(reads)}, None, 0, 0), machine))


def _room(need: int, taken: Sequence[tuple[int, int]], rows: range, low: bool) -> int | None:
    """The lowest or the highest place of so many rows that are free; those that are taken are in order."""
    at, found = rows.start, None
    for begin, end in (*taken, (rows.stop, rows.stop)):
        if begin - at >= need:
            if low:
                return at
            found = begin - need
        at = max(at, end)
    return found


@dataclass(frozen=True)
class _Shape:
    """Strides, and the cells that are touched, seen from that of coordinates 0: from the first one until before the
    other, of each strip or in all.
    """

    skew: Skew
    extents: tuple[tuple[int, int], ...]

    def rows(self, machine: Machine) -> int:
        """Returns the number of scratchpad rows."""
        return max(-(-(most - least) // machine.rows) for least, most in self.extents)


def _shapes(own: Wanted, machine: Machine) -> list[_Shape]:
    """Returns the possible layouts of a tensor, by store cycles and then by cells.

    Leaves out layouts that need a zero where an element is stored, and those slower to store than a way through DRAM.
    """
    reads = [*own.reads.values()]
    key = "shapes", own.dims, (*reads,), own.writes, own.cuts, machine
    return _once(reads, key, partial(_found_shapes, own, reads, machine))


def _found_shapes(own: Wanted, reads: Sequence[Reads], machine: Machine) -> list[_Shape]:
    every = every_skew(own.dims, reads, own.writes, machine)
    found = [
        _Shape(skew, _extents(own, skew)) for skew in every if skew.extra <= own.spares(machine) and _is_free(own, skew)
    ]
    room = machine.rows / machine.bandwidth  # of others that pass DRAM instead
    return sorted(found, key=lambda shape: shape.skew.extra + shape.rows(machine) * room)


def _once(reads: Sequence[Reads], key: tuple[object, ...], find: Callable[[], _Found]) -> _Found:
    """Memoizes a result with the first of the readers, which each layer has one of."""
    known = reads[0].shapes
    if key not in known:
        known[key] = find()
    found: _Found = known[key]
    return found


def _is_free(own: Wanted, skew: Skew) -> bool:
    """True if no element is stored where a zero is needed. Memoized for all strips."""
    reads = [*own.reads.values()]
    return _once(reads, ("free", own.dims, (*reads,), skew.strides.tobytes()), partial(_found_free, own, skew))


def _found_free(own: Wanted, skew: Skew) -> bool:
    zeros = np.concatenate([reads.zeros @ skew.strides for reads in own.reads.values()])
    least, most = _ends(own.dims, skew)
    zeros = zeros[(zeros >= least) & (zeros <= most)]
    if not len(zeros):
        return True
    there = np.zeros(1 + most - least, bool)
    there[_cells(own.dims, skew) - least] = True
    return not there[zeros - least].any()


def _extents(own: Wanted, skew: Skew) -> tuple[tuple[int, int], ...]:
    if own.cuts:
        (reads,), cells = own.reads.values(), partial(_cells, own.dims, skew)
        places = [reads.places(skew.strides)]
        ends = [cut.ends(own.dims, skew.strides, cells) for cut in own.cuts]
        return tuple(_extent([reads], places, cut, *of) for cut, of in zip(own.cuts, ends, strict=True))
    every = [*own.reads.values()]
    return (_extent(every, [reads.places(skew.strides) for reads in every], None, *_ends(own.dims, skew)),)


def _ends(dims: Sequence[int], skew: Skew) -> tuple[int, int]:
    """The first and the last cell of a tensor's elements, seen from that of coordinates 0."""
    last = (np.array(dims) - 1) * skew.strides
    return int(np.minimum(last, 0).sum()), int(np.maximum(last, 0).sum())


def _extent(
    every: Sequence[Reads], places: Sequence[tuple[Array, Array]], cut: Cut | None, least: int, most: int
) -> tuple[int, int]:
    """From which cell until before which one rows read, which are at these places, or elements are: these from the
    least to the most.
    """
    last_element = most
    for reads, own in zip(every, places, strict=True):
        first, apart = _behind(reads, own, cut, last_element)
        last = first + apart.max(axis=1, keepdims=True)
        streaming = ... if cut is None else cut.streaming
        least, most = min(least, int(first[streaming].min())), max(most, int(last[streaming].max()))
    return least, most + 1


def for_windows(own: Wanted, machine: Machine) -> dict[int, Skew]:
    """Strides with which beats of DRAM go to distinct lanes, and tiles read few cells from the first to the last; none
    with which an element would be where a zero has to be.
    """
    reads = [*own.reads.values()]
    return _once(reads, ("windows", own.dims, (*reads,), machine), partial(_windowed, own, machine))


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
            tried = skews(own.dims, [*own.reads.values()], Writes([beat], beats), machine)
            every = [skew for skew in tried if _is_free(own, skew)]
            if every:
                best = min(every, key=lambda skew: (reach(skew) > limit, skew.extra, reach(skew)))
                passes = -(-len(beat) // machine.rows)
                found[axis] = replace(best, extra=best.extra + passes * beats)
    return found


def _cells(dims: Sequence[int], skew: Skew) -> Array:
    """Returns the cells of a tensor's elements, relative to the element of coordinates 0."""
    found = np.zeros(1, np.int64)
    for size, stride in zip(dims, skew.strides.tolist(), strict=True):
        found = (found[:, None] + np.arange(size) * stride).reshape(-1)
    return found


def firsts(reads: Reads, strides: Array, cut: Cut | None) -> tuple[Array, Array]:
    """`Reads.places`, of which rows without elements are behind what else a strip reads."""
    places = reads.places(strides)
    if cut is None or not reads.nothing.any():
        return places
    coordinates = np.stack(np.unravel_index(cut.elements, reads.dims), axis=-1)
    return _behind(reads, places, cut, int((coordinates @ strides).max(initial=0)))


def _behind(reads: Reads, places: tuple[Array, Array], cut: Cut | None, last: int) -> tuple[Array, Array]:
    """Returns the places with rows of zeros moved behind the strip; `last` is the greatest cell of the strip's
    elements.
    """
    first, apart = places
    if cut is None or not reads.nothing.any() or not (reads.nothing & cut.streaming).any():
        return first, apart
    there = cut.streaming & ~reads.nothing
    behind = np.where(there, first + apart.max(axis=1, keepdims=True), np.iinfo(np.int64).min).max()
    return np.where(reads.nothing, max(int(behind), last, 0) + 1, first), apart


def _touched(reads: Reads, skew: Skew, cut: Cut | None = None) -> Array:
    """Cells that lanes read, seen from that of coordinates 0."""
    first, apart = firsts(reads, skew.strides, cut)
    if cut is not None:
        return _touched_of(reads, [own[rows] for own, rows in zip(first, cut.streaming, strict=True)], apart)
    return _touched_of(reads, [*first], apart)


def _touched_of(reads: Reads, firsts: Sequence[Array], apart: Array) -> Array:
    first = np.concatenate(firsts)
    low, high = int(first.min(initial=0)), int(first.max(initial=0) + apart.max(initial=0)) + 1
    touched = np.zeros(high - low, bool)
    for rows, own, used in zip(firsts, apart, reads.used, strict=True):
        touched[(rows[:, None] - low + own[used]).reshape(-1)] = True
    return np.flatnonzero(touched) + low


def free(taken: Sequence[Held], machine: Machine, reserved: int) -> tuple[int, tuple[int, int]]:
    """Returns the largest number of free rows that exist twice, and where both ranges begin.

    Resident tensors and `reserved` rows at both ends are not free; the ranges are in one half if that is larger.
    """
    (low, first), (high, second) = gaps(taken, machine, reserved)
    most, begin = max((low, first), (high, second))
    if most // 2 > min(low, high):
        return most // 2, (begin, begin + most // 2)
    return min(low, high), (first, second)


def gaps(taken: Sequence[Held], machine: Machine, reserved: int) -> list[tuple[int, int]]:
    """Returns the largest contiguous free range of each half: its rows, and the first of them."""
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
