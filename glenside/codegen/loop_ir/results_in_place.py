"""Finds results that may be stored in the memory of an input, such as a cache with new rows, or with rows replaced."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby

from glenside.codegen.loop_ir.accesses import accesses, used_buffers
from glenside.codegen.loop_ir.ir import Buffer, For, Load, Loops, Role, Statement, Store, is_parallel
from glenside.codegen.loop_ir.step_loops import groups

Pair = tuple[Buffer, Buffer]
"""An input and a result."""


def calls_of(body: Sequence[Statement]) -> Iterator[Sequence[Statement]]:
    """Yields the statements of a nest that are one call in C: one function, or a parallel loop and those beside it."""
    private = (Role.SCRATCH, Role.REGISTER)
    for parallel, group in groupby(body, is_parallel):
        every = list(group)
        if parallel:
            firsts = [i for i, loop in enumerate(every) if not i or not (isinstance(loop, For) and loop.beside)]
            yield from (every[first:end] for first, end in zip(firsts, [*firsts[1:], len(every)], strict=True))
        elif all(isinstance(one, For) for one in every) and not any(b.role in private for b in used_buffers(every)):
            yield from ([one] for one in every)  # the directions of a recurrence share a function
        else:
            yield every


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


def in_place(loops: Loops) -> dict[str, Buffer]:
    """Returns the result that may be stored in the memory of an input, by the name of the input.

    Calls of their own copy elements of the input to the same indices of the result; C leaves them out if both have
    one memory. All others that store to the result store behind the elements of the input, or run after the last
    reader of the input and after these copies.
    """
    calls, pairs, spans = list[Sequence[Statement]](), list[Pair | None](), list[tuple[int, int]]()
    for counter, nests in groups(loops.nests):
        own = [call for nest in nests for call in calls_of(nest.body)]
        begin, end = len(calls), len(calls) + len(own) - 1
        pairs += [copied(call) if counter is None else None for call in own]
        spans += [(n, n) if counter is None else (begin, end) for n in range(begin, end + 1)]  # steps run all again
        calls += own
    every = {pair for pair in pairs if pair is not None}
    reads: dict[Buffer, int] = {}
    copies: dict[Buffer, int] = {}
    writes: dict[Buffer, int] = {}
    least: dict[Buffer, int] = {}
    for (first, last), call, pair in zip(spans, calls, pairs, strict=True):
        if pair is not None:
            copies[pair[1]] = last
            continue
        for access in accesses(call):
            if not access.writes:
                reads[access.buffer] = last
                continue
            writes.setdefault(access.buffer, first)
            begin = -1 if access.picked else access.place.bounds[0]
            least[access.buffer] = min(begin, least.get(access.buffer, begin))

    def may_be(given: Buffer, result: Buffer) -> bool:
        """True if what is stored to a result leaves what is read of an input."""
        size = given.dims.product()
        if result not in writes or least[result] >= size:
            return True
        return max(reads.get(given, -1), copies[result]) < writes[result]

    return {
        given.name: result
        for given, result in every
        if sum(result is other for _, other in every) == 1
        and sum(given is other for other, _ in every) == 1
        and may_be(given, result)
    }
