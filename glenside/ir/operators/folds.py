"""Compute types that fold the first axis of the item, left to right."""

from __future__ import annotations

from glenside.ir.operator import Category, Compute, Field, Kind, register
from glenside.ir.primitives import PRIMITIVES, maximum, minimum, select
from glenside.ir.scalar import Scalar, x, y, z


def _fold(name: str, expression: Scalar, doc: str) -> Compute:
    record: Compute = register(Compute(name, Category.FOLD, doc, scalar=expression))
    return record


def _plain(name: str, doc: str) -> Compute:
    """By the primitive of that name."""
    return _fold(name, PRIMITIVES[name](x, y), doc)


elementwise_add = _fold("elementwise-add", x + y, "Sums the operands.")
elementwise_mul = _fold("elementwise-mul", x * y, "Multiplies the operands.")
elementwise_div = _fold(
    "elementwise-div",
    x / y,
    "Divides the first operand by the others; integers are cut towards zero, and n / 0 is 0 for them.",
)
subtract = _fold("subtract", x - y, "Subtracts the others from the first operand.")
power = _fold(
    "pow",
    x**y,
    "The first operand to the power of the next; of integers, powers below 0 are cut towards zero, those of 0 are 0.",
)
least = _fold("minimum", minimum(x, y), "The smallest operand.")
largest = _fold("maximum", maximum(x, y), "The largest operand.")
logical_and = _plain("logical-and", "All operands hold.")
logical_or = _plain("logical-or", "Some operand holds.")
bitwise_and = _plain("bitwise-and", "The bits that all operands have.")
bitwise_or = _plain("bitwise-or", "The bits that some operand has.")
bitwise_xor = _plain("bitwise-xor", "The bits that an odd number of operands has.")
chosen = _fold("select", select(x, y, z), "Of three operands: the second where the first is not zero, else the third.")

mod = register(
    Compute(
        name="mod",
        category=Category.FOLD,
        parameters=(Field("rounding", Kind.KEYWORD, ("floor", "truncate")),),
        scalar=lambda rounding: PRIMITIVES["mod" if rounding == "floor" else "rem"](x, y),
        doc="What a division by the next operand leaves: the quotient is rounded down (floor: a result of the "
        "divisor's sign) or cut towards zero (truncate: of the dividend's); n mod 0 is 0 for integers.",
    )
)

compare = register(
    Compute(
        name="compare",
        category=Category.FOLD,
        parameters=(Field("relation", Kind.KEYWORD, ("lt", "le", "gt", "ge", "eq", "ne")),),
        scalar=lambda relation: PRIMITIVES[relation](x, y),
        doc="Whether the first of two operands stands in that relation to the second.",
    )
)
