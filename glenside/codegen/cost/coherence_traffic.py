"""Estimates cache-to-cache transfers: lines of temporaries that a thread reads or overwrites in another thread's cache.

Each thread of a parallel nest has a fixed range of its steps, the same in each run. If the next nest is parallel along
the same axis, a thread finds its own lines in its cache; otherwise it fetches lines that another thread holds.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import pairwise
from types import MappingProxyType

import numpy as np

from glenside.codegen.loop_ir.accesses import Access, accesses
from glenside.codegen.loop_ir.affine_analysis import substituted
from glenside.codegen.loop_ir.footprints import NOWHERE, Footprint, footprint, moves_evenly
from glenside.codegen.loop_ir.ir import Buffer, For, Role, Statement, is_parallel
from glenside.codegen.loop_ir.structural_hash import Like
from glenside.codegen.memory.buffer_arena import LINE, Arena, lines
from glenside.ir.dtypes import RECORDS
from glenside.ir.index_map import Axis, Index
from glenside.ir.operand import Array


class Holders:
    """The arena lines in each thread's cache, simulated nest by nest.

    cache  bytes of a thread's cache; of a buffer larger than all these caches together, no lines are held
    """

    def __init__(self, arena: Arena, threads: int, cache: int) -> None:
        self.places, self.threads, self.most = arena.places, threads, threads * cache
        self.held = np.zeros((threads, arena.size // LINE), bool)

    def warm(self, nests: Sequence[Like]) -> Holders:
        """Runs nests, and returns the holders."""
        for nest in nests:
            self.fetched(nest)
        return self

    def fetched(self, nest: Like) -> float:
        """Runs a nest; returns threads x the most bytes that a thread fetches from other threads' caches."""
        touched, known = _touched(nest, self.threads, self.most)
        names = known.names(nest)
        found = np.zeros(self.threads)
        for one in touched:
            first = self.places[names[one.buffer]] // LINE
            held = self.held[:, first : first + lines(one.buffer)]
            touches = one.lines()
            if touches is None:
                held[...] = False
            elif one.writes:
                others = held.sum(0, dtype=np.uint16) > held
                found += np.count_nonzero(touches & others, axis=1)
                np.copyto(held, touches, where=touches.any(0))
            else:
                found += np.count_nonzero(touches & ~held & held.any(0), axis=1)
                held |= touches
        return float(self.threads * LINE * found.max())


@dataclass(frozen=True, eq=False)
class _Touched:
    """The lines of a buffer that each thread reads, or writes, as bits; None for a buffer that is too large."""

    buffer: Buffer
    writes: bool
    bits: Array | None

    def lines(self) -> Array | None:
        """Returns the mask (threads)(lines of the buffer)."""
        if self.bits is None:
            return None
        return np.unpackbits(self.bits, axis=1, count=lines(self.buffer)).view(bool)


@lru_cache(maxsize=1024)
def _touched(like: Like, threads: int, most: int) -> tuple[list[_Touched], Like]:
    """Returns the touched lines of temporaries, reads first; memoized over structurally equal statements."""
    found: dict[tuple[bool, Buffer], Array | None] = {}
    for loop, ranges in _shared(like.body, threads):
        seen = set()
        for access in accesses([loop]):
            key = access.writes, access.buffer
            if access.buffer.role is not Role.TEMPORARY or (*key, access.place, access.conditions) in seen:
                continue
            seen.add((*key, access.place, access.conditions))
            if access.buffer.bytes > most:
                found[key] = None
                continue
            mask = found.setdefault(key, np.zeros((threads, lines(access.buffer)), bool))
            assert mask is not None, "it is not too large"
            for thread, places in _places(access, loop, ranges):
                mask[thread] |= _in_lines(places, access.buffer)
    order = sorted(found.items(), key=lambda item: item[0][0])
    return [_Touched(b, writes, None if m is None else np.packbits(m, axis=1)) for (writes, b), m in order], like


def _shared(body: Sequence[Statement], threads: int) -> Iterator[tuple[Statement, list[tuple[int, int]]]]:
    """Yields each statement with the steps of each thread, (first, end); [] for a statement of the first thread."""
    steps = 1
    for statement in body:
        if not is_parallel(statement):
            yield statement, []
            continue
        count = statement.axis.size
        if statement.beside is None:
            steps = count
        ends = [steps * thread // threads for thread in range(threads + 1)]
        if statement.beside is not None:  # as the thread pool divides a fused loop
            parts, first = statement.beside
            ends = [min(max(end * parts // max(steps, 1) - first, 0), count) for end in ends]
        yield statement, list(pairwise(ends))


def _places(access: Access, loop: Statement, ranges: Sequence[tuple[int, int]]) -> Iterator[tuple[int, Footprint]]:
    """Yields (thread, footprint) for each thread that executes some steps of an access."""
    if not isinstance(loop, For) or not ranges:
        yield 0, _footprint(access)
        return
    moved = moves_evenly(access, [loop.axis])
    own = _footprint(access, {loop.axis: 0}) if moved is not None else NOWHERE
    for thread, (first, end) in enumerate(ranges):
        if end <= first:
            continue
        if moved is not None:
            (step,) = moved
            begin = min(first * step, (end - 1) * step)
            yield thread, Footprint(own.offsets + begin, (*own.steps, (abs(step), end - first)), own.exact)
        else:
            yield thread, _footprint(_between(access, loop.axis, first, end))


def _between(access: Access, axis: Axis, first: int, end: int) -> Access:
    """Restricts an access to the steps from `first` to before `end` of a loop."""
    part = Axis(axis.number, end - first)
    at = {axis: Index(((part, 1),), first)}
    loops = tuple(replace(loop, axis=part) if loop.axis == axis else loop for loop in access.loops)
    conditions = tuple(
        replace(held, guards=tuple(replace(g, index=substituted(g.index, at)) for g in held.guards))
        for held in access.conditions
    )
    return replace(access, place=substituted(access.place, at), loops=loops, conditions=conditions)


def _footprint(access: Access, fixed: Mapping[Axis, int] = MappingProxyType({})) -> Footprint:
    """Returns the footprint of an access: all of the buffer if data decide the index."""
    if access.picked:
        return Footprint(np.zeros(1, np.int64), ((1, access.buffer.dims.product()),))
    return footprint(access, fixed, {})


def _in_lines(places: Footprint, buffer: Buffer) -> Array:
    """Returns the mask of cache lines of a buffer that a footprint touches; ranges without gaps are marked at once."""
    per_line, count = LINE // RECORDS[buffer.dtype].numpy.itemsize, lines(buffer)
    begins, size = places.offsets, 1
    for step, times in sorted(places.steps):
        if step <= max(size, per_line):
            size += step * (times - 1)
        else:
            begins = np.add.outer(begins, np.arange(times, dtype=np.int64) * step)
    begins = begins.reshape(-1)
    opened = np.bincount(begins // per_line, minlength=count + 1)
    closed = np.bincount((begins + size - 1) // per_line + 1, minlength=count + 1)
    found: Array = np.cumsum(opened - closed)[:count] > 0
    return found
