"""Compute types that fold the first axis of the item, left to right."""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from typing import Any

import numpy as np

from glenside.ir.blockwise import PART, block_size, in_blocks, row_major
from glenside.ir.example import of_compute
from glenside.ir.operand import Array, Operand
from glenside.ir.operator import MONOTONE, MOVED, Category, Compute, Field, Keeps, Kind, register, require
from glenside.ir.operators.requirements import require_number
from glenside.ir.types import INTEGERS, AccessType

Step = Callable[[Any, Array, Array], Array]


def _fold(
    name: str,
    doc: str,
    step: Step,
    check: Callable[..., None] | None,
    keeps: Keeps = Keeps.NOTHING,
    linear: bool = False,
) -> Compute:
    """A compute type that combines what it has with the next operand; `step` takes the arithmetic first."""

    def evaluate(arithmetic: Any, a: Operand) -> Array:
        return _folded(lambda left, right: step(arithmetic, left, right), a.parts())

    scratch = _integer_scratch if name in ("elementwise-div", "pow") else _scratch
    dtype = {"bitwise": "int8", "logical": "bool"}.get(name.split("-")[0], "float32")
    shown = of_compute(name, "m 2 n", dtype)
    record: Compute = register(
        Compute(
            name, Category.FOLD, evaluate, doc, check=check, scratch=scratch, keeps=keeps, linear=linear, examples=shown
        )
    )
    return record


def _folded(step: Callable[[Array, Array], Array], parts: list[Array]) -> Array:
    """Two at once; more in blocks, so that no result but the last is ever whole."""
    if len(parts) == 2:
        return step(*parts)
    return in_blocks(lambda *found: reduce(step, found), parts[0].shape, *parts, dtype=parts[0].dtype)


def _scratch(a: Operand, *_: str) -> int:
    """Blocks of what comes before the last result."""
    first, *rest = a.parts()
    return block_size(first.shape, PART) * first.itemsize * (2 if len(rest) > 1 else 0)


def _integer_scratch(a: Operand) -> int:
    """The same; integers are divided, and raised to powers, by way of some blocks more."""
    first = a.parts()[0]
    wide = 3 if first.dtype.kind in "iu" else 0
    return _scratch(a) + block_size(first.shape, PART) * first.itemsize * wide


def _numbers(name: str) -> Callable[..., None]:
    return lambda a: require_number(name, a)


def _integers(name: str) -> Callable[..., None]:
    return lambda a: require(a.dtype in INTEGERS, name, "an integer dtype", a)


def _bools(name: str) -> Callable[..., None]:
    return lambda a: require(a.dtype == "bool", name, "dtype bool", a)


elementwise_add = _fold(
    "elementwise-add",
    "Sums the operands.",
    lambda f, a, b: f.add(a, b),
    _numbers("elementwise-add"),
    MONOTONE,
    linear=True,
)
elementwise_mul = _fold(
    "elementwise-mul",
    "Multiplies the operands.",
    lambda f, a, b: f.multiply(a, b),
    _numbers("elementwise-mul"),
    Keeps.ZERO | Keeps.FACTOR,
)
elementwise_div = _fold(
    "elementwise-div",
    "Divides the first operand by the others; integers are cut towards zero, and n / 0 is 0 for them.",
    lambda f, a, b: f.divide(a, b),
    _numbers("elementwise-div"),
    Keeps.FACTOR,
)
subtract = _fold(
    "subtract",
    "Subtracts the others from the first operand.",
    lambda f, a, b: f.subtract(a, b),
    _numbers("subtract"),
    Keeps.ZERO,
    linear=True,
)
power = _fold(
    "pow",
    "The first operand to the power of the next; of integers, powers below 0 are cut towards zero, those of 0 are 0.",
    lambda f, a, b: f.power(a, b),
    _numbers("pow"),
)
minimum = _fold("minimum", "The smallest operand.", lambda _, a, b: row_major(np.minimum, a, b), None, MOVED)
maximum = _fold("maximum", "The largest operand.", lambda _, a, b: row_major(np.maximum, a, b), None, MOVED)


def _bits(function: np.ufunc) -> Step:
    return lambda _, a, b: row_major(function, a, b)


_AND, _OR, _XOR = _bits(np.bitwise_and), _bits(np.bitwise_or), _bits(np.bitwise_xor)
logical_and = _fold("logical-and", "All operands hold.", _AND, _bools("logical-and"), MONOTONE)
logical_or = _fold("logical-or", "Some operand holds.", _OR, _bools("logical-or"), MONOTONE)
bitwise_and = _fold("bitwise-and", "The bits that all operands have.", _AND, _integers("bitwise-and"), Keeps.ZERO)
bitwise_or = _fold("bitwise-or", "The bits that some operand has.", _OR, _integers("bitwise-or"), Keeps.ZERO)
bitwise_xor = _fold(
    "bitwise-xor", "The bits that an odd number of operands has.", _XOR, _integers("bitwise-xor"), Keeps.ZERO
)


def _evaluate_mod(arithmetic: Any, a: Operand, rounding: str) -> Array:
    return _folded(lambda left, right: np.asarray(arithmetic.remainder(left, right, rounding)), a.parts())


mod = register(
    Compute(
        name="mod",
        category=Category.FOLD,
        parameters=(Field("rounding", Kind.KEYWORD, ("floor", "truncate")),),
        check=lambda a, rounding: require_number("mod", a),
        evaluate=_evaluate_mod,
        scratch=_scratch,
        doc="What a division by the next operand leaves: the quotient is rounded down (floor: a result of the "
        "divisor's sign) or cut towards zero (truncate: of the dividend's); n mod 0 is 0 for integers.",
        examples=of_compute("(mod floor)", "m 2 n"),
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
        evaluate=lambda _, a, relation: row_major(RELATIONS[relation], *a.parts(), dtype=np.bool_),
        doc="Whether the first of two operands stands in that relation to the second.",
        dtype="bool",
        examples=of_compute("(compare lt)", "m 2 n"),
    )
)


def _check_select(a: AccessType) -> None:
    require(a.item[0] == 3, "select", "three operands along the first item axis", a)


def _evaluate_select(_: object, a: Operand) -> Array:
    parts = a.parts()
    return in_blocks(_chosen, parts[0].shape, *parts, dtype=parts[0].dtype)


def _chosen(condition: Array, then: Array, otherwise: Array) -> Array:
    return np.where(condition != 0, then, otherwise)


select = register(
    Compute(
        name="select",
        category=Category.FOLD,
        check=_check_select,
        evaluate=_evaluate_select,
        scratch=lambda a: block_size(a.parts()[0].shape, PART) * (a.parts()[0].itemsize + 1),
        doc="Of three operands: the second where the first is not zero, else the third.",
        keeps=Keeps.ZERO,
        examples=of_compute("select", "m 3 n"),
    )
)
