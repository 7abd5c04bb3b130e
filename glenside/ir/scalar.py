"""Defines scalar expressions: the function of a compute type on one element of each operand.

`maximum(x, 0)` is relu and `x + y` is a sum. An expression is built with Python's operators and the primitives of
`glenside.ir.primitives`, and prints as it is written. Its meaning in numpy, prime fields, ONNX and JAX derives from the
row of each primitive in `PRIMITIVES`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property, reduce
from typing import Any

from glenside.ir.dtypes import COMPUTED, FLOATS, INTEGERS, STORED, wider
from glenside.ir.operator import Keeps, require
from glenside.ir.rational import exact, represents


@dataclass(frozen=True, slots=True)
class Domain:
    """The dtypes that a primitive takes, and their name in messages."""

    words: str
    dtypes: tuple[str, ...]


ANY = Domain("a dtype that is computed in", COMPUTED)
NUMBERS = Domain("numbers", (*FLOATS, *INTEGERS))
REALS = Domain(f"a float dtype ({', '.join(FLOATS)})", FLOATS)
WHOLE = Domain("an integer dtype", INTEGERS)
TRUTHS = Domain("dtype bool", ("bool",))


@dataclass(frozen=True, eq=False)
class Primitive:
    """One row: the properties of a function of one to three elements of one dtype.

    takes        the dtypes; the first operand of `select` may have another one
    numpy        the function of arrays, which writes into `out`
    arithmetic   (arithmetic, *arrays) -> a new array, if the meaning depends on the number system; otherwise numpy's
                 function serves all, since it depends on order, signs and bits alone
    gives        the dtype of the result; "same" is that of the last operand
    exact        the meaning for exact operands, Fractions and bools; None for functions of reals
    keeps        the properties that it preserves; ZERO is declared only for functions of reals, the others derive it
    linear       it is the sum of its operands, each times a number
    orders       it depends on which of two numbers is larger
    associative  folds may group operands in any way
    neutral      the neutral element of a fold
    symbol       the sign between its operands, or before the only one
    derivative   (*operands) -> the derivative by each operand, as expressions; None for 0. A primitive without it
                 takes or gives no reals
    onnx, jax    the node, and the function, of the same meaning, unless the exporters have their own
    scratch      (dims, *dtypes of operands) -> bytes that numpy needs besides operands and result
    """

    name: str
    arity: int
    doc: str
    takes: Domain
    numpy: Callable[..., Any]
    gives: str = "same"
    arithmetic: Callable[..., Any] | None = None
    exact: Callable[..., Any] | None = None
    keeps: Keeps = Keeps.NOTHING
    linear: bool = False
    orders: bool = False
    associative: bool = False
    neutral: int | None = None
    symbol: str = ""
    derivative: Callable[..., Sequence[Value | None]] | None = None
    onnx: str = ""
    jax: str = ""
    scratch: Callable[..., int] | None = None

    def __call__(self, *arguments: Value) -> Applied:
        """Builds the expression. Numbers are exact constants; a wrong number of operands is a ValueError."""
        if len(arguments) != self.arity:
            raise ValueError(f"{self.name} requires {self.arity} operands, got {len(arguments)}")
        return Applied(self, tuple(map(scalar, arguments)))


PRIMITIVES: dict[str, Primitive] = {}


def _operator(name: str) -> Callable[..., Scalar]:
    return lambda *arguments: PRIMITIVES[name](*arguments)


def _reversed(name: str) -> Callable[..., Scalar]:
    return lambda right, left: PRIMITIVES[name](left, right)


class Scalar:
    """An expression: an `Element` of an operand, a `Number`, or a primitive `Applied` to expressions."""

    __add__, __radd__ = _operator("add"), _reversed("add")
    __sub__, __rsub__ = _operator("subtract"), _reversed("subtract")
    __mul__, __rmul__ = _operator("multiply"), _reversed("multiply")
    __truediv__, __rtruediv__ = _operator("divide"), _reversed("divide")
    __pow__, __neg__, __abs__ = _operator("pow"), _operator("negative"), _operator("abs")
    __lt__, __le__, __gt__, __ge__ = _operator("lt"), _operator("le"), _operator("gt"), _operator("ge")


@dataclass(frozen=True)
class Element(Scalar):
    """The element of the operand at a position."""

    position: int

    def __str__(self) -> str:
        return "xyz"[self.position]


@dataclass(frozen=True)
class Number(Scalar):
    """An exact number, by its text; a text that is not a number names an unknown parameter."""

    text: str

    @cached_property
    def value(self) -> Fraction | None:
        return exact(self.text)

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True)
class Applied(Scalar):
    """A primitive applied to expressions."""

    primitive: Primitive
    arguments: tuple[Scalar, ...]

    def __bool__(self) -> bool:
        """Returns True. Raises TypeError for a comparison, whose value is not known before there are elements."""
        if self.primitive.gives != "bool":
            return True
        raise TypeError(f"{self} is true or false for each element: choose by select, maximum or minimum of primitives")

    def __str__(self) -> str:
        symbol, written = self.primitive.symbol, [str(argument) for argument in self.arguments]
        if not symbol:
            return f"{self.primitive.name}({', '.join(written)})"
        height = _precedence(self)
        # Parenthesize right operands even at equal precedence.
        grouped = [
            _precedence(a) < height or (i > 0 and _precedence(a) == height) for i, a in enumerate(self.arguments)
        ]
        written = [f"({text})" if group else text for text, group in zip(written, grouped, strict=True)]
        return f" {symbol} ".join(written) if len(written) > 1 else f"{symbol}{written[0]}"


def _precedence(expression: Scalar) -> int:
    """Returns the precedence of an expression's outermost operator."""
    if isinstance(expression, Applied) and expression.primitive.symbol:
        levels = {"+": 2, "-": 2, "*": 3, "/": 3}
        return levels.get(expression.primitive.symbol, 1) if len(expression.arguments) > 1 else 4
    if isinstance(expression, Number):
        return 4 if expression.text.startswith("-") else 3 if "/" in expression.text else 5
    return 5


