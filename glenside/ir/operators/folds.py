"""Compute types that fold the first axis of the item, left to right."""

from __future__ import annotations

from glenside.ir.operator import Category, Compute, Field, Kind, register
from glenside.ir.primitives import PRIMITIVES
from glenside.ir.scalar import x, y, z

for _name, _primitive, _doc in (
    ("elementwise-add", "add", "Sums the operands."),
    ("elementwise-mul", "multiply", "Multiplies the operands."),
    (
        "elementwise-div",
        "divide",
        "Divides the first operand by the others; integers are cut towards zero, and n / 0 is 0 for them.",
    ),
    ("subtract", "subtract", "Subtracts the others from the first operand."),
    (
        "pow",
        "pow",
        "The first operand to the power of the next; of integers, powers below 0 are cut towards zero, those of 0 are "
        "0.",
    ),
    ("minimum", "min", "The smallest operand."),
    ("maximum", "max", "The largest operand."),
    ("logical-and", "logical-and", "All operands hold."),
    ("logical-or", "logical-or", "Some operand holds."),
    ("bitwise-and", "bitwise-and", "The bits that all operands have."),
    ("bitwise-or", "bitwise-or", "The bits that some operand has."),
    ("bitwise-xor", "bitwise-xor", "The bits that an odd number of operands has."),
):
    register(Compute(_name, Category.FOLD, _doc, scalar=PRIMITIVES[_primitive](x, y)))

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

select = register(
    Compute(
        name="select",
        category=Category.FOLD,
        scalar=PRIMITIVES["select"](x, y, z),
        doc="Of three operands: the second where the first is not zero, else the third.",
    )
)
