"""Products: one `lax.dot_general` for each, whatever its axes, and the instructions that are products too."""

from __future__ import annotations

from functools import reduce

import numpy as np

from glenside.exporters.jax.operators.movement import overlap_add
from glenside.exporters.jax.registry import Held, Operand, Pair, exports, exports_compute
from glenside.exporters.jax.source import Source, Value
from glenside.ir.types import AccessType, Dims


@exports("access-product")
def _product(source: Source, result: AccessType, a: Operand, b: Operand, n: int) -> Held:
    return Pair(a.value, b.value, n, len(a.access.item))


def contract(source: Source, a: Value, b: Value, shared: int, item: int, dtype: str) -> Value:
    """(G, A)(I) times (G, B)(I) -> (G, A, B), summed in that dtype: the axes G are those of a batch."""
    groups, rows, columns, items = Pair(a, b, shared, item).rows
    batch = [groups.product()] if groups else []
    left = source.reshape(source.cast(a, dtype), (*batch, rows.product(), items.product()))
    right = source.reshape(source.cast(b, dtype), (*batch, columns.product(), items.product()))
    value = _matmul(source, left, right)
    return source.reshape(value, groups.append(rows).append(columns))


def _matmul(source: Source, a: Value, b: Value) -> Value:
    """(G, M, K) times (G, N, K), or without G."""
    batch, last = a.dims.take(a.rank - 2), a.rank - 1
    dims = batch.append([a.dims[-2], b.dims[-2]])
    axes = f"((({last},), ({last},)), ({'(0,), (0,)' if batch else '(), ()'}))"
    return source.set(f"lax.dot_general({source.name(a)}, {source.name(b)}, {axes})", dims, a.dtype)


@exports_compute("dot-product")
def _dot_product(source: Source, result: AccessType, a: Operand) -> Value:
    pair = a.held
    if isinstance(pair, Pair) and a.access.split == pair.a.rank + pair.b.rank - pair.shared - 2 * pair.item:
        return contract(source, pair.a, pair.b, pair.shared, pair.item, result.dtype)
    parts = [source.cast(part, result.dtype) for part in a.parts()]
    if not parts:
        dims = a.access.dims.remove(a.access.split)
        parts = [source.broadcast(source.constant(np.ones((1,) * len(dims), result.dtype)), dims)]
    value = reduce(lambda x, y: source.call("jnp.multiply", [x, y]), parts)
    if a.access.rank - 1 == a.access.split:
        return value
    axes = tuple(range(a.access.split, a.access.rank - 1))
    return source.set(f"jnp.sum({source.name(value)}, {axes}, jnp.{result.dtype})", result.dims, result.dtype)


@exports("tiled-product")
def _tiled(source: Source, result: AccessType, a: Operand, b: Operand, n: int, tile: int) -> Value:
    """Tiles are how a processor computes it."""
    return contract(source, a.value, b.value, n, len(a.access.item), result.dtype)


@exports("overlap-add-product")
def _overlap_add_product(
    source: Source,
    result: AccessType,
    a: Operand,
    b: Operand,
    n: int,
    out: Dims,
    strides: Dims,
    dilations: Dims,
    starts: Dims,
    tile: int,
) -> Value:
    value = contract(source, a.value, b.value, n, len(a.access.item), result.dtype)
    axes, rows = len(out), a.access.split
    places, windows = range(rows - axes, rows), range(value.rank - axes, value.rank)
    order = [i for i in range(value.rank) if i not in places and i not in windows]
    return overlap_add(source, source.transpose(value, [*order, *places, *windows]), out, strides, dilations, starts)


def _tile(source: Source, result: AccessType, rows: int, columns: int, a: Operand, b: Operand) -> Value:
    """(G, M, K) times (G, K, N); a of shape (G) is one row for each of G."""
    weights, groups = b.value, b.access.split
    turned = source.transpose(weights, [*range(groups), groups + 1, groups])
    value = contract(source, a.value, turned, groups, 1, result.dtype)
    return source.reshape(value, result.dims)


for _name in ("systolic-array", "systolic-array-output-stationary", "systolic-array-with-blocking"):
    exports(_name)(_tile)


@exports("product-unit")
def _unit(
    source: Source,
    result: AccessType,
    n: int,
    a: Operand,
    a_parts: Dims,
    a_order: Dims,
    a_split: int,
    b: Operand,
    b_parts: Dims,
    b_order: Dims,
    b_split: int,
    parts: Dims,
    order: Dims,
) -> Value:
    left = source.transpose(source.reshape(a.value, a_parts), a_order)
    right = source.transpose(source.reshape(b.value, b_parts), b_order)
    value = contract(source, left, right, n, len(a_parts) - a_split, result.dtype)
    return source.transpose(source.reshape(value, parts), order)
