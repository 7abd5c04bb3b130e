"""Integers that know the expression of open sizes by which they were computed, and print as a C variable.

C of all sizes is printed once, from loops whose integers are of this type: arithmetic on them gives such integers too.
"""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from math import gcd
from threading import Lock
from typing import Any

from glenside.ir.size_expression import Expression

_variables: dict[Expression, int] = {}
_expressions: list[Expression] = []
_sharing = Lock()


def expression_of(variable: int) -> Expression:
    """Returns the expression that prints as the variable of that number."""
    return _expressions[variable]


class OpenInteger(int):
    """An integer at some sizes, with its expression at all sizes; it prints as a variable.

    It equals no fixed integer, not 0 or 1 either, since it differs from it at other sizes; its order is that at these
    sizes. Results of +, -, * and of // and % by fixed integers are such integers, too.
    """

    expression: Expression

    def __new__(cls, value: int, expression: Expression) -> OpenInteger:
        self = super().__new__(cls, value)
        self.expression = expression
        return self

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, OpenInteger):
            return False
        return int(self) == int(other) and self.expression == other.expression  # memos are for programs of all ranges

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __hash__(self) -> int:
        return hash(self.expression)

    def __bool__(self) -> bool:
        return True

    def _made(self, value: int, expression: Expression) -> int:
        return OpenInteger(value, expression) if expression.terms else value

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
        if not isinstance(other, OpenInteger):
            return self._made(int(self) // other, self.expression // other)
        return self._by_open(other)

    def _by_open(self, other: OpenInteger) -> int:
        """Returns the quotient by an open integer, rounded down; a constant remainder is compared at these sizes."""
        own, by = self.expression, other.expression
        for constant in dict.fromkeys((0, own.constant, own.constant - by.constant)):
            whole = (own + Expression((), -constant)).quotient(by)
            if whole is not None:
                rest = constant // int(other)
                return self._made((int(self) - constant) // int(other) + rest, whole + Expression((), rest))
        return self._made(int(self) // int(other), own.divided(by))

    def __rfloordiv__(self, other: Any) -> Any:
        if not isinstance(other, int):
            return NotImplemented
        return OpenInteger(other, Expression((), other))._by_open(self) if other else 0

    def __lshift__(self, other: Any) -> Any:
        return self * (1 << other)

    def __rmod__(self, other: Any) -> Any:
        return other - other // self * self if isinstance(other, int) else NotImplemented

    def __mod__(self, other: Any) -> Any:
        return self - self // other * other if isinstance(other, int) else NotImplemented

    def __divmod__(self, other: Any) -> Any:
        return self // other, self % other

    def __str__(self) -> str:
        with _sharing:
            number = _variables.setdefault(self.expression, len(_expressions))
            if number == len(_expressions):
                _expressions.append(self.expression)
        return f"z{number}"

    def __format__(self, how: str) -> str:
        return format(str(self), how)

    __repr__ = __str__


def _expression(value: int) -> Expression:
    return value.expression if isinstance(value, OpenInteger) else Expression((), value)


class OpenFraction(Fraction):
    """A rational number at some sizes, as the ratio of two integers; one of them is open. It equals no fixed number.

    Results of +, -, * and / are such numbers, too.
    """

    above: int
    below: int

    def __new__(cls, above: int, below: int = 1) -> OpenFraction:
        self = super().__new__(cls, int(above), int(below))
        self.above, self.below = above, below
        return self

    def __eq__(self, other: object) -> bool:
        return isinstance(other, OpenFraction) and (self.above, self.below) == (other.above, other.below)

    def __hash__(self) -> int:  # type: ignore[override]  # numbers.Complex has none
        return hash((self.above, self.below))

    def __bool__(self) -> bool:
        return True

    def __add__(self, other: Any) -> Any:
        (a, b), (c, d) = _ratio(self), _ratio(other)
        return _ratio_of(a * d + c * b, b * d)

    def __mul__(self, other: Any) -> Any:
        (a, b), (c, d) = _ratio(self), _ratio(other)
        return _ratio_of(a * c, b * d)

    __radd__, __rmul__ = __add__, __mul__

    def __neg__(self) -> Any:
        return self * -1

    def __sub__(self, other: Any) -> Any:
        return self + -other

    def __rsub__(self, other: Any) -> Any:
        return -self + other

    def __truediv__(self, other: Any) -> Any:
        above, below = _ratio(other)
        return self * _ratio_of(below, above)

    def __rtruediv__(self, other: Any) -> Any:
        return _ratio_of(self.below, self.above) * other

    def at(self, sizes: Mapping[str, int]) -> Fraction:
        """Returns the number at given sizes; 0 if its denominator is 0."""
        above, below = (_expression(part).at(sizes) for part in (self.above, self.below))
        return Fraction(above, below) if below else Fraction(0)

    def __str__(self) -> str:
        return (
            f"{self.above}/{self.below}" if isinstance(self.below, OpenInteger) or self.below != 1 else f"{self.above}"
        )


def _ratio(number: Any) -> tuple[int, int]:
    """Returns two integers whose ratio a number is."""
    if isinstance(number, OpenFraction):
        return number.above, number.below
    if isinstance(number, int):
        return number, 1
    exact = Fraction(number)
    return exact.numerator, exact.denominator


def _ratio_of(above: int, below: int) -> Fraction:
    is_open = isinstance(above, OpenInteger) or isinstance(below, OpenInteger)
    return OpenFraction(above, below) if is_open else Fraction(above, below)


class OpenText(str):
    """The text of an integer at some sizes, which is an attribute of a term."""

    integer: OpenInteger

    def __new__(cls, integer: OpenInteger) -> OpenText:
        self = super().__new__(cls, int(integer))
        self.integer = integer
        return self

    def __eq__(self, other: object) -> bool:
        return isinstance(other, OpenText) and self.integer == other.integer

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __hash__(self) -> int:
        return hash(self.integer)

    def __str__(self) -> str:
        return self


def as_integer(value: Any) -> int:
    """Returns a number as an integer; an open one stays open."""
    return value if isinstance(value, OpenInteger) else int(value)


def value_at(value: int, sizes: Mapping[str, int]) -> int:
    """Returns the value of an integer, fixed or open, at given sizes."""
    return value.expression.at(sizes) if isinstance(value, OpenInteger) else value


def fraction(value: int | Fraction) -> Fraction:
    """Returns a number as a fraction, which knows the expression of an open integer."""
    return OpenFraction(value) if isinstance(value, OpenInteger) else Fraction(value)


def common_divisor(a: int, b: int) -> int:
    """Returns the greatest common divisor, or one that divides both at all sizes."""
    if not isinstance(a, OpenInteger) and not isinstance(b, OpenInteger):
        return gcd(a, b)
    for one, other in ((a, b), (b, a)):
        if isinstance(other, OpenInteger) and _expression(one).quotient(other.expression) is not None:
            return abs(other)
    return gcd(
        *(factor for part in (a, b) for factor, _ in (*_expression(part).terms, (_expression(part).constant, ())))
    )
