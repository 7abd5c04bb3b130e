"""Hoists results that no nest reads behind their operands, which are in cache then and need not stay live longer."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from glenside.codegen.loop_ir.accesses import used_buffers
from glenside.codegen.loop_ir.ir import Buffer, For, Role, Sort, Statement, Store, When
from glenside.codegen.loop_ir.module import Module
from glenside.codegen.processor.model import Machine


def hoist_results(module: Module, _machine: Machine) -> Module:
    """Hoists each nest that alone fills an unread result to directly behind the last nest that fills its operands.

    Several nests hoisted to one place are ordered by the bytes they use, fewest first. A packing that only the hoisted
    nest reads is hoisted with it.
    """
    nests = module.nests
    fills = [set(_filled(nest.body)) for nest in nests]
    every = [dict.fromkeys(used_buffers(nest.body)) for nest in nests]
    makers: dict[Buffer, list[int]] = {}
    readers: dict[Buffer, list[int]] = {}
    for number, own in enumerate(fills):
        for found, buffers in ((makers, own), (readers, [b for b in every[number] if b not in own])):
            for buffer in buffers:
                found.setdefault(buffer, []).append(number)
    reads = [[b for b in found if b in makers and b not in own] for found, own in zip(every, fills, strict=True)]
    packed = {packing.buffer for packing in module.packings}
    after: dict[int, list[list[int]]] = {}
    moved: set[int] = set()
    for number, own in enumerate(fills):
        kept = [b for b in own if b.role not in (Role.REGISTER, Role.SCRATCH)]
        if (
            nests[number].steps
            or not kept
            or not all(b.role is Role.RESULT and makers[b] == [number] and b not in readers for b in kept)
        ):
            continue
        alone = [n for b in reads[number] if b in packed and readers[b] == [number] for n in makers[b]]
        group = [*sorted(alone), number]
        last = max((n for one in group for b in reads[one] for n in makers[b] if n not in group), default=-1)
        if 0 <= last < group[0] and last not in moved:
            after.setdefault(last, []).append(group)
            moved.update(group)
    order: list[int] = []
    for number in range(len(nests)):
        if number not in moved:
            groups = sorted(after.get(number, ()), key=lambda group: sum(b.bytes for n in group for b in every[n]))
            order += [number, *(n for group in groups for n in group)]
    return module.with_nests([nests[number] for number in order])


def _filled(body: Sequence[Statement]) -> Iterator[Buffer]:
    """Yields the buffers that statements store to."""
    for statement in body:
        if isinstance(statement, For | When):
            yield from _filled(statement.body)
        elif isinstance(statement, Store):
            yield statement.buffer
        elif isinstance(statement, Sort):
            yield from (statement.items, statement.positions)
