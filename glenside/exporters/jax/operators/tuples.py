"""Tuples are Python's."""

from __future__ import annotations

from glenside.exporters.jax.registry import Held, Operand, exports
from glenside.exporters.jax.source import Source
from glenside.ir.types import AccessType, TupleType


@exports("construct-tuple")
def _tuple(source: Source, result: TupleType, *items: Operand) -> Held:
    return tuple(item.held if isinstance(item.held, tuple) else item.value for item in items)


@exports("tuple-get-item")
def _item(source: Source, result: AccessType, a: Operand, index: int) -> Held:
    assert isinstance(a.held, tuple)
    held: Held = a.held[index]
    return held
