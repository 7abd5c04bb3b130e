"""Exports compute types that reduce, scale or sort items."""

from __future__ import annotations

from functools import partial

from glenside.exporters.onnx.emitter import Emitter
from glenside.exporters.onnx.registry import COMPUTE_EXPORTS, Operand
from glenside.exporters.onnx.supported_dtypes import supported_dtype
from glenside.exporters.writer import Value
from glenside.ir.dtypes import FLOATS
from glenside.ir.types import AccessType


def total(emit: Emitter, x: Value, split: int) -> Value:
    """Sums over the axes from `split` on, in x's dtype.

    Runtimes sum integers in float64, which neither wraps nor is exact; a product with ones wraps and is exact.
    """
    dims = x.dims.take(split)
    if split == x.rank:
        return x
    if x.dtype in FLOATS:
        return _reduced(emit, "ReduceSum", x, split)
    rows, length = dims.product(), x.dims.drop(split).product()
    ones = emit.expand(emit.number(1, x.dtype, 2), (length, 1))
    summed = emit.run("MatMul", [emit.view(x, (rows, length)), ones], (rows, 1), main=True)
    return emit.view(summed, dims)


def _reduced(emit: Emitter, op: str, x: Value, split: int) -> Value:
    axes = emit.integers(range(split, x.rank))
    return emit.run(op, [x], x.dims.take(split), attributes={"keepdims": 0}, extra=[axes], main=True)


@COMPUTE_EXPORTS.register("reduce-sum")
def _sum(emit: Emitter, result: AccessType, a: Operand) -> Value:
    if not a.access.size:
        return emit.full(result.dims, 0, result.dtype)
    return total(emit, emit.cast(a.value, result.dtype), a.access.split)


@COMPUTE_EXPORTS.register("reduce-prod")
def _product(emit: Emitter, result: AccessType, a: Operand) -> Value:
    x, split = a.value, a.access.split
    if not a.access.size:
        return emit.full(result.dims, 1, result.dtype)
    if x.dtype in ("float16", "float32") and a.access.item:
        return _reduced(emit, "ReduceProd", x, split)
    return emit.view(emit.fold("Mul", x, split), result.dims)


@COMPUTE_EXPORTS.register("reduce-mean")
def _mean(emit: Emitter, result: AccessType, a: Operand) -> Value:
    if not a.access.item:
        return a.value
    return _reduced(emit, "ReduceMean", a.value, a.access.split)


def _extreme(op: str, emit: Emitter, result: AccessType, a: Operand) -> Value:
    if not a.access.item:
        return a.value
    if supported_dtype(op, a.access.dtype) is None:
        return emit.view(emit.fold(op.removeprefix("Reduce"), a.value, a.access.split), result.dims)
    return _reduced(emit, op, a.value, a.access.split)


COMPUTE_EXPORTS.register("reduce-max")(partial(_extreme, "ReduceMax"))
COMPUTE_EXPORTS.register("reduce-min")(partial(_extreme, "ReduceMin"))


def _flat(emit: Emitter, a: Operand) -> Value:
    """Flattens each item into the last axis."""
    return emit.view(a.value, a.access.shape.append([a.access.item.product()]))


def _position(op: str, emit: Emitter, result: AccessType, a: Operand) -> Value:
    items, attributes = _flat(emit, a), {"axis": a.access.split, "keepdims": 0}
    if supported_dtype(op, items.dtype):
        return emit.run(op, [items], result.dims, "int64", attributes, main=True)
    # The first element that equals the extreme: ArgMax takes the first of equals.
    extreme = emit.fold(op.removeprefix("Arg"), items, a.access.split)
    equal = emit.cast(emit.elementwise("Equal", items, extreme, dtype="bool"), "int32")
    return emit.run("ArgMax", [equal], result.dims, "int64", attributes, main=True)


COMPUTE_EXPORTS.register("argmax")(partial(_position, "ArgMax"))
COMPUTE_EXPORTS.register("argmin")(partial(_position, "ArgMin"))


def _normalization(op: str, emit: Emitter, result: AccessType, a: Operand) -> Value:
    items = _flat(emit, a)
    return emit.view(emit.run(op, [items], items.dims, attributes={"axis": -1}, main=True), result.dims)


COMPUTE_EXPORTS.register("softmax")(partial(_normalization, "Softmax"))
COMPUTE_EXPORTS.register("log-softmax")(partial(_normalization, "LogSoftmax"))


@COMPUTE_EXPORTS.register("argsort")
def _argsort(emit: Emitter, result: AccessType, a: Operand, direction: str) -> Value:
    """Sorts all elements with TopK, which is stable in both directions."""
    items = emit.ordered(_flat(emit, a))
    attributes = {"axis": -1, "largest": int(direction == "descending"), "sorted": 1}
    inputs = [items, emit.integers(items.dims[-1:])]
    outputs = [(items.dims, items.dtype), (items.dims, "int64")]
    _, places = emit.graph.several("TopK", inputs, outputs, attributes, main=True)
    return emit.view(places, result.dims)
