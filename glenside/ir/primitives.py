"""Defines the primitives of scalar expressions, one row each: their meaning in numpy, exact numbers, ONNX and JAX."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Sequence
from fractions import Fraction
from functools import partial
from typing import Any

import numpy as np

from glenside.ir.blockwise import ERF_PART, PART, block_size, blocks
from glenside.ir.dtypes import RECORDS
from glenside.ir.operand import Array
from glenside.ir.operator import MONOTONE, Keeps
from glenside.ir.scalar import ANY, NUMBERS, PRIMITIVES, REALS, TRUTHS, WHOLE, Domain, Number, Primitive, Scalar

ORDER, DISTANCE, FACTOR = Keeps.ORDER, Keeps.DISTANCE, Keeps.FACTOR
__all__ = ["PRIMITIVES", "maximum", "minimum", "select"]


def _row(name: str, arity: int, takes: Domain, doc: str, numpy: Any, onnx: str, exact: Any, **known: Any) -> Primitive:
    """Registers a primitive. JAX has most functions of numpy under numpy's names."""
    if name in PRIMITIVES:
        raise ValueError(f"{name} is declared twice")
    jax = known.pop("jax", "") or f"jnp.{numpy.__name__}"
    return PRIMITIVES.setdefault(
        name, Primitive(name, arity, doc, takes, numpy=numpy, onnx=onnx, exact=exact, jax=jax, **known)
    )


def _integer_blocks(dims: Sequence[int], dtype: np.dtype[Any], _: np.dtype[Any]) -> int:
    """Returns the bytes of temporaries of integer division and powers."""
    return 3 * block_size(dims, PART) * dtype.itemsize if dtype.kind in "iu" else 0


def _erf_scratch(dims: Sequence[int], dtype: np.dtype[Any]) -> int:
    """Returns the bytes of a list of Python floats and of the list of results."""
    return block_size(dims, ERF_PART) * (dtype.itemsize + 8 + 24 + 8)


def _quotient(a: Fraction, b: Fraction) -> Fraction | None:
    return a / b if b else None


def _power(a: Fraction, b: Fraction) -> Fraction | None:
    """Returns the power for integer exponents of small magnitude."""
    return a ** int(b) if b.denominator == 1 and abs(b) <= 64 and (a or b >= 0) else None


def _remainder(rounding: Callable[[Fraction], int], a: Fraction, b: Fraction) -> Fraction | None:
    return a - b * rounding(a / b) if b else None


def _bits(function: Callable[[int, int], int]) -> Callable[[Fraction, Fraction], Fraction]:
    return lambda a, b: Fraction(function(int(a), int(b)))


def _sigmoid(x: Array, out: Array) -> None:
    np.negative(x, out=out)
    np.exp(out, out=out)
    np.add(1, out, out=out)
    np.divide(1, out, out=out)


def _erf(x: Array, out: Array) -> None:
    """Computes erf, which numpy lacks; the standard library's is exact to the last place."""
    for index in blocks(x.shape, ERF_PART):
        part = x[index]
        out[index] = np.fromiter(map(math.erf, part.ravel().tolist()), np.float64, part.size).reshape(part.shape)


def _wide_blocks(own: Callable[..., int] | None, dims: Sequence[int], dtype: np.dtype[Any]) -> int:
    """Returns the bytes that a function of reals needs, including the float32 in which bfloat16 is computed."""
    needs = 0 if own is None else own(dims, dtype)
    wide = RECORDS[dtype.name].wider
    return needs + (2 * np.dtype(wide).itemsize * block_size(dims, PART) if wide else 0)


def _select(condition: Array, then: Array, otherwise: Array, out: Array) -> None:
    for index in blocks(out.shape, PART):
        where = condition[index] if condition.dtype == np.bool_ else condition[index] != 0
        out[index] = np.where(where, then[index], otherwise[index])


