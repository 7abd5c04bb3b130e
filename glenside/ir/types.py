"""Defines access-pattern types, and the small algebra of shapes in which every type rule is written.

A type rule is one Python function over `AccessType`. Called with concrete types it types a term; called with the
symbolic stand-ins of `glenside.egraph.type_rules`, which have the same methods, it becomes the rules that type
e-classes. So a rule may use only this algebra: `take drop set get append insert remove permute product windows`, `+
- *`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from glenside.ir.dtypes import widen

# Arithmetic on sizes that works for ints and for symbolic sizes in rules of the e-graph.


def ceil_div(a: Any, b: Any) -> Any:
    """Returns a / b rounded up, for a >= 0 and b >= 1."""
    return (a + b - 1) // b


def largest(a: Any, b: Any) -> Any:
    """Returns the larger of two sizes."""
    return max(a, b) if isinstance(a, int) and isinstance(b, int) else _symbolic(a, b).combine("max", a, b)


def smallest(a: Any, b: Any) -> Any:
    """Returns the smaller of two sizes."""
    return min(a, b) if isinstance(a, int) and isinstance(b, int) else _symbolic(a, b).combine("min", a, b)


def if_fits(size: Any, capacity: Any, then: Any, otherwise: Any) -> Any:
    """Returns `then` if size <= capacity, else `otherwise`, using only sums and products, as rules require."""
    over = smallest(1, largest(0, size - capacity))
    return then + over * (otherwise - then)


def _symbolic(a: Any, b: Any) -> Any:
    return b if isinstance(a, int) else a


class Dims(tuple[int, ...]):
    """Sizes of some axes: a tuple of ints with the algebra of shapes."""

    __slots__ = ()

    @property
    def length(self) -> int:
        return len(self)

    def get(self, axis: int) -> int:
        return self[axis]

    def take(self, n: int) -> Dims:
        return Dims(self[:n])

    def drop(self, n: int) -> Dims:
        return Dims(self[n:])

    def set(self, axis: int, size: int) -> Dims:
        return Dims((*self[:axis], size, *self[axis + 1 :]))

    def insert(self, axis: int, size: int) -> Dims:
        return Dims((*self[:axis], size, *self[axis:]))

    def remove(self, axis: int) -> Dims:
        return Dims((*self[:axis], *self[axis + 1 :]))

    def append(self, other: Iterable[int]) -> Dims:
        return Dims((*self, *other))

    def permute(self, order: Iterable[int]) -> Dims:
        return Dims(self[i] for i in order)

    def product(self) -> int:
        return math.prod(self)

    def windows(self, window: Iterable[int], strides: Iterable[int]) -> Dims:
        """Returns the number of windows along each axis: floor((size - window) / stride) + 1."""
        return Dims((n - k) // t + 1 for n, k, t in zip(self, window, strides, strict=True))

    def access(self, item: Iterable[int], dtype: str) -> AccessType:
        """Returns the type (self)(item) of that dtype."""
        return AccessType(self.append(item), len(self), dtype)


@dataclass(frozen=True, slots=True)
class AccessType:
    """`(shape)(item)` of one dtype: `dims` are all axes, the first `split` of them are the shape."""

    dims: Dims
    split: int
    dtype: str

    def __post_init__(self) -> None:
        object.__setattr__(self, "dims", Dims(self.dims))

    @property
    def rank(self) -> int:
        return len(self.dims)

    @property
    def shape(self) -> Dims:
        return self.dims.take(self.split)

    @property
    def item(self) -> Dims:
        return self.dims.drop(self.split)

    @property
    def size(self) -> int:
        """The number of elements."""
        return self.dims.product()

    def with_dims(self, dims: Dims) -> AccessType:
        return AccessType(dims, self.split, self.dtype)

    def with_split(self, split: int) -> AccessType:
        return AccessType(self.dims, split, self.dtype)

    def with_dtype(self, dtype: str) -> AccessType:
        return AccessType(self.dims, self.split, dtype)

    def widened(self) -> AccessType:
        return self.with_dtype(widen(self.dtype))

    def __str__(self) -> str:
        return f"({' '.join(map(str, self.shape))})({' '.join(map(str, self.item))}) {self.dtype}"


@dataclass(frozen=True, slots=True)
class TupleType:
    """The type of `construct-tuple`."""

    items: tuple[AccessType | TupleType, ...]

    def __str__(self) -> str:
        return f"(tuple {' '.join(map(str, self.items))})"


Type = AccessType | TupleType


@dataclass(frozen=True, slots=True)
class Tensor:
    """A declared tensor, which `(access-tensor name)` reads.

    Constants cost nothing at run time and may be rearranged at compile time.
    """

    name: str
    dims: Dims
    dtype: str = "float32"
    constant: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "dims", Dims(self.dims))
