"""Compute types that make one number of each item, and those that scale each item as a whole."""

from __future__ import annotations

from glenside.exporters.onnx.emitter import Emitter
from glenside.exporters.onnx.graph import Value
from glenside.exporters.onnx.kernels import carrier
from glenside.exporters.onnx.operators.pools import pooled
from glenside.exporters.onnx.registry import Export, Operand, exports_compute
from glenside.ir.types import FLOATS, AccessType, widen


def total(emit: Emitter, x: Value, split: int) -> Value:
    """The sum over the axes from `split` on, in x's dtype.

    Runtimes add integers up in float64, which neither wraps nor is exact: a product with ones does and is.
    """
    dims = x.dims.take(split)
    if split == x.rank:
        return x
    if x.dtype in FLOATS:
        axes = emit.integers(range(split, x.rank))
        return emit.run("ReduceSum", [x], dims, attributes={"keepdims": 0}, extra=[axes], main=True)
    rows, length = dims.product(), x.dims.drop(split).product()
    ones = emit.expand(emit.number(1, x.dtype, 2), (length, 1))
    summed = emit.run("MatMul", [emit.view(x, (rows, length)), ones], (rows, 1), main=True)
    return emit.view(summed, dims)


@exports_compute("reduce-sum")
def _sum(emit: Emitter, result: AccessType, a: Operand) -> Value:
    if not a.access.size:
        return emit.full(result.dims, 0, result.dtype)
    length = a.access.item.product()
    mean = pooled(emit, "AveragePool", a) if length > 1 else None
    if mean:
        return emit.elementwise("Mul", mean, emit.number(length, mean.dtype, mean.rank))
    return total(emit, emit.cast(a.value, result.dtype), a.access.split)


@exports_compute("reduce-prod")
def _product(emit: Emitter, result: AccessType, a: Operand) -> Value:
    x, split = a.value, a.access.split
    if not a.access.size:
        return emit.full(result.dims, 1, result.dtype)
    if x.dtype in ("float16", "float32") and a.item_axes:
        axes = emit.integers(a.item_axes)
        return emit.run("ReduceProd", [x], result.dims, attributes={"keepdims": 0}, extra=[axes], main=True)
    flat = emit.view(x, a.access.shape.append([a.access.item.product()]))
    return emit.view(emit.tree("Mul", flat, split), result.dims)


@exports_compute("reduce-mean")
def _mean(emit: Emitter, result: AccessType, a: Operand) -> Value:
    if not a.item_axes:
        return a.value
    axes = emit.integers(a.item_axes)
    return pooled(emit, "AveragePool", a) or emit.run(
        "ReduceMean", [a.value], result.dims, attributes={"keepdims": 0}, extra=[axes], main=True
    )


def _extreme(op: str) -> Export:
    def export(emit: Emitter, result: AccessType, a: Operand) -> Value:
        if not a.item_axes:
            return a.value
        pool = pooled(emit, "MaxPool", a) if op == "ReduceMax" else None
        if pool:
            return pool
        if carrier(op, a.access.dtype) is None:
            return emit.view(emit.extreme(op.removeprefix("Reduce"), a.value, a.access.split), result.dims)
        axes = emit.integers(a.item_axes)
        return emit.run(op, [a.value], result.dims, attributes={"keepdims": 0}, extra=[axes], main=True)

    return export


exports_compute("reduce-max")(_extreme("ReduceMax"))
exports_compute("reduce-min")(_extreme("ReduceMin"))


def _position(op: str) -> Export:
    def export(emit: Emitter, result: AccessType, a: Operand) -> Value:
        items = emit.view(a.value, a.access.shape.append([a.access.item.product()]))
        attributes = {"axis": a.access.split, "keepdims": 0}
        if carrier(op, items.dtype):
            return emit.run(op, [items], result.dims, "int64", attributes, main=True)
        # Of what equals the extreme, the first: ArgMax takes the first of equals.
        extreme = emit.extreme(op.removeprefix("Arg"), items, a.access.split)
        equal = emit.cast(emit.elementwise("Equal", items, extreme, dtype="bool"), "int32")
        return emit.run("ArgMax", [equal], result.dims, "int64", attributes, main=True)

    return export


exports_compute("argmax")(_position("ArgMax"))
exports_compute("argmin")(_position("ArgMin"))


def _normalization(op: str) -> Export:
    def export(emit: Emitter, result: AccessType, a: Operand) -> Value:
        items = emit.view(a.value, a.access.shape.append([a.access.item.product()]))
        scaled = emit.run(op, [items], items.dims, attributes={"axis": -1}, main=True)
        return emit.view(scaled, result.dims)

    return export


exports_compute("softmax")(_normalization("Softmax"))
exports_compute("log-softmax")(_normalization("LogSoftmax"))


def accumulated(emit: Emitter, x: Value) -> Value:
    """The value in the dtype in which its products are summed."""
    return emit.cast(x, widen(x.dtype))