def _select_scratch(dims: Sequence[int], condition: np.dtype[Any], then: np.dtype[Any], _: np.dtype[Any]) -> int:
    return block_size(dims, PART) * (then.itemsize + (condition != np.bool_))


def _of(name: str, x: Scalar) -> Scalar:
    return PRIMITIVES[name](x)


# Derivatives. At corners they are JAX's: |x| has 1 at 0, sign and rounding have 0 everywhere, equal operands of min and
# max get equal shares. Compared with a number, as in relu and clip, the number wins: 0 there, as in jax.nn.relu and
# lax.clamp.
_TWO_OVER_ROOT_PI = "1.12837916709551257389615890312154517"


def _extreme_derivative(beyond: str, x: Scalar, y: Scalar) -> tuple[Scalar | None, Scalar | None]:
    if isinstance(x, Number) or isinstance(y, Number):
        return (
            None if isinstance(x, Number) else select(PRIMITIVES[beyond](x, y), 1, 0),
            None if isinstance(y, Number) else select(PRIMITIVES[beyond](y, x), 1, 0),
        )
    equal = PRIMITIVES["eq"](x, y)
    return (
        select(equal, "1/2", select(PRIMITIVES[beyond](x, y), 1, 0)),
        select(equal, "1/2", select(PRIMITIVES[beyond](y, x), 1, 0)),
    )


def _power_derivative(x: Scalar, y: Scalar) -> tuple[Scalar, Scalar]:
    """Returns both derivatives: by x, 0 where y is 0, at 0^0 too, where JAX has nan; by y, 0 where x is 0."""
    no_power, no_base = PRIMITIVES["eq"](y, 0), PRIMITIVES["eq"](x, 0)
    less = select(no_power, 1, y - 1)
    return select(no_power, 0, y * x**less), _of("log", select(no_base, 1, x)) * x**y


def _remainder_derivative(x: Scalar, y: Scalar) -> tuple[int, Scalar]:
    quotient = x / y
    return 1, -(_of("sign", quotient) * _of("floor", abs(quotient)))


def _pair(name: str, doc: str, numpy: Any, onnx: str, exact: Any, *more: str, method: str = "", **known: Any) -> None:
    """Registers a function of two numbers that is a method of an arithmetic, `name` by default, with arguments
    `more`.
    """
    call = lambda arithmetic, a, b: getattr(arithmetic, method or name)(a, b, *more)  # noqa: E731
    _row(name, 2, NUMBERS, doc, numpy, onnx, exact, arithmetic=call, **known)


_pair(
    "add",
    "x + y.",
    np.add,
    "Add",
    operator.add,
    symbol="+",
    associative=True,
    neutral=0,
    keeps=ORDER,
    linear=True,
    derivative=lambda x, y: (1, 1),
)
_pair("subtract", "x - y.", np.subtract, "Sub", operator.sub, symbol="-", linear=True, derivative=lambda x, y: (1, -1))
_pair(
    "multiply",
    "x * y.",
    np.multiply,
    "Mul",
    operator.mul,
    symbol="*",
    associative=True,
    neutral=1,
    keeps=FACTOR,
    derivative=lambda x, y: (y, x),
)
_DIVIDE = "x / y; integer quotients are truncated towards zero, and n / 0 is 0 for integers."
_pair(
    "divide",
    _DIVIDE,
    np.divide,
    "Div",
    _quotient,
    symbol="/",
    scratch=_integer_blocks,
    keeps=FACTOR,
    derivative=lambda x, y: (1 / y, -(x / (y * y))),
)
_POW = "x to the power y; for integers and y < 0 the result is truncated towards zero, and 0 for x = 0."
_pair("pow", _POW, np.power, "Pow", _power, method="power", scratch=_integer_blocks, derivative=_power_derivative)
_MOD, _REM = "x - y * floor(x / y); n mod 0 is 0 for integers.", "x - y * trunc(x / y); n rem 0 is 0 for integers."
_pair(
    "mod",
    _MOD,
    np.mod,
    "Mod",
    partial(_remainder, math.floor),
    "floor",
    method="remainder",
    derivative=lambda x, y: (1, -_of("floor", x / y)),
)
_pair(
    "rem",
    _REM,
    np.fmod,
    "Mod",
    partial(_remainder, math.trunc),
    "truncate",
    method="remainder",
    jax="lax.rem",
    derivative=_remainder_derivative,
)
_row(
    "negative",
    1,
    NUMBERS,
    "-x.",
    np.negative,
    "Neg",
    operator.neg,
    symbol="-",
    keeps=DISTANCE,
    linear=True,
    derivative=lambda x: (-1,),
)
_row(
    "abs",
    1,
    NUMBERS,
    "|x|.",
    np.abs,
    "Abs",
    abs,
    jax="jnp.abs",
    keeps=DISTANCE,
    orders=True,
    derivative=lambda x: (select(x >= 0, 1, -1),),
)
_row(
    "sign",
    1,
    NUMBERS,
    "-1, 0 or 1.",
    np.sign,
    "Sign",
    lambda a: (a > 0) - (a < 0),
    keeps=ORDER,
    orders=True,
    derivative=lambda x: (None,),
)

