"""Quantized tensors. Products are of the narrow integers as they stand, so that an array of int8 can take them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

from glenside.builder.layout import pad, reshape, slice_axis, split_at
from glenside.builder.pointwise import add, combine, compare, compute, divide, filled, multiply, select, subtract
from glenside.builder.quantization import as_int8, cast, dequantize, quantize, rounded, without_zero_points
from glenside.builder.reductions import reduce_axes
from glenside.builder.sampling import repeat
from glenside.builder.windows import windows as all_windows
from glenside.importers.onnx.node import Node, normal_axis
from glenside.importers.onnx.positions import float_dtype
from glenside.importers.onnx.registry import onnx_operator
from glenside.importers.onnx.tensors import dtype_name
from glenside.importers.onnx.windows import cropped, windows_of
from glenside.ir.errors import BadInput
from glenside.ir.term import Term, build
from glenside.ir.types import FLOATS, INTEGERS

NARROW = ("int8", "uint8")


@onnx_operator("QuantizeLinear")
def quantize_linear(node: Node) -> Term:
    x, scale, zero = node.term(0), _granular(node, 1), _zero_point(node)
    dtype = _dtype(node, "output_dtype", "uint8" if zero is None else zero.access.dtype, INTEGERS)
    if zero is not None and dtype != zero.access.dtype:
        raise BadInput(f"attribute output_dtype requires that of the zero point, {zero.access.dtype}, got {dtype}")
    if dtype not in INTEGERS or scale.access.dtype not in FLOATS:
        raise BadInput(f"requires a float scale and integer results, got {scale.access.dtype} and {dtype}")
    precision = _dtype(node, "precision", scale.access.dtype, FLOATS)
    return quantize(cast(x, precision), cast(scale, precision), zero, dtype)


@onnx_operator("DequantizeLinear")
def dequantize_linear(node: Node) -> Term:
    x, scale, zero = node.term(0), _granular(node, 1), _zero_point(node)
    if x.access.dtype not in INTEGERS or scale.access.dtype not in FLOATS:
        raise BadInput(f"requires integers and a float scale, got {x.access.dtype} and {scale.access.dtype}")
    if zero is not None and zero.access.dtype != x.access.dtype:
        raise BadInput(f"input 2, the zero point, requires dtype {x.access.dtype}, got {zero.access.dtype}")
    dtype = _dtype(node, "output_dtype", scale.access.dtype, FLOATS)
    return cast(dequantize(x, cast(scale, float_dtype(scale)), zero), dtype)


def _dtype(node: Node, name: str, standard: str, choices: Sequence[str]) -> str:
    number = node.integer(name, 0)
    dtype = dtype_name(number) if number else standard
    if number and dtype not in choices:
        raise BadInput(f"attribute {name} is one of {', '.join(choices)}, got {dtype}")
    return dtype


def _zero_point(node: Node) -> Term | None:
    zero = node.optional(2)
    if zero is None:
        return None
    if zero.access.dims != node.term(1).access.dims and zero.access.size != 1:
        raise BadInput(f"input 2, the zero point, requires the dims of the scale, got {zero.access}")
    return None if _is_zero(node, zero) and zero.access.dtype == node.term(0).access.dtype else _granular(node, 2)


def _granular(node: Node, i: int) -> Term:
    """A scale or zero point of the whole tensor, of each element of an axis or of blocks, broadcast to input 0."""
    value, dims = node.term(i), node.term(0).access.dims
    axis, block = node.integer("axis", 1), node.integer("block_size", 0)
    if block < 0:
        raise BadInput(f"attribute block_size requires at least 0, got {block}")
    if value.access.size == 1:
        return reshape(value, ())
    axis = normal_axis(axis, len(dims), "attribute axis")
    if not block:
        if value.access.dims != (dims[axis],):
            raise BadInput(
                f"input {i} requires one number, or one for each of {dims[axis]} elements, got {value.access}"
            )
        return reshape(value, (dims[axis], *(1 for _ in dims[axis + 1 :])))
    if value.access.dims != dims.set(axis, -(-dims[axis] // block)):
        raise BadInput(f"input {i} requires one number for each block of {block} along axis {axis}, got {value.access}")
    repeated = repeat(value, [block if k == axis else 1 for k in range(len(dims))])
    return slice_axis(repeated, axis, 0, dims[axis])


@onnx_operator("DynamicQuantizeLinear")
def dynamic_quantize_linear(node: Node) -> list[Term]:
    x = node.term(0)
    if x.access.dtype not in FLOATS or not x.access.size:
        raise BadInput(f"input 0 requires floats, at least one, got {x.access}")
    none = build("full", (), 0, x.access.dtype)
    everything = range(x.access.rank)
    low = combine("minimum", reduce_axes("reduce-min", x, everything), none)
    high = combine("maximum", reduce_axes("reduce-max", x, everything), none)
    extent = subtract(high, low)
    # ONNX's own definition divides by 0 for a tensor of zeros; its scale is 1, as in onnxruntime.
    scale = select(compare("eq", extent, none), filled(extent, 1), divide(extent, filled(extent, 255)))
    zero = cast(compute("round", compute("(clip 0 255)", subtract(none, divide(low, scale)))), "uint8")
    return [quantize(x, scale, zero, "uint8"), scale, zero]


@dataclass(frozen=True)
class Operand:
    """Narrow integers and their zero point: int32, which broadcasts to them; None where it is 0."""

    values: Term
    zero: Term | None

    @property
    def wide(self) -> Term:
        return cast(self.values, "int32")


def _is_zero(node: Node, value: Term) -> bool:
    known = node.scope.known(value)
    return known is not None and not known.any()


def _operands(node: Node, places: Sequence[int], zeros: Sequence[Term | None]) -> tuple[Operand, Operand]:
    """Both operands of a product in one dtype: where they differ, the one of uint8 becomes int8."""
    values = [node.term(i) for i in places]
    for i, x, zero in zip(places, values, zeros, strict=True):
        if x.access.dtype not in NARROW or (zero is not None and zero.access.dtype != x.access.dtype):
            raise BadInput(f"input {i} requires {' or '.join(NARROW)} and a zero point of its dtype, got {x.access}")
    mixed = len({x.access.dtype for x in values}) > 1
    result = []
    for x, zero in zip(values, zeros, strict=True):
        wide = None if zero is None else cast(zero, "int32")
        if mixed and x.access.dtype == "uint8":
            less = build("full", (), 128, "int32")
            x, wide = as_int8(x), subtract(build("full", (), 0, "int32") if wide is None else wide, less)
        result.append(Operand(x, None if wide is None or _is_zero(node, wide) else wide))
    return result[0], result[1]


def _one(node: Node, i: int) -> Term | None:
    """An optional input of one number, ()()."""
    value = node.optional(i)
    if value is not None and value.access.size != 1:
        raise BadInput(f"input {i} requires one number, got {value.access}")
    return None if value is None else reshape(value, ())


def _needed(node: Node, i: int) -> Term:
    value = _one(node, i)
    if value is None:
        raise BadInput(f"input {i} is required, got nothing")
    return value


def _by_filter(node: Node, i: int, w: Term) -> Term | None:
    """An optional input of one number, or one for each filter, which broadcasts to results of (N O d..)."""
    value = node.optional(i)
    if value is None or value.access.size == 1:
        return None if value is None else reshape(value, ())
    if w.access.rank < 3:
        raise BadInput(f"weights require axes (O C d..), got {w.access}")
    if value.access.dims != w.access.dims[:1]:
        raise BadInput(
            f"input {i} requires one number, or one for each of {w.access.dims[0]} filters, got {value.access}"
        )
    return reshape(value, (*value.access.dims, *(1 for _ in w.access.dims[2:])))


def _convolution(node: Node, x: Operand, w: Operand) -> Term:
    """The int32 sums of (x - its zero point) * (w - its zero point)."""
    windows = windows_of(node, x.values.access.dims[2:], w.values.access.dims[2:])
    values, padding = cropped(x.values, windows)
    padded = _padded(values, x.zero, [(0, 0), (0, 0), *padding])
    groups = node.integer("group", 1)
    filters, *kernel = w.values.access.dims
    name, steps = node.scope.layer_name(node.name), (windows.strides, windows.dilations)
    y = node.builder.conv(padded, w.values, strides=steps[0], dilations=steps[1], groups=groups, name=name)

    def sums_of_windows() -> Term:
        batch, channels, *sizes = padded.access.dims
        apart = reshape(cast(padded, "int32"), (batch, groups, channels // groups, *sizes))
        found = all_windows(split_at(reduce_axes("reduce-sum", apart, [2]), 2), kernel[1:], *steps)
        sums = split_at(build("compute", "reduce-sum", found), 0)
        return repeat(sums, (1, filters // groups, *(1 for _ in sizes)))

    def sums_of_filters() -> Term:
        return reshape(
            reduce_axes("reduce-sum", w.wide, range(1, len(kernel) + 1)), (filters, *(1 for _ in kernel[1:]))
        )

    return without_zero_points(y, (x.zero, w.zero), (sums_of_windows, sums_of_filters), prod(kernel))


def _padded(x: Term, zero: Term | None, padding: Sequence[tuple[int, int]]) -> Term:
    """x with its zero point around it; subtracting that before and adding it after wraps there and back."""
    if zero is None or not any(map(any, padding)):
        return pad(x, padding)
    narrow = cast(zero, x.access.dtype)
    return add(pad(subtract(x, narrow), padding), narrow)


@onnx_operator("ConvInteger")
def conv_integer(node: Node) -> Term:
    return _convolution(node, *_operands(node, (0, 1), (_one(node, 2), _by_filter(node, 3, node.term(1)))))


@onnx_operator("QLinearConv")
def qlinear_conv(node: Node) -> Term:
    w, bias = node.term(3), node.optional(8)
    y = _convolution(node, *_operands(node, (0, 3), (_one(node, 2), _by_filter(node, 5, w))))
    if bias is not None:
        if bias.access.dtype != "int32" or bias.access.dims != w.access.dims[:1]:
            raise BadInput(
                f"input 8, the bias, requires an int32 for each of {w.access.dims[0]} filters, got {bias.access}"
            )
        y = add(y, reshape(bias, (*bias.access.dims, *(1 for _ in w.access.dims[2:]))))
    scale = _by_filter(node, 4, w)
    if scale is None:
        raise BadInput("input 4 is required, got nothing")
    return _requantized(node, y, divide(multiply(_needed(node, 1), scale), _needed(node, 6)))


def _requantized(node: Node, y: Term, scale: Term) -> Term:
    """Sums in int32 times a scale, in the dtype of input 7, the zero point of the results."""
    zero = _needed(node, 7)
    if zero.access.dtype not in NARROW:
        raise BadInput(f"input 7, the zero point, requires {' or '.join(NARROW)}, got {zero.access.dtype}")
    return rounded(multiply(cast(y, "float32"), cast(scale, "float32")), zero, zero.access.dtype)


def _by_line(node: Node, i: int, operand: Term, rows: bool) -> Term | None:
    """An optional input of one number, or one for each row or column of an operand, ()(.. M K) or ()(.. K N)."""
    value = node.optional(i)
    if value is None or value.access.size == 1:
        return None if value is None else reshape(value, ())
    dims = operand.access.dims
    lines = dims[-2 if rows and len(dims) > 1 else -1]
    if value.access.dims == (lines,):
        return reshape(value, (lines, 1)) if rows else value
    if len(dims) < 2 or value.access.dims != dims.set(len(dims) - (1 if rows else 2), 1):
        raise BadInput(f"input {i} requires one number, or one for each of {lines} lines of {operand.access}")
    return value


def _matrix_product(node: Node, places: tuple[int, int], zeros: tuple[int, int]) -> Term:
    """The int32 sums of (a - its zero point) * (b - its zero point); vectors count as a row and as a column."""
    terms = [node.term(i) for i in places]
    if not all(x.access.rank for x in terms):
        raise BadInput(f"inputs {places[0]} and {places[1]} require at least one axis, got a number")
    lines = [_by_line(node, i, x, k == 0) for k, (i, x) in enumerate(zip(zeros, terms, strict=True))]
    a, b = _operands(node, places, lines)
    left = reshape(a.values, (1, -1)) if a.values.access.rank == 1 else a.values
    right = reshape(b.values, (-1, 1)) if b.values.access.rank == 1 else b.values

    def sums(x: Term, axis: int) -> Term:
        return reduce_axes("reduce-sum", cast(x, "int32"), [x.access.rank + axis], keep=True)

    y = node.builder.matmul(left, right, name=node.scope.layer_name(node.name))
    depth = left.access.dims[-1]
    return without_zero_points(y, (a.zero, b.zero), (lambda: sums(left, -1), lambda: sums(right, -2)), depth)


def _without_lines_of_vectors(y: Term, a: Term, b: Term) -> Term:
    """A matrix product as numpy has it: a vector leaves no axis."""
    dims = y.access.dims
    return reshape(y, dims[:-2] + dims[-2:-1] * (a.access.rank > 1) + dims[-1:] * (b.access.rank > 1))


@onnx_operator("MatMulInteger")
def matmul_integer(node: Node) -> Term:
    return _without_lines_of_vectors(_matrix_product(node, (0, 1), (2, 3)), node.term(0), node.term(1))


@onnx_operator("QLinearMatMul")
def qlinear_matmul(node: Node) -> Term:
    y = _matrix_product(node, (0, 3), (2, 5))
    a, b = _by_line(node, 1, node.term(0), True), _by_line(node, 4, node.term(3), False)
    if a is None or b is None:
        raise BadInput("inputs 1 and 4, the scales, are required, got nothing")
    y = _requantized(node, y, divide(multiply(a, b), _needed(node, 6)))
    return _without_lines_of_vectors(y, node.term(0), node.term(3))
