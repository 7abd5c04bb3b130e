"""Loops around nests: the steps of a recurrence, of which each runs all nests of its body."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import groupby

from glenside.codegen.loop_ir.accesses import accesses
from glenside.codegen.loop_ir.affine_analysis import changed, coefficient, substituted, with_loads
from glenside.codegen.loop_ir.ir import (
    Buffer,
    For,
    Formula,
    Let,
    Load,
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
    body = tuple(_moved(statement, places) for statement in nest.body)
    return Nest(nest.what, places[nest.buffer][0], body, nest.terms, steps=loop.counter)


def _moved(statement: Statement, places: Mapping[Buffer, tuple[Buffer, Index]]) -> Statement:
    """Returns a statement over other buffers, from other places on."""

    def change(formula: Formula) -> Formula:
        return with_loads(formula, load)

    def load(one: Load) -> Load:
        buffer, first = places.get(one.buffer, (one.buffer, None))
        return one if first is None else Load(buffer, one.place + first, one.picked)

    if isinstance(statement, For):
        return replace(statement, body=tuple(_moved(inner, places) for inner in statement.body))
    if isinstance(statement, When):
        condition = None if statement.condition is None else change(statement.condition)
        return replace(statement, body=tuple(_moved(inner, places) for inner in statement.body), condition=condition)
    if isinstance(statement, Let):
        return replace(statement, formula=change(statement.formula))
    if isinstance(statement, Store):
        statement = replace(statement, formula=change(statement.formula))
    if isinstance(statement, Store | Prefetch) and statement.buffer in places:
        buffer, first = places[statement.buffer]
        return replace(statement, buffer=buffer, place=statement.place + first)
    if isinstance(statement, Sort):
        (items, _), (positions, _) = (places[b] for b in (statement.items, statement.positions))
        return replace(statement, items=items, positions=positions)  # both are temporaries, and stay where they are
    return statement


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
