"""Compute types that treat each element by itself, and the compute operator that stands around all of them."""

from __future__ import annotations

from glenside.exporters.onnx.emitter import Emitter
from glenside.exporters.onnx.graph import Value
from glenside.exporters.onnx.kernels import carrier
from glenside.exporters.onnx.registry import COMPUTE_EXPORTS, Export, Held, Operand, exports, exports_compute
from glenside.ir.operators import parse_compute
from glenside.ir.types import FLOATS, AccessType


@exports("compute")
def _compute(emit: Emitter, result: AccessType, kind: str, a: Operand) -> Held:
    compute, parameters = parse_compute(kind)
    return COMPUTE_EXPORTS[compute.name](emit, result, a, *parameters)


def _same(op: str) -> Export:
    """An operator of ONNX that means the same."""

    def export(emit: Emitter, result: AccessType, a: Operand) -> Value:
        return emit.run(op, [a.value], result.dims, main=True)

    return export


_SAME = {
    "negative": "Neg",
    "abs": "Abs",
    "sqrt": "Sqrt",
    "exp": "Exp",
    "log": "Log",
    "tanh": "Tanh",
    "sigmoid": "Sigmoid",
    "erf": "Erf",
    **{name: name.capitalize() for name in "sin cos tan asin acos atan sinh cosh asinh acosh atanh".split()},
    "floor": "Floor",
    "ceil": "Ceil",
    "round": "Round",  # halves go to the even one in both
}

for _name, _op in _SAME.items():
    exports_compute(_name)(_same(_op))


@exports_compute("relu")
def _relu(emit: Emitter, result: AccessType, a: Operand) -> Value:
    dtype = a.access.dtype
    if dtype in FLOATS:
        return emit.run("Relu", [a.value], result.dims, main=True)
    return emit.elementwise("Max", a.value, emit.number(0, dtype, a.access.rank))


@exports_compute("sign")
def _sign(emit: Emitter, result: AccessType, a: Operand) -> Value:
    x = a.value
    if carrier("Sign", x.dtype):
        return emit.run("Sign", [x], result.dims, main=True)
    zero = emit.number(0, x.dtype, x.rank)
    above, below = (emit.cast(emit.elementwise(op, x, zero, dtype="bool"), x.dtype) for op in ("Greater", "Less"))
    return emit.elementwise("Sub", above, below)


@exports_compute("logical-not")
def _logical_not(emit: Emitter, result: AccessType, a: Operand) -> Value:
    return emit.run("Not", [a.value], result.dims, "bool", main=True)


@exports_compute("clip")
def _clip(emit: Emitter, result: AccessType, a: Operand, lo: str, hi: str) -> Value:
    dtype, rank = a.access.dtype, a.access.rank
    if dtype in FLOATS:
        return emit.run(
            "Clip", [a.value], result.dims, extra=[emit.number(lo, dtype), emit.number(hi, dtype)], main=True
        )
    return emit.elementwise(
        "Min", emit.elementwise("Max", a.value, emit.number(lo, dtype, rank)), emit.number(hi, dtype, rank)
    )


@exports_compute("leaky-relu")
def _leaky_relu(emit: Emitter, _: AccessType, a: Operand, alpha: str) -> Value:
    """Not LeakyRelu, whose attribute is a float32."""
    x, rank = a.value, a.access.rank
    negative = emit.elementwise("Less", x, emit.number(0, x.dtype, rank), dtype="bool")
    return emit.where(negative, emit.elementwise("Mul", x, emit.number(alpha, x.dtype, rank)), x)
