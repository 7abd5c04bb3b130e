"""Where temporaries lie: one piece of memory, in which those that are never needed at the same time share bytes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from glenside.codegen.affine import loads_in
from glenside.codegen.loops import Buffer, Fence, For, Let, Loops, Prefetch, Require, Role, Sort, Statement, Store, When
from glenside.ir.dtypes import RECORDS

_LINE = 64


@dataclass(frozen=True)
class Arena:
    """places: where each temporary begins, in bytes; size: where the last one ends; bound: the most bytes that are
    needed at a time, which no plan is under.
    """

    places: dict[Buffer, int]
    size: int
    bound: int


def arena(loops: Loops) -> Arena:
    """The larger a buffer, the earlier it is placed, at the lowest place that is free as long as it is needed."""
    lives: dict[Buffer, tuple[int, int]] = {}
    for time, nest in enumerate(loops.nests):
        for buffer in used(nest.body):
            if buffer.role is Role.TEMPORARY:
                lives[buffer] = lives.get(buffer, (time, time))[0], time
    sizes = {b: -(-b.dims.product() * RECORDS[b.dtype].numpy.itemsize // _LINE) * _LINE for b in lives}
    places: dict[Buffer, int] = {}
    for buffer in sorted(lives, key=lambda b: (-sizes[b], lives[b])):
        first, last = lives[buffer]
        beside = [b for b in places if lives[b][0] <= last and first <= lives[b][1]]
        place = 0
        for other in sorted(beside, key=lambda b: places[b]):
            if place + sizes[buffer] <= places[other]:
                break
            place = max(place, places[other] + sizes[other])
        places[buffer] = place
    needed = [
        sum(sizes[b] for b, (first, last) in lives.items() if first <= time <= last) for time in range(len(loops.nests))
    ]
    return Arena(places, max((places[b] + sizes[b] for b in places), default=0), max(needed, default=0))


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
