"""Compute types that fold the first axis of the item, left to right."""

from __future__ import annotations

from glenside.ir.operator import Category, Compute, Field, Kind, compute_type
from glenside.ir.primitives import PRIMITIVES, maximum, minimum, select
from glenside.ir.scalar import Scalar, x, y, z


def _fold(name: str, doc: str, expression: Scalar | None = None) -> Compute:
    """A compute type with a scalar expression; without one it is the primitive of its name, of two operands."""
    return compute_type(name, Category.FOLD, doc, scalar=PRIMITIVES[name](x, y) if expression is None else expression)


elementwise_add = _fold("elementwise-add", "Sums the operands.", x + y)
elementwise_mul = _fold("elementwise-mul", "Multiplies the operands.", x * y)
elementwise_div = _fold(
    "elementwise-div",
    "Divides the first operand by the others; integers are cut towards zero, and n / 0 is 0 for them.",
    x / y,
)
subtract = _fold("subtract", "Subtracts the others from the first operand.")
power = _fold(
    "pow",
    "The first operand to the power of the next; of integers, powers below 0 are cut towards zero, those of 0 are 0.",
)
least = _fold("minimum", "The smallest operand.", minimum(x, y))
largest = _fold("maximum", "The largest operand.", maximum(x, y))
logical_and = _fold("logical-and", "All operands hold.")
logical_or = _fold("logical-or", "Some operand holds.")
bitwise_and = _fold("bitwise-and", "The bits that all operands have.")
bitwise_or = _fold("bitwise-or", "The bits that some operand has.")
bitwise_xor = _fold("bitwise-xor", "The bits that an odd number of operands has.")
chosen = _fold("select", "Of three operands: the second where the first is not zero, else the third.", select(x, y, z))

mod = compute_type(
    name="mod",
    category=Category.FOLD,
    parameters=(Field("rounding", Kind.KEYWORD, ("floor", "truncate")),),
    scalar=lambda rounding: PRIMITIVES["mod" if rounding == "floor" else "rem"](x, y),
    doc="What a division by the next operand leaves: the quotient is rounded down (floor: a result of the "
    "divisor's sign) or cut towards zero (truncate: of the dividend's); n mod 0 is 0 for integers.",
)

compare = compute_type(
    name="compare",
    category=Category.FOLD,
    parameters=(Field("relation", Kind.KEYWORD, ("lt", "le", "gt", "ge", "eq", "ne")),),
    scalar=lambda relation: PRIMITIVES[relation](x, y),
    doc="Whether the first of two operands stands in that relation to the second.",
)
