"""Allocates temporaries in one arena, in which those with disjoint live ranges share bytes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from glenside.codegen.loop_ir.accesses import used_buffers
from glenside.codegen.loop_ir.ir import Buffer, For, Loops, Role, Statement
from glenside.codegen.loop_ir.step_loops import groups
from glenside.codegen.memory.inplace_reuse import overwritten
from glenside.codegen.memory.offset_assignment import Interval, Plan, placed
from glenside.ir.dtypes import RECORDS

LINE = 64
"""Bytes of a cache line, to which temporaries are aligned."""


def in_line(dtype: str) -> int:
    """Returns the elements of a cache line."""
    return LINE * 8 // RECORDS[dtype].bits


@dataclass(frozen=True)
class Arena:
    """A memory plan of temporaries.

    places         byte offset of each temporary
    size, bound    bytes of the arena, and a lower bound for every plan
    scratch        bytes of scratch memory per thread; `scratch_bound` is a lower bound
    in_place       buffer -> the operand that it overwrites
    """

    places: dict[Buffer, int]
    size: int
    bound: int
    scratch: int
    in_place: Mapping[Buffer, Buffer]
    scratch_bound: int = 0

    def __str__(self) -> str:
        own = f"; each thread has {self.scratch:,} more" if self.scratch else ""
        own += f", at least {self.scratch_bound:,}" if self.scratch > self.scratch_bound else ""
        least = "which is the least" if self.size == self.bound else f"and no plan takes less than {self.bound:,}"
        over = f", {len(self.in_place)} stored over operands" if self.in_place else ""
        return f"Temporaries: {self.size:,} bytes in one piece, {least}{over}{own}."

    def bytes_of(self, threads: int) -> int:
        """Returns the bytes of the arena and of the scratch memory of `threads` threads."""
        return self.size + threads * self.scratch

    def sharing(self, buffers: Sequence[Buffer]) -> set[Buffer]:
        """Returns the buffers among `buffers` that overwrite, or are overwritten by, another of them."""
        pairs = [(buffer, self.in_place[buffer]) for buffer in buffers if self.in_place.get(buffer) in buffers]
        return {buffer for pair in pairs for buffer in pair}


def arena(loops: Loops, in_place: bool = True) -> Arena:
    """Plans the temporaries in the least memory found; reuses operands, if `in_place`, where that is no larger."""
    lives = _temporaries(loops)
    over = overwritten(loops.nests, lives) if in_place else {}
    plan = _planned(lives, over)
    apart = _planned(lives, {}) if plan.plan.height > plan.plan.bound else plan
    if apart.plan.height < plan.plan.height:
        over, plan = {}, _Planned(apart.places, Plan(apart.plan.places, apart.plan.height, plan.plan.bound))
    own = [_scratch(nest.body).plan for nest in loops.nests]
    scratch, least = (LINE * max((getattr(p, name) for p in own), default=0) for name in ("height", "bound"))
    return Arena(plan.places, plan.plan.height * LINE, plan.plan.bound * LINE, scratch, over, least)


def needed(loops: Loops) -> list[int]:
    """Returns the bytes of temporaries that are live during each nest."""
    lives = _temporaries(loops)
    lasting = _together(lives, overwritten(loops.nests, lives))
    return [
        sum(lines(b) * LINE for b, (first, last) in lasting.items() if first <= time <= last)
        for time in range(len(loops.nests))
    ]


def scratch_of(body: Sequence[Statement]) -> tuple[dict[Buffer, int], int]:
    """Returns the byte offset of each scratch buffer of a nest, and the bytes of all."""
    planned = _scratch(body)
    return planned.places, planned.plan.height * LINE


def _scratch(body: Sequence[Statement]) -> _Planned:
    steps = body[0].body if len(body) == 1 and isinstance(body[0], For) else body
    return _planned(_lives([[step] for step in steps], Role.SCRATCH), {})


@dataclass(frozen=True)
class _Planned:
    places: dict[Buffer, int]
    plan: Plan


def _planned(lives: Mapping[Buffer, tuple[int, int]], over: Mapping[Buffer, Buffer]) -> _Planned:
    """Plans buffers. Buffers that share memory by `over` count as one buffer with their joint live range."""
    below, ends = {buffer: _lowest(buffer, over) for buffer in lives}, _together(lives, over)
    plan = placed(tuple(Interval(lines(buffer), *life) for buffer, life in ends.items()))
    places = {buffer: place * LINE for buffer, place in zip(ends, plan.places, strict=True)}
    return _Planned({buffer: places[below[buffer]] for buffer in lives}, plan)


def _together(lives: Mapping[Buffer, tuple[int, int]], over: Mapping[Buffer, Buffer]) -> dict[Buffer, tuple[int, int]]:
    """Returns the live range of each buffer, joined with those of the buffers stored over it."""
    ends: dict[Buffer, tuple[int, int]] = {}
    for buffer, (first, last) in lives.items():
        below = _lowest(buffer, over)
        begin, end = ends.get(below, (first, last))
        ends[below] = min(begin, first), max(end, last)
    return ends


def _lowest(buffer: Buffer, over: Mapping[Buffer, Buffer]) -> Buffer:
    while buffer in over:
        buffer = over[buffer]
    return buffer


def _temporaries(loops: Loops) -> dict[Buffer, tuple[int, int]]:
    """Returns the live range of each temporary: one that a loop shares with nests around it lives in all its steps."""
    lives = _lives([nest.body for nest in loops.nests], Role.TEMPORARY)
    begin = 0
    for counter, nests in groups(loops.nests):
        end = begin + len(nests)
        for buffer in {b for nest in nests for b in used_buffers(nest.body) if b in lives} if counter else ():
            first, last = lives[buffer]
            if first < begin or last >= end:
                lives[buffer] = min(first, begin), max(last, end)  # past the last nest, which runs again
        begin = end
    return lives


def _lives(bodies: Sequence[Sequence[Statement]], role: Role) -> dict[Buffer, tuple[int, int]]:
    """Returns the live range of each buffer of a role: the first and the last body that uses it."""
    lives: dict[Buffer, tuple[int, int]] = {}
    for time, body in enumerate(bodies):
        for buffer in used_buffers(body):
            if buffer.role is role:
                lives[buffer] = lives.get(buffer, (time, time))[0], time
    return lives


def lines(buffer: Buffer) -> int:
    """Returns the cache lines of a buffer."""
    return -(-buffer.bytes // LINE)
