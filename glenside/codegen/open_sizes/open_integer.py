"""Integers that know the expression of open sizes by which they were computed, and print as a C variable.

C of all sizes is printed once, from loops whose integers are of this type: arithmetic on them gives such integers too.
"""

from __future__ import annotations

from typing import Any

from glenside.codegen.open_sizes.expression import Expression


class Numbers:
    """The numbers of a C program that depend on the open sizes: each expression is the variable z0, z1, .."""

    def __init__(self) -> None:
        self.places: dict[Expression, int] = {}

    def variable(self, expression: Expression) -> str:
        """Returns the name of the C variable of an expression."""
        return f"z{self.places.setdefault(expression, len(self.places))}"


class OpenInteger(int):
    """An integer at some sizes, with its expression at all sizes; it prints as a variable.

    It equals no fixed integer, not 0 or 1 either, since it differs from it at other sizes; its order is that at these
    sizes. Results of +, -, * and of // and % by fixed integers are such integers, too.
    """

    expression: Expression
    numbers: Numbers

    def __new__(cls, value: int, expression: Expression, numbers: Numbers) -> OpenInteger:
        self = super().__new__(cls, value)
        self.expression, self.numbers = expression, numbers
        return self

    def __eq__(self, other: object) -> bool:
        return isinstance(other, OpenInteger) and self.expression == other.expression

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __hash__(self) -> int:
        return hash(self.expression)

    def __bool__(self) -> bool:
        return True

    def _made(self, value: int, expression: Expression) -> int:
        return OpenInteger(value, expression, self.numbers) if expression.terms else value

    def __add__(self, other: Any) -> Any:
        if not isinstance(other, int):
            return NotImplemented
        return self._made(int(self) + int(other), self.expression + _expression(other)) if other else self

    __radd__ = __add__

    def __sub__(self, other: Any) -> Any:
        return self + -other if isinstance(other, int) else NotImplemented

    def __rsub__(self, other: Any) -> Any:
        return -self + other if isinstance(other, int) else NotImplemented

    def __neg__(self) -> int:
        return self._made(-int(self), self.expression * Expression((), -1))

    def __abs__(self) -> int:
        return -self if self < 0 else self

    def __mul__(self, other: Any) -> Any:
        if not isinstance(other, int):
            return NotImplemented
        return self._made(int(self) * int(other), self.expression * _expression(other))

    __rmul__ = __mul__

    def __floordiv__(self, other: Any) -> Any:
        if not isinstance(other, int):
            return NotImplemented
        if isinstance(other, OpenInteger):
            return int(self) // int(other)
        return self._made(int(self) // other, self.expression // other)

    def __mod__(self, other: Any) -> Any:
        return self - self // other * other if isinstance(other, int) else NotImplemented

    def __divmod__(self, other: Any) -> Any:
        return self // other, self % other

    def __str__(self) -> str:
        return self.numbers.variable(self.expression)

    def __format__(self, how: str) -> str:
        return format(str(self), how)

    __repr__ = __str__


def _expression(value: int) -> Expression:
    return value.expression if isinstance(value, OpenInteger) else Expression((), value)
