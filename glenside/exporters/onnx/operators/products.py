"""Exports products as one MatMul without forming pairs, and linear maps as additions."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

import numpy as np

from glenside.exporters.onnx.emitter import Emitter
from glenside.exporters.onnx.operators.reductions import total
from glenside.exporters.onnx.registry import COMPUTE_EXPORTS, OPERATOR_EXPORTS, Operand
from glenside.exporters.writer import Pair, Value
from glenside.ir.dtypes import WIDENED, widen
from glenside.ir.rational import exact_numbers
from glenside.ir.types import AccessType


@COMPUTE_EXPORTS.register("dot-product")
def _dot_product(emit: Emitter, result: AccessType, a: Operand) -> Value:
    if not a.access.size:
        # Empty sums are 0; without factors, each product is 1.
        terms = 0 if a.access.item[0] else a.access.item.drop(1).product()
        return emit.full(result.dims, terms, result.dtype)
    if isinstance(a.held, Pair):
        return _of_pair(emit, result, a.held)
    wide = emit.cast(a.value, widen(a.access.dtype))
    split = a.access.split
    products = emit.tree("Mul", wide, split)
    return total(emit, emit.view(products, wide.dims.remove(split)), split)


def _of_pair(emit: Emitter, result: AccessType, pair: Pair[Value]) -> Value:
    inner = multiplied_in(pair.a.dtype, pair.rows[3].product())
    return emit.cast(contracted(emit, result, pair, inner), result.dtype)


@OPERATOR_EXPORTS.register("tiled-product")
def _tiled_product(emit: Emitter, result: AccessType, a: Operand, b: Operand, n: int, tile: int) -> Value:
    """Emits the product; the runtime chooses how many rows to gather at a time."""
    if not (a.access.size and b.access.size):
        return emit.full(result.dims, 0, result.dtype)
    return _of_pair(emit, result, Pair(a.value, b.value, n, len(a.access.item)))


def multiplied_in(dtype: str, length: int) -> str:
    """Returns the fastest exact dtype for matrix products with sums of `length` terms.

    In onnxruntime, int8 matrices took 4 ms in float32, 13 ms in float64 and 26 ms in int32.
    """
    if dtype not in WIDENED:
        return dtype
    limits = np.iinfo(dtype)
    largest = length * max(-int(limits.min), int(limits.max)) ** 2
    return "float32" if largest <= 2**24 else "float64" if largest < 2**31 else WIDENED[dtype]


def contracted(emit: Emitter, result: AccessType, pair: Pair[Value], inner: str) -> Value:
    """Emits (G, A)(I) x (G, B)(I) as (G.., M, K) times (G.., K, N), in the dtype `inner`."""
    groups, a, b, item = pair.rows
    m, n, k = a.product(), b.product(), item.product()
    if m == n == 1 and groups.product() > 1:
        left, right = emit.broadcast_parts(pair)
        products = emit.elementwise("Mul", emit.cast(left, inner), emit.cast(right, inner), main=False)
        return total(emit, products, result.rank)
    left = emit.cast(emit.view(pair.a, groups.append([m, k])), inner)
    columns = emit.view(pair.b, groups.append([n, k]))
    right = emit.cast(emit.transpose(columns, [*range(len(groups)), len(groups) + 1, len(groups)]), inner)
    product = emit.run("MatMul", unrepeated(emit, left, right, len(groups)), groups.append([m, n]), main=True)
    return emit.view(product, result.dims)


def unrepeated(emit: Emitter, a: Value, b: Value, groups: int) -> list[Value]:
    """Returns the operands before expansion along their first `groups` axes, if broadcasting gives the same result."""
    short = []
    for x in (a, b):
        before = emit.unexpanded(x)
        short.append(before if before.dims.drop(groups) == x.dims.drop(groups) else x)
    lead = np.broadcast_shapes(*(x.dims.take(groups) for x in short))
    return short if lead == a.dims.take(groups) else [a, short[1]]


@OPERATOR_EXPORTS.register("linear-map")
def _linear_map(emit: Emitter, result: AccessType, a: Operand, axis: int, rows: int, coefficients: str) -> Value:
    """Emits one row of the result at a time. A matrix product would compute 0 times infinity."""
    x, values = a.value, exact_numbers(coefficients) or ()
    count = x.dims[axis]
    parts = [emit.slice(x, axis, i, i + 1) for i in range(count)]
    made = [_row(emit, parts, values[row * count : (row + 1) * count]) for row in range(rows)]
    nothing = emit.full(result.dims.set(axis, 1), 0, x.dtype)
    return emit.concat([row or nothing for row in made], axis) if made else emit.full(result.dims, 0, x.dtype)


def _row(emit: Emitter, parts: Sequence[Value], coefficients: Sequence[Fraction]) -> Value | None:
    total = None
    for part, c in zip(parts, coefficients, strict=True):
        if c == 0:
            continue
        term = part if abs(c) == 1 else emit.elementwise("Mul", part, emit.number(str(abs(c)), part.dtype))
        start = emit.number(0, part.dtype) if total is None and c < 0 else total
        total = term if start is None else emit.elementwise("Add" if c > 0 else "Sub", start, term)
    return total
