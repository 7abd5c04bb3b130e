"""Collects and replaces memory accesses of statements; each has its enclosing loops, guards and choices."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from glenside.codegen.loop_ir.affine_analysis import loads_in, with_loads
from glenside.codegen.loop_ir.ir import (
    Apply,
    Buffer,
    Choose,
    Convert,
    Fence,
    For,
    Formula,
    Let,
    Load,
    Local,
    Prefetch,
    Require,
    Sort,
    Statement,
    Store,
    When,
)
from glenside.ir.index_map import Axis, Guard, Index


@dataclass(frozen=True)
class Held:
    """The condition that all guards hold or, if `holds` is False, that at least one does not."""

    guards: tuple[Guard, ...]
    holds: bool = True


@dataclass(frozen=True, eq=False)
class Access:
    """A read or a write of `count` contiguous elements from index `place` on.

    loops       enclosing loops, outermost first
    conditions  under which it is executed
    path        position in the statements: the smaller path is executed first; a common prefix is what encloses both
    picked      variables that move it, each with its stride in elements
    sure        True if no condition on data decides whether it is executed
    """

    buffer: Buffer
    place: Index
    writes: bool
    loops: tuple[For, ...]
    conditions: tuple[Held, ...]
    path: tuple[int, ...]
    picked: tuple[tuple[Local, int], ...] = ()
    count: int = 1
    sure: bool = True

    @property
    def axes(self) -> tuple[Axis, ...]:
        return tuple(loop.axis for loop in self.loops)


@dataclass(frozen=True)
class _Around:
    loops: tuple[For, ...] = ()
    conditions: tuple[Held, ...] = ()
    sure: bool = True
    path: tuple[int, ...] = ()


def accesses(body: Sequence[Statement]) -> Iterator[Access]:
    """Yields all accesses of statements, in program order."""
    yield from _accesses(body, _Around())


def _accesses(body: Sequence[Statement], around: _Around) -> Iterator[Access]:
    for number, statement in enumerate(body):
        path = (*around.path, number)
        here = _Around(around.loops, around.conditions, around.sure, path)
        if isinstance(statement, For):
            yield from _accesses(statement.body, _Around((*here.loops, statement), here.conditions, here.sure, path))
        elif isinstance(statement, When):
            conditions = (*here.conditions, Held(statement.guards)) if statement.guards else here.conditions
            if statement.condition is not None:
                yield from _reads(statement.condition, _Around(here.loops, conditions, here.sure, (*path, -1)))
            sure = here.sure and statement.condition is None
            yield from _accesses(statement.body, _Around(here.loops, conditions, sure, path))
        elif isinstance(statement, Let):
            yield from _reads(statement.formula, here)
        elif isinstance(statement, Store):
            yield from _reads(statement.formula, here)
            where = statement.buffer, statement.place, True, here.loops, here.conditions, (*path, 1)
            yield Access(*where, statement.picked, sure=here.sure)
        elif isinstance(statement, Sort):
            for last, buffer, writes in ((0, statement.items, False), (1, statement.positions, True)):
                where = buffer, statement.place, writes, here.loops, here.conditions, (*path, last)
                yield Access(*where, count=statement.count, sure=here.sure)


def _reads(formula: Formula, here: _Around) -> Iterator[Access]:
    if isinstance(formula, Load):
        yield Access(formula.buffer, formula.place, False, here.loops, here.conditions, (*here.path, 0), formula.picked)
    elif isinstance(formula, Convert):
        yield from _reads(formula.formula, here)
    elif isinstance(formula, Apply):
        for operand in formula.operands:
            yield from _reads(operand, here)
    elif isinstance(formula, Choose):
        for part, holds in ((formula.then, True), (formula.otherwise, False)):
            conditions = (*here.conditions, Held(formula.guards, holds))
            yield from _reads(part, _Around(here.loops, conditions, here.sure, here.path))


def with_accesses(statement: Statement, change: Callable[[Buffer, Index], tuple[Buffer, Index]]) -> Statement:
    """Returns a statement with the buffer and the index of each access replaced by `change` of them."""

    def load(one: Load) -> Load:
        return Load(*change(one.buffer, one.place), one.picked)

    if isinstance(statement, For | When):
        body = tuple(with_accesses(inner, change) for inner in statement.body)
        if isinstance(statement, For) or statement.condition is None:
            return replace(statement, body=body)
        return replace(statement, body=body, condition=with_loads(statement.condition, load))
    if isinstance(statement, Let):
        return replace(statement, formula=with_loads(statement.formula, load))
    if isinstance(statement, Sort):
        (items, place), (positions, _) = (
            change(own, statement.place) for own in (statement.items, statement.positions)
        )
        return replace(statement, items=items, positions=positions, place=place)
    if isinstance(statement, Store):
        statement = replace(statement, formula=with_loads(statement.formula, load))
    if isinstance(statement, Store | Prefetch):
        buffer, place = change(statement.buffer, statement.place)
        return replace(statement, buffer=buffer, place=place)
    return statement


def changed_locals(body: Sequence[Statement]) -> set[str]:
    """Returns the variables that statements assign to but do not define."""
    made: set[str] = set()
    found: set[str] = set()
    for statement in body:
        if isinstance(statement, For | When):
            found |= changed_locals(statement.body) - made
        elif isinstance(statement, Let):
            if not statement.known:
                made.add(statement.local.name)
            elif statement.local.name not in made:
                found.add(statement.local.name)
    return found


def is_written_first(buffer: Buffer, body: Sequence[Statement]) -> bool:
    """True if the first access to a buffer is a write."""
    return next((access.writes for access in accesses(body) if access.buffer == buffer), False)


def used_buffers(body: Sequence[Statement]) -> Iterator[Buffer]:
    """Yields the buffers that statements read or write."""
    for statement in body:
        if isinstance(statement, For | When):
            yield from used_buffers(statement.body)
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
            assert isinstance(statement, Require | Prefetch | Fence), "checks, prefetches and fences access no buffer"
