"""Imports operators on quantized tensors: their real values are computed in float32."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial, reduce
from math import prod

from glenside.builder.layout import broadcast, concatenate, reshape, transpose
from glenside.builder.pointwise import add, cast, compute, divide, filled, multiply, select, softmax, subtract
from glenside.builder.quantization import dequantize, quantize, saturated
from glenside.builder.reductions import reduce_axes
from glenside.importers.onnx.node import Node, distinct_axes, normal_axis
from glenside.importers.onnx.operators.com_microsoft import runtime_operator
from glenside.importers.onnx.operators.com_microsoft.products import channels_last, with_channels_first
from glenside.importers.onnx.operators.pools import average_pool_of, max_pool
from glenside.importers.onnx.operators.quantized import (
    by_line,
    dequantize_linear,
    dynamically_quantized,
    integer_product,
    qlinear_conv,
    quantize_linear,
    without_vector_axes,
)
from glenside.ir.errors import BadInput
from glenside.ir.term import Term


def real(node: Node, i: int) -> Term:
    """Dequantizes input i to float32; its scale and optional zero point are the next inputs."""
    return dequantize(node.term(i), node.single(i + 1), None if node.optional(i + 2) is None else node.single(i + 2))


def integers(node: Node, x: Term, scale: int, zero: int, dtype: str) -> Term:
    """Quantizes floats to integers of the result, whose scale and zero point are inputs."""
    return quantize(x, node.single(scale), None if node.optional(zero) is None else node.single(zero), dtype)


def rounded_with_zero(node: Node, x: Term, zero: int, dtype: str) -> Term:
    """Computes round(x + zero point): ties go to the even stored integer."""
    shifted = x if node.optional(zero) is None else add(x, cast(node.single(zero), "float32"))
    return saturated(compute("round", shifted), dtype)


runtime_operator("QuantizeLinear")(quantize_linear)
runtime_operator("DequantizeLinear")(dequantize_linear)


def _shifted(node: Node, i: int, zero: int, dtype: str) -> Term:
    """Returns the integers of input i minus their zero point, another input, in a dtype that holds them."""
    x = cast(node.term(i), dtype)
    return x if node.optional(zero) is None else subtract(x, cast(node.single(zero), dtype))


@runtime_operator("QLinearAdd")
def qlinear_add(node: Node) -> Term:
    """Computes a * ra + (b * rb + the terms of both zero points), in this order, since such sums often end in ties."""
    ra, rb = (divide(node.single(i), node.single(6)) for i in (1, 4))
    zeros = [
        multiply(r, cast(node.single(i), "float32")) for r, i in ((ra, 2), (rb, 5)) if node.optional(i) is not None
    ]
    rest = filled(ra, 0) if node.optional(7) is None else cast(node.single(7), "float32")
    rest = subtract(rest, reduce(add, zeros)) if zeros else rest
    a, b = (multiply(cast(node.term(i), "float32"), r) for i, r in ((0, ra), (3, rb)))
    dtype = node.term(0).access.dtype
    return saturated(compute("round", add(a, add(b, rest))), dtype)


@runtime_operator("QLinearMul")
def qlinear_mul(node: Node) -> Term:
    ratio = divide(multiply(node.single(1), node.single(4)), node.single(6))
    product = multiply(_shifted(node, 0, 2, "float32"), _shifted(node, 3, 5, "float32"))
    return rounded_with_zero(node, multiply(product, ratio), 7, node.term(0).access.dtype)


def _through_floats(node: Node, function: Callable[[Term], Term]) -> Term:
    """Applies a function to the dequantized input 0; the result's scale and zero point are inputs 3 and 4."""
    return integers(node, function(real(node, 0)), 3, 4, node.term(0).access.dtype)


@runtime_operator("QLinearSigmoid")
def qlinear_sigmoid(node: Node) -> Term:
    return _through_floats(node, partial(compute, "sigmoid"))


