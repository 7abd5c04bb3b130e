"""The exports, found by `operators/__init__.py`: one function for each operator that has no index map or a shorter way
than it, each compute type without a scalar expression, and each primitive that is more than a function of JAX.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from glenside.exporters.jax.source import Source, Value
from glenside.ir.types import AccessType, Dims, Type


@dataclass(frozen=True, slots=True)
class Pair:
    """The value of a product, of which nothing is written until something needs the pairs: (G, A)(I) x (G, B)(I)."""

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

    def parts(self, source: Source) -> tuple[Value, Value]:
        """Both operands with axes of size 1 where only the other has some: they broadcast to (G, A, B, I)."""
        groups, a, b, item = self.rows
        ones_a, ones_b = Dims((1,) * len(a)), Dims((1,) * len(b))
        left = source.reshape(self.a, groups.append(a).append(ones_b).append(item))
        right = source.reshape(self.b, groups.append(ones_a).append(b).append(item))
        return left, right


@dataclass(frozen=True, slots=True)
class Stack:
    """Parts along the first item axis, of which nothing is written until something needs them together."""

    parts: tuple[Value, ...]
    axis: int


Held = Value | Pair | Stack | tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class Operand:
    """What stands for a term: its type, and a value, a pair, a stack, or a tuple of these."""

    source: Source
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
        return in_memory(self.source, self.held)

    def parts(self) -> list[Value]:
        """What stands along the first item axis: arrays that broadcast to the dims without it."""
        axis = self.access.split
        if isinstance(self.held, Pair):
            return list(self.held.parts(self.source))
        if isinstance(self.held, Stack) and self.held.axis == axis:
            return list(self.held.parts)
        return [self.source.index(self.value, axis, i) for i in range(self.access.item[0])]

    def rows(self) -> Value:
        """The items as rows of one axis: dims (S, I), at least one axis before the last."""
        shape = self.access.shape or Dims((1,))
        return self.source.reshape(self.value, shape.append([self.access.item.product()]))


def in_memory(source: Source, held: Held) -> Value:
    """The array of what stands for a term that is no tuple."""
    assert not isinstance(held, tuple), "only tuple-get-item takes tuples"
    if isinstance(held, Value):
        return held
    if isinstance(held, Stack):
        return source.stack(held.parts, held.axis)
    groups, a, b, item = held.rows
    dims = groups.append(a).append(b).append(item)
    return source.stack([source.broadcast(x, dims) for x in held.parts(source)], len(dims) - len(item))


# (source, type of the result, *arguments in field order, operands for terms) -> what stands for the result
Export = Callable[..., Held]
PrimitiveExport = Callable[..., Value]
_Export = TypeVar("_Export")

OPERATOR_EXPORTS: dict[str, Export] = {}
COMPUTE_EXPORTS: dict[str, Export] = {}
PRIMITIVE_EXPORTS: dict[str, PrimitiveExport] = {}

# What is not written, and why. Everything else of the language has an export.
OPERATORS_LEFT_OUT = {
    "opaque": "nobody here knows its meaning",
}
COMPUTES_LEFT_OUT: dict[str, str] = {}


def exports(name: str) -> Callable[[Export], Export]:
    """Register the export of an operator: (source, result type, *arguments), an `Operand` for each term."""
    return _into(OPERATOR_EXPORTS, name)


def exports_compute(name: str) -> Callable[[Export], Export]:
    """Register the export of a compute type: (source, result type, operand, *parameters as text)."""
    return _into(COMPUTE_EXPORTS, name)


def exports_primitive(name: str) -> Callable[[PrimitiveExport], PrimitiveExport]:
    """Register the export of a primitive that is more than its function: (source, *values)."""
    return _into(PRIMITIVE_EXPORTS, name)


def _into(table: dict[str, _Export], name: str) -> Callable[[_Export], _Export]:
    def register(export: _Export) -> _Export:
        if name in table:
            raise ValueError(f"{name} has two exports")
        table[name] = export
        return export

    return register
