"""Imports quantized tensors. Products are of the narrow integers, so that an int8 array can compute them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

from glenside.builder.layout import channel_vector, pad, repeat, reshape, slice_axis, split_at
from glenside.builder.pointwise import add, cast, combine, compare, compute, divide, filled, multiply, select, subtract
from glenside.builder.quantization import as_int8, dequantize, quantize, rounded, without_zero_points
from glenside.builder.reductions import reduce_axes
from glenside.builder.windows import windows as all_windows
from glenside.importers.onnx.node import Node, normal_axis, onnx_operator
from glenside.importers.onnx.tensors import dtype_name, float_dtype
from glenside.importers.onnx.windows import cropped, windows_of
from glenside.ir.dtypes import FLOATS, STORED
from glenside.ir.errors import BadInput
from glenside.ir.term import Term, build

RESULTS = ("int8", "uint8", "int16", "uint16", *STORED)


@onnx_operator("QuantizeLinear")
def quantize_linear(node: Node) -> Term:
    scale, zero = _granular(node, 1), zero_point(node)
    dtype = _dtype(node, "output_dtype", "uint8" if zero is None else zero.access.dtype, RESULTS)
    if zero is not None and dtype != zero.access.dtype:
        raise BadInput(f"attribute output_dtype requires that of the zero point, {zero.access.dtype}, got {dtype}")
    precision = _dtype(node, "precision", scale.access.dtype, FLOATS)
    return quantize(
        cast(node.term(0), precision), cast(scale, precision), zero, dtype, node.integer("saturate", 1) != 0
    )


@onnx_operator("DequantizeLinear")
def dequantize_linear(node: Node) -> Term:
    scale, zero = _granular(node, 1), zero_point(node)
    if zero is not None and _is_zero(node, zero):
        zero = None
    dtype = _dtype(node, "output_dtype", scale.access.dtype, FLOATS)
    return cast(dequantize(node.term(0), cast(scale, float_dtype(scale)), zero), dtype)


def _dtype(node: Node, name: str, standard: str, choices: Sequence[str]) -> str:
    number = node.integer(name, 0)
    dtype = dtype_name(number) if number else standard
    if number and dtype not in choices:
        raise BadInput(f"attribute {name} is one of {', '.join(choices)}, got {dtype}")
    return dtype


def zero_point(node: Node) -> Term | None:
    zero = node.optional(2)
    if zero is None:
        return None
    if zero.access.dims != node.term(1).access.dims and zero.access.size != 1:
        raise BadInput(f"input 2, the zero point, requires the dims of the scale, got {zero.access}")
    return _granular(node, 2)


def _granular(node: Node, i: int) -> Term:
    """Returns a scale or zero point per tensor, axis element or block, broadcast to input 0."""
    value, dims = node.term(i), node.term(0).access.dims
    axis, block = node.integer("axis", 1), node.integer("block_size", 0)
    if block < 0:
        raise BadInput(f"attribute block_size requires at least 0, got {block}")
    if value.access.size == 1:
        return reshape(value, ())
    axis = normal_axis(axis, len(dims), "attribute axis")
    if not block:
        n = dims[axis]
        if value.access.dims != (n,):
            raise BadInput(f"input {i} requires one number, or one for each of {n} elements, got {value.access}")
        return reshape(value, (n, *(1 for _ in dims[axis + 1 :])))
    if value.access.dims != dims.set(axis, -(-dims[axis] // block)):
        raise BadInput(f"input {i} requires one number for each block of {block} along axis {axis}, got {value.access}")
    repeated = repeat(value, [block if k == axis else 1 for k in range(len(dims))])
    return slice_axis(repeated, axis, 0, dims[axis])


@onnx_operator("DynamicQuantizeLinear")
def dynamic_quantize_linear(node: Node) -> list[Term]:
    return [*dynamically_quantized(node.term(0))]


def dynamically_quantized(x: Term) -> tuple[Term, Term, Term]:
    """Quantizes x to uint8 over the range of its elements and 0; returns it, its scale and zero point. Raises
    BadInput.
    """
    if not x.access.size:
        raise BadInput(f"a quantized tensor requires at least one element, got {x.access}")
    none = build("full", (), 0, x.access.dtype)
    everything = range(x.access.rank)
    low = combine("minimum", reduce_axes("reduce-min", x, everything), none)
    high = combine("maximum", reduce_axes("reduce-max", x, everything), none)
    extent = subtract(high, low)
    # ONNX's own definition divides by 0 for a tensor of zeros; here its scale is 1, as in onnxruntime.
    scale = select(compare("eq", extent, none), filled(extent, 1), divide(extent, filled(extent, 255)))
    zero = cast(compute("round", compute("(clip 0 255)", subtract(none, divide(low, scale)))), "uint8")
    return quantize(x, scale, zero, "uint8"), scale, zero


@dataclass(frozen=True)
class Operand:
    """Narrow integers and their zero point: int32, broadcastable to them; None if it is 0."""

    values: Term
    zero: Term | None


def _is_zero(node: Node, value: Term) -> bool:
    known = node.scope.known(value)
    return known is not None and not known.any()


def operands(node: Node, values: Sequence[Term], zeros: Sequence[Term | None]) -> tuple[Operand, Operand]:
    """Returns both operands of a product in one dtype: if they differ, uint8 becomes int8."""
    mixed = len({x.access.dtype for x in values}) > 1
    result = []
    for x, zero in zip(values, zeros, strict=True):
        wide = None if zero is None else cast(zero, "int32")
        if mixed and x.access.dtype == "uint8":
            less = build("full", (), 128, "int32")
            x, wide = as_int8(x), subtract(build("full", (), 0, "int32") if wide is None else wide, less)
        result.append(Operand(x, None if wide is None or _is_zero(node, wide) else wide))
    return result[0], result[1]


def _by_filter(node: Node, i: int, w: Term) -> Term:
    """Returns an input of one number, or one per filter, broadcastable to filters and to results (N O d..)."""
    value, count = node.term(i), w.access.dims[0]
    if value.access.size == 1:
        return reshape(value, ())
    if value.access.dims != (count,):
        raise BadInput(f"input {i} requires one number, or one for each of {count} filters, got {value.access}")
    return reshape(value, (count, *(1 for _ in w.access.dims[2:])))


def _convolution(node: Node, x: Operand, w: Operand) -> Term:
    """Returns the int32 sums of (x - its zero point) * (w - its zero point)."""
    windows = windows_of(node, x.values.access.dims[2:], w.values.access.dims[2:])
    values, padding = cropped(x.values, windows)
    padded = _padded(values, x.zero, [(0, 0), (0, 0), *padding])
    groups = node.integer("group", 1)
    filters, *kernel = w.values.access.dims
    name, steps = node.layer_name(), (windows.strides, windows.dilations)
    y = node.builder.conv(padded, w.values, strides=steps[0], dilations=steps[1], groups=groups, name=name)

    def sums_of_windows() -> Term:
        batch, channels, *sizes = padded.access.dims
        apart = reshape(cast(padded, "int32"), (batch, groups, channels // groups, *sizes))
        found = all_windows(split_at(reduce_axes("reduce-sum", apart, [2]), 2), kernel[1:], *steps)
        sums = split_at(build("compute", "reduce-sum", found), 0)
        return repeat(sums, (1, filters // groups, *(1 for _ in sizes)))

    def sums_of_filters() -> Term:
        sums = reduce_axes("reduce-sum", cast(w.values, "int32"), range(1, len(kernel) + 1))
        return reshape(sums, (filters, *(1 for _ in kernel[1:])))

    return without_zero_points(y, (x.zero, w.zero), (sums_of_windows, sums_of_filters), prod(kernel))


def _padded(x: Term, zero: Term | None, padding: Sequence[tuple[int, int]]) -> Term:
    """Pads x with its zero point; subtracting it before and adding it after wraps and unwraps."""
    if zero is None or not any(map(any, padding)):
        return pad(x, padding)
    narrow = cast(zero, x.access.dtype)
    return add(pad(subtract(x, narrow), padding), narrow)


@onnx_operator("ConvInteger")
def conv_integer(node: Node) -> Term:
    zero = None if node.optional(2) is None else node.single(2)
    zeros = zero, None if node.optional(3) is None else _by_filter(node, 3, node.term(1))
    return _convolution(node, *operands(node, (node.term(0), node.term(1)), zeros))


@onnx_operator("QLinearConv")
def qlinear_conv(node: Node) -> Term:
    w, bias = node.term(3), node.optional(8)
    zeros = node.single(2), _by_filter(node, 5, w)
    y = _convolution(node, *operands(node, (node.term(0), w), zeros))
    if bias is not None:
        filters = w.access.dims[0]
        if bias.access.dims != (filters,):
            raise BadInput(f"input 8, the bias, requires one number for each of {filters} filters, got {bias.access}")
        y = add(y, channel_vector(bias, y))
    return _requantized(node, y, multiply(node.single(1), _by_filter(node, 4, w)))


def _requantized(node: Node, y: Term, scale: Term) -> Term:
    """Requantizes int32 sums with the scale and the zero point of the results, inputs 6 and 7."""
    zero = node.single(7)
    scaled = multiply(cast(y, "float32"), cast(divide(scale, node.single(6)), "float32"))
    return rounded(scaled, zero, zero.access.dtype)


def by_line(node: Node, i: int, operand: Term, rows: bool) -> Term:
    """Returns an input of one number, or one per row or column of an operand, ()(.. M K) or ()(.. K N)."""
    value = node.term(i)
    if value.access.size == 1:
        return reshape(value, ())
    dims = operand.access.dims
    lines = dims[-2 if rows and len(dims) > 1 else -1]
    if value.access.dims == (lines,):
        return reshape(value, (lines, 1)) if rows else value
    if len(dims) < 2 or value.access.dims != dims.set(len(dims) - (1 if rows else 2), 1):
        raise BadInput(f"input {i} requires one number, or one for each of {lines} lines of {operand.access}")
    return value


def _matrix_product(node: Node, places: tuple[int, int], zeros: tuple[int, int]) -> Term:
    """Returns the int32 sums of (a - its zero point) * (b - its zero point); vectors count as a row and a column."""
    terms = [node.term(i) for i in places]
    if not all(x.access.rank for x in terms):
        raise BadInput(f"inputs {places[0]} and {places[1]} require at least one axis, got a number")
    lines = [
        None if node.optional(i) is None else by_line(node, i, x, k == 0)
        for k, (i, x) in enumerate(zip(zeros, terms, strict=True))
    ]
    a, b = terms
    left, right = reshape(a, (1, -1)) if a.access.rank == 1 else a, reshape(b, (-1, 1)) if b.access.rank == 1 else b
    return integer_product(node, (left, right), lines)


def integer_product(node: Node, matrices: Sequence[Term], zeros: Sequence[Term | None], part: str = "") -> Term:
    """Returns the int32 sums of (a - its zero point) * (b - its zero point), for zero points that broadcast."""
    a, b = operands(node, matrices, zeros)

    def sums(x: Term, axis: int) -> Term:
        return reduce_axes("reduce-sum", cast(x, "int32"), [x.access.rank + axis], keep=True)

    y = node.builder.matmul(a.values, b.values, name=node.layer_name(part))
    depth = a.values.access.dims[-1]
    return without_zero_points(y, (a.zero, b.zero), (lambda: sums(a.values, -1), lambda: sums(b.values, -2)), depth)


def without_vector_axes(y: Term, a: Term, b: Term) -> Term:
    """Removes the axes that vectors added to a matrix product, as numpy does."""
    dims = y.access.dims
    return reshape(y, dims[:-2] + dims[-2:-1] * (a.access.rank > 1) + dims[-1:] * (b.access.rank > 1))


@onnx_operator("MatMulInteger")
def matmul_integer(node: Node) -> Term:
    return without_vector_axes(_matrix_product(node, (0, 1), (2, 3)), node.term(0), node.term(1))


@onnx_operator("QLinearMatMul")
def qlinear_matmul(node: Node) -> Term:
    y = _matrix_product(node, (0, 3), (2, 5))
    scales = by_line(node, 1, node.term(0), True), by_line(node, 4, node.term(3), False)
    y = _requantized(node, y, multiply(*scales))
    return without_vector_axes(y, node.term(0), node.term(3))
