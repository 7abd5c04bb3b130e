"""The words of `glenside.ir.types.Dims` for what stands for a vector of sizes in an e-graph."""

from __future__ import annotations

from typing import Any, Generic, TypeVar

T = TypeVar("T")


class Vector(Generic[T]):
    """Functions of vectors as methods, each by way of `apply`."""

    __slots__ = ()

    def apply(self, function: str, *arguments: Any) -> T:
        """A function of vectors by egglog's name of it."""
        raise NotImplementedError

    def __getitem__(self, axis: Any) -> T:
        return self.apply("vec-get", self, axis)

    @property
    def length(self) -> T:
        return self.apply("vec-length", self)

    def take(self, n: Any) -> T:
        """The first n."""
        return self.apply("take", self, n)

    def drop(self, n: Any) -> T:
        """All but the first n."""
        return self.apply("drop", self, n)

    def set(self, axis: Any, size: Any) -> T:
        return self.apply("vec-set", self, axis, size)

    def insert(self, axis: Any, size: Any) -> T:
        """`size` put before position `axis`."""
        return self.apply("insert", self, size, axis)

    def remove(self, axis: Any) -> T:
        return self.apply("vec-remove", self, axis)

    def push(self, size: Any) -> T:
        """One more at the end."""
        return self.apply("vec-push", self, size)

    def pop(self) -> T:
        """All but the last."""
        return self.apply("vec-pop", self)

    def append(self, *others: Any) -> T:
        return self.apply("vec-append", self, *others)

    def permute(self, order: Any) -> T:
        """self[order[0]], self[order[1]] and so on."""
        return self.apply("permute", self, order)

    def shift(self, n: Any) -> T:
        """n added to each."""
        return self.apply("shift", self, n)

    def windows(self, window: Any, strides: Any) -> T:
        return self.apply("windows", window, strides, self)

    def product(self) -> T:
        return self.apply("product", self)

    def prefixes(self) -> T:
        """The products of the first 0, 1, 2 .. sizes."""
        return self.apply("prefixes", self)

    def highest(self) -> T:
        return self.apply("highest", self)
