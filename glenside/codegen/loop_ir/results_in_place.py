"""Finds results that are an input with elements behind it, as a cache with new rows is: they can be in its memory."""

from __future__ import annotations

from collections.abc import Sequence

from glenside.codegen.loop_ir.accesses import Access, accesses
from glenside.codegen.loop_ir.ir import Buffer, For, Load, Loops, Role, Statement, Store

Pair = tuple[Buffer, Buffer]
"""An input and a result."""


def copied(body: Sequence[Statement]) -> Pair | None:
    """Returns the input that statements copy to the same indices of a result, if they do nothing else; or None."""
    found: set[Pair] = set()
    for statement in body:
        if isinstance(statement, For):
            inner = copied(statement.body)
        elif isinstance(statement, Store):
            inner = _copied(statement)
        else:
            return None
        if inner is None:
            return None
        found.add(inner)
    return found.pop() if len(found) == 1 else None


def _copied(store: Store) -> Pair | None:
    load = store.formula
    if not isinstance(load, Load) or load.picked or store.picked or load.place != store.place:
        return None
    is_copy = load.buffer.role is Role.INPUT and store.buffer.role is Role.RESULT and load.dtype == store.buffer.dtype
    return (load.buffer, store.buffer) if is_copy else None


def appended(loops: Loops) -> dict[str, Buffer]:
    """Returns the result that may be stored in the memory of an input, by the name of the input.

    Elements of the input are copied to the same indices, by loops of their own, and all others are stored behind them.
    """
    pairs: set[Pair] = set()
    others: list[Access] = []
    for nest in loops.nests:
        for statement in nest.body:
            pair = copied([statement])
            if pair is None:
                others += [access for access in accesses([statement]) if access.writes]
            else:
                pairs.add(pair)
    return {
        own.name: result
        for own, result in pairs
        if sum(result is other for _, other in pairs) == 1
        and sum(own is other for other, _ in pairs) == 1
        and all(_is_behind(access, own) for access in others if access.buffer is result)
    }


def _is_behind(access: Access, own: Buffer) -> bool:
    return not access.picked and access.place.bounds[0] >= own.dims.product()
