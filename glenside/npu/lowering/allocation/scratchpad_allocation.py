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

_WINDOW_SHARE = 8
"""Maximum range of cells that a tile reads by windows: 1/8 of the scratchpad."""
_MIN_TRANSFERS = 2
"""Minimum number of DMA transfers of a tensor in DRAM: a store and a load."""
_BEAM_WIDTH = 24
"""Number of partial allocations that the beam search keeps."""

_Found = TypeVar("_Found")


@dataclass(frozen=True)
class Held:
    """A tensor in the scratchpad, or the slices of it that strips need, one after another at the same place.

    base          cell of its element with coordinates 0
    begin, end    its range of cells, in whole rows
    since, until  numbers of the first and the last layer of its live range
    cut           the slice that is stored; None: all
    strips        for each strip the slice that is stored, and the cell of its element with coordinates 0
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
        """Returns the cells that are read and hold no elements."""
        touched = np.zeros(self.end - self.begin, bool)
        for reads in self.reads.values():
            touched[_touched(reads, self.skew, self.cut) + self.base - self.begin] = True
        touched[self.cells[self.elements] - self.begin] = False
        return np.flatnonzero(touched) + self.begin


@dataclass(frozen=True)
class Wanted:
    """A tensor that may stay on chip: its readers and their access patterns, its live range in layers, and the slice
    that each strip needs, or () for the whole tensor.
    """

    dims: tuple[int, ...]
    reads: Mapping[str, Reads]
    writes: Writes | None
    begin: int
    end: int
    cuts: tuple[Cut, ...] = ()

    def spares(self, machine: Machine) -> float:
        """Returns the DMA cycles saved if the tensor never passes through DRAM."""
        return _MIN_TRANSFERS * int(np.prod(self.dims)) / machine.bandwidth


@dataclass(frozen=True)
class Passing:
    """A tensor in DRAM that may be read by windows; `axis` is innermost there if it was chosen by
    the cost of windows.
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
        """Strides by the axis that is innermost in DRAM; `extra` is the cycles that load the whole tensor."""
        return for_windows(self.wanted, self.machine)


@dataclass(frozen=True)
class _Placed:
    """A partial allocation: the DMA cycles saved, its last tensor with shape and first row, and the tensors before it.

    low    True if the next tensor is better placed at the low end
    alive  first row, number of rows and last layer of each live tensor
    """

    spared: float = 0.0
    last: tuple[Term, Wanted, _Shape, int, int] | None = None
    others: _Placed | None = None
    low: bool = True
    alive: tuple[tuple[int, int, int], ...] = ()

    def every(self) -> Iterator[tuple[Term, Wanted, _Shape, int, int]]:
        """Yields all tensors, the last one first."""
        at: _Placed | None = self
        while at is not None and at.last is not None:
            yield at.last
            at = at.others

    def seen(self, since: int) -> tuple[object, ...]:
        """Returns a key of the state that affects tensors from that layer on."""
        return (self.low, *sorted(own for own in self.alive if own[2] >= since))

    def more(
        self, term: Term, own: Wanted, ways: float, shapes: Sequence[tuple[_Shape, int]], rows: range
    ) -> list[_Placed]:
        """Returns the allocations with one more tensor at either end, in the first shape that fits.

        `shapes` are given with the rows that they need; `ways` are the DMA cycles saved. Tensors come in the order of
        their live ranges, so a tensor that is dead now is not needed again.
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
            beam = [*{each.seen(own.begin): each for each in reversed(every)}.values()][::-1][:_BEAM_WIDTH]
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
    """Returns the lowest or the highest begin of `need` free rows; `taken` is sorted."""
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
    """Strides, and the range of cells touched in each strip or in all, relative to the element with coordinates 0."""

    skew: Skew
    extents: tuple[tuple[int, int], ...]

    def rows(self, machine: Machine) -> int:
        """Returns the number of scratchpad rows."""
        return max(-(-(most - least) // machine.rows) for least, most in self.extents)


def _shapes(own: Wanted, machine: Machine) -> list[_Shape]:
    """Returns the possible layouts of a tensor, by store cycles and then by cells.

    Leaves out layouts that need a zero where an element is stored, and layouts that are slower to store than a copy
    through DRAM.
    """
    reads = [*own.reads.values()]
    key = "shapes", own.dims, (*reads,), own.writes, own.cuts, machine
    return _once(reads, key, partial(_found_shapes, own, reads, machine))


def _found_shapes(own: Wanted, reads: Sequence[Reads], machine: Machine) -> list[_Shape]:
    every = every_skew(own.dims, reads, own.writes, machine)
    found = [
        _Shape(skew, _extents(own, skew)) for skew in every if skew.extra <= own.spares(machine) and _is_free(own, skew)
    ]
    room = machine.rows / machine.bandwidth  # relative cost of the rows for other tensors, which then pass through DRAM
    return sorted(found, key=lambda shape: shape.skew.extra + shape.rows(machine) * room)


def _once(reads: Sequence[Reads], key: tuple[object, ...], find: Callable[[], _Found]) -> _Found:
    """Memoizes a result with the first reader; each layer has its own."""
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
    """Returns the first and the last cell of a tensor's elements, relative to the element with coordinates 0."""
    last = (np.array(dims) - 1) * skew.strides
    return int(np.minimum(last, 0).sum()), int(np.maximum(last, 0).sum())


def _extent(
    every: Sequence[Reads], places: Sequence[tuple[Array, Array]], cut: Cut | None, least: int, most: int
) -> tuple[int, int]:
    """Returns the range of cells that rows read or elements are stored in; elements are stored
    from `least` to `most`.
    """
    last_element = most
    for reads, own in zip(every, places, strict=True):
        first, apart = _behind(reads, own, cut, last_element)
        last = first + apart.max(axis=1, keepdims=True)
        streaming = ... if cut is None else cut.streaming
        least, most = min(least, int(first[streaming].min())), max(most, int(last[streaming].max()))
    return least, most + 1


def for_windows(own: Wanted, machine: Machine) -> dict[int, Skew]:
    """Returns strides for which a DRAM beat writes distinct banks, and tiles read short ranges of cells. Strides that
    store an element where a zero is needed are excluded.
    """
    reads = [*own.reads.values()]
    return _once(reads, ("windows", own.dims, (*reads,), machine), partial(_windowed, own, machine))


def _windowed(own: Wanted, machine: Machine) -> dict[int, Skew]:
    limit = machine.depth * machine.rows // _WINDOW_SHARE

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
    """Returns `Reads.places`, with rows of zeros moved behind the other cells of a strip."""
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
    """Returns the cells that are read, relative to the element with coordinates 0."""
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
    """Returns the size and the begin of the largest gap."""
    found, at = (0, rows.start), rows.start
    for begin, end in [*sorted(taken), (rows.stop, rows.stop)]:
        size = min(begin, rows.stop) - at
        found = max(found, (size, at), key=lambda gap: gap[0])
        at = max(at, end)
    return found
