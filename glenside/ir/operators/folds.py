"""Compute types that fold the first axis of the item, left to right."""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from typing import Any

import numpy as np

from glenside.ir.operand import Array, Operand
from glenside.ir.operator import Category, Compute, Field, Kind, register, require
from glenside.ir.operators.requirements import require_number
from glenside.ir.types import INTEGERS, AccessType

Step = Callable[[Any, Array, Array], Array]


def _fold(name: str, doc: str, step: Step, check: Callable[..., None] | None) -> Compute:
    """A compute type that combines what it has with the next operand; `step` takes the arithmetic first."""

    def evaluate(arithmetic: Any, a: Operand) -> Array:
        return reduce(lambda left, right: step(arithmetic, left, right), a.parts())

    record: Compute = register(Compute(name, Category.FOLD, evaluate, doc, check=check))
    return record


def _numbers(name: str) -> Callable[..., None]:
    return lambda a: require_number(name, a)


def _integers(name: str) -> Callable[..., None]:
    return lambda a: require(a.dtype in INTEGERS, name, "an integer dtype", a)


def _bools(name: str) -> Callable[..., None]:
    return lambda a: require(a.dtype == "bool", name, "dtype bool", a)


elementwise_add = _fold(
    "elementwise-add", "Sums the operands.", lambda f, a, b: f.add(a, b), _numbers("elementwise-add")
)
elementwise_mul = _fold(
    "elementwise-mul", "Multiplies the operands.", lambda f, a, b: f.multiply(a, b), _numbers("elementwise-mul")
)
elementwise_div = _fold(
    "elementwise-div",
    "Divides the first operand by the others; integers are cut towards zero, and n / 0 is 0 for them.",
    lambda f, a, b: f.divide(a, b),
    _numbers("elementwise-div"),
)
subtract = _fold(
    "subtract", "Subtracts the others from the first operand.", lambda f, a, b: f.subtract(a, b), _numbers("subtract")
)
power = _fold(
    "pow",
    "The first operand to the power of the next; of integers, powers below 0 are cut towards zero, those of 0 are 0.",
    lambda f, a, b: f.power(a, b),
    _numbers("pow"),
)
minimum = _fold("minimum", "The smallest operand.", lambda _, a, b: np.minimum(a, b), None)
maximum = _fold("maximum", "The largest operand.", lambda _, a, b: np.maximum(a, b), None)
logical_and = _fold("logical-and", "All operands hold.", lambda _, a, b: a & b, _bools("logical-and"))
logical_or = _fold("logical-or", "Some operand holds.", lambda _, a, b: a | b, _bools("logical-or"))
bitwise_and = _fold("bitwise-and", "The bits that all operands have.", lambda _, a, b: a & b, _integers("bitwise-and"))
bitwise_or = _fold("bitwise-or", "The bits that some operand has.", lambda _, a, b: a | b, _integers("bitwise-or"))
bitwise_xor = _fold(
    "bitwise-xor", "The bits that an odd number of operands has.", lambda _, a, b: a ^ b, _integers("bitwise-xor")
)


def _evaluate_mod(arithmetic: Any, a: Operand, rounding: str) -> Array:
    return reduce(lambda left, right: np.asarray(arithmetic.remainder(left, right, rounding)), a.parts())


mod = register(
    Compute(
        name="mod",
        category=Category.FOLD,
        parameters=(Field("rounding", Kind.KEYWORD, ("floor", "truncate")),),
        check=lambda a, rounding: require_number("mod", a),
        evaluate=_evaluate_mod,
        doc="What a division by the next operand leaves: the quotient is rounded down (floor: a result of the "
        "divisor's sign) or cut towards zero (truncate: of the dividend's); n mod 0 is 0 for integers.",
    )
)

RELATIONS: dict[str, Callable[..., Any]] = {
    "lt": np.less,
    "le": np.less_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
    "eq": np.equal,
    "ne": np.not_equal,
}


def _check_compare(a: AccessType, relation: str) -> None:
    require(a.item[0] == 2, "compare", "two operands along the first item axis", a)


compare = register(
    Compute(
        name="compare",
        category=Category.FOLD,
        parameters=(Field("relation", Kind.KEYWORD, tuple(RELATIONS)),),
        check=_check_compare,
        evaluate=lambda _, a, relation: RELATIONS[relation](*a.parts()),
        doc="Whether the first of two operands stands in that relation to the second.",
        dtype="bool",
    )
)


def _check_select(a: AccessType) -> None:
    require(a.item[0] == 3, "select", "three operands along the first item axis", a)


def _evaluate_select(_: object, a: Operand) -> Array:
    condition, then, otherwise = a.parts()
    return np.where(condition != 0, then, otherwise)


select = register(
    Compute(
        name="select",
        category=Category.FOLD,
        check=_check_select,
        evaluate=_evaluate_select,
        doc="Of three operands: the second where the first is not zero, else the third.",
    )
)
