"""Verifies the safety of loops, for all values of the data: one sentence for each fault.

Every access is within its buffer; every element is written before it is read; parallel steps do not race; results are
written completely; instructions that clamp get operands in range (`value_ranges`); buffers that are live together do
not overlap in the arena. The analysis covers all values of the counters for which guards hold (`footprints`). Nothing
is run; a condition that cannot be shown counts as a fault.
"""

from __future__ import annotations

from collections.abc import Container, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain

import numpy as np

from glenside.codegen.loop_ir.accesses import Access, accesses
from glenside.codegen.loop_ir.faults import Condition, Fault
from glenside.codegen.loop_ir.footprints import footprint
from glenside.codegen.loop_ir.index_boxes import Box, box_of
from glenside.codegen.loop_ir.ir import Buffer, For, Loops, Nest, Packing, Role, Statement
from glenside.codegen.loop_ir.step_loops import at_step, groups, strides
from glenside.codegen.loop_ir.structural_hash import alike
from glenside.codegen.memory.buffer_arena import Arena
from glenside.codegen.memory.inplace_reuse import may_overwrite
from glenside.codegen.verify.value_ranges import narrow_faults
from glenside.codegen.verify.verify_nest import NestFaults
from glenside.codegen.verify.well_formed import ill_formed
from glenside.codegen.verify.written_elements import Written
from glenside.ir.dtypes import RECORDS
from glenside.ir.index_map import Axis
from glenside.ir.types import Dims

_GIVEN = (Role.INPUT, Role.CONSTANT)


def faults(loops: Loops, plan: Arena | None = None) -> list[str]:
    """Returns the faults of loops, and of the arena of a plan, nest by nest; [] if there are none."""
    return [str(fault) for fault in Checker().faults(loops, plan)]


@dataclass(frozen=True)
class _Right:
    """A nest without faults: the boxes that it writes, by the number of the buffer."""

    writes: tuple[tuple[int, tuple[Box, ...]], ...]


