"""Builds scalar formulas."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from math import lcm

from glenside.codegen.loop_ir.ir import Apply, Choose, Convert, Formula, Local, Number
from glenside.ir.dtypes import HALVES, widen, wider
from glenside.ir.index_map import Guard, Within
from glenside.ir.open_integer import fraction
from glenside.ir.primitives import PRIMITIVES
from glenside.ir.scalar import Applied, Element, Scalar
from glenside.ir.scalar import Number as Exact


def apply(name: str, *operands: Formula) -> Formula:
    """Returns a primitive, given by name, applied to operands."""
    primitive = PRIMITIVES[name]
    dtype = operands[-1].dtype if primitive.gives == "same" else primitive.gives
    return Apply(primitive, operands, dtype)


def convert(formula: Formula, dtype: str, bits: bool = False) -> Formula:
    """Casts a formula to a dtype; with `bits`, reinterprets its bits, except that a bool is always `not zero`."""
    return formula if formula.dtype == dtype else Convert(formula, dtype, bits and dtype != "bool")


def number(value: int | Fraction | None, dtype: str) -> Number:
    """Returns an exact constant; None is the lowest value of the dtype."""
    return Number(None if value is None else fraction(value), dtype)


def sums_in(dtype: str) -> str:
    """Returns the dtype of the accumulator for a reduction of elements of a dtype."""
    wide = widen(dtype)
    return "float32" if wide in HALVES else wider(wide)


def never(guard: Guard) -> bool:
    """True if the bounds of its index prove that a guard never holds."""
    if not isinstance(guard, Within):
        return (guard.index % guard.divisor).bounds[0] > 0
    low, high = guard.index.bounds
    return high < guard.low or low >= guard.high


def choose(guards: Sequence[Guard], then: Formula, otherwise: Formula) -> Formula:
    """Returns a choice between two formulas, folded where the bounds of indices decide the guards."""
    guards = tuple(guard for guard in guards if not guard.always)
    if any(map(never, guards)):
        return otherwise
    return Choose(guards, then, otherwise) if guards else then


def applied(expression: Scalar, operands: Sequence[Formula]) -> Formula:
    """Returns the formula of a scalar expression applied to operands."""
    if isinstance(expression, Element):
        return operands[expression.position]
    if isinstance(expression, Exact):
        return Number(expression.value, operands[-1].dtype)
    assert isinstance(expression, Applied), "an expression is an element, a number or a primitive of some"
    found = [applied(argument, operands) for argument in expression.arguments]
    dtype = found[-1].dtype if expression.primitive.gives == "same" else expression.primitive.gives
    return Apply(expression.primitive, tuple(found), dtype)


def weighted_sum(values: Sequence[Fraction], elements: Sequence[Formula], dtype: str) -> Formula:
    """Returns the sum of value * element, as integer multiples that are scaled once by 1 / the common denominator."""
    denominator = lcm(*(value.denominator for value in values))
    total: Formula | None = None
    for value, element in zip(values, elements, strict=True):
        whole = int(value * denominator)
        if whole == 0:
            continue
        part = element if abs(whole) == 1 else apply("multiply", element, number(abs(whole), dtype))
        if total is None:
            total = part if whole > 0 else apply("subtract", number(0, dtype), part)
        else:
            total = apply("add" if whole > 0 else "subtract", total, part)
    if total is None:
        return number(0, dtype)
    return total if denominator == 1 else apply("multiply", total, number(Fraction(1, denominator), dtype))


def with_local(formula: Formula, local: Local, value: Formula) -> Formula:
    """Returns a formula with a variable replaced by a formula."""
    if formula == local:
        return value
    if isinstance(formula, Convert):
        return replace(formula, formula=with_local(formula.formula, local, value))
    if isinstance(formula, Apply):
        return replace(formula, operands=tuple(with_local(o, local, value) for o in formula.operands))
    return formula
