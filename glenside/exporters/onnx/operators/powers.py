"""Integers to the power of integers: a local function that multiplies squares, in arithmetic that wraps."""

from __future__ import annotations

import numpy as np

from glenside.exporters.onnx.emitter import Emitter, Function
from glenside.exporters.onnx.graph import Graph, Value
from glenside.ir.operator import COMPUTES
from glenside.ir.types import Dims


def whole_power(dtype: str) -> Function:
    """(a, b) -> a to the power of b, of any dims that broadcast: a step for each bit of b."""
    graph = Graph(["a", "b"])
    emit = Emitter(graph)
    signed, bits = not dtype.startswith("u"), np.iinfo(dtype).bits
    wide = "int32" if bits < 32 or dtype == "int32" else "int64"
    base, exponent = (emit.cast(Value(name, Dims(), dtype), wide) for name in "ab")
    zero, one = emit.number(0, wide), emit.number(1, wide)
    square, result = base, one
    for bit in range(bits - signed):
        mask = graph.constant(np.array(1 << bit, np.uint64).astype(wide))
        unset = emit.elementwise("Equal", emit.elementwise("BitwiseAnd", exponent, mask), zero, dtype="bool")
        factor = emit.where(unset, one, square)
        result = emit.elementwise("Mul", result, factor) if bit else factor
        square = emit.elementwise("Mul", square, square)
    if signed:
        unit = emit.elementwise("Equal", emit.run("Abs", [base], base.dims), one, dtype="bool")
        whole = emit.elementwise("GreaterOrEqual", exponent, zero, dtype="bool")
        result = emit.where(emit.elementwise("Or", unit, whole, dtype="bool"), result, zero)
    return Function(f"pow_{dtype}", ("a", "b"), (), graph, emit.cast(result, dtype), COMPUTES["pow"].doc)
