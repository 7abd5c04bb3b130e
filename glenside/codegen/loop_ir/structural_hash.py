"""What statements do, whatever buffers they do it to: those that are alike are one function of their buffers."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field, fields, is_dataclass
from functools import cache
from typing import Any

from glenside.codegen.loop_ir.ir import Buffer, Local, Role, Statement


@dataclass(frozen=True)
class Like:
    """Statements, equal to all others that do the same to buffers of the same roles and dims.

    buffers  theirs, in an order that all have
    """

    key: Hashable
    body: Sequence[Statement] = field(compare=False)
    buffers: Sequence[Buffer] = field(compare=False)

    @classmethod
    def of(cls, body: Sequence[Statement]) -> Like:
        key, buffers = alike(body)
        return cls((key, tuple((buffer.role, buffer.dims) for buffer in buffers)), body, buffers)

    def names(self, other: Like) -> dict[Buffer, Buffer]:
        """The buffers of one that is equal, in the place of these."""
        return dict(zip(self.buffers, other.buffers, strict=True))


@cache
def _fields(kind: type) -> tuple[str, ...] | None:
    """Of formulas and statements, which may hold buffers; None of what holds none."""
    own = is_dataclass(kind) and kind.__module__ == Local.__module__
    return tuple(f.name for f in fields(kind)) if own else None


def alike(body: Sequence[Statement]) -> tuple[Hashable, list[Buffer]]:
    """A key that statements share if they differ in their buffers alone, and those buffers, in an order of the key's.

    Registers are part of what is done. Of buffers the key has dtypes and roles, and which of them are the same; where
    in a buffer an element lies is a number, so dims are asked of scratch memory alone, which is the function's.
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
        return type(part), *(key(getattr(part, name)) for name in names)

    return key(body), list(numbers)
