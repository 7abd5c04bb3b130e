"""Makes loops with one fault each, of every kind that a schedule could make."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import fields, is_dataclass, replace
from typing import Any

from glenside.codegen.loop_ir.ir import For, Load, Loops, Prefetch, Role, Statement, Store, Way, When
from glenside.ir.index_map import Axis, Index

Change = Callable[[Any], list[Any]]
"""Returns replacements for a statement or a formula: sequences of statements, or one formula."""


def broken(loops: Loops, change: Change) -> Iterator[tuple[str, Loops]]:
    """Yields the loops with one part changed, for each part that `change` applies to, and the original part."""
    for at, nest in enumerate(loops.nests):
        for what, body in _bodies(nest.body, change):
            changed = replace(nest, body=body)
            yield f"{nest.what}: {what}", replace(loops, nests=(*loops.nests[:at], changed, *loops.nests[at + 1 :]))


def _bodies(body: tuple[Statement, ...], change: Change) -> Iterator[tuple[str, tuple[Statement, ...]]]:
    for at, statement in enumerate(body):
        around = body[:at], body[at + 1 :]
        for other in change(statement):
            yield _said(statement), (*around[0], *other, *around[1])
        if isinstance(statement, For | When):
            for what, inner in _bodies(statement.body, change):
                yield what, (*around[0], replace(statement, body=inner), *around[1])
        elif not isinstance(statement, Prefetch):
            for what, other in _formulas(statement, change):
                yield what, (*around[0], other, *around[1])


def _formulas(part: Any, change: Change) -> Iterator[tuple[str, Any]]:
    """Yields a statement or a formula with one of its formulas changed."""
    for field in fields(part):
        value = getattr(part, field.name)
        operands = value if field.name == "operands" else (value,)
        for at, operand in enumerate(operands):
            if field.name not in ("operands", "formula", "then", "otherwise") or not is_dataclass(operand):
                continue
            for what, other in [*((_said(operand), o) for o in change(operand)), *_formulas(operand, change)]:
                found = (*value[:at], other, *value[at + 1 :]) if field.name == "operands" else other
                yield what, replace(part, **{field.name: found})


def _said(part: Any) -> str:
    return str(part).split("(", 1)[0] if isinstance(part, For) else str(part)[:80]


def moved(part: Any) -> list[Any]:
    """Moves an access by one element."""
    if isinstance(part, Store):
        return [(replace(part, place=part.place + 1),)]
    return [replace(part, place=part.place + 1)] if isinstance(part, Load) else []


def stretched(part: Any) -> list[Any]:
    """Increases the stride of an access along one of its axes."""
    if not isinstance(part, Load | Store):
        return []
    axes = [atom for atom, _ in part.place.terms if isinstance(atom, Axis)]
    found = [replace(part, place=part.place + Index(((axis, 1),))) for axis in axes]
    return [(f,) for f in found] if isinstance(part, Store) else found


def dropped(part: Any) -> list[Any]:
    """Drops a store or a guard."""
    if isinstance(part, Store):
        return [()]
    return [part.body] if isinstance(part, When) else []


def shortened(part: Any) -> list[Any]:
    """Shortens a loop by one step."""
    return [(replace(part, axis=Axis(part.axis.number, part.axis.size - 1)),)] if isinstance(part, For) else []


def shared(part: Any) -> list[Any]:
    """Makes a loop parallel."""
    return [(replace(part, way=Way.PARALLEL),)] if isinstance(part, For) and part.way is Way.LOOP else []


def unguarded(part: Any) -> list[Any]:
    """Removes guards."""
    return [part.then] if type(part).__name__ == "Choose" else []


def temporary(loops: Loops) -> list[Any]:
    """Returns the buffers in the arena."""
    return [buffer for buffer in loops.buffers if buffer.role is Role.TEMPORARY]
