"""Structural keys: statements that are equal up to the names of their buffers have equal keys."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass
from functools import cache
from typing import Any

from glenside.codegen.loop_ir.accesses import accesses, with_accesses
from glenside.codegen.loop_ir.ir import (
    Buffer,
    For,
    Local,
    Role,
    Sort,
    Statement,
    When,
)
from glenside.ir.index_map import Index


@dataclass(frozen=True)
class Like:
    """Statements that compare equal to all structurally equal ones over buffers of the same roles and dims.

    buffers  the buffers of the statements; structurally equal statements have corresponding buffers in the same order
    """

    key: Hashable
    body: Sequence[Statement] = field(compare=False)
    buffers: Sequence[Buffer] = field(compare=False)

    @classmethod
    def of(cls, body: Sequence[Statement]) -> Like:
        key, buffers = alike(body)
        return cls((key, tuple((buffer.role, buffer.dims, buffer.symmetric) for buffer in buffers)), body, buffers)

    def names(self, other: Like) -> dict[Buffer, Buffer]:
        """Maps each buffer to the corresponding buffer of `other`, which must be equal."""
        return dict(zip(self.buffers, other.buffers, strict=True))


@cache
def _fields(kind: type) -> tuple[str, ...] | None:
    """Returns the field names of a formula or statement class, or None for other classes, which contain no buffers."""
    own = is_dataclass(kind) and kind.__module__ == Local.__module__
    return tuple(f.name for f in fields(kind)) if own else None


def alike(body: Sequence[Statement], offsets: Mapping[Buffer, int] | None = None) -> tuple[Hashable, list[Buffer]]:
    """Returns a structural key, and the buffers in the order of their first use.

    Statements that differ only in their buffers have equal keys. The key contains registers whole. For other buffers
    it has the dtype and which uses are of the same buffer. Accesses use flat indices, so dims matter for scratch
    memory alone, which the emitted function allocates itself. Indices are relative to `offsets`, if given.
    """
    numbers: dict[Buffer, int] = {}

    def key(part: Any) -> Hashable:
        if isinstance(part, tuple | list):
            return tuple(map(key, part))
        if isinstance(part, Buffer):
            if part.role is Role.REGISTER:
                return part.name, part.dtype, part.dims
            own = part.dims if part.role is Role.SCRATCH else None
            return numbers.setdefault(part, len(numbers)), part.dtype, own
        names = _fields(part.__class__)
        if names is None:
            found: Hashable = part
            return found
        return (part.__class__, *[key(getattr(part, name)) for name in names])

    return key(relative(body, offsets or {})), list(numbers)


def first_offsets(body: Sequence[Statement]) -> dict[Buffer, int]:
    """Returns the least constant of the indices of each buffer in memory, where it is an index of an element and not 0.

    The steps of a recurrence, and the parts of a concatenation, differ in these alone.
    """
    least: dict[Buffer, int] = {}
    for access in accesses(body):
        known = least.get(access.buffer)
        least[access.buffer] = access.place.constant if known is None else min(known, access.place.constant)
    fixed = set(_sorted(body))
    return {
        buffer: offset
        for buffer, offset in least.items()
        if 0 < offset < buffer.dims.product()
        and not buffer.nibbles
        and buffer.role not in (Role.SCRATCH, Role.REGISTER)
        and buffer not in fixed
    }


def _sorted(body: Sequence[Statement]) -> Iterator[Buffer]:
    """Yields the buffers of sorts, whose indices are the same in both."""
    for statement in body:
        if isinstance(statement, For | When):
            yield from _sorted(statement.body)
        elif isinstance(statement, Sort):
            yield from (statement.items, statement.positions)


def relative(body: Sequence[Statement], offsets: Mapping[Buffer, int]) -> Sequence[Statement]:
    """Returns statements whose indices are relative to offsets of their buffers."""

    def moved(buffer: Buffer, place: Index) -> tuple[Buffer, Index]:
        return buffer, place - offsets[buffer] if buffer in offsets else place

    return tuple(with_accesses(one, moved) for one in body) if offsets else body