@runtime_operator("QLinearLeakyRelu")
def qlinear_leaky_relu(node: Node) -> Term:
    return _through_floats(node, partial(compute, f"(leaky-relu {node.number('alpha', 0.009999999776482582)!r})"))


@runtime_operator("QLinearSoftmax")
def qlinear_softmax(node: Node) -> Term:
    """Normalizes along one axis, or, before opset 13, over all axes from that one on."""
    x = node.term(0)
    dims, axis = x.access.dims, node.axis("axis", -1, x.access.rank)
    if node.integer("opset", 13) >= 13:
        return _through_floats(node, lambda y: softmax(y, axis))
    flat = (*dims[:axis], prod(dims[axis:]))
    return _through_floats(node, lambda y: reshape(softmax(reshape(y, flat)), dims))


@runtime_operator("QLinearReduceMean")
def qlinear_reduce_mean(node: Node) -> Term:
    x = node.term(0)
    axes = distinct_axes(node.integers("axes", range(x.access.rank)), x.access.rank)
    kept = [1 if i in axes else n for i, n in enumerate(x.access.dims)]
    dims = kept if node.integer("keepdims", 1) else [n for i, n in enumerate(x.access.dims) if i not in axes]
    return _through_floats(node, lambda y: reshape(reduce_axes("reduce-mean", y, axes), dims))


def _either_layout(node: Node, function: Callable[[Node], Term]) -> Term:
    """Applies a function of (N C d..) to (N d.. C) if an attribute says so."""
    if not node.integer("channels_last", 0):
        return function(node)
    return channels_last(function(with_channels_first(node, 0)))


@runtime_operator("QLinearAveragePool")
def qlinear_average_pool(node: Node) -> Term:
    def pooled(node: Node) -> Term:
        averages = average_pool_of(node, real(node, 0))
        return rounded_with_zero(node, divide(averages, node.single(3)), 4, node.term(0).access.dtype)

    return _either_layout(node, pooled)


@runtime_operator("QLinearGlobalAveragePool")
def qlinear_global_average_pool(node: Node) -> Term:
    def pooled(node: Node) -> Term:
        x = node.term(0)
        axes = range(2, x.access.rank)
        # The sums are of integers, and exact.
        sums = reduce_axes("reduce-sum", subtract(cast(x, "int32"), cast(node.single(2), "int32")), axes, keep=True)
        count = prod(x.access.dims[axis] for axis in axes)
        scale = divide(node.single(1), multiply(node.single(3), filled(node.single(3), count)))
        return rounded_with_zero(node, multiply(cast(sums, "float32"), scale), 4, x.access.dtype)

    return _either_layout(node, pooled)


@runtime_operator("QLinearConcat")
def qlinear_concat(node: Node) -> Term:
    if (len(node.inputs) - 2) % 3:
        raise BadInput(f"requires three inputs for each part after the first two, got {len(node.inputs) - 2}")
    dtype = node.term(1).access.dtype
    parts = [integers(node, real(node, i), 0, 1, dtype) for i in range(2, len(node.inputs), 3)]
    axis = normal_axis(node.integer("axis", 0), parts[0].access.rank, "attribute axis")
    return concatenate(parts, axis)


@runtime_operator("QLinearWhere")
def qlinear_where(node: Node) -> Term:
    dtype = node.term(1).access.dtype
    x, y = (integers(node, real(node, i), 7, 8, dtype) for i in (1, 4))
    return select(node.term(0), x, y)


@runtime_operator("QLinearConv")
def ms_qlinear_conv(node: Node) -> Term:
    return _either_layout(node, qlinear_conv)


@runtime_operator("NhwcMaxPool")
def nhwc_max_pool(node: Node) -> Term:
    return channels_last(max_pool(with_channels_first(node, 0))[0])


