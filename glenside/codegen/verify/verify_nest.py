"""Verifies one nest: accesses out of bounds, reads before writes, races of parallel steps."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from math import prod

import numpy as np

from glenside.codegen.loop_ir.accesses import Access, accesses, is_written_first
from glenside.codegen.loop_ir.faults import Condition, Fault
from glenside.codegen.loop_ir.footprints import Footprint, axes_in, counted, footprint, holds, moves_evenly
from glenside.codegen.loop_ir.index_boxes import Box, box_of, contains, is_apart, is_apart_each_step
from glenside.codegen.loop_ir.ir import Buffer, For, Nest, Require, Role, Statement, Way, When, is_parallel
from glenside.codegen.verify.data_races import collision
from glenside.codegen.verify.written_elements import Written
from glenside.ir.index_map import Axis
from glenside.ir.operand import Array

_MAX_STEPS = 1 << 14
"""Maximum steps of outer loops that are checked one by one."""
_MAX_SEARCHED_STEPS = 1 << 22
"""Maximum steps that are searched for the counters that a message names."""
_GIVEN = (Role.INPUT, Role.CONSTANT)
_OWN = (Role.REGISTER, Role.SCRATCH)
"""Roles of buffers that are private to one thread in one nest."""


class NestFaults:
    """The faults of one nest; if accesses are out of bounds, only these are reported."""

    def __init__(self, nest: Nest, written: Mapping[Buffer, Written]) -> None:
        self.nest, self.written = nest, written
        self.picks: dict[str, int] = {}
        for name, size in _held(nest.body):
            self.picks[name] = max(size, self.picks.get(name, 0))
        self.accesses = list(accesses(nest.body))
        self.own = {a.buffer for a in self.accesses if a.writes}
        self.boxes: dict[Access, Box | None] = {}

    def faults(self) -> Iterator[Fault]:
        outside = [Fault(Condition.WITHIN, said) for access in self.accesses if (said := self._outside(access))]
        yield from outside
        if outside:
            return
        for access in self.accesses:
            if not access.writes and (access.buffer.role not in _GIVEN or access.buffer in self.own):
                yield from (Fault(Condition.WRITTEN, said) for said in self._unwritten(access))
        for loop, around in _parallel(self.nest.body, ()):
            yield from self._race_faults(loop, around)
        for number, statement in enumerate(self.nest.body):
            if isinstance(statement, For) and statement.beside is not None:
                along = self._beside_faults(number, statement, statement.beside)
                yield from (Fault(Condition.RACES, said) for said in along)

    def _footprint(self, access: Access, fixed: Mapping[Axis, int] | None = None) -> Footprint:
        return footprint(access, fixed or {}, self.picks)

    def _box(self, access: Access, fixed: Mapping[Axis, int] | None = None) -> Box | None:
        if fixed:
            return box_of(access, fixed, self.picks)
        if access not in self.boxes:
            self.boxes[access] = box_of(access, {}, self.picks)
        return self.boxes[access]

    def _outside(self, access: Access) -> str:
        size = access.buffer.dims.product()
        box = self._box(access)
        if box is not None and box.first >= 0 and box.last < size:
            return ""
        if box is None and self._is_surely_within(access, size):
            return ""
        here = self._footprint(access)
        if here.is_empty:
            return ""
        low, high = here.bounds
        if low >= 0 and high < size:
            return ""
        place = low if low < 0 else high
        what = "writes" if access.writes else "reads"
        found = what if here.exact else f"may {what[:-1]}"
        return f"it {found} {access.buffer}[{place}], which has {size} elements{self._when(access, place)}"

    def _is_surely_within(self, access: Access, size: int) -> bool:
        """True if an access is within its buffer even without guards, and for any quotients."""
        low, high = access.place.bounds
        moves = [step * (self.picks[local.name] - 1) for local, step in access.picked]
        return (
            low + sum(m for m in moves if m < 0) >= 0
            and high + access.count - 1 + sum(m for m in moves if m > 0) < size
        )

    def _when(self, access: Access, place: int, fixed: Mapping[Axis, int] | None = None) -> str:
        """Returns, for a message, values of the counters at which an access has an index."""
        held = [guard.index for h in access.conditions for guard in h.guards]
        axes = [a for a in access.axes if a in {*axes_in(access.place, *held)}]
        if not axes or prod(axis.size for axis in axes) > _MAX_SEARCHED_STEPS or access.picked:
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

    # Reads before writes.

    def _unwritten(self, read: Access) -> Iterator[str]:
        own = read.buffer.role in _OWN
        state = Written(read.buffer.dims.product()) if own else self.written.get(read.buffer)
        box = self._box(read)
        if state is None or state.is_whole or (box is not None and state.covers(box)):
            return
        writes = [w for w in self.accesses if w.writes and w.buffer == read.buffer and w.path < read.path]
        writes = [w for w in writes if w.sure and not w.picked and (not own or self._same_call(w, read))]
        shared = {w: _common(w, read) for w in writes}
        if not self._is_just_written(read, shared):
            yield from self._missed(read, shared, state.mask())

    def _missed(self, read: Access, shared: Mapping[Access, int], before: Array) -> Iterator[str]:
        """Checks all elements of a read; `shared`: earlier write -> number of loops around both."""
        if self._footprint(read).missing(before) is None:
            return
        for depth in sorted({*shared.values()}, reverse=True):
            axes = read.axes[:depth]
            same = [w for w, common in shared.items() if common == depth]
            moves = {moves_evenly(access, axes) for access in (read, *same)}
            if len(moves) == 1 and None not in moves:  # a condition that holds at one step holds at all
                fixed = dict.fromkeys(axes, 0)
                known = before if not axes else np.zeros(before.size, bool)
                if self._missing(read, fixed, dict.fromkeys(same, fixed), known) is None:
                    return
        axes = read.axes[: max(shared.values(), default=0)]
        if prod(axis.size for axis in axes) > _MAX_STEPS:
            yield f"it cannot be shown that {read.buffer}[{read.place}] is written before it is read"
            return
        for at in product(*(range(axis.size) for axis in axes)):
            fixed = dict(zip(axes, at, strict=True))
            done = {w: {a: fixed[a] for a in axes[:common]} for w, common in shared.items()}
            missing = self._missing(read, fixed, done, before)
            if missing is not None:
                where = self._when(read, missing, fixed)
                yield f"it reads {read.buffer}[{missing}], which is not written before{where}"
                return

    def _is_just_written(self, read: Access, shared: Mapping[Access, int]) -> bool:
        """True if an earlier write, in the same steps of the common loops, covers the box of a read."""
        for write, depth in shared.items():
            axes = read.axes[:depth]
            move = moves_evenly(read, axes)
            if move is not None and move == moves_evenly(write, axes):
                fixed = dict.fromkeys(axes, 0)
                inner, outer = self._box(read, fixed), self._box(write, fixed)
                if inner is not None and outer is not None and contains(outer, inner):
                    return True
        return False

    def _same_call(self, a: Access, b: Access) -> bool:
        """True if one call of one thread does both accesses."""
        between = self.nest.body[a.path[0] : b.path[0] + 1]
        return a.path[0] == b.path[0] or not any(map(is_parallel, between))

    def _missing(
        self, read: Access, fixed: dict[Axis, int], writes: Mapping[Access, dict[Axis, int]], before: Array
    ) -> int | None:
        """Returns the first index that is read and not written; None if there is none."""
        mask = before.copy()
        for write, at in writes.items():
            here = self._footprint(write, at)
            if here.exact and not here.is_empty:
                here.mark(mask)
        return self._footprint(read, fixed).missing(mask)

    # Races.

    def _race_faults(self, loop: For, around: tuple[For, ...]) -> Iterator[Fault]:
        inside = [a for a in self.accesses if a.loops[: len(around) + 1] == (*around, loop)]
        axes = tuple(outer.axis for outer in around)
        for buffer in dict.fromkeys(a.buffer for a in inside if a.writes):
            own = [a for a in inside if a.buffer == buffer]
            if buffer.role in _OWN:
                if not is_written_first(buffer, loop.body):
                    said = f"{buffer} is private to a thread, and parallel steps of {loop.axis} share it"
                    yield Fault(Condition.PRIVATE, said)
                continue
            if self._are_apart_each_step(own, axes, loop.axis):
                continue
            even = {moves_evenly(access, axes) for access in own}
            outer = prod(axis.size for axis in axes)
            if axes and (None in even or len(even) > 1) and outer > _MAX_STEPS:
                said = f"it cannot be shown that steps of {loop.axis} write disjoint elements of {buffer}"
                yield Fault(Condition.RACES, said)
                continue
            every = product(*(range(axis.size) for axis in axes))
            for at in every if None in even or len(even) > 1 else [(0,) * len(axes)]:
                place = collision(own, loop.axis, dict(zip(axes, at, strict=True)), self.picks)
                if place is not None:
                    yield Fault(
                        Condition.RACES, f"parallel steps of {loop.axis} use {buffer}[{place}], and one writes it"
                    )
                    break

    def _are_apart_each_step(self, own: Sequence[Access], axes: Sequence[Axis], axis: Axis) -> bool:
        """True if boxes show that no step of an axis touches what another step writes; False if unknown."""
        moves = {moves_evenly(access, (*axes, axis)) for access in own}
        move = moves.pop()
        if moves or move is None:
            return False
        fixed = dict.fromkeys((*axes, axis), 0)
        boxes = [(access, self._box(access, fixed)) for access in own]
        used = list(dict.fromkeys(box for _, box in boxes if box is not None))
        written = list(dict.fromkeys(box for access, box in boxes if box is not None and access.writes))
        if any(box is None for _, box in boxes):
            return False
        return axis.size < 2 or is_apart_each_step(written, used, move[-1], axis.size)

    def _beside_faults(self, number: int, loop: For, beside: tuple[int, int]) -> Iterator[str]:
        """Yields the faults of a loop that runs beside the parallel loop before it: races, or steps out of range."""
        parts, first = beside
        before = number - 1
        while before > 0 and _goes_along(self.nest.body[before]):
            before -= 1
        if before < 0 or not is_parallel(self.nest.body[before]):
            yield f"{loop.axis} runs beside no parallel loop"
            return
        host = self.nest.body[before]
        if isinstance(host, For) and loop.axis.size and not host.axis.size:
            yield f"{loop.axis} runs beside a loop that has no steps"
        if first < 0 or first + loop.axis.size > parts:
            yield f"{loop.axis} runs beside {parts} parts of a loop, but has {loop.axis.size} steps from part {first}"
        own = [a for a in self.accesses if a.path[0] == number]
        others = [a for a in self.accesses if before <= a.path[0] < number]
        for buffer in {a.buffer: None for a in own if a.buffer.role not in _OWN}:
            here = [a for a in own if a.buffer == buffer]
            there = [a for a in others if a.buffer == buffer]
            if self._are_apart(here, there):
                continue
            written, used = (self._mask(buffer, [a for a in side if a.writes]) for side in (here, there))
            meet = written & self._mask(buffer, there) | used & self._mask(buffer, here)
            if meet.any():
                place = int(np.argmax(meet))
                yield f"{loop.axis} runs beside loops that use {buffer}[{place}], and one of them writes it"

    def _are_apart(self, here: Sequence[Access], there: Sequence[Access]) -> bool:
        """True if boxes show that neither side touches what the other writes; False if unknown."""
        pairs = {(self._box(a), self._box(b)) for a in here for b in there if a.writes or b.writes}
        return all(a is not None and b is not None and is_apart(a, b) for a, b in pairs)

    def _mask(self, buffer: Buffer, found: Sequence[Access]) -> Array:
        """Returns the mask of elements of a buffer that are, or may be, touched."""
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
    """Returns the number of loops around both accesses."""
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
