"""Compute types that fold the first axis of the item: operands of a pair broadcast, nothing is stacked."""

from __future__ import annotations

from functools import reduce

import numpy as np

from glenside.exporters.onnx.emitter import Emitter
from glenside.exporters.onnx.graph import Value
from glenside.exporters.onnx.operators.powers import whole_power
from glenside.exporters.onnx.registry import Export, Operand, exports_compute
from glenside.ir.types import FLOATS, AccessType

# More operands than this are folded in halves, where the order does not matter.
_CHAIN = 8


def _associative(op: str) -> Export:
    def export(emit: Emitter, result: AccessType, a: Operand) -> Value:
        count = a.access.item[0]
        if count > _CHAIN:
            return emit.view(emit.tree(op, a.value, a.access.split), result.dims)
        return emit.expand(emit.chain(op, a.parts()), result.dims)

    return export


def _ordered(op: str) -> Export:
    def export(emit: Emitter, result: AccessType, a: Operand) -> Value:
        return emit.expand(emit.chain(op, a.parts()), result.dims)

    return export


for _name, _op in {
    "elementwise-add": "Add",
    "elementwise-mul": "Mul",
    "minimum": "Min",
    "maximum": "Max",
    "logical-and": "And",
    "logical-or": "Or",
    "bitwise-and": "BitwiseAnd",
    "bitwise-or": "BitwiseOr",
    "bitwise-xor": "BitwiseXor",
}.items():
    exports_compute(_name)(_associative(_op))

exports_compute("subtract")(_ordered("Sub"))


@exports_compute("elementwise-div")
def _divide(emit: Emitter, result: AccessType, a: Operand) -> Value:
    if a.access.dtype in FLOATS:
        return emit.expand(emit.chain("Div", a.parts()), result.dims)
    first, *others = a.parts()
    for other in others:
        first = _divide_integers(emit, first, other)
    return emit.expand(first, result.dims)


@exports_compute("pow")
def _pow(emit: Emitter, result: AccessType, a: Operand) -> Value:
    """Not Pow for integers, which runtimes compute in float64."""
    if a.access.dtype in FLOATS:
        return emit.expand(emit.chain("Pow", a.parts()), result.dims)
    function = whole_power(a.access.dtype)

    def step(x: Value, y: Value) -> Value:
        return emit.call(function, [x, y], np.broadcast_shapes(x.dims, y.dims))

    return emit.expand(reduce(step, a.parts()), result.dims)


@exports_compute("mod")
def _mod(emit: Emitter, result: AccessType, a: Operand, rounding: str) -> Value:
    step = _remainder if a.access.dtype in FLOATS else _remainder_of_integers
    return emit.expand(reduce(lambda x, y: step(emit, x, y, rounding), a.parts()), result.dims)


def _remainder(emit: Emitter, x: Value, y: Value, rounding: str) -> Value:
    """ONNX cuts the quotient of floats; where it is to be rounded down and signs differ, one divisor more is left."""
    cut = emit.elementwise("Mod", x, y, attributes={"fmod": 1})
    if rounding == "truncate":
        return cut
    zeros = [emit.number(0, value.dtype, value.rank) for value in (cut, y)]
    below = [emit.elementwise("Less", value, zero, dtype="bool") for value, zero in zip((cut, y), zeros, strict=True)]
    differ = emit.elementwise("Xor", *below, dtype="bool")
    nothing = emit.elementwise("Equal", cut, zeros[0], dtype="bool")
    right = emit.elementwise("Or", nothing, emit.run("Not", [differ], differ.dims, "bool"), dtype="bool")
    return emit.where(right, cut, emit.elementwise("Add", cut, y))


def _remainder_of_integers(emit: Emitter, x: Value, y: Value, rounding: str) -> Value:
    """Nothing is left by -1, 0 and 1; runtimes may trap on the first two."""
    traps = [emit.number(n, y.dtype, y.rank) for n in ((0,) if y.dtype.startswith("u") else (0, -1))]
    tests = [emit.elementwise("Equal", y, trap, dtype="bool") for trap in traps]
    trapped = reduce(lambda p, q: emit.elementwise("Or", p, q, dtype="bool"), tests)
    y = emit.where(trapped, emit.number(1, y.dtype, y.rank), y)
    if rounding == "floor" or y.dtype.startswith("u"):
        return emit.elementwise("Mod", x, y)
    return emit.elementwise("Sub", x, emit.elementwise("Mul", emit.elementwise("Div", x, y), y))


def _divide_integers(emit: Emitter, a: Value, b: Value) -> Value:
    """Cut towards zero, as in ONNX, but n / 0 is 0, and n / -1 is -n, which may wrap: runtimes may trap on both."""

    def number(value: int) -> Value:
        return emit.number(value, b.dtype, b.rank)

    zero = emit.elementwise("Equal", b, number(0), dtype="bool")
    if b.dtype.startswith("u"):
        quotient = emit.elementwise("Div", a, emit.where(zero, number(1), b))
        return emit.where(zero, emit.number(0, a.dtype, a.rank), quotient)
    negated = emit.elementwise("Equal", b, number(-1), dtype="bool")
    plain = emit.where(emit.elementwise("Or", zero, negated, dtype="bool"), number(1), b)
    quotient = emit.elementwise("Div", a, plain)
    quotient = emit.where(negated, emit.run("Neg", [a], a.dims), quotient)
    return emit.where(zero, emit.number(0, a.dtype, a.rank), quotient)


_RELATIONS = {
    "lt": "Less",
    "le": "LessOrEqual",
    "gt": "Greater",
    "ge": "GreaterOrEqual",
    "eq": "Equal",
    "ne": "Equal",
}


@exports_compute("compare")
def _compare(emit: Emitter, result: AccessType, a: Operand, relation: str) -> Value:
    left, right = a.parts()
    op, negated = _RELATIONS[relation], relation == "ne"
    if op != "Equal" and left.dtype == "uint64":
        # a <= b when a is the smaller one, and a < b when it is not the larger one.
        right = emit.elementwise("Min" if relation in ("le", "gt") else "Max", left, right)
        op, negated = "Equal", relation in ("lt", "gt")
    holds = emit.elementwise(op, left, right, dtype="bool")
    if negated:
        holds = emit.run("Not", [holds], holds.dims, "bool")
    return emit.expand(holds, result.dims)


@exports_compute("select")
def _select(emit: Emitter, result: AccessType, a: Operand) -> Value:
    condition, then, otherwise = a.parts()
    return emit.expand(emit.where(emit.cast(condition, "bool"), then, otherwise), result.dims)
