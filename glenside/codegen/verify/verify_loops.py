"""What must hold of loops, whatever the numbers: a sentence for each place where it does not.

Every place lies in its buffer; what is read was written before; steps that threads share touch nothing that another one
writes; results are written whole; what lies in the arena at a time lies apart. Places are those of all values of the
counters for which guards hold (`footprints`): nothing is tried out, and what cannot be shown counts as wrong.
"""

from __future__ import annotations

from collections.abc import Container, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from glenside.codegen.loop_ir.accesses import Access
from glenside.codegen.loop_ir.conditions import Condition, Fault
from glenside.codegen.loop_ir.footprints import footprint
from glenside.codegen.loop_ir.index_boxes import Box, box_of
from glenside.codegen.loop_ir.ir import Buffer, Loops, Nest, Packing, Role, Statement
from glenside.codegen.loop_ir.structural_hash import alike
from glenside.codegen.memory.buffer_arena import Arena
from glenside.codegen.memory.inplace_reuse import may_overwrite
from glenside.codegen.verify.verify_nest import NestFaults
from glenside.codegen.verify.well_formed import ill_formed
from glenside.codegen.verify.written_elements import Written
from glenside.ir.dtypes import RECORDS
from glenside.ir.types import Dims

_GIVEN = (Role.INPUT, Role.CONSTANT)


def faults(loops: Loops, plan: Arena | None = None) -> list[str]:
    """What is wrong with loops, and with where a plan has their temporaries: nest by nest; [] where nothing is."""
    return [str(fault) for fault in Checker().faults(loops, plan)]


@dataclass(frozen=True)
class _Right:
    """A nest in which nothing is wrong: the boxes that it writes of each of its buffers."""

    writes: tuple[tuple[int, tuple[Box, ...]], ...]


class Checker:
    """Finds faults. What it saw of a nest it knows of all that are alike: in the same loops, and in others.

    right    nests, as `_key` has them, in which nothing is wrong
    written  what is written so far; what another buffer in its bytes stores ends it
    """

    def __init__(self) -> None:
        self.right: dict[Hashable, _Right] = {}
        self.written: dict[Buffer, Written] = {}

    def faults(self, loops: Loops, plan: Arena | None = None) -> Iterator[Fault]:
        """The faults of loops, nest by nest."""
        self.written = {}
        places: Mapping[Buffer, int] = plan.places if plan is not None else {}
        for packing in loops.packings:
            if packing.buffer.role is Role.CONSTANT:
                yield from self._packed(packing)
        for buffer in loops.buffers:
            if buffer.role not in _GIVEN:
                self.written[buffer] = Written(buffer.dims.product())
        if plan is not None:
            yield from self._planned(plan)
        for nest in loops.nests:
            yield from self._nest(nest, places)
        for buffer in dict.fromkeys(loops.results):
            written = self.written.get(buffer)
            if written is None or not written.is_whole:
                where = "" if written is None else f"[{int(np.argmin(written.mask()))}]"
                yield Fault(Condition.RESULTS, f"{buffer}{where} is a result that no nest writes")

    def _packed(self, packing: Packing) -> Iterator[Fault]:
        """What is wrong with how a constant is packed."""
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
                said = f"{buffer} has byte {place} of the arena, in which it does not lie as it must"
                yield Fault(Condition.ARENA, said)
        for buffer in self.written:
            if buffer.role is Role.TEMPORARY and buffer not in plan.places:
                yield Fault(Condition.ARENA, f"{buffer} has no place in the arena")

    def _nest(self, nest: Nest, places: Mapping[Buffer, int]) -> Iterator[Fault]:
        key, buffers = self._key(nest)
        yield from _beside(nest, buffers, places)
        right = self.right.get(key)
        if right is None:
            malformed = list(dict.fromkeys(ill_formed(nest)))
            steps = NestFaults(nest, self.written)
            found = malformed or list(dict.fromkeys(steps.faults()))
            yield from (replace(fault, nest=nest) for fault in found)
            self._end(buffers, {a.buffer for a in steps.accesses if a.writes}, places)
            written = self._write(steps.accesses, bool(malformed))
            if not found and written is not None:
                numbers = {buffer: number for number, buffer in enumerate(buffers)}
                self.right[key] = _Right(tuple((numbers[b], tuple(boxes)) for b, boxes in written.items()))
            return
        self._end(buffers, {buffers[number] for number, _ in right.writes}, places)
        for number, boxes in right.writes:
            for box in boxes:
                self.written[buffers[number]].add(box)

    def _key(self, nest: Nest) -> tuple[Hashable, list[Buffer]]:
        """What nests share of which it is known whether anything is wrong, and their buffers in its order."""
        like, buffers = alike(nest.body)
        states = []
        for buffer in buffers:
            written = self.written.get(buffer)
            state = True if written is None else written.state
            states.append((buffer.role, buffer.dims, state if state is not None else written, buffer == nest.buffer))
        return (like, tuple(states)), buffers

    def _end(self, buffers: Sequence[Buffer], written: Container[Buffer], places: Mapping[Buffer, int]) -> None:
        """Nothing is left of what lies in the arena where a nest stores something else."""
        for buffer in buffers if places else ():
            if buffer in places and buffer in written:
                for other, state in self.written.items():
                    if other in places and other != buffer and _meet(places, other, buffer):
                        state.clear()

    def _write(self, accesses: Sequence[Access], malformed: bool) -> dict[Buffer, list[Box]] | None:
        """Note what is written after a nest: in boxes, or None where those do not say all of it."""
        found: dict[Buffer, list[Box]] | None = {}
        for access in accesses:
            if not access.writes or access.buffer not in self.written:
                continue
            written = self.written[access.buffer]
            if found is not None:
                found.setdefault(access.buffer, [])
            if malformed:
                written.fill()  # it is said already
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


def _beside(nest: Nest, buffers: Sequence[Buffer], places: Mapping[Buffer, int]) -> Iterator[Fault]:
    """What a nest uses at once and does not lie apart."""
    own = [buffer for buffer in buffers if buffer in places]
    pairs = [(a, b) for i, a in enumerate(own) for b in own[i + 1 :] if _meet(places, a, b)]
    for a, b in pairs:
        if places[a] != places[b] or not _either(nest.body, a, b):
            yield Fault(Condition.ARENA, f"{a} and {b} lie on each other in the arena, and it uses both", nest)


def _meet(places: Mapping[Buffer, int], a: Buffer, b: Buffer) -> bool:
    return places[a] < places[b] + b.bytes and places[b] < places[a] + a.bytes


def _either(body: Sequence[Statement], a: Buffer, b: Buffer) -> bool:
    return may_overwrite(body, a, b) or may_overwrite(body, b, a)
