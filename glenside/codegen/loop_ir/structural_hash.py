"""Structural keys: statements that are equal up to the names of their buffers have equal keys."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field, fields, is_dataclass
from functools import cache
from typing import Any

from glenside.codegen.loop_ir.ir import Buffer, Local, Role, Statement


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
        return cls((key, tuple((buffer.role, buffer.dims) for buffer in buffers)), body, buffers)

    def names(self, other: Like) -> dict[Buffer, Buffer]:
        """Maps each buffer to the corresponding buffer of `other`, which must be equal."""
        return dict(zip(self.buffers, other.buffers, strict=True))


@cache
def _fields(kind: type) -> tuple[str, ...] | None:
    """Returns the field names of a formula or statement class, or None for other classes, which contain no buffers."""
    own = is_dataclass(kind) and kind.__module__ == Local.__module__
    return tuple(f.name for f in fields(kind)) if own else None


def alike(body: Sequence[Statement]) -> tuple[Hashable, list[Buffer]]:
    """Returns a structural key, and the buffers in the order of their first use.

    Statements that differ only in their buffers have equal keys. The key contains registers whole. For other buffers
    it has the dtype and which uses are of the same buffer. Accesses use flat indices, so dims matter for scratch
    memory alone, which the emitted function allocates itself.
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

    return key(body), list(numbers)