Value = Scalar | int | Fraction | str
x, y, z = Element(0), Element(1), Element(2)


def scalar(value: Value) -> Scalar:
    """Returns the expression itself, or the constant of an exact number or its text."""
    return value if isinstance(value, Scalar) else Number(str(value))


def arity(expression: Scalar) -> int:
    """Returns the number of operands that an expression reads."""
    if isinstance(expression, Applied):
        return max(map(arity, expression.arguments), default=0)
    return expression.position + 1 if isinstance(expression, Element) else 0


def gives(expression: Scalar) -> str:
    """Returns the dtype of the result, or "same": that of the operands."""
    if not isinstance(expression, Applied):
        return "same"
    return gives(expression.arguments[-1]) if expression.primitive.gives == "same" else expression.primitive.gives


def require_computed(name: str, dtype: str, got: object) -> None:
    """Requires a dtype that is computed in. Raises TypeMismatch, naming the dtype to cast to."""
    if dtype in STORED:
        require(False, name, f"a dtype that is computed in, such as {wider(dtype)}, to which {dtype} is cast", got)


def typed(name: str, expression: Scalar, dtype: str, got: object) -> str:
    """Returns the dtype of an expression for operands of `dtype`. Raises TypeMismatch: `name` requires .., got
    `got`.
    """
    if isinstance(expression, Number):
        require(dtype in NUMBERS.dtypes, name, NUMBERS.words, got)
        if expression.value is not None:
            require(represents(expression.text, dtype), name, f"a value that {dtype} can hold", expression.text)
    if not isinstance(expression, Applied):
        return dtype
    primitive = expression.primitive
    dtypes = [typed(name, argument, dtype, got) for argument in expression.arguments]
    alike = dtypes[1:] if primitive.name == "select" else dtypes
    require(len(set(alike)) == 1, name, f"operands of {primitive.name} of one dtype", " and ".join(alike))
    require(alike[-1] in primitive.takes.dtypes, name, primitive.takes.words, got)
    return alike[-1] if primitive.gives == "same" else primitive.gives


def takes_reals(expression: Scalar) -> bool:
    """True if every primitive in it takes floats or the results of comparisons."""
    if not isinstance(expression, Applied):
        return True
    return not {*FLOATS}.isdisjoint(expression.primitive.takes.dtypes) and all(map(takes_reals, expression.arguments))


def at_zero(expression: Scalar) -> Fraction | bool | None:
    """Returns the exact value where all operands are 0; None if it is unknown or depends on unknown parameters."""
    if isinstance(expression, Element):
        return Fraction(0)
    if not isinstance(expression, Applied):
        assert isinstance(expression, Number)
        return expression.value
    primitive, values = expression.primitive, [at_zero(argument) for argument in expression.arguments]
    if primitive.name == "select" and values[0] is not None:
        return values[1] if values[0] else values[2]
    if primitive.exact is None:
        return Fraction(0) if Keeps.ZERO in primitive.keeps and values == [0] else None
    value: Fraction | bool | None = None if None in values else primitive.exact(*values)
    return value