def _columns(node: Node, i: int, columns: int) -> Term | None:
    """Returns an optional input of one number, or of one per column."""
    if node.optional(i) is None:
        return None
    value = node.term(i)
    if value.access.size == 1:
        return reshape(value, ())
    if value.access.size != columns:
        raise BadInput(f"input {i} requires one number, or one for each of {columns} columns, got {value.access}")
    return reshape(value, (columns,))


@runtime_operator("QGemm")
def qgemm(node: Node) -> Term:
    a, b = node.term(0), node.term(3)
    if a.access.rank != 2 or b.access.rank != 2:
        raise BadInput(f"inputs 0 and 3 require two axes, got {a.access} and {b.access}")
    a = transpose(a, (1, 0)) if node.integer("transA", 0) else a
    b = transpose(b, (1, 0)) if node.integer("transB", 0) else b
    columns = b.access.dims[1]
    y = integer_product(node, (a, b), (node.single(2), _columns(node, 5, columns)))
    c = node.optional(6)
    y = y if c is None else add(y, broadcast(c, y.access.dims))
    scales = _columns(node, 4, columns)
    assert scales is not None
    scale = multiply(node.single(1), scales)
    scale = multiply(scale, filled(scale, node.number("alpha", 1.0)))
    if node.optional(7) is None:
        return multiply(cast(y, "float32"), scale)
    zero = node.optional(8)
    dtype = a.access.dtype if zero is None else zero.access.dtype
    scaled = multiply(cast(y, "float32"), divide(scale, node.single(7)))
    return rounded_with_zero(node, scaled, 8, dtype)


def _biased(node: Node, y: Term, i: int) -> Term:
    bias = node.optional(i)
    return y if bias is None else add(y, bias)


@runtime_operator("DynamicQuantizeMatMul")
def dynamic_quantize_matmul(node: Node) -> Term:
    a, b = node.term(0), node.term(1)
    if a.access.rank < 1 or b.access.rank < 2:
        raise BadInput(f"inputs 0 and 1 require matrices, got {a.access} and {b.access}")
    values, scale, zero = dynamically_quantized(a)
    rows = reshape(values, (1, -1)) if a.access.rank == 1 else values
    zeros = None if node.optional(3) is None else by_line(node, 3, b, False)
    y = integer_product(node, (rows, b), (zero, zeros))
    y = multiply(cast(y, "float32"), multiply(scale, by_line(node, 2, b, False)))
    return _biased(node, without_vector_axes(y, a, b), 4)


@runtime_operator("MatMulIntegerToFloat")
def matmul_integer_to_float(node: Node) -> Term:
    a, b = node.term(0), node.term(1)
    if a.access.rank < 2 or b.access.rank < 2:
        raise BadInput(f"inputs 0 and 1 require matrices, got {a.access} and {b.access}")
    scales = node.single(2), by_line(node, 3, b, False)
    zeros = (
        None if node.optional(4) is None else node.single(4),
        None if node.optional(5) is None else by_line(node, 5, b, False),
    )
    y = integer_product(node, (a, b), zeros)
    return _biased(node, multiply(cast(y, node.term(2).access.dtype), multiply(*scales)), 6)


@runtime_operator("MatMulInteger16")
def matmul_integer16(node: Node) -> Term:
    """Multiplies matrices with int32 sums that wrap."""
    a, b = (cast(node.term(i), "uint32" if node.term(i).access.dtype == "uint16" else "int32") for i in range(2))
    return node.builder.matmul(a, b, name=node.layer_name())


@runtime_operator("MulInteger")
def mul_integer(node: Node) -> Term:
    return multiply(_shifted(node, 0, 1, "int32"), _shifted(node, 2, 3, "int32"))


@runtime_operator("ReduceSumInteger")
def reduce_sum_integer(node: Node) -> Term:
    x = node.term(0)
    axes = distinct_axes(node.integers("axes", range(x.access.rank)), x.access.rank)
    wide = cast(x, "uint32" if x.access.dtype == "uint8" else "int32")
    return reduce_axes("reduce-sum", wide, axes, keep=bool(node.integer("keepdims", 1)))
