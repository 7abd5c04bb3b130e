"""Where temporaries lie: one piece of memory, in which those that are never needed at the same time share bytes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from glenside.codegen.affine import loads_in
from glenside.codegen.loops import Buffer, Fence, For, Let, Loops, Prefetch, Require, Role, Sort, Statement, Store, When
from glenside.ir.dtypes import RECORDS

_LINE = 64


@dataclass(frozen=True)
class Arena:
    """places: where each temporary begins, in bytes; size: where the last one ends; bound: the most bytes that are
    needed at a time, which no plan is under; scratch: the bytes that each thread needs beside them.
    """

    places: dict[Buffer, int]
    size: int
    bound: int
    scratch: int

    def __str__(self) -> str:
        own = f"; each thread has {self.scratch:,} more" if self.scratch else ""
        return f"Temporaries: {self.size:,} bytes in one piece; no plan takes less than {self.bound:,}{own}."

    def bytes_of(self, threads: int) -> int:
        """All that so many threads need."""
        return self.size + threads * self.scratch


def arena(loops: Loops) -> Arena:
    """The larger a buffer, the earlier it is placed, at the lowest place that is free as long as it is needed."""
    lives = _lives([nest.body for nest in loops.nests], Role.TEMPORARY)
    places, size = _placed(lives)
    scratch = [size for nest in loops.nests for _, size in [scratch_of(nest.body)]]
    return Arena(places, size, max(needed(loops), default=0), max(scratch, default=0))


def needed(loops: Loops) -> list[int]:
    """Bytes of temporaries that are needed while each nest runs."""
    lives = _lives([nest.body for nest in loops.nests], Role.TEMPORARY)
    return [
        sum(_bytes(b) for b, (first, last) in lives.items() if first <= time <= last)
        for time in range(len(loops.nests))
    ]


def scratch_of(body: Sequence[Statement]) -> tuple[dict[Buffer, int], int]:
    """Where the scratch memory of a nest begins in that of a thread, and its bytes."""
    steps = body[0].body if len(body) == 1 and isinstance(body[0], For) else body
    return _placed(_lives([[step] for step in steps], Role.SCRATCH))


def _lives(bodies: Sequence[Sequence[Statement]], role: Role) -> dict[Buffer, tuple[int, int]]:
    """The first and the last of some bodies that use a buffer."""
    lives: dict[Buffer, tuple[int, int]] = {}
    for time, body in enumerate(bodies):
        for buffer in used(body):
            if buffer.role is role:
                lives[buffer] = lives.get(buffer, (time, time))[0], time
    return lives


def _bytes(buffer: Buffer) -> int:
    return -(-buffer.dims.product() * RECORDS[buffer.dtype].numpy.itemsize // _LINE) * _LINE


def _placed(lives: Mapping[Buffer, tuple[int, int]]) -> tuple[dict[Buffer, int], int]:
    places: dict[Buffer, int] = {}
    for buffer in sorted(lives, key=lambda b: (-_bytes(b), lives[b])):
        first, last = lives[buffer]
        beside = [b for b in places if lives[b][0] <= last and first <= lives[b][1]]
        place = 0
        for other in sorted(beside, key=lambda b: places[b]):
            if place + _bytes(buffer) <= places[other]:
                break
            place = max(place, places[other] + _bytes(other))
        places[buffer] = place
    return places, max((places[b] + _bytes(b) for b in places), default=0)


def used(body: Sequence[Statement]) -> Iterator[Buffer]:
    """The buffers that statements read or write."""
    for statement in body:
        if isinstance(statement, For | When):
            yield from used(statement.body)
            if isinstance(statement, When) and statement.condition is not None:
                yield from (load.buffer for load in loads_in(statement.condition))
        elif isinstance(statement, Store):
            yield statement.buffer
            yield from (load.buffer for load in loads_in(statement.formula))
        elif isinstance(statement, Let):
            yield from (load.buffer for load in loads_in(statement.formula))
        elif isinstance(statement, Sort):
            yield from (statement.items, statement.positions)
        else:
            assert isinstance(statement, Require | Prefetch | Fence), "what is asked of a variable uses no buffer"
