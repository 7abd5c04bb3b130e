"""Products: pairs are not made, a dot-product of them is one MatMul."""

from __future__ import annotations

import numpy as np

from glenside.exporters.onnx.emitter import Emitter
from glenside.exporters.onnx.graph import Value
from glenside.exporters.onnx.operators.convolution import convolution
from glenside.exporters.onnx.operators.reductions import accumulated, total
from glenside.exporters.onnx.registry import Held, Operand, Pair, exports, exports_compute, pair_parts
from glenside.ir.types import WIDENED, AccessType


@exports("access-product")
def _product(_: Emitter, __: AccessType, a: Operand, b: Operand, n: int) -> Held:
    return Pair(a.value, b.value, n, len(a.item_axes))


@exports_compute("dot-product")
def _dot_product(emit: Emitter, result: AccessType, a: Operand) -> Value:
    if not a.access.size:
        # Sums of nothing are 0; without factors, each product is 1.
        terms = 0 if a.access.item[0] else a.access.item.drop(1).product()
        return emit.full(result.dims, terms, result.dtype)
    if isinstance(a.held, Pair):
        return _of_pair(emit, result, a.held, a.access.dtype, a.access.item.drop(1).product())
    wide = accumulated(emit, a.value)
    split = a.access.split
    products = emit.tree("Mul", wide, split)
    return total(emit, emit.view(products, wide.dims.remove(split)), split)


def _of_pair(emit: Emitter, result: AccessType, pair: Pair, dtype: str, length: int) -> Value:
    inner = multiplied_in(dtype, length)
    product = convolution(emit, result, pair, inner) or contracted(emit, result, pair, inner)
    return emit.cast(product, result.dtype)


@exports("tiled-product")
def _tiled_product(emit: Emitter, result: AccessType, a: Operand, b: Operand, n: int, tile: int) -> Value:
    """How many rows are gathered at a time is the runtime's to choose."""
    if not (a.access.size and b.access.size):
        return emit.full(result.dims, 0, result.dtype)
    pair = Pair(a.value, b.value, n, len(a.item_axes))
    return _of_pair(emit, result, pair, a.access.dtype, a.access.item.product())


def multiplied_in(dtype: str, length: int) -> str:
    """The dtype for products of matrices with sums of that length, as fast as can be exact.

    In onnxruntime, int8 matrices took 4 ms in float32, 13 ms in float64 and 26 ms in int32.
    """
    if dtype not in WIDENED:
        return dtype
    limits = np.iinfo(dtype)
    largest = length * max(-int(limits.min), int(limits.max)) ** 2
    return "float32" if largest <= 2**24 else "float64" if largest < 2**31 else WIDENED[dtype]


def contracted(emit: Emitter, result: AccessType, pair: Pair, inner: str) -> Value:
    """(G, A)(I) x (G, B)(I) as (G.., M, K) times (G.., K, N), in the dtype `inner`."""
    groups, a, b, item = pair.rows
    m, n, k = a.product(), b.product(), item.product()
    if m == n == 1 and groups.product() > 1:
        left, right = pair_parts(emit, pair)
        products = emit.elementwise("Mul", emit.cast(left, inner), emit.cast(right, inner), main=False)
        return total(emit, products, result.rank)
    left = emit.cast(emit.view(pair.a, groups.append([m, k])), inner)
    right = emit.cast(_columns(emit, emit.view(pair.b, groups.append([n, k]))), inner)
    product = matmul(emit, left, right)
    return emit.view(product, result.dims)


def _columns(emit: Emitter, x: Value) -> Value:
    rank = x.rank
    return emit.transpose(x, [*range(rank - 2), rank - 1, rank - 2])


def matmul(emit: Emitter, a: Value, b: Value) -> Value:
    """(G.., M, K) times (G.., K, N)."""
    dims = a.dims.take(a.rank - 1).append(b.dims.drop(b.rank - 1))
    return emit.run("MatMul", unrepeated(emit, a, b, b.rank - 2), dims, main=True)


def unrepeated(emit: Emitter, a: Value, b: Value, groups: int) -> list[Value]:
    """The operands before they were repeated along their first `groups` axes, where broadcasting gives the same."""
    short = []
    for x in (a, b):
        before = emit.unexpanded(x)
        short.append(before if before.dims.drop(groups) == x.dims.drop(groups) else x)
    lead = np.broadcast_shapes(*(x.dims.take(groups) for x in short))
    return short if lead == a.dims.take(groups) else [a, short[1]]
