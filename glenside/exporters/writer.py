"""What the exporters share: arrays of what is written, what stands for a term meanwhile, and the exports of operators
and compute types that are the same steps everywhere.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any, Generic, TypeAlias, TypeVar

from glenside.ir.elementwise import folds
from glenside.ir.operand import Typed
from glenside.ir.operator import Category, Compute
from glenside.ir.scalar import Applied, Element, Number, Primitive, Scalar
from glenside.ir.types import AccessType, Dims, Type


@dataclass(frozen=True, slots=True)
class Value:
    """An array of what is written: its name there, its dims and its dtype."""

    name: str
    dims: Dims
    dtype: str

    @property
    def rank(self) -> int:
        return len(self.dims)


V = TypeVar("V", bound=Value)
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Pair(Generic[V]):
    """The value of a product, of which nothing is written until something needs the pairs: (G, A)(I) x (G, B)(I)."""

    a: V
    b: V
    shared: int
    item: int

    @property
    def rows(self) -> tuple[Dims, Dims, Dims, Dims]:
        """The dims G, A, B and I."""
        rows_a, rows_b = (x.dims.take(x.rank - self.item).drop(self.shared) for x in (self.a, self.b))
        return self.a.dims.take(self.shared), rows_a, rows_b, self.a.dims.drop(self.a.rank - self.item)


@dataclass(frozen=True, slots=True)
class Stack(Generic[V]):
    """Parts along the first item axis, of which nothing is written until something needs them together."""

    parts: tuple[V, ...]
    axis: int


Held: TypeAlias = V | Pair[V] | Stack[V] | tuple[Any, ...]


class Writer(ABC, Generic[V]):
    """Writes the steps of a program in some language, each on the values of those before."""

    @abstractmethod
    def number(self, value: str | int, dtype: str, rank: int = 0) -> V:
        """One exact number, for operands of that rank."""

    @abstractmethod
    def apply(self, primitive: Primitive, operands: Sequence[V]) -> V:
        """A primitive of each element of operands that broadcast to each other."""

    @abstractmethod
    def view(self, x: V, dims: Sequence[int]) -> V:
        """The same elements in row-major order under other dims."""

    @abstractmethod
    def transpose(self, x: V, order: Sequence[int]) -> V:
        """Axis i of the result is axis order[i]."""

    @abstractmethod
    def expand(self, x: V, dims: Sequence[int]) -> V:
        """Axes of size 1 repeated to those dims."""

    @abstractmethod
    def slice(self, x: V, axis: int, start: int, stop: int, step: int = 1) -> V:
        """Elements start, start + step .. below stop of one axis."""

    @abstractmethod
    def flip(self, x: V, axis: int) -> V:
        """One axis in reverse order."""

    @abstractmethod
    def concat(self, parts: Sequence[V], axis: int) -> V:
        """The parts one after the other along an axis."""

    @abstractmethod
    def apart(self, x: V, axis: int) -> list[V]:
        """The elements of an axis, each without it."""

    def stack(self, parts: Sequence[V], axis: int) -> V:
        """The parts side by side along a new axis."""
        return self.concat([self.view(part, part.dims.insert(axis, 1)) for part in parts], axis)

    def sides(self, pair: Pair[V]) -> tuple[V, V]:
        """Both operands of a pair with axes of size 1 where only the other has some: they broadcast to (G, A, B, I)."""
        groups, a, b, item = pair.rows
        left = self.view(pair.a, (*groups, *a, *[1] * len(b), *item))
        return left, self.view(pair.b, (*groups, *[1] * len(a), *b, *item))

    def in_memory(self, held: Held[V]) -> V:
        """The array of what stands for a term that is no tuple."""
        assert not isinstance(held, tuple), "only tuple-get-item takes tuples"
        if isinstance(held, Stack):
            return self.stack(held.parts, held.axis)
        if isinstance(held, Pair):
            groups, a, b, item = held.rows
            dims = Dims((*groups, *a, *b, *item))
            return self.stack([self.expand(x, dims) for x in self.sides(held)], len(dims) - len(item))
        return held


@dataclass(frozen=True)
class Operand(Typed, Generic[V]):
    """What stands for a term: its type, and a value, a pair, a stack, or a tuple of these."""

    writer: Writer[V]
    type: Type
    held: Held[V]

    @property
    def value(self) -> V:
        """The array; that of a pair is made now."""
        return self.writer.in_memory(self.held)

    def parts(self) -> list[V]:
        """What stands along the first item axis: arrays that broadcast to the dims without it."""
        if isinstance(self.held, Pair):
            return list(self.writer.sides(self.held))
        if isinstance(self.held, Stack) and self.held.axis == self.access.split:
            return list(self.held.parts)
        return self.writer.apart(self.value, self.access.split)


class Exports(dict[str, Callable[..., T]]):
    """Name -> what writes it, found by a package `operators` whose modules register themselves."""

    def register(self, *names: str) -> Callable[[Callable[..., T]], Callable[..., T]]:
        """Enter a function under names that have none yet."""

        def enter(export: Callable[..., T]) -> Callable[..., T]:
            for name in names:
                if name in self:
                    raise ValueError(f"{name} has two exports")
                self[name] = export
            return export

        return enter


def written(writer: Writer[V], primitives: Exports[V], expression: Scalar, operands: Sequence[V]) -> V:
    """The value of an expression of operands that broadcast; `primitives` are those that are more than one step."""
    if isinstance(expression, Element):
        return operands[expression.position]
    if isinstance(expression, Number):
        return writer.number(expression.text, operands[0].dtype, operands[0].rank)
    assert isinstance(expression, Applied)
    primitive = expression.primitive
    arguments = [written(writer, primitives, argument, operands) for argument in expression.arguments]
    if primitive.name in primitives:
        return primitives[primitive.name](writer, *arguments)
    return writer.apply(primitive, arguments)


def elementwise(
    primitives: Exports[V], result: AccessType, a: Operand[V], compute: Compute, parameters: Sequence[str]
) -> V:
    """A compute type that a scalar expression defines; operands of a pair broadcast, nothing is stacked."""
    writer, expression = a.writer, compute.expression(*parameters)
    parts = [a.value] if compute.category is Category.POINTWISE else a.parts()
    if compute.category is Category.FOLD and folds(expression):
        value = reduce(lambda x, y: written(writer, primitives, expression, [x, y]), parts)
    else:
        value = written(writer, primitives, expression, parts)
    return writer.expand(value, result.dims)


REARRANGING: Exports[Any] = Exports()
"""Operators that are the same steps in every language, with which the exports of each begin."""


@REARRANGING.register("access")
def _access(_: Writer[V], __: AccessType, a: Operand[V], split: int) -> Held[V]:
    """A pair stays one under the split that it has; its consumers look at the types."""
    return a.held if split == a.access.split else a.value


@REARRANGING.register("access-reshape", "access-flatten", "access-insert-axis", "access-squeeze", "access-shift-right")
def _reshape(writer: Writer[V], result: AccessType, a: Operand[V], *_: Any) -> V:
    """The elements stay in row-major order."""
    return writer.view(a.value, result.dims)


@REARRANGING.register("access-transpose")
def _transpose(writer: Writer[V], _: AccessType, a: Operand[V], order: Dims) -> V:
    return writer.transpose(a.value, order)


@REARRANGING.register("access-rearrange")
def _rearrange(
    writer: Writer[V], result: AccessType, a: Operand[V], parts: Dims, order: Dims, _: tuple[Dims, Dims]
) -> V:
    return writer.view(writer.transpose(writer.view(a.value, parts), order), result.dims)


@REARRANGING.register("access-broadcast")
def _broadcast(writer: Writer[V], result: AccessType, a: Operand[V], _: tuple[Dims, Dims]) -> V:
    return writer.expand(a.value, result.dims)


@REARRANGING.register("access-flip")
def _flip(writer: Writer[V], _: AccessType, a: Operand[V], axis: int) -> V:
    return writer.flip(a.value, axis)


@REARRANGING.register("access-slice")
def _slice(writer: Writer[V], _: AccessType, a: Operand[V], axis: int, lo: int, hi: int) -> V:
    return writer.slice(a.value, axis, lo, hi)


@REARRANGING.register("access-product")
def _product(_: Writer[V], __: AccessType, a: Operand[V], b: Operand[V], n: int) -> Pair[V]:
    return Pair(a.value, b.value, n, len(a.access.item))


@REARRANGING.register("construct-tuple")
def _construct_tuple(_: Writer[V], __: Type, *items: Operand[V]) -> tuple[Held[V], ...]:
    return tuple(item.held for item in items)


@REARRANGING.register("tuple-get-item")
def _tuple_get_item(_: Writer[V], __: Type, a: Operand[V], index: int) -> Held[V]:
    assert isinstance(a.held, tuple), "the term was checked when it was built"
    held: Held[V] = a.held[index]
    return held
