"""Imports products with fused transposes, factors, biases, sums and activations, and with packed weights."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from glenside.builder.layout import concatenate, repeat, reshape, slice_axis, stack, transpose
from glenside.builder.pointwise import add, cast, divide, filled, multiply, subtract
from glenside.builder.quantization import dequantize
from glenside.importers.onnx.node import Node
from glenside.importers.onnx.operators.com_microsoft import runtime_operator
from glenside.importers.onnx.operators.com_microsoft.activations import fused
from glenside.importers.onnx.operators.products import conv, gemm, scaled
from glenside.ir.errors import BadInput
from glenside.ir.term import Term


def channels_first(x: Term) -> Term:
    """Transposes ()(N d.. C) -> ()(N C d..)."""
    rank = x.access.rank
    return transpose(x, (0, rank - 1, *range(1, rank - 1))) if rank > 2 else x


def channels_last(x: Term) -> Term:
    """Transposes ()(N C d..) -> ()(N d.. C)."""
    rank = x.access.rank
    return transpose(x, (0, *range(2, rank), 1)) if rank > 2 else x


def with_channels_first(node: Node, *places: int) -> Node:
    """Returns the node with these inputs, if given, in the layout of the standard operator."""
    inputs = list(node.inputs)
    for i in places:
        value = node.optional(i)
        if value is not None:
            inputs[i] = channels_first(value)
    return replace(node, inputs=tuple(inputs))


@runtime_operator("FusedConv")
def fused_conv(node: Node) -> Term:
    y, more = conv(node), node.optional(3)
    if more is not None and more.access.dims != y.access.dims:
        raise BadInput(f"input 3 requires the dims of the result, {y.access}, got {more.access}")
    return fused(node, y if more is None else add(y, more), node.numbers("activation_params") or [])


@runtime_operator("NhwcConv", "NhwcFusedConv")
def nhwc_conv(node: Node) -> Term:
    return channels_last(fused_conv(with_channels_first(node, 0, 3)))


@runtime_operator("FusedGemm")
def fused_gemm(node: Node) -> Term:
    numbers = [f"activation_{name}" for name in ("alpha", "beta", "gamma")]
    if node.text("activation", "") == "Selu":
        numbers.remove("activation_beta")
    given = [node.number(name, 0.0) for name in numbers if name in node.attributes]
    return fused(node, gemm(node), given)


@runtime_operator("FusedMatMul", "TransposeMatMul", "FusedMatMulActivation")
def fused_matmul(node: Node) -> Term:
    """Multiplies matrices; `transBatch` moves the first axis before the last; `trans` swaps the last two, if there are
    two.
    """
    operands = []
    for i, letter in enumerate("AB"):
        x = node.term(i)
        rank = x.access.rank
        if node.integer(f"transBatch{letter}", 0) and rank > 2:
            x = transpose(x, (*range(1, rank - 1), 0, rank - 1))
        if node.integer(f"trans{letter}", 0) and rank > 1:
            x = transpose(x, (*range(rank - 2), rank - 1, rank - 2))
        operands.append(x)
    y = scaled(node, "alpha", node.builder.matmul(*operands, name=node.layer_name()))
    if node.op_type != "FusedMatMulActivation":
        return y
    numbers = [f"activation_{name}" for name in ("alpha", "beta", "gamma")]
    return fused(node, y, [node.number(name, 0.0) for name in numbers if name in node.attributes])


def unpacked(x: Term, bits: int, count: int) -> Term:
    """Unpacks numbers of a few bits from bytes, lowest bits first; the last axis gets `count` numbers."""
    per, parts = 8 // bits, list[Term]()
    for _ in range(per - 1):
        base = filled(x, 1 << bits)
        rest = divide(x, base)
        parts.append(subtract(x, multiply(rest, base)))
        x = rest
    *shape, size = x.access.dims
    numbers = reshape(stack([*parts, x], -1), (*shape, size * per)) if parts else x
    if numbers.access.dims[-1] < count:
        raise BadInput(f"requires {count} numbers of {bits} bits, got {numbers.access.dims[-1]}")
    return slice_axis(numbers, len(shape), 0, count)


def _blocks(node: Node) -> tuple[int, int, int, int, int]:
    """Returns N, K, bits, the block size, and the number of blocks of K. Raises BadInput."""
    n, k, block = (node.integer(name, 0) for name in ("N", "K", "block_size"))
    bits = node.integer("bits", 4)
    if min(n, k, block) < 1 or bits not in (2, 4, 8):
        raise BadInput(
            f"requires N, K and block_size of at least 1 and bits of 2, 4 or 8, got {n}, {k}, {block}, {bits}"
        )
    return n, k, bits, block, -(-k // block)


@runtime_operator("MatMulNBits")
def matmul_nbits(node: Node) -> Term:
    """Multiplies by weights (N K) in blocks of few bits, each with a scale and a zero point, in the precision of A."""
    n, k, bits, block, count = _blocks(node)
    if node.integer("weight_prepacked", 0) or node.optional(4) is not None:
        raise BadInput("requires weights that are not prepacked and have no group index")
    a, packed, scales = (node.term(i) for i in range(3))
    if packed.access.size != n * count * (block * bits // 8) or scales.access.size != n * count:
        raise BadInput(
            f"inputs 1 and 2 require {n} x {count} blocks of {block}, got {packed.access} and {scales.access}"
        )
    values = reshape(unpacked(reshape(packed, (n, count, block * bits // 8)), bits, block), (n, count * block))
    whole = slice_axis(values, 1, 0, k)

    def by_block(x: Term) -> Term:
        return slice_axis(repeat(reshape(x, (n, count)), (1, block)), 1, 0, k)

    scale, dtype = by_block(scales), a.access.dtype
    zero = node.optional(3)
    if zero is None or zero.access.dtype == "uint8":
        zero = filled(whole, 1 << (bits - 1)) if zero is None else by_block(_zero_points(zero, n, bits, count))
        weights = dequantize(whole, scale, zero)
    else:
        weights = multiply(subtract(cast(whole, dtype), by_block(zero)), scale)
    y = node.builder.linear(a, weights, name=node.layer_name())
    bias = node.optional(5)
    return y if bias is None else add(y, bias)


def _zero_points(zero: Term, n: int, bits: int, count: int) -> Term:
    size = -(-count * bits // 8)
    if zero.access.size != n * size:
        raise BadInput(f"input 3 requires zero points of ({n} {size}) bytes, got {zero.access}")
    return unpacked(reshape(zero, (n, size)), bits, count)


_FP4 = (0, 5.208333333e-03, 2 / 3, 1, 1 / 3, 0.5, 1 / 6, 0.25)
_NF4 = (
    *(-1.0, -0.6961928009986877, -0.5250730514526367, -0.39491748809814453),
    *(-0.28444138169288635, -0.18477343022823334, -0.09105003625154495, 0.0),
    *(0.07958029955625534, 0.16093020141124725, 0.24611230194568634, 0.33791524171829224),
    *(0.44070982933044434, 0.5626170039176941, 0.7229568362236023, 1.0),
)
CODES = {0: (*_FP4, *(-value for value in _FP4)), 1: _NF4}
"""The attribute quant_type -> the value of each 4-bit code."""


@runtime_operator("MatMulBnb4")
def matmul_bnb4(node: Node) -> Term:
    """Multiplies by weights (N K) of 4-bit codes, the first in the high bits, in blocks that continue across rows."""
    n, k, block, kind = (node.integer(name, 0) for name in ("N", "K", "block_size", "quant_type"))
    a, packed, scales = (node.term(i) for i in range(3))
    if min(n, k, block) < 1 or kind not in CODES or packed.access.size < (n * k + 1) // 2:
        raise BadInput(
            f"requires {n} x {k} codes in blocks of {block}, of quant_type 0 or 1, got {packed.access}, {kind}"
        )
    flat = reshape(packed, (packed.access.size,))
    high = divide(flat, filled(flat, 16))
    low = subtract(flat, multiply(high, filled(high, 16)))
    codes = slice_axis(reshape(stack([high, low], -1), (2 * packed.access.size,)), 0, 0, n * k)
    table = node.constant(np.array(CODES[kind], scales.access.dtype), f"{node.name}.codes")
    each = repeat(reshape(scales, (scales.access.size,)), (block,))
    if each.access.size < n * k:
        raise BadInput(f"input 2 requires one number for each block of {block}, got {scales.access}")
    weights = multiply(node.builder.gather(table, cast(codes, "int32")), slice_axis(each, 0, 0, n * k))
    matrix = reshape(weights, (n, k))
    if not node.integer("transB", 1):
        matrix = transpose(matrix, (1, 0))
    return node.builder.linear(a, matrix, name=node.layer_name())


@runtime_operator("GatherBlockQuantized")
def gather_block_quantized(node: Node) -> Term:
    """Gathers rows of a table of few bits, whose blocks along an axis have a scale and a zero point each."""
    data, indices, scales, zero = node.term(0), node.term(1), node.term(2), node.optional(3)
    bits, block, rank = node.integer("bits", 4), node.integer("block_size", 128), data.access.rank
    packs = data.access.dtype == "uint8"
    if (not packs and (data.access.dtype not in ("int4", "uint4") or bits != 4)) or bits not in (2, 4, 8) or block < 1:
        kinds = "int4, uint4, or uint8 in 2, 4 or 8 bits"
        raise BadInput(f"requires data of {kinds}, and blocks, got {data.access}, {bits} bits, {block}")
    along, axis = node.axis("quantize_axis", 1, rank), node.axis("gather_axis", 0, rank)

    def rows(x: Term) -> Term:
        return unpacked(x, bits, x.access.dims[-1] * (8 // bits)) if packs else x

    data = rows(data)
    size, count = data.access.dims[along], scales.access.dims[along]
    if zero is not None:
        zero = slice_axis(rows(zero), rank - 1, 0, scales.access.dims[-1])

    def by_block(x: Term) -> Term:
        return slice_axis(repeat(x, [block if i == along else 1 for i in range(rank)]), along, 0, size)

    if count != -(-size // block):
        raise BadInput(f"input 2 requires {-(-size // block)} blocks along axis {along}, got {scales.access}")
    zero = filled(data, packs << (bits - 1)) if zero is None else by_block(zero)
    return node.builder.gather(dequantize(data, by_block(scales), zero), indices, axis)


@runtime_operator("ComplexMul", "ComplexMulConj")
def complex_mul(node: Node) -> Term:
    """Multiplies complex numbers, which are pairs in the last axis."""
    (a, b), (c, d) = (
        [slice_axis(x, x.access.rank - 1, i, i + 1) for i in range(2)] for x in (node.term(0), node.term(1))
    )
    d = multiply(d, filled(d, -1)) if node.op_type == "ComplexMulConj" else d
    real = subtract(multiply(a, c), multiply(b, d))
    return concatenate([real, add(multiply(a, d), multiply(b, c))], -1)
