"""Exports the compute operator, elementwise compute types, and primitives without a correct ONNX node.

Some have none in ONNX; for others runtimes are wrong in some dtype.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial, reduce

import numpy as np

from glenside.exporters.onnx.emitter import Emitter, Function
from glenside.exporters.onnx.graph import Graph
from glenside.exporters.onnx.registry import COMPUTE_EXPORTS, OPERATOR_EXPORTS, PRIMITIVE_EXPORTS, Held, Operand
from glenside.exporters.onnx.supported_dtypes import supported_dtype
from glenside.exporters.writer import Value, elementwise
from glenside.ir.dtypes import FLOATS
from glenside.ir.errors import BadInput
from glenside.ir.operator import COMPUTES, Compute
from glenside.ir.operators import parse_compute
from glenside.ir.primitives import PRIMITIVES
from glenside.ir.rational import exact
from glenside.ir.scalar import Applied, x, y
from glenside.ir.types import AccessType, Dims


@OPERATOR_EXPORTS.register("compute")
def _compute(emit: Emitter, result: AccessType, kind: str, a: Operand) -> Held:
    compute, parameters = parse_compute(kind)
    if compute.name in COMPUTE_EXPORTS:
        return COMPUTE_EXPORTS[compute.name](emit, result, a, *parameters)
    if compute.scalar is None:
        raise BadInput(f"an ONNX file requires operations that ONNX has, got the compute type {compute.name}")
    return _scalar(emit, result, a, compute, parameters)


@COMPUTE_EXPORTS.register("relu")
def _relu(emit: Emitter, result: AccessType, a: Operand) -> Value:
    if a.access.dtype in FLOATS:
        return emit.elementwise("Relu", a.value)
    return _scalar(emit, result, a, COMPUTES["relu"])


@COMPUTE_EXPORTS.register("leaky-relu")
def _leaky_relu(emit: Emitter, result: AccessType, a: Operand, slope: str) -> Value:
    known = exact(slope)
    if a.access.dtype == "float32" and known is not None:
        return emit.elementwise("LeakyRelu", a.value, attributes={"alpha": float(known)})
    return _scalar(emit, result, a, COMPUTES["leaky-relu"], (slope,))


@COMPUTE_EXPORTS.register("clip")
def _clip(emit: Emitter, result: AccessType, a: Operand, lo: str, hi: str) -> Value:
    x = a.value
    if x.dtype in FLOATS:
        bounds = [emit.number(bound, x.dtype) for bound in (lo, hi)]
        return emit.of_each([x], result.dims, lambda a, n: emit.run("Clip", a, n, extra=bounds, main=True))
    return _scalar(emit, result, a, COMPUTES["clip"], (lo, hi))


# More operands than this are folded by halves if the order does not matter.
_CHAIN = 8


def _scalar(emit: Emitter, result: AccessType, a: Operand, compute: Compute, parameters: Sequence[str] = ()) -> Value:
    """Emits the nodes of a scalar expression."""
    expression = compute.expression(*parameters)
    primitive = expression.primitive if isinstance(expression, Applied) else None
    if primitive and primitive.associative and expression == primitive(x, y) and a.access.item[0] > _CHAIN:
        return emit.view(emit.tree(primitive.onnx, a.value, a.access.split), result.dims)
    return elementwise(PRIMITIVE_EXPORTS, result, a, compute, parameters)


@PRIMITIVE_EXPORTS.register("sign")
def _sign(emit: Emitter, x: Value) -> Value:
    if supported_dtype("Sign", x.dtype):
        return emit.elementwise("Sign", x)
    zero = emit.number(0, x.dtype, x.rank)
    above, below = (emit.cast(emit.elementwise(op, x, zero, dtype="bool"), x.dtype) for op in ("Greater", "Less"))
    return emit.elementwise("Sub", above, below)


@PRIMITIVE_EXPORTS.register("select")
def _select(emit: Emitter, condition: Value, then: Value, otherwise: Value) -> Value:
    return emit.where(emit.cast(condition, "bool"), then, otherwise)


def _order(name: str, emit: Emitter, left: Value, right: Value) -> Value:
    if left.dtype != "uint64":
        return emit.apply(PRIMITIVES[name], [left, right])
    # a <= b if a is the minimum, and a < b if it is not the maximum.
    extreme = emit.elementwise("Min" if name in ("le", "gt") else "Max", left, right)
    return (_differ if name in ("lt", "gt") else _equal)(emit, left, extreme)


for _name in ("lt", "le", "gt", "ge"):
    PRIMITIVE_EXPORTS.register(_name)(partial(_order, _name))


def _equal(emit: Emitter, left: Value, right: Value) -> Value:
    return emit.elementwise("Equal", left, right, dtype="bool")


@PRIMITIVE_EXPORTS.register("ne")
def _differ(emit: Emitter, left: Value, right: Value) -> Value:
    return emit.elementwise("Not", _equal(emit, left, right))


@PRIMITIVE_EXPORTS.register("pow")
def _pow(emit: Emitter, x: Value, y: Value) -> Value:
    """Emits a power, for integers without Pow, which runtimes compute in float64."""
    if x.dtype in FLOATS:
        return emit.elementwise("Pow", x, y)
    return emit.call(_integer_power(x.dtype), [x, y], np.broadcast_shapes(x.dims, y.dims))


def _remainder(rounding: str, emit: Emitter, x: Value, y: Value) -> Value:
    """Emits a remainder. ONNX truncates quotients of floats; for floor and different signs the divisor is added."""
    if x.dtype not in FLOATS:
        return _remainder_of_integers(rounding, emit, x, y)
    cut = emit.elementwise("Mod", x, y, attributes={"fmod": 1})
    if rounding == "truncate":
        return cut
    zeros = [emit.number(0, value.dtype, value.rank) for value in (cut, y)]
    below = [emit.elementwise("Less", value, zero, dtype="bool") for value, zero in zip((cut, y), zeros, strict=True)]
    differ = emit.elementwise("Xor", *below, dtype="bool")
    nothing = emit.elementwise("Equal", cut, zeros[0], dtype="bool")
    right = emit.elementwise("Or", nothing, emit.run("Not", [differ], differ.dims, "bool"), dtype="bool")
    return emit.where(right, cut, emit.elementwise("Add", cut, y))


def _remainder_of_integers(rounding: str, emit: Emitter, x: Value, y: Value) -> Value:
    """Emits an integer remainder; it is 0 for divisors -1, 0 and 1, and runtimes may trap on the first two."""
    traps = [emit.number(n, y.dtype, y.rank) for n in ((0,) if y.dtype.startswith("u") else (0, -1))]
    tests = [emit.elementwise("Equal", y, trap, dtype="bool") for trap in traps]
    trapped = reduce(lambda p, q: emit.elementwise("Or", p, q, dtype="bool"), tests)
    y = emit.where(trapped, emit.number(1, y.dtype, y.rank), y)
    if rounding == "floor" or y.dtype.startswith("u"):
        return emit.elementwise("Mod", x, y)
    return emit.elementwise("Sub", x, emit.elementwise("Mul", emit.elementwise("Div", x, y), y))


PRIMITIVE_EXPORTS.register("mod")(partial(_remainder, "floor"))
PRIMITIVE_EXPORTS.register("rem")(partial(_remainder, "truncate"))


@PRIMITIVE_EXPORTS.register("divide")
def _divide(emit: Emitter, a: Value, b: Value) -> Value:
    """Emits a division; integers truncate as in ONNX, but n / 0 is 0, and n / -1 is -n, which may wrap: runtimes may
    trap.
    """
    if a.dtype in FLOATS:
        return emit.elementwise("Div", a, b)

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


def _integer_power(dtype: str) -> Function:
    """Returns a local function (a, b) -> a to the power b that broadcasts: one square for each bit of b."""
    emit = Emitter(Graph(["a", "b"]))
    signed, bits = not dtype.startswith("u"), np.iinfo(dtype).bits
    wide = "int32" if bits < 32 or dtype == "int32" else "int64"
    base, exponent = (emit.cast(Value(name, Dims(), dtype), wide) for name in "ab")
    zero, one = emit.number(0, wide), emit.number(1, wide)
    square, result = base, one
    for bit in range(bits - signed):
        mask = emit.graph.constant(np.array(1 << bit, np.uint64).astype(wide))
        unset = emit.elementwise("Equal", emit.elementwise("BitwiseAnd", exponent, mask), zero, dtype="bool")
        factor = emit.where(unset, one, square)
        result = emit.elementwise("Mul", result, factor) if bit else factor
        square = emit.elementwise("Mul", square, square)
    if signed:
        unit = emit.elementwise("Equal", emit.run("Abs", [base], base.dims), one, dtype="bool")
        whole = emit.elementwise("GreaterOrEqual", exponent, zero, dtype="bool")
        result = emit.where(emit.elementwise("Or", unit, whole, dtype="bool"), result, zero)
    return Function(f"pow_{dtype}", (), emit.graph, emit.cast(result, dtype), COMPUTES["pow"].doc)