class Checker:
    """Finds faults. Memoizes nests without faults by structure, across loops too.

    right    `_key` of a nest without faults -> what it writes
    alike    id of a body -> the body and its structural key: most passes leave most nests as they are
    written  the elements written so far; cleared when another buffer overwrites the same bytes of the arena
    over     a temporary -> the others that share bytes of the arena with it
    """

    def __init__(self) -> None:
        self.right: dict[Hashable, _Right] = {}
        self.alike: dict[int, tuple[Sequence[Statement], tuple[Hashable, list[Buffer]]]] = {}
        self.written: dict[Buffer, Written] = {}
        self.over: Mapping[Buffer, Sequence[Buffer]] = {}

    def faults(self, loops: Loops, plan: Arena | None = None) -> Iterator[Fault]:
        """Yields the faults of loops, nest by nest."""
        self.written = {}
        places: Mapping[Buffer, int] = plan.places if plan is not None else {}
        self.over = _sharing(places)
        for packing in loops.packings:
            if packing.buffer.role is Role.CONSTANT:
                yield from self._packed(packing)
        for buffer in loops.buffers:
            if buffer.role not in _GIVEN:
                self.written[buffer] = Written(buffer.dims.product())
        if plan is not None:
            yield from self._planned(plan)
        for counter, nests in groups(loops.nests):
            found = (self._nest(nest, places) for nest in nests)
            yield from chain.from_iterable(found) if counter is None else self._loop(counter, nests, places)
        yield from narrow_faults(loops)
        for buffer in dict.fromkeys(loops.results):
            written = self.written.get(buffer)
            if buffer.role is not Role.RESULT:
                yield Fault(Condition.RESULTS, f"{buffer} is a result in memory of the program, not of the caller")
            if written is None or not written.is_whole:
                where = "" if written is None else f"[{int(np.argmin(written.mask()))}]"
                yield Fault(Condition.RESULTS, f"{buffer}{where} is a result that no nest writes")

    def _loop(self, counter: Axis, nests: Sequence[Nest], places: Mapping[Buffer, int]) -> Iterator[Fault]:
        """Yields the faults of a loop around nests, by induction: all accesses to a buffer move by one stride a step.

        Accesses that are within a buffer in the first and the last step are so between them. Of the buffers that the
        loop writes, a step is verified with what the step before wrote alone: each later step has moved by as much.
        """
        whole = [replace(nest, body=(For(counter, nest.body),), steps=None) for nest in nests]
        filled = {access.buffer for nest in whole for access in accesses(nest.body) if access.writes}
        moved = {
            buffer for nest in nests for buffer, stride in strides(nest).items() if stride and buffer in self.written
        }
        kept = {buffer: self.written[buffer] for buffer in moved & filled}
        for buffer in kept:
            if not filled.isdisjoint(self.over.get(buffer, ())):
                yield Fault(Condition.ARENA, f"the loop around {nests[0].what} overwrites {buffer}", nests[0])
        every = range(counter.size)
        for step in (
            every if any(not self.written[b].is_whole for b in moved - filled) else {0, 1, *every[-1:]} & {*every}
        ):
            if step:
                self.written |= {buffer: Written(buffer.dims.product()) for buffer in kept}
                for nest in nests:
                    self._write(at_step(nest, step - 1))
            for nest in nests:
                yield from self._nest(at_step(nest, step), places)
        self.written |= kept
        for nest in whole:
            self._write(nest)

    def _write(self, nest: Nest) -> None:
        """Records what a verified nest writes."""
        self._record_writes([access for access in accesses(nest.body) if access.writes], False)

    def _packed(self, packing: Packing) -> Iterator[Fault]:
        """Yields the faults of the packing of a constant."""
        buffer, source = packing.buffer, packing.source
        key = buffer.dims, source.dims, source.dtype, replace(packing, buffer=_ANY, source=_ANY)
        self.written[buffer] = Written(buffer.dims.product())
        if key not in self.right:
            nest = Nest(f"{source} packed", buffer, packing.statements())
            found = list(self._nest(nest, {}))
            yield from found
            if not found:
                self.right[key] = _Right(())

    def _planned(self, plan: Arena) -> Iterator[Fault]:
        for buffer, place in plan.places.items():
            if place < 0 or place + buffer.bytes > plan.size or place % RECORDS[buffer.dtype].numpy.itemsize:
                said = f"{buffer} is stored at byte {place} of the arena, which is misaligned or outside of the arena"
                yield Fault(Condition.ARENA, said)
        for buffer in self.written:
            if buffer.role is Role.TEMPORARY and buffer not in plan.places:
                yield Fault(Condition.ARENA, f"{buffer} has no place in the arena")

    def _nest(self, nest: Nest, places: Mapping[Buffer, int]) -> Iterator[Fault]:
        key, buffers = self._key(nest)
        yield from _overlaps(nest, buffers, places)
        right = self.right.get(key)
        if right is None:
            malformed = list(dict.fromkeys(ill_formed(nest)))
            steps = NestFaults(nest, self.written)
            found = malformed or list(dict.fromkeys(steps.faults()))
            yield from (replace(fault, nest=nest) for fault in found)
            self._invalidate(buffers, {a.buffer for a in steps.accesses if a.writes})
            written = self._record_writes(steps.accesses, bool(malformed))
            if not found and written is not None:
                numbers = {buffer: number for number, buffer in enumerate(buffers)}
                self.right[key] = _Right(tuple((numbers[b], tuple(boxes)) for b, boxes in written.items()))
            return
        self._invalidate(buffers, {buffers[number] for number, _ in right.writes})
        for number, boxes in right.writes:
            for box in boxes:
                self.written[buffers[number]].add(box)

    def _key(self, nest: Nest) -> tuple[Hashable, list[Buffer]]:
        """Returns the memoization key of a nest, and its buffers in the order of the key."""
        if id(nest.body) not in self.alike:
            self.alike[id(nest.body)] = nest.body, alike(nest.body)
        _, (like, buffers) = self.alike[id(nest.body)]
        states = []
        for buffer in buffers:
            written = self.written.get(buffer)
            state = True if written is None else written.state
            states.append((buffer.role, buffer.dims, state if state is not None else written, buffer == nest.buffer))
        return (like, tuple(states)), buffers

    def _invalidate(self, buffers: Sequence[Buffer], written: Container[Buffer]) -> None:
        """Clears the buffers whose bytes of the arena a nest overwrites with another buffer."""
        for buffer in buffers:
            for other in self.over.get(buffer, ()) if buffer in written else ():
                if other in self.written:
                    self.written[other].clear()

    def _record_writes(self, accesses: Sequence[Access], malformed: bool) -> dict[Buffer, list[Box]] | None:
        """Records the writes of a nest; returns them as boxes, or None if boxes do not cover all of them."""
        found: dict[Buffer, list[Box]] | None = {}
        for access in accesses:
            if not access.writes or access.buffer not in self.written:
                continue
            written = self.written[access.buffer]
            if found is not None:
                found.setdefault(access.buffer, [])
            if malformed:
                written.fill()  # already reported
                continue
            if access.picked or not access.sure:
                continue
            size = access.buffer.dims.product()
            box = box_of(access, {}, {})
            if box is not None:
                if 0 <= box.first and box.last < size:
                    written.add(box)
                    if found is not None:
                        found[access.buffer].append(box)
                continue
            here = footprint(access, {}, {})
            if here.exact and not here.is_empty and here.bounds[0] >= 0 and here.bounds[1] < size:
                written.add_places(here)
                found = None
        return found


_ANY = Buffer("any", Dims(()), "float32", Role.CONSTANT)


def _overlaps(nest: Nest, buffers: Sequence[Buffer], places: Mapping[Buffer, int]) -> Iterator[Fault]:
    """Yields a fault for buffers that a nest uses together and that overlap in the arena."""
    own = [buffer for buffer in buffers if buffer in places]
    pairs = [(a, b) for i, a in enumerate(own) for b in own[i + 1 :] if _meet(places, a, b)]
    for a, b in pairs:
        if places[a] != places[b] or not _may_share_memory(nest.body, a, b):
            yield Fault(Condition.ARENA, f"{a} and {b} overlap in the arena, and it uses both", nest)


def _sharing(places: Mapping[Buffer, int]) -> dict[Buffer, list[Buffer]]:
    """Returns for each buffer of an arena the others that share bytes with it."""
    buffers = list(places)
    begin = np.array([places[buffer] for buffer in buffers], np.int64)
    end = begin + np.array([buffer.bytes for buffer in buffers], np.int64)
    found = {}
    for number, buffer in enumerate(buffers):
        shared = np.flatnonzero((begin < end[number]) & (begin[number] < end))
        found[buffer] = [buffers[other] for other in shared if other != number]
    return found


def _meet(places: Mapping[Buffer, int], a: Buffer, b: Buffer) -> bool:
    return places[a] < places[b] + b.bytes and places[b] < places[a] + a.bytes


def _may_share_memory(body: Sequence[Statement], a: Buffer, b: Buffer) -> bool:
    return may_overwrite(body, a, b) or may_overwrite(body, b, a)
