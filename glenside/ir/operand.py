"""Defines the operands of an evaluation: type and value; the value of a product need not be in memory."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from glenside.ir.errors import BadInput
from glenside.ir.types import AccessType, Type

Array = NDArray[Any]


def as_array(what: str, value: Any) -> Array:
    """Converts a user's value to an array. Raises BadInput for a masked element, since no operator supports masks."""
    if np.ma.is_masked(value):
        raise BadInput(f"{what} requires an array without masked elements; x.filled(0) of a masked array x is one")
    return np.asarray(value)


def distinct(a: Array) -> Array:
    """Returns a with one element along each axis that only repeats it."""
    return a[tuple(slice(0, 1) if stride == 0 else slice(None) for stride in a.strides)]


@dataclass(eq=False)
class Product:
    """The value of a product, not yet in memory: (G, A)(I) x (G, B)(I) with `shared` = |G| and `item` = |I| axes.

    Its dot-product is one contraction and a fold combines its two parts: neither needs the paired array, which for a
    matrix product has as many elements as the product has multiplications.
    """

    a: Array
    b: Array
    shared: int
    item: int

    def parts(self) -> list[Array]:
        """Returns both operands as views of dims (G, A, B, I)."""
        if self.a.ndim == self.b.ndim == self.shared + self.item:  # no rows: both unchanged
            return [self.a, self.b]
        a_rows = self.a.shape[self.shared : self.a.ndim - self.item]
        b_rows = self.b.shape[self.shared : self.b.ndim - self.item]
        dims = (*self.a.shape[: self.shared], *a_rows, *b_rows, *self.a.shape[self.a.ndim - self.item :])
        after_a = tuple(range(self.shared + len(a_rows), self.shared + len(a_rows) + len(b_rows)))
        before_b = tuple(range(self.shared, self.shared + len(a_rows)))
        a, b = np.expand_dims(self.a, after_a), np.expand_dims(self.b, before_b)
        return [np.broadcast_to(a, dims), np.broadcast_to(b, dims)]

    @cached_property
    def array(self) -> Array:
        """The array of pairs: dims (G, A, B, 2, I)."""
        a, b = self.parts()
        return np.stack([a, b], a.ndim - self.item)


Value = Array | Product | tuple[Any, ...]


def in_memory(value: Value) -> Any:
    """Returns the array of a value: a product is formed; arrays and tuples are returned unchanged."""
    return value.array if isinstance(value, Product) else value


def arrays(value: Any) -> list[Array]:
    """Returns the arrays of a value from left to right: an array is one, a tuple any number."""
    if not isinstance(value, tuple):
        return [value]
    return [array for item in value for array in arrays(item)]


class Typed:
    """The base of stand-ins for a term that carry the term's type."""

    __slots__ = ()
    type: Type

    @property
    def access(self) -> AccessType:
        assert isinstance(self.type, AccessType), "an operator checks its operands when it is built"
        return self.type


@dataclass(slots=True, eq=False)  # not frozen: freezing costs as much as some operators
class Operand(Typed):
    """A value with its type."""

    type: Type
    value: Value

    @property
    def split(self) -> int:
        return self.access.split

    @property
    def array(self) -> Array:
        result: Array = in_memory(self.value)
        return result

    @property
    def item_axes(self) -> tuple[int, ...]:
        return tuple(range(self.access.split, self.access.rank))

    def parts(self) -> list[Array]:
        """Returns the parts along the first item axis, as views."""
        if isinstance(self.value, Product):
            return self.value.parts()
        return list(np.moveaxis(self.array, self.split, 0))
