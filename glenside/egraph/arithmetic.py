"""Python's arithmetic for what stands for a number in an e-graph."""

from __future__ import annotations

from typing import Any, Generic, TypeVar

T = TypeVar("T")


class Arithmetic(Generic[T]):
    """Operators of Python, each by way of `combine`. Division is that of sizes, which are >= 0."""

    __slots__ = ()

    def combine(self, operation: str, a: Any, b: Any) -> T:
        """egglog's `operation` of two numbers; `glenside.ir.types` has what Python has no operator for."""
        raise NotImplementedError

    def __add__(self, other: Any) -> T:
        return self.combine("+", self, other)

    def __radd__(self, other: Any) -> T:
        return self.combine("+", other, self)

    def __sub__(self, other: Any) -> T:
        return self.combine("-", self, other)

    def __rsub__(self, other: Any) -> T:
        return self.combine("-", other, self)

    def __mul__(self, other: Any) -> T:
        return self.combine("*", self, other)

    def __rmul__(self, other: Any) -> T:
        return self.combine("*", other, self)

    def __floordiv__(self, other: Any) -> T:
        return self.combine("/", self, other)

    def __mod__(self, other: Any) -> T:
        return self.combine("%", self, other)

    def __and__(self, other: Any) -> T:
        return self.combine("&", self, other)

    def __or__(self, other: Any) -> T:
        return self.combine("|", self, other)

    def __lshift__(self, other: Any) -> T:
        return self.combine("<<", self, other)

    def __rlshift__(self, other: Any) -> T:
        return self.combine("<<", other, self)
