"""Defines compute types that fold the first item axis, left to right."""

from __future__ import annotations

from glenside.ir.operator import Category, Compute, Field, Kind, compute_type
from glenside.ir.primitives import PRIMITIVES, maximum, minimum, select
from glenside.ir.scalar import Scalar, x, y, z


def _fold(name: str, doc: str, expression: Scalar | None = None) -> Compute:
    """Registers a compute type by its scalar expression, or by the primitive of its name on two operands."""
    return compute_type(name, Category.FOLD, doc, scalar=PRIMITIVES[name](x, y) if expression is None else expression)


elementwise_add = _fold("elementwise-add", "Sums the operands.", x + y)
elementwise_mul = _fold("elementwise-mul", "Multiplies the operands.", x * y)
elementwise_div = _fold(
    "elementwise-div",
    "Divides the first operand by the others; integer quotients are truncated towards zero, and n / 0 is 0 for "
    "integers.",
    x / y,
)
subtract = _fold("subtract", "Subtracts the others from the first operand.")
power = _fold(
    "pow",
    "The first operand to the power of the next; for integers, results for negative exponents are truncated towards "
    "zero, and 0 to a negative power is 0.",
)
least = _fold("minimum", "The smallest operand.", minimum(x, y))
largest = _fold("maximum", "The largest operand.", maximum(x, y))
logical_and = _fold("logical-and", "True if all operands are true.")
logical_or = _fold("logical-or", "True if some operand is true.")
bitwise_and = _fold("bitwise-and", "The bitwise and of the operands.")
bitwise_or = _fold("bitwise-or", "The bitwise or of the operands.")
bitwise_xor = _fold("bitwise-xor", "The bitwise exclusive or of the operands.")
chosen = _fold("select", "Of three operands: the second where the first is not zero, else the third.", select(x, y, z))

mod = compute_type(
    name="mod",
    category=Category.FOLD,
    parameters=(Field("rounding", Kind.KEYWORD, ("floor", "truncate")),),
    scalar=lambda rounding: PRIMITIVES["mod" if rounding == "floor" else "rem"](x, y),
    doc="The remainder of a division by the next operand. The quotient is rounded down (floor: the result has the "
    "divisor's sign) or truncated towards zero (truncate: the dividend's sign); n mod 0 is 0 for integers.",
)

compare = compute_type(
    name="compare",
    category=Category.FOLD,
    parameters=(Field("relation", Kind.KEYWORD, ("lt", "le", "gt", "ge", "eq", "ne")),),
    scalar=lambda relation: PRIMITIVES[relation](x, y),
    doc="True if the relation holds between the first and the second operand.",
)