def keeps(expression: Scalar) -> Keeps:
    """Returns the properties that an expression preserves, for any values of unknown parameters."""
    zero = Keeps.ZERO if at_zero(expression) == 0 else Keeps.NOTHING
    if isinstance(expression, Applied) and expression.primitive.keeps & Keeps.FACTOR and expression.arguments == (x, y):
        return zero | expression.primitive.keeps
    return zero | _kept_by_steps(expression)


def _kept_by_steps(expression: Scalar) -> Keeps:
    """Returns ORDER and DISTANCE if every step preserves them; a constant that is not an integer may be rounded."""
    if isinstance(expression, Applied):
        steps = [expression.primitive.keeps, *map(_kept_by_steps, expression.arguments)]
        return reduce(Keeps.__and__, steps, Keeps.ORDER | Keeps.DISTANCE)
    inexact = isinstance(expression, Number) and (expression.value is None or expression.value.denominator != 1)
    return Keeps.ORDER if inexact else Keeps.ORDER | Keeps.DISTANCE


def orders(expression: Scalar) -> bool:
    """True if the result depends on which of two numbers is larger."""
    parts = expression.arguments if isinstance(expression, Applied) else ()
    return (isinstance(expression, Applied) and expression.primitive.orders) or any(map(orders, parts))


def primitives(expression: Scalar) -> set[str]:
    """Returns the names of all primitives in an expression."""
    if not isinstance(expression, Applied):
        return set()
    return {expression.primitive.name}.union(*map(primitives, expression.arguments))


def is_linear(expression: Scalar) -> bool:
    """True if the expression is a sum of operands, each perhaps negated."""
    if not isinstance(expression, Applied):
        return isinstance(expression, Element)
    return expression.primitive.linear and all(map(is_linear, expression.arguments))


def derivative(expression: Scalar, position: int) -> Scalar | None:
    """Returns the derivative by the operand at a position; None if it is 0 everywhere.

    At corners it is JAX's, as the primitives define.
    """
    if not isinstance(expression, Applied):
        return Number("1") if expression == Element(position) else None
    inner = [derivative(argument, position) for argument in expression.arguments]
    if not any(inner):
        return None
    rule = expression.primitive.derivative
    if rule is None:  # it takes or gives no reals
        return None
    outer = [None if partial is None else scalar(partial) for partial in rule(*expression.arguments)]
    terms = [_times(a, b) for a, b in zip(outer, inner, strict=True) if a is not None and b is not None]
    return reduce(_plus, terms) if terms else None


_BEYOND = {"max": "gt", "min": "lt"}


def derivative_of_clip(expression: Scalar) -> Scalar | None:
    """Differentiates nested maxima and minima of one operand and numbers, as an expression of their result; else None.

    The operand was selected where the result is beyond each number. So a gradient reads the result, which a program
    stores anyway, and the operand need not be kept.
    """
    if not isinstance(expression, Applied) or expression.primitive.name not in _BEYOND:
        return Number("1") if expression == Element(0) else None
    bounds = [argument for argument in expression.arguments if isinstance(argument, Number)]
    others = [argument for argument in expression.arguments if not isinstance(argument, Number)]
    within = derivative_of_clip(others[0]) if len(others) == len(bounds) == 1 else None
    beyond = PRIMITIVES[_BEYOND[expression.primitive.name]]
    return None if within is None else PRIMITIVES["select"](beyond(Element(0), bounds[0]), within, 0)


def _times(a: Scalar, b: Scalar) -> Scalar:
    """Returns a * b without factors of 1; a select stays outermost, so that only selected branches are multiplied."""
    if Number("1") in (a, b):
        return b if a == Number("1") else a
    if isinstance(a, Applied) and a.primitive.name == "select":
        condition, then, otherwise = a.arguments
        branches = [part if part == Number("0") else _times(part, b) for part in (then, otherwise)]
        return a.primitive(condition, *branches)
    return a * b


def _plus(a: Scalar, b: Scalar) -> Scalar:
    """Returns a + b; two selects by one condition, each with a branch of 0, are merged."""
    if isinstance(a, Applied) and isinstance(b, Applied) and a.primitive.name == b.primitive.name == "select":
        (condition, *left), (other, *right) = a.arguments, b.arguments
        pairs = [[part for part in pair if part != Number("0")] for pair in zip(left, right, strict=True)]
        if condition == other and all(len(pair) <= 1 for pair in pairs):
            return a.primitive(condition, *(pair[0] if pair else Number("0") for pair in pairs))
    return a + b
