"""The exports, found by `operators/__init__.py`: one function for each operator that has no index map or a shorter way
than it, each compute type without a scalar expression, and what has a node of its own, or none.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from glenside.exporters.onnx.emitter import Emitter
from glenside.exporters.onnx.graph import Value
from glenside.ir.types import AccessType, Dims, Type


@dataclass(frozen=True, slots=True)
class Pair:
    """The value of a product, of which no nodes are made until something needs the pairs: (G, A)(I) x (G, B)(I)."""

    a: Value
    b: Value
    shared: int
    item: int

    @property
    def rows(self) -> tuple[Dims, Dims, Dims, Dims]:
        """The dims G, A, B and I."""
        a, b = self.a.dims, self.b.dims
        return (
            a.take(self.shared),
            a.take(len(a) - self.item).drop(self.shared),
            b.take(len(b) - self.item).drop(self.shared),
            a.drop(len(a) - self.item),
        )


Held = Value | Pair | tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class Operand:
    """What stands for a term: its type, and a value, a pair, or a tuple of these."""

    emit: Emitter
    type: Type
    held: Held

    @property
    def access(self) -> AccessType:
        assert isinstance(self.type, AccessType), "an operator checks its operands when it is built"
        return self.type

    @property
    def item_axes(self) -> tuple[int, ...]:
        return tuple(range(self.access.split, self.access.rank))

    @property
    def value(self) -> Value:
        """The array; that of a pair is made now."""
        return in_memory(self.emit, self.held)

    def parts(self) -> list[Value]:
        """What stands along the first item axis: arrays that broadcast to the dims without it."""
        if isinstance(self.held, Pair):
            return list(pair_parts(self.emit, self.held))
        emit, x, axis = self.emit, self.value, self.access.split
        joined = emit.graph.producer(x, "Concat")
        if joined and joined.attributes["axis"] == axis and all(p.dims[axis] == 1 for p in joined.inputs):
            return [emit.view(part, part.dims.remove(axis)) for part in joined.inputs]
        return [emit.gather(x, emit.integers(i), axis) for i in range(x.dims[axis])]


def pair_parts(emit: Emitter, pair: Pair) -> tuple[Value, Value]:
    """Both operands of a pair with axes of size 1 where only the other has some: they broadcast to (G, A, B, I)."""
    groups, a, b, item = pair.rows
    ones_a, ones_b = Dims((1,) * len(a)), Dims((1,) * len(b))
    left = emit.view(pair.a, groups.append(a).append(ones_b).append(item)) if b else pair.a
    right = emit.view(pair.b, groups.append(ones_a).append(b).append(item)) if a else pair.b
    return left, right


def in_memory(emit: Emitter, held: Held) -> Value:
    """The array of what stands for a term that is no tuple."""
    assert not isinstance(held, tuple), "only tuple-get-item takes tuples"
    if isinstance(held, Value):
        return held
    groups, a, b, item = held.rows
    axis, dims = len(groups) + len(a) + len(b), groups.append(a).append(b).append(item)
    parts = [emit.view(emit.expand(x, dims), dims.insert(axis, 1)) for x in pair_parts(emit, held)]
    return emit.concat(parts, axis)


# (emitter, type of the result, *arguments in field order, operands for terms) -> what stands for the result
Export = Callable[..., Held]
PrimitiveExport = Callable[..., Value]
_Export = TypeVar("_Export")

OPERATOR_EXPORTS: dict[str, Export] = {}
COMPUTE_EXPORTS: dict[str, Export] = {}
PRIMITIVE_EXPORTS: dict[str, PrimitiveExport] = {}


def exports(name: str) -> Callable[[Export], Export]:
    """Register the export of an operator: (emitter, result type, *arguments), an `Operand` for each term."""
    return _into(OPERATOR_EXPORTS, name)


def exports_compute(name: str) -> Callable[[Export], Export]:
    """Register the export of a compute type: (emitter, result type, operand, *parameters as text)."""
    return _into(COMPUTE_EXPORTS, name)


def exports_primitive(name: str) -> Callable[[PrimitiveExport], PrimitiveExport]:
    """Register the export of a primitive that is more than its node: (emitter, *values)."""
    return _into(PRIMITIVE_EXPORTS, name)


def _into(table: dict[str, _Export], name: str) -> Callable[[_Export], _Export]:
    def register(export: _Export) -> _Export:
        if name in table:
            raise ValueError(f"{name} has two exports")
        table[name] = export
        return export

    return register
