"""Loops around nests: the steps of a recurrence, of which each runs all nests of its body."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import groupby

from glenside.codegen.loop_ir.accesses import accesses, with_accesses
from glenside.codegen.loop_ir.affine_analysis import changed, coefficient, substituted
from glenside.codegen.loop_ir.ir import (
    Buffer,
    For,
    Let,
    Nest,
    Prefetch,
    Role,
    Sort,
    Statement,
    StepLoop,
    Store,
    When,
)
from glenside.ir.index_map import Axis, Index

FIRST_NUMBER = 1 << 20
"""The number of the first counter; nests number their own from 0."""


def groups(nests: Sequence[Nest]) -> Iterator[tuple[Axis | None, list[Nest]]]:
    """Yields the nests in order, those of one loop together, with its counter."""
    for counter, own in groupby(nests, lambda nest: nest.steps):
        yield counter, list(own)


def at_step(nest: Nest, step: int) -> Nest:
    """Returns a nest of a loop as it runs in one step; other nests unchanged."""
    if nest.steps is None:
        return nest
    known = {nest.steps: Index() + step}
    body = tuple(_reindexed(one, lambda index: substituted(index, known)) for one in nest.body)
    return replace(nest, body=body, steps=None)


def strides(nest: Nest) -> dict[Buffer, int]:
    """Returns how far a step of the loop around a nest moves its accesses to each buffer, in elements."""
    if nest.steps is None:
        return {}
    found: dict[Buffer, int] = {}
    for access in accesses(nest.body):
        own = coefficient(access.place, nest.steps)
        assert found.setdefault(access.buffer, own) == own, f"{access.buffer} moves by two strides"
    return found


def nests_of(loop: StepLoop) -> list[Nest]:
    """Returns the nests of a body, over the buffers around the loop."""
    return [_placed(nest, loop) for nest in loop.loops.nests]


def _placed(nest: Nest, loop: StepLoop) -> Nest:
    places = loop.places

    def placed(buffer: Buffer, place: Index) -> tuple[Buffer, Index]:
        now, first = places.get(buffer, (buffer, None))
        return now, place if first is None else place + first

    body = tuple(with_accesses(statement, placed) for statement in nest.body)
    return Nest(nest.what, places[nest.buffer][0], body, nest.terms, steps=loop.counter)


def _reindexed(statement: Statement, change: Callable[[Index], Index]) -> Statement:
    """Returns a statement with each index of memory replaced by `change` of it."""
    if isinstance(statement, For):
        return replace(statement, body=tuple(_reindexed(inner, change) for inner in statement.body))
    if isinstance(statement, When):
        condition = None if statement.condition is None else changed(statement.condition, change)
        return replace(statement, body=tuple(_reindexed(one, change) for one in statement.body), condition=condition)
    if isinstance(statement, Let):
        return replace(statement, formula=changed(statement.formula, change))
    if isinstance(statement, Store):
        return replace(statement, place=change(statement.place), formula=changed(statement.formula, change))
    if isinstance(statement, Prefetch | Sort):
        return replace(statement, place=change(statement.place))
    return statement


def placed_buffers(loop: StepLoop) -> Iterator[Buffer]:
    """Yields the temporaries of a body, as the loops around it have them."""
    return (buffer for buffer, _ in loop.places.values() if buffer.role is Role.TEMPORARY)
