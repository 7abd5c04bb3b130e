"""Primitives of scalar expressions that no node of ONNX means, or that runtimes compute wrongly in some dtype."""

from __future__ import annotations

from functools import reduce

import numpy as np

from glenside.exporters.onnx.emitter import Emitter
from glenside.exporters.onnx.graph import Value
from glenside.exporters.onnx.kernels import carrier
from glenside.exporters.onnx.operators.powers import whole_power
from glenside.exporters.onnx.registry import PrimitiveExport, exports_primitive
from glenside.ir.primitives import PRIMITIVES
from glenside.ir.types import FLOATS


@exports_primitive("sign")
def _sign(emit: Emitter, x: Value) -> Value:
    if carrier("Sign", x.dtype):
        return emit.elementwise("Sign", x)
    zero = emit.number(0, x.dtype, x.rank)
    above, below = (emit.cast(emit.elementwise(op, x, zero, dtype="bool"), x.dtype) for op in ("Greater", "Less"))
    return emit.elementwise("Sub", above, below)


@exports_primitive("select")
def _select(emit: Emitter, condition: Value, then: Value, otherwise: Value) -> Value:
    return emit.where(emit.cast(condition, "bool"), then, otherwise)


def _order(name: str) -> PrimitiveExport:
    def export(emit: Emitter, left: Value, right: Value) -> Value:
        if left.dtype != "uint64":
            return emit.elementwise(PRIMITIVES[name].onnx, left, right, dtype="bool")
        # a <= b when a is the smaller one, and a < b when it is not the larger one.
        extreme = emit.elementwise("Min" if name in ("le", "gt") else "Max", left, right)
        return (_differ if name in ("lt", "gt") else _equal)(emit, left, extreme)

    return export


for _name in ("lt", "le", "gt", "ge"):
    exports_primitive(_name)(_order(_name))


def _equal(emit: Emitter, left: Value, right: Value) -> Value:
    return emit.elementwise("Equal", left, right, dtype="bool")


@exports_primitive("ne")
def _differ(emit: Emitter, left: Value, right: Value) -> Value:
    return emit.elementwise("Not", _equal(emit, left, right))


@exports_primitive("pow")
def _pow(emit: Emitter, x: Value, y: Value) -> Value:
    """Not Pow for integers, which runtimes compute in float64."""
    if x.dtype in FLOATS:
        return emit.elementwise("Pow", x, y)
    return emit.call(whole_power(x.dtype), [x, y], np.broadcast_shapes(x.dims, y.dims))


@exports_primitive("divide")
def _divide(emit: Emitter, x: Value, y: Value) -> Value:
    return emit.elementwise("Div", x, y) if x.dtype in FLOATS else _divide_integers(emit, x, y)


def _remainders(name: str, rounding: str) -> None:
    def export(emit: Emitter, x: Value, y: Value) -> Value:
        return (_remainder if x.dtype in FLOATS else _remainder_of_integers)(emit, x, y, rounding)

    exports_primitive(name)(export)


_remainders("mod", "floor")
_remainders("rem", "truncate")


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
