"""Substitutes buffers in loops, and shares packed operands among nests."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from itertools import chain, count

from glenside.codegen.loop_ir.accesses import used_buffers, with_accesses
from glenside.codegen.loop_ir.compute_block import ScheduledBlock
from glenside.codegen.loop_ir.ir import (
    Buffer,
    Nest,
    Packing,
    Role,
    Statement,
)
from glenside.codegen.loop_ir.module import Module
from glenside.codegen.processor.model import Machine


def share_packings(module: Module, _machine: Machine) -> Module:
    """Shares one packed copy among nests that read an operand in the same order.

    The operand is a constant, or a nest packs it before its first reader: the rows, say, from which queries, keys and
    values are computed.
    """
    own, filled = module.packings, {nest.buffer: i for i, nest in enumerate(module.nests)}
    first: dict[object, Packing] = {}
    names: dict[Buffer, Buffer] = {}
    for packing in sorted(own, key=lambda packing: filled.get(packing.buffer, -1)):
        if packing.buffer.role is Role.CONSTANT or packing.buffer in filled:
            known = first.setdefault(replace(packing, buffer=packing.source), packing)
            if known is not packing:
                names[packing.buffer] = known.buffer
    if not names:
        return module
    kept = tuple(with_buffers(nest, names) for nest in module.nests if nest.buffer not in names)
    return Module(kept, tuple(packing for packing in own if packing.buffer not in names))


def name_packings(module: Module, _machine: Machine) -> Module:
    """Numbers packed buffers that have the same name, such as those of a matrix and its transpose."""
    names: dict[Buffer, Buffer] = {}
    taken: set[str] = set()
    for buffer in dict.fromkeys(packing.buffer for packing in module.packings):
        numbered = (f"{buffer.name}.{number}" for number in count(2))
        name = next(name for name in chain([buffer.name], numbered) if name not in taken)
        taken.add(name)
        if name != buffer.name:
            names[buffer] = replace(buffer, name=name)
    packings = tuple(replace(p, buffer=names.get(p.buffer, p.buffer)) for p in module.packings)
    return Module(tuple(with_buffers(nest, names) for nest in module.nests), packings)


def with_buffers_of(made: ScheduledBlock, names: Mapping[Buffer, Buffer]) -> ScheduledBlock:
    """Returns a scheduled block over other buffers; packed buffers are renamed after their new sources."""
    if all(name == buffer for name, buffer in names.items()):
        return made
    own = {*used_buffers(made.statements), *(packing.buffer for packing in made.packings)} - {*names}
    after = {buffer: _called_after(buffer, names) for buffer in own if buffer.role is not Role.REGISTER}
    now = {**names, **after}
    packings = [replace(p, buffer=now[p.buffer], source=now[p.source]) for p in made.packings]
    return ScheduledBlock([renamed(statement, now) for statement in made.statements], tuple(packings))


def _called_after(buffer: Buffer, names: Mapping[Buffer, Buffer]) -> Buffer:
    """Renames a derived buffer, such as `image.packed`, whose name begins with that of a substituted buffer."""
    of = [source for source in names if buffer.name.startswith(f"{source.name}.")]
    source = max(of, key=lambda source: len(source.name), default=None)
    return buffer if source is None else replace(buffer, name=names[source].name + buffer.name[len(source.name) :])


def with_buffers(nest: Nest, now: Mapping[Buffer, Buffer]) -> Nest:
    """Returns a nest with buffers substituted."""
    if not any(buffer in now for buffer in used_buffers(nest.body)):
        return nest
    body = tuple(renamed(statement, now) for statement in nest.body)
    return replace(nest, buffer=now.get(nest.buffer, nest.buffer), body=body)


def renamed(statement: Statement, now: Mapping[Buffer, Buffer]) -> Statement:
    """Returns a statement with buffers substituted."""
    return with_accesses(statement, lambda buffer, place: (now.get(buffer, buffer), place))
