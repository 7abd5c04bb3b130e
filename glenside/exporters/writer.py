"""Defines the common parts of exporters: exported values, and exports with the same steps for every format."""

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
    """An exported array: its name, dims and dtype."""

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
    """The value of a product, whose pairs are written only when needed: (G, A)(I) x (G, B)(I)."""

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
    """Parts along the first item axis, which are joined only when needed."""

    parts: tuple[V, ...]
    axis: int


Held: TypeAlias = V | Pair[V] | Stack[V] | tuple[Any, ...]


class Writer(ABC, Generic[V]):
    """Writes the steps of a program in some format, each on values of earlier steps."""

    @abstractmethod
    def number(self, value: str | int, dtype: str, rank: int = 0) -> V:
        """Returns one exact number that broadcasts with operands of this rank."""

    @abstractmethod
    def apply(self, primitive: Primitive, operands: Sequence[V]) -> V:
        """Applies a primitive elementwise to operands that broadcast to each other."""

    @abstractmethod
    def view(self, x: V, dims: Sequence[int]) -> V:
        """Returns the same elements in row-major order under other dims."""

    @abstractmethod
    def transpose(self, x: V, order: Sequence[int]) -> V:
        """Transposes: axis i of the result is axis order[i]."""

    @abstractmethod
    def expand(self, x: V, dims: Sequence[int]) -> V:
        """Repeats axes of size 1 to these dims."""

    @abstractmethod
    def slice(self, x: V, axis: int, start: int, stop: int, step: int = 1) -> V:
        """Returns elements start, start + step .. below stop of one axis."""

    @abstractmethod
    def flip(self, x: V, axis: int) -> V:
        """Reverses one axis."""

    @abstractmethod
    def concat(self, parts: Sequence[V], axis: int) -> V:
        """Concatenates the parts along an axis."""

    @abstractmethod
    def apart(self, x: V, axis: int) -> list[V]:
        """Returns the elements of an axis, each without it."""

    def stack(self, parts: Sequence[V], axis: int) -> V:
        """Stacks the parts along a new axis."""
        return self.concat([self.view(part, part.dims.insert(axis, 1)) for part in parts], axis)

    def broadcast_parts(self, pair: Pair[V]) -> tuple[V, V]:
        """Returns both operands of a pair with axes of size 1 for axes of the other: they broadcast to (G, A, B, I)."""
        groups, a, b, item = pair.rows
        left = self.view(pair.a, (*groups, *a, *[1] * len(b), *item))
        return left, self.view(pair.b, (*groups, *[1] * len(a), *b, *item))

    def in_memory(self, held: Held[V]) -> V:
        """Returns the array of an exported term that is not a tuple."""
        assert not isinstance(held, tuple), "only tuple-get-item takes tuples"
        if isinstance(held, Stack):
            return self.stack(held.parts, held.axis)
        if isinstance(held, Pair):
            groups, a, b, item = held.rows
            dims = Dims((*groups, *a, *b, *item))
            return self.stack([self.expand(x, dims) for x in self.broadcast_parts(held)], len(dims) - len(item))
        return held


@dataclass(frozen=True)
class Operand(Typed, Generic[V]):
    """An exported term: its type, and a value, a pair, a stack, or a tuple of these."""

    writer: Writer[V]
    type: Type
    held: Held[V]

    @property
    def value(self) -> V:
        """The array; a pair is formed now."""
        return self.writer.in_memory(self.held)

    def parts(self) -> list[V]:
        """Returns the parts along the first item axis: arrays that broadcast to the dims without it."""
        if isinstance(self.held, Pair):
            return list(self.writer.broadcast_parts(self.held))
        if isinstance(self.held, Stack) and self.held.axis == self.access.split:
            return list(self.held.parts)
        return self.writer.apart(self.value, self.access.split)


class Exports(dict[str, Callable[..., T]]):
    """Name -> its export; the modules of a package `operators` register them."""

    def register(self, *names: str) -> Callable[[Callable[..., T]], Callable[..., T]]:
        """Registers a function under names that have none yet."""

        def enter(export: Callable[..., T]) -> Callable[..., T]:
            for name in names:
                if name in self:
                    raise ValueError(f"{name} has two exports")
                self[name] = export
            return export

        return enter


def written(writer: Writer[V], primitives: Exports[V], expression: Scalar, operands: Sequence[V]) -> V:
    """Exports an expression of operands that broadcast; `primitives` has the primitives that need
    more than one step.
    """
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
    """Exports a compute type by its scalar expression; operands of a pair broadcast without being stacked."""
    writer, expression = a.writer, compute.expression(*parameters)
    parts = [a.value] if compute.category is Category.POINTWISE else a.parts()
    if compute.category is Category.FOLD and folds(expression):
        value = reduce(lambda x, y: written(writer, primitives, expression, [x, y]), parts)
    else:
        value = written(writer, primitives, expression, parts)
    return writer.expand(value, result.dims)


REARRANGING: Exports[Any] = Exports()
"""Operators that are the same steps in every format, with which the exports of each format begin."""


@REARRANGING.register("access")
def _access(_: Writer[V], __: AccessType, a: Operand[V], split: int) -> Held[V]:
    """Keeps a pair if the split is unchanged; its readers check the types."""
    return a.held if split == a.access.split else a.value


@REARRANGING.register("access-reshape", "access-flatten", "access-insert-axis", "access-squeeze", "access-shift-right")
def _reshape(writer: Writer[V], result: AccessType, a: Operand[V], *_: Any) -> V:
    """Reshapes; the elements stay in row-major order."""
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
