"""Computes with dual numbers a + b e, e^2 = 0, over a prime field: the value of a program and its tangent.

Dual numbers run through the operators' own meanings, so the derivative of a program follows from its semantics, without
a second definition of the operators. As in `OrderedField`, a dual number is stored as a complex number: the real part
is its position on the real line, and the imaginary part packs two residues as r 2^24 + t: of the value (r) and of the
tangent (t). A selection by order takes the tangent of the selected operand. Equal numbers with different tangents are a
corner, where no derivative exists; random numbers are equal only if they are the same number.

Rounding to integers, and values of integer, bool or bitwise operators, have tangent 0. A cast between floats passes the
tangent on.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fractions import Fraction
from functools import partial

import numpy as np
from numpy.typing import DTypeLike

from glenside.ir.blockwise import in_operand_layout
from glenside.ir.dtypes import REALS
from glenside.ir.errors import BadInput
from glenside.ir.operand import Array
from glenside.ir.operators.opaque import name_of
from glenside.ir.primitives import PRIMITIVES
from glenside.ir.scalar import Applied, Element, Number, Scalar, x
from glenside.semantics.native import Native
from glenside.semantics.ordered_field import OrderedField, contracted, is_number
from glenside.semantics.prime_field import PART

_SHIFT = 2.0**24
"""Sums of two representatives are below 2^22, less than half of this shift."""
TWO_OVER_ROOT_PI = Fraction("1.1283791670955126")
"""The float64 nearest to 2 / sqrt(pi), with which erf is differentiated; both compared programs must use the same."""
_CONSTANT = Number("2 / sqrt(pi)")


def _function(name: str, argument: Scalar = x) -> Scalar:
    return PRIMITIVES[name](argument)


DERIVATIVES: dict[str, Scalar] = {
    "sqrt": 1 / (2 * _function("sqrt")),
    "exp": _function("exp"),
    "log": 1 / x,
    "tanh": 1 - _function("tanh") * _function("tanh"),
    "sigmoid": _function("sigmoid") * (1 - _function("sigmoid")),
    "erf": _function("exp", 0 - x * x) * _CONSTANT,
    "sin": _function("cos"),
    "cos": 0 - _function("sin"),
    "tan": 1 + _function("tan") * _function("tan"),
    "asin": 1 / _function("sqrt", 1 - x * x),
    "acos": -1 / _function("sqrt", 1 - x * x),
    "atan": 1 / (1 + x * x),
    "sinh": _function("cosh"),
    "cosh": _function("sinh"),
    "asinh": 1 / _function("sqrt", x * x + 1),
    "acosh": 1 / _function("sqrt", x * x - 1),
    "atanh": 1 / (1 - x * x),
}
"""The derivative of each function of reals at x; a function that is missing here rounds, so its derivative is 0."""


class DualField(Native):
    """Floats are dual numbers over the field of `numbers`; integers and bool are numpy's own."""

    has_blas = False

    def __init__(self, numbers: OrderedField, two_over_root_pi: Fraction = TWO_OVER_ROOT_PI) -> None:
        self.numbers, self.field, self.two_over_root_pi = numbers, numbers.field, two_over_root_pi
        self.opaque_below = numbers.opaque_below
        compared = {name: partial(self._compare, name) for name in ("lt", "le", "gt", "ge", "eq", "ne")}
        extremes = {name: partial(self._extreme, name) for name in ("min", "max")}
        self.own = {**compared, **extremes, "select": self._select, "abs": self._abs, "sign": self._sign}

    def dual(self, number: Array, change: Array | float = 0.0) -> Array:
        """Packs numbers of the ordered field with the residues of their tangents."""
        result = np.empty(number.shape, np.complex128)
        result.real = number.real
        result.imag = number.imag * _SHIFT + change
        return result

    def parts(self, a: Array) -> tuple[Array, Array]:
        """Returns the numbers of the ordered field and the residues of their tangents, which are 0 for other arrays."""
        if a.dtype.kind != "c":
            return a, np.zeros((), np.float32)
        number = np.empty(a.shape, np.complex128)
        residue, change = _split(a.imag)
        number.real, number.imag = a.real, residue
        return number, change

    def kept(self, dtype: str) -> DTypeLike:
        return np.complex128 if dtype in REALS else dtype

    def identity(self, a: Array) -> Array:
        return np.asarray(a.imag) if is_number(a) else a

    def ranked(self, a: Array) -> Array:
        return self.numbers.ranked(self.parts(a)[0])

    def encode(self, name: str, array: Array, dtype: str) -> Array:
        """Encodes residues with tangent 0; dual numbers are returned as they are."""
        return array if is_number(array) else self._constant(self.numbers.encode(name, array, dtype))

    def constant(self, value: Fraction | int, dtype: str) -> Array:
        return self._constant(self.numbers.constant(value, dtype))

    def lowest(self, dtype: str) -> Array:
        return self._constant(self.numbers.lowest(dtype))

    def _constant(self, a: Array) -> Array:
        """Returns a with tangent 0."""
        return self.dual(a) if is_number(a) else a

    # Sums and products.

    def add(self, a: Array, b: Array) -> Array:
        return self._sum(np.add, a, b) if is_number(a) else self.numbers.add(a, b)

    def subtract(self, a: Array, b: Array) -> Array:
        return self._sum(np.subtract, a, b) if is_number(a) else self.numbers.subtract(a, b)

    def accumulate(self, total: Array, a: Array) -> None:
        total[...] = self.add(total, a)

    def _sum(self, function: np.ufunc, a: Array, b: Array) -> Array:
        def store(out: Array, x: Array, y: Array) -> None:
            function(x.real, y.real, out=out.real)
            residue, change = _split(np.asarray(function(x.imag, y.imag)))
            out.imag = self.field.reduce(residue) * _SHIFT + self.field.reduce(change)

        return in_operand_layout(store, (a, b), np.complex128, PART)

    def multiply(self, a: Array, b: Array) -> Array:
        if not is_number(a):
            return self.numbers.multiply(a, b)

        def store(out: Array, x: Array, y: Array) -> None:
            np.multiply(x.real, y.real, out=out.real)
            (first, moved), (second, other) = _split(x.imag), _split(y.imag)
            change = self.field.reduce(np.asarray(first * other + second * moved))
            out.imag = self.field.reduce(np.asarray(first * second)) * _SHIFT + change

        return in_operand_layout(store, (a, b), np.complex128, PART)

    def divide(self, a: Array, b: Array) -> Array:
        """Returns a / b, whose tangent is (a' - b' a / b) / b."""
        (x, moved), (y, other) = self.parts(a), self.parts(b)
        quotient = self.numbers.divide(x, y)
        if not is_number(a):
            return quotient
        change = self._times(other, quotient.imag)
        inverse = self.numbers.divide(self.numbers.constant(1, "float32"), y)
        return self.dual(quotient, self._times(self.field.subtract(moved, change), inverse.imag))

    def _times(self, a: Array, b: Array) -> Array:
        return self.field.multiply(np.asarray(a), np.asarray(b))

    def sum(self, a: Array, axes: tuple[int, ...]) -> Array:
        number, change = self.parts(a)
        total = self.numbers.sum(number, axes)
        return self.dual(total, self.field.sum(change, axes)) if is_number(a) else total

    def mean(self, a: Array, axes: tuple[int, ...]) -> Array:
        length = int(np.prod([a.shape[axis] for axis in axes]))
        return self.multiply(self.sum(a, axes), self.constant(Fraction(1, length), "float32"))

    def product(self, a: Array, axes: tuple[int, ...]) -> Array:
        """Multiplies halves of the array until one number is left."""
        if not is_number(a):
            return self.numbers.product(a, axes)
        lead = a.shape[: a.ndim - len(axes)]
        rest = a.reshape((*lead, int(np.prod(a.shape[len(lead) :])))) if axes else a[..., np.newaxis]
        while rest.shape[-1] > 1:
            half = rest.shape[-1] // 2
            paired = self.multiply(rest[..., :half], rest[..., half : 2 * half])
            rest = np.concatenate([paired, rest[..., 2 * half :]], -1)
        return rest[..., 0] if rest.shape[-1] else np.broadcast_to(self.constant(1, "float32"), lead)

    def contract(self, a: Array, b: Array, shared: int, item: int) -> Array:
        if not is_number(a):
            return self.numbers.contract(a, b, shared, item)
        return contracted(a, b, shared, item, self._residues_matmul)

    def _residues_matmul(self, a: Array, b: Array, out: Array) -> Array:
        """Multiplies (g, m, k) x (g, n, k), residues with their tangents."""
        (first, moved), (second, other) = _split(a), _split(b)
        part = np.empty(out.shape)
        change = np.zeros(out.shape)
        for left, right in ((first, other), (moved, second)):
            if left.any() and right.any():
                change += self.field.matmul(left, right, part)
        out[...] = self.field.matmul(first, second, part) * _SHIFT
        out += self.field.reduce(change)
        return out

    def linear_map(self, a: Array, axis: int, values: Sequence[Sequence[Fraction]], out: Array | None = None) -> Array:
        number, change = self.parts(a)
        result = self.numbers.linear_map(number, axis, values)
        if is_number(a):
            result = self.dual(result, self.field.linear_map(change.astype(np.float32), axis, values))
        if out is None:
            return result
        out[...] = result
        return out

    # Functions.

    def power(self, a: Array, b: Array) -> Array:
        """Returns a^b, whose tangent is b a^(b - 1) a' + a^b log(a) b', and 0^b log(1) b' for a = 0."""
        (base, moved), (exponent, other) = self.parts(a), self.parts(b)
        result = self.numbers.power(base, exponent)
        if not is_number(a):
            return result
        below = self.numbers.power(base, self.numbers.subtract(exponent, self.numbers.constant(1, "float32")))
        change = self._times(self._times(exponent.imag, below.imag), moved)
        if other.any():
            one = self.numbers.constant(1, "float32")
            grown = self.numbers.multiply(result, self.numbers.apply("log", np.where(base.imag == 0, one, base), False))
            change = self.field.add(change, self._times(grown.imag, other))
        return self.dual(result, change)

    def remainder(self, a: Array, b: Array, rounding: str) -> Array:
        if not is_number(a):
            return self.numbers.remainder(a, b, rounding)
        cut = self._whole(self.divide(a, b), rounding)
        return self.subtract(a, self.multiply(b, cut))

    def _whole(self, a: Array, rounding: str) -> Array:
        number = self.parts(a)[0]
        if rounding == "floor":
            return self.dual(self.numbers.apply("floor", number, True))
        down, up = (self.numbers.apply(name, number, True) for name in ("floor", "ceil"))
        return self.dual(np.where(number.real < 0, up, down))

    def apply(self, function: str, a: Array, keeps_zero: bool) -> Array:
        number, change = self.parts(a)
        result = self.numbers.apply(function, number, keeps_zero)
        if function not in DERIVATIVES or not change.any():
            return self.dual(result)
        slope = np.asarray(slope_of(function, self.numbers, number, self.two_over_root_pi))
        return self.dual(result, self._times(slope.imag, change))

    def below_maximum(self, a: Array, axes: tuple[int, ...]) -> Array:
        """Returns a: nothing overflows here."""
        return a

    # Selections.

    def _numbers(self, a: Array) -> Array:
        return self.parts(a)[0]

    def _observed(self, name: str, *operands: Array) -> Array:
        """Applies a primitive to the numbers without tangents, so that an observer of branch outcomes sees its
        operands.
        """
        known: Callable[..., Array] = self.numbers.own.get(name, PRIMITIVES[name].numpy)
        return np.asarray(known(*map(self._numbers, operands)))

    def _compare(self, name: str, a: Array, b: Array) -> Array:
        return self._observed(name, a, b)

    def _extreme(self, name: str, a: Array, b: Array) -> Array:
        if not is_number(a):
            return self._observed(name, a, b)
        if name in self.numbers.own:
            self._observed(name, a, b)
        return np.asarray(PRIMITIVES[name].numpy(a, b))

    def _select(self, condition: Array, then: Array, otherwise: Array) -> Array:
        self._observed("select", condition, then, otherwise)
        return np.where(_split(condition.imag)[0] != 0 if is_number(condition) else condition != 0, then, otherwise)

    def _abs(self, a: Array) -> Array:
        found = self._observed("abs", a)
        return np.where(a.real < 0, -a, a) if is_number(a) else found

    def _sign(self, a: Array) -> Array:
        return self._constant(self._observed("sign", a))

    # Casts and black boxes.

    def cast(self, a: Array, dtype: str) -> Array:
        number, change = self.parts(a)
        found = self.numbers.cast(number, dtype)
        return self.dual(found, change) if is_number(found) else found

    def reinterpret(self, a: Array, dtype: str) -> Array:
        if is_number(a) and dtype in REALS:
            return a
        return self._constant(self.numbers.reinterpret(self.parts(a)[0], dtype))

    def opaque(self, key: str, operands: Sequence[Array], dims: Sequence[int], dtype: str) -> Array:
        numbers = [self._without_tangent(key, a, dtype) for a in operands]
        return self._constant(self.numbers.opaque(key, numbers, dims, dtype))

    def opaque_pointwise(self, key: str, a: Array, dtype: str, places: Array | None = None) -> Array:
        return self._constant(self.numbers.opaque_pointwise(key, self._without_tangent(key, a, dtype), dtype, places))

    def _without_tangent(self, key: str, a: Array, dtype: str) -> Array:
        """Returns the numbers of a black box's operand. Raises BadInput if its tangent would reach the result."""
        number, change = self.parts(a)
        if dtype in REALS and change.any():
            raise BadInput(f"the black box {name_of(key)} has no known derivative")
        return number


def _split(both: Array) -> tuple[Array, Array]:
    """Unpacks residues and tangents, or unreduced sums of two of them."""
    residue = np.asarray(np.rint(both * (1 / _SHIFT)))
    return residue, np.asarray(both - residue * _SHIFT)


def slope_of(function: str, arithmetic: Native, argument: Array, two_over_root_pi: Fraction) -> Array:
    """Evaluates the derivative of a function of reals at an array of numbers."""

    def value(expression: Scalar) -> Array:
        if isinstance(expression, Element):
            return argument
        if isinstance(expression, Number):
            return arithmetic.constant(two_over_root_pi if expression.value is None else expression.value, "float64")
        assert isinstance(expression, Applied)
        assert expression.primitive.arithmetic is not None
        return np.asarray(expression.primitive.arithmetic(arithmetic, *map(value, expression.arguments)))

    return value(DERIVATIVES[function])
