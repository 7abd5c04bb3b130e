"""What must hold of loops, whatever the numbers: a sentence for each place where it does not.

Every place lies in its buffer; what is read was written before; steps that threads share touch nothing that another one
writes; results are written whole; what lies in the arena at a time lies apart. Places are those of all values of the
counters for which guards hold (`footprints`): nothing is tried out, and what cannot be shown counts as wrong.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from math import prod

import numpy as np

from glenside.codegen.accesses import Access, accesses, is_written_first
from glenside.codegen.arena import Arena
from glenside.codegen.footprints import Footprint, axes_in, counted, footprint, holds, moves_evenly
from glenside.codegen.form import ill_formed
from glenside.codegen.in_place import may_overwrite
from glenside.codegen.loops import Buffer, For, Loops, Nest, Require, Role, Statement, Way, When, is_parallel
from glenside.codegen.races import collision
from glenside.ir.dtypes import RECORDS
from glenside.ir.index_map import Axis
from glenside.ir.operand import Array

_STEPS = 1 << 14
"""Steps of outer loops that are looked at one by one, at most."""
_TRIED = 1 << 22
_GIVEN = (Role.INPUT, Role.CONSTANT)
_OWN = (Role.REGISTER, Role.SCRATCH)
"""Of one thread, in one nest."""


def faults(loops: Loops, plan: Arena | None = None) -> list[str]:
    """What is wrong with loops, and with where a plan has their temporaries: nest by nest; [] where nothing is."""
    return list(_Checker(plan).faults(loops))


class _Checker:
    """What is written so far: buffer -> which of its elements. Those of another one in its bytes end it."""

    def __init__(self, plan: Arena | None) -> None:
        self.plan = plan
        self.written: dict[Buffer, Array] = {}

    def faults(self, loops: Loops) -> Iterator[str]:
        packed = [p for p in loops.packings if p.buffer.role is Role.CONSTANT]
        for packing in packed:
            nest = Nest(f"{packing.source} packed", packing.buffer, packing.statements())
            self.written[packing.buffer] = np.zeros(packing.buffer.dims.product(), bool)
            yield from self._nest(nest)
        for buffer in loops.buffers:
            if buffer.role not in _GIVEN:
                self.written[buffer] = np.zeros(buffer.dims.product(), bool)
        if self.plan is not None:
            yield from self._planned(self.plan)
        for nest in loops.nests:
            yield from self._nest(nest)
        for buffer in dict.fromkeys(loops.results):
            written = self.written.get(buffer)
            if written is None or not written.all():
                where = "" if written is None else f"[{int(np.argmin(written))}]"
                yield f"{buffer}{where} is a result that no nest writes"

    def _planned(self, plan: Arena) -> Iterator[str]:
        for buffer, place in plan.places.items():
            if place < 0 or place + buffer.bytes > plan.size or place % RECORDS[buffer.dtype].numpy.itemsize:
                yield f"{buffer} has byte {place} of the arena, in which it does not lie as it must"
        for buffer in self.written:
            if buffer.role is Role.TEMPORARY and buffer not in plan.places:
                yield f"{buffer} has no place in the arena"

    def _nest(self, nest: Nest) -> Iterator[str]:
        malformed = list(dict.fromkeys(ill_formed(nest)))
        found = malformed or list(dict.fromkeys(_Nest(nest, self.written, self._beside(nest)).faults()))
        yield from (f"{nest.buffer} ({nest.what}): {said}" for said in found)
        self._write(nest, bool(malformed))

    def _beside(self, nest: Nest) -> list[str]:
        """What a nest uses at once lies apart."""
        places = self.plan.places if self.plan is not None else {}
        own = [b for b in dict.fromkeys(a.buffer for a in accesses(nest.body)) if b in places]
        pairs = [(a, b) for i, a in enumerate(own) for b in own[i + 1 :] if _meet(places, a, b)]
        wrong = [(a, b) for a, b in pairs if places[a] != places[b] or not _either(nest.body, a, b)]
        return [f"{a} and {b} lie on each other in the arena, and it uses both" for a, b in wrong]

    def _write(self, nest: Nest, malformed: bool) -> None:
        """What is written after a nest, and what is no more."""
        places = self.plan.places if self.plan is not None else {}
        writes = [a for a in accesses(nest.body) if a.writes and a.buffer in self.written]
        for buffer in {a.buffer for a in writes} & places.keys():
            for other in (b for b in self.written if b in places and b != buffer and _meet(places, b, buffer)):
                size = RECORDS[other.dtype].numpy.itemsize
                low = max(0, places[buffer] - places[other]) // size
                high = -(-(places[buffer] + buffer.bytes - places[other]) // size)
                self.written[other][low : max(0, high)] = False
        for access in writes:
            if malformed:
                self.written[access.buffer][:] = True  # it is said already
                continue
            here = None if access.picked else footprint(access, {}, {})
            if here is not None and here.exact and not here.is_empty and _lies_within(here, access.buffer):
                here.mark(self.written[access.buffer])


def _meet(places: Mapping[Buffer, int], a: Buffer, b: Buffer) -> bool:
    return places[a] < places[b] + b.bytes and places[b] < places[a] + a.bytes


def _either(body: Sequence[Statement], a: Buffer, b: Buffer) -> bool:
    return may_overwrite(body, a, b) or may_overwrite(body, b, a)


def _lies_within(here: Footprint, buffer: Buffer) -> bool:
    low, high = here.bounds
    return low >= 0 and high < buffer.dims.product()


class _Nest:
    """One nest: its accesses, of which those outside are told first, and no more of them."""

    def __init__(self, nest: Nest, written: Mapping[Buffer, Array], beside: Sequence[str]) -> None:
        self.nest, self.written, self.beside = nest, written, beside
        self.picks = dict(_held(nest.body))
        self.accesses = list(accesses(nest.body))
        self.own = {a.buffer for a in self.accesses if a.writes}

    def faults(self) -> Iterator[str]:
        yield from self.beside
        outside = [said for access in self.accesses if (said := self._outside(access))]
        yield from outside
        if outside:
            return
        for access in self.accesses:
            if not access.writes and (access.buffer.role not in _GIVEN or access.buffer in self.own):
                yield from self._unwritten(access)
        for loop, around in _parallel(self.nest.body, ()):
            yield from self._shared(loop, around)
        for number, statement in enumerate(self.nest.body):
            if isinstance(statement, For) and statement.beside is not None:
                yield from self._along(number, statement, statement.beside)

    def _footprint(self, access: Access, fixed: Mapping[Axis, int] | None = None) -> Footprint:
        return footprint(access, fixed or {}, self.picks)

    def _outside(self, access: Access) -> str:
        size = access.buffer.dims.product()
        here = self._footprint(access)
        if here.is_empty:
            return ""
        low, high = here.bounds
        if low >= 0 and high < size:
            return ""
        place = low if low < 0 else high
        what = "writes" if access.writes else "reads"
        sure = "" if here.exact else ", as far as can be seen,"
        return f"it {what}{sure} {access.buffer}[{place}], which has {size} elements{self._when(access, place)}"

    def _when(self, access: Access, place: int, fixed: Mapping[Axis, int] | None = None) -> str:
        """Where the counters are when an access is at a place."""
        held = [guard.index for h in access.conditions for guard in h.guards]
        axes = [a for a in access.axes if a in {*axes_in(access.place, *held)}]
        if not axes or prod(axis.size for axis in axes) > _TRIED or access.picked:
            return f" (along {', '.join(map(str, axes))})" if axes else ""
        counters = counted(axes)
        true = (access.place.evaluate(counters) == place) & holds(access.conditions, counters)
        for axis, value in (fixed or {}).items():
            if axis in axes:
                true = true & (counters[axis.number] == value)
        at = np.argwhere(np.broadcast_to(true, [axis.size for axis in axes]))
        if not at.size:
            return f" (along {', '.join(map(str, axes))})"
        return " at " + ", ".join(f"{axis} = {value}" for axis, value in zip(axes, at[0], strict=True))

    # What is read was written.

    def _unwritten(self, read: Access) -> Iterator[str]:
        own = read.buffer.role in _OWN
        size = read.buffer.dims.product()
        before = np.zeros(size, bool) if own else self.written.get(read.buffer, np.ones(size, bool))
        missing = None if before.all() else self._footprint(read).missing(before)
        if missing is None:
            return
        writes = [w for w in self.accesses if w.writes and w.buffer == read.buffer and w.path < read.path]
        writes = [w for w in writes if w.sure and not w.picked and (not own or self._together(w, read))]
        shared = {w: _common(w, read) for w in writes}
        for depth in sorted({*shared.values()}, reverse=True):
            axes = read.axes[:depth]
            same = [w for w in writes if shared[w] == depth]
            moves = {moves_evenly(access, axes) for access in (read, *same)}
            if len(moves) == 1 and None not in moves:  # what holds at one step of them holds at all
                fixed = dict.fromkeys(axes, 0)
                known = before if not axes else np.zeros(size, bool)
                if self._missing(read, fixed, dict.fromkeys(same, fixed), known) is None:
                    return
        axes = read.axes[: max(shared.values(), default=0)]
        if prod(axis.size for axis in axes) > _STEPS:
            yield f"it cannot be shown that {read.buffer}[{read.place}] is written before it is read"
            return
        for at in product(*(range(axis.size) for axis in axes)):
            fixed = dict(zip(axes, at, strict=True))
            done = {w: {a: fixed[a] for a in axes[: shared[w]]} for w in writes}
            missing = self._missing(read, fixed, done, before)
            if missing is not None:
                where = self._when(read, missing, fixed)
                yield f"it reads {read.buffer}[{missing}], which is not written before{where}"
                return

    def _together(self, a: Access, b: Access) -> bool:
        """Whether both are done by one call of one thread."""
        between = self.nest.body[a.path[0] : b.path[0] + 1]
        return a.path[0] == b.path[0] or not any(map(is_parallel, between))

    def _missing(
        self, read: Access, fixed: dict[Axis, int], writes: Mapping[Access, dict[Axis, int]], before: Array
    ) -> int | None:
        """The first place that is read and not written."""
        mask = before.copy()
        for write, at in writes.items():
            here = self._footprint(write, at)
            if here.exact and not here.is_empty:
                here.mark(mask)
        return self._footprint(read, fixed).missing(mask)

    # What threads share.

    def _shared(self, loop: For, around: tuple[For, ...]) -> Iterator[str]:
        inside = [a for a in self.accesses if a.loops[: len(around) + 1] == (*around, loop)]
        axes = tuple(outer.axis for outer in around)
        for buffer in dict.fromkeys(a.buffer for a in inside if a.writes):
            own = [a for a in inside if a.buffer == buffer]
            if buffer.role in _OWN:
                if not is_written_first(buffer, loop.body):
                    yield f"{buffer} is of a thread, and steps of {loop.axis}, which any thread may take, share"
                continue
            even = {moves_evenly(access, axes) for access in own}
            outer = prod(axis.size for axis in axes)
            if axes and (None in even or len(even) > 1) and outer > _STEPS:
                yield f"it cannot be shown that steps of {loop.axis} write apart in {buffer}"
                continue
            every = product(*(range(axis.size) for axis in axes))
            for at in every if None in even or len(even) > 1 else [(0,) * len(axes)]:
                place = collision(own, loop.axis, dict(zip(axes, at, strict=True)), self.picks)
                if place is not None:
                    several = f"several steps of {loop.axis}, which any thread may take,"
                    yield f"{several} use {buffer}[{place}], and one writes it"
                    break

    def _along(self, number: int, loop: For, beside: tuple[int, int]) -> Iterator[str]:
        """What is wrong with a loop that goes along with those before it: it uses what they write, or misses steps."""
        parts, first = beside
        before = number - 1
        while before > 0 and _goes_along(self.nest.body[before]):
            before -= 1
        if before < 0 or not is_parallel(self.nest.body[before]):
            yield f"{loop.axis} goes along with no loop that threads share"
            return
        if first < 0 or first + loop.axis.size > parts:
            yield f"{loop.axis} goes along with {parts} parts of a loop, and has {loop.axis.size} from {first} on"
        own = [a for a in self.accesses if a.path[0] == number]
        others = [a for a in self.accesses if before <= a.path[0] < number]
        for buffer in {a.buffer: None for a in own if a.buffer.role not in _OWN}:
            here = [a for a in own if a.buffer == buffer]
            there = [a for a in others if a.buffer == buffer]
            written, used = (self._mask(buffer, [a for a in side if a.writes]) for side in (here, there))
            meet = written & self._mask(buffer, there) | used & self._mask(buffer, here)
            if meet.any():
                place = int(np.argmax(meet))
                yield f"{loop.axis} goes along with loops that use {buffer}[{place}], which one of them writes"

    def _mask(self, buffer: Buffer, found: Sequence[Access]) -> Array:
        """The places of a buffer that are touched, or may be."""
        mask = np.zeros(buffer.dims.product(), bool)
        for access in found:
            here = self._footprint(access)
            if here.exact and not here.is_empty:
                here.mark(mask)
            elif not here.is_empty:
                low, high = here.bounds
                mask[max(0, low) : high + 1] = True
        return mask


def _goes_along(statement: Statement) -> bool:
    return isinstance(statement, For) and statement.beside is not None


def _common(a: Access, b: Access) -> int:
    """How many loops are around both."""
    pairs = enumerate(zip(a.loops, b.loops, strict=False))
    return next((i for i, (mine, other) in pairs if mine is not other), min(len(a.loops), len(b.loops)))


def _held(body: Sequence[Statement]) -> Iterator[tuple[str, int]]:
    for statement in body:
        if isinstance(statement, Require):
            yield statement.local.name, statement.size
        elif isinstance(statement, For | When):
            yield from _held(statement.body)


def _parallel(body: Sequence[Statement], around: tuple[For, ...]) -> Iterator[tuple[For, tuple[For, ...]]]:
    for statement in body:
        if isinstance(statement, For):
            if statement.way is Way.PARALLEL:
                yield statement, around
            yield from _parallel(statement.body, (*around, statement))
        elif isinstance(statement, When):
            yield from _parallel(statement.body, around)