minimum = _row(
    "min",
    2,
    ANY,
    "The smaller of x and y.",
    np.minimum,
    "Min",
    min,
    orders=True,
    associative=True,
    keeps=ORDER | DISTANCE,
    derivative=partial(_extreme_derivative, "lt"),
)
maximum = _row(
    "max",
    2,
    ANY,
    "The larger of x and y.",
    np.maximum,
    "Max",
    max,
    orders=True,
    associative=True,
    keeps=ORDER | DISTANCE,
    derivative=partial(_extreme_derivative, "gt"),
)
_row("lt", 2, ANY, "x < y.", np.less, "Less", operator.lt, symbol="<", gives="bool", orders=True)
_row("le", 2, ANY, "x <= y.", np.less_equal, "LessOrEqual", operator.le, symbol="<=", gives="bool", orders=True)
_row("gt", 2, ANY, "x > y.", np.greater, "Greater", operator.gt, symbol=">", gives="bool", orders=True)
_row("ge", 2, ANY, "x >= y.", np.greater_equal, "GreaterOrEqual", operator.ge, symbol=">=", gives="bool", orders=True)
_row("eq", 2, ANY, "x equals y.", np.equal, "Equal", operator.eq, symbol="==", gives="bool")
_row("ne", 2, ANY, "x differs from y.", np.not_equal, "", operator.ne, symbol="!=", gives="bool")
_SELECT = "y where x, of any dtype, is nonzero, else z."
select: Primitive = _row(
    "select",
    3,
    ANY,
    _SELECT,
    _select,
    "Where",
    lambda c, a, b: a if c else b,
    jax="jnp.where",
    scratch=_select_scratch,
    derivative=lambda c, x, y: (None, select(c, 1, 0), select(c, 0, 1)),
)

_row("logical-not", 1, TRUTHS, "Not x.", np.logical_not, "Not", operator.not_)
_BOTH, _EITHER = (lambda a, b: bool(a and b)), (lambda a, b: bool(a or b))
_row("logical-and", 2, TRUTHS, "x and y.", np.logical_and, "And", _BOTH, associative=True, keeps=ORDER)
_row("logical-or", 2, TRUTHS, "x or y.", np.logical_or, "Or", _EITHER, associative=True, keeps=ORDER)
_row("bitwise-and", 2, WHOLE, "The bitwise and.", np.bitwise_and, "BitwiseAnd", _bits(operator.and_), associative=True)
_row("bitwise-or", 2, WHOLE, "The bitwise or.", np.bitwise_or, "BitwiseOr", _bits(operator.or_), associative=True)
_row(
    "bitwise-xor",
    2,
    WHOLE,
    "The bitwise exclusive or.",
    np.bitwise_xor,
    "BitwiseXor",
    _bits(operator.xor),
    associative=True,
)


def _function(name: str, doc: str, numpy: Callable[..., Any], keeps: Keeps = Keeps.NOTHING, **known: Any) -> None:
    """Registers a function of reals. In a prime field a fixed pseudo-random function of its name replaces it."""
    call = lambda arithmetic, a: arithmetic.apply(name, a, Keeps.ZERO in keeps)  # noqa: E731
    known["scratch"] = partial(_wide_blocks, known.get("scratch"))
    _row(name, 1, REALS, doc, numpy, name.capitalize(), None, arithmetic=call, keeps=keeps, **known)


_function("sqrt", "The square root.", np.sqrt, MONOTONE, derivative=lambda x: (1 / (2 * _of("sqrt", x)),))
_function("exp", "e to the power of x.", np.exp, ORDER, derivative=lambda x: (_of("exp", x),))
_function("log", "The natural logarithm.", np.log, ORDER, derivative=lambda x: (1 / x,))
_function(
    "tanh", "The hyperbolic tangent.", np.tanh, MONOTONE, derivative=lambda x: (1 - _of("tanh", x) * _of("tanh", x),)
)
_function(
    "sigmoid",
    "1 / (1 + exp(-x)).",
    _sigmoid,
    ORDER,
    jax="lax.logistic",
    derivative=lambda x: (_of("sigmoid", x) * (1 - _of("sigmoid", x)),),
)
_function(
    "erf",
    "The error function.",
    _erf,
    MONOTONE,
    jax="lax.erf",
    scratch=_erf_scratch,
    derivative=lambda x: (_of("exp", -(x * x)) * _TWO_OVER_ROOT_PI,),
)
_function("sin", "The sine.", np.sin, Keeps.ZERO, derivative=lambda x: (_of("cos", x),))
_function("cos", "The cosine.", np.cos, derivative=lambda x: (-_of("sin", x),))
_function("tan", "The tangent.", np.tan, Keeps.ZERO, derivative=lambda x: (1 + _of("tan", x) * _of("tan", x),))
_function(
    "asin",
    "The inverse sine, in [-pi/2, pi/2].",
    np.arcsin,
    MONOTONE,
    derivative=lambda x: (1 / _of("sqrt", 1 - x * x),),
)
_function(
    "acos",
    "The inverse cosine, in [0, pi].",
    np.arccos,
    derivative=lambda x: (-(1 / _of("sqrt", 1 - x * x)),),
)
_function(
    "atan",
    "The inverse tangent, in [-pi/2, pi/2].",
    np.arctan,
    MONOTONE,
    derivative=lambda x: (1 / (1 + x * x),),
)
_function("sinh", "The hyperbolic sine.", np.sinh, MONOTONE, derivative=lambda x: (_of("cosh", x),))
_function("cosh", "The hyperbolic cosine.", np.cosh, derivative=lambda x: (_of("sinh", x),))
_function(
    "asinh",
    "The inverse hyperbolic sine.",
    np.arcsinh,
    MONOTONE,
    derivative=lambda x: (1 / _of("sqrt", x * x + 1),),
)
_function(
    "acosh",
    "The inverse hyperbolic cosine, which is at least 0.",
    np.arccosh,
    ORDER,
    derivative=lambda x: (1 / _of("sqrt", (x - 1) * (x + 1)),),
)
_function(
    "atanh",
    "The inverse hyperbolic tangent.",
    np.arctanh,
    MONOTONE,
    derivative=lambda x: (1 / (1 - x * x),),
)
_function("floor", "x rounded down to an integer.", np.floor, MONOTONE, orders=True, derivative=lambda x: (None,))
_function("ceil", "x rounded up to an integer.", np.ceil, MONOTONE, orders=True, derivative=lambda x: (None,))
_function(
    "round",
    "x rounded to the nearest integer, ties to even.",
    np.rint,
    MONOTONE,
    jax="jnp.round",
    orders=True,
    derivative=lambda x: (None,),
)
