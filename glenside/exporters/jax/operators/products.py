"""Exports products as one `lax.dot_general` each, product instructions, and linear maps as additions.

SPU truncates even a product by 2, and each truncation costs communication.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from functools import reduce
from math import gcd, lcm

import numpy as np

from glenside.exporters.jax.operators.movement import overlap_add, padded, zero
from glenside.exporters.jax.registry import COMPUTE_EXPORTS, OPERATOR_EXPORTS, Operand
from glenside.exporters.jax.source import Source, Value
from glenside.exporters.writer import Pair
from glenside.ir.rational import exact_numbers
from glenside.ir.types import AccessType, Dims
from glenside.targets.mpc.semi2k import of_elements


def contract(source: Source, a: Value, b: Value, shared: int, item: int, dtype: str) -> Value:
    """Contracts (G, A)(I) with (G, B)(I) -> (G, A, B), summed in that dtype; G are batch axes."""
    groups, rows, columns, items = Pair(a, b, shared, item).rows
    m, k, n = rows.product(), items.product(), columns.product()
    batch = [groups.product()] if groups else []
    left = source.view(source.cast(a, dtype), (*batch, m, k))
    right = source.view(source.cast(b, dtype), (*batch, n, k))
    if of_elements(m, k, n):
        value = source.call("jnp.multiply", [left, source.view(right, (*batch, k, n))])
    else:
        value = _matmul(source, *(_two_columns(source, x) if k == 1 else x for x in (left, right)))
    return source.view(value, groups.append(rows).append(columns))


def _two_columns(source: Source, a: Value) -> Value:
    """Adds a column of zeros: SPU's compiler may turn a product of one column into a product of elements."""
    return padded(source, a, a.rank - 1, 0, 1, 0, zero(a.dtype))


def _matmul(source: Source, a: Value, b: Value) -> Value:
    """Multiplies (G, M, K) by (G, N, K), or without G."""
    batch, last = a.dims.take(a.rank - 2), a.rank - 1
    dims = batch.append([a.dims[-2], b.dims[-2]])
    axes = f"((({last},), ({last},)), ({'(0,), (0,)' if batch else '(), ()'}))"
    return source.set(f"lax.dot_general({source.name(a)}, {source.name(b)}, {axes})", dims, a.dtype)


@COMPUTE_EXPORTS.register("dot-product")
def _dot_product(source: Source, result: AccessType, a: Operand) -> Value:
    pair = a.held
    if isinstance(pair, Pair) and a.access.split == pair.a.rank + pair.b.rank - pair.shared - 2 * pair.item:
        return contract(source, pair.a, pair.b, pair.shared, pair.item, result.dtype)
    parts = [source.cast(part, result.dtype) for part in a.parts()]
    if not parts:
        dims = a.access.dims.remove(a.access.split)
        parts = [source.expand(source.constant(np.ones((1,) * len(dims), result.dtype)), dims)]
    value = reduce(lambda x, y: source.call("jnp.multiply", [x, y]), parts)
    if a.access.rank - 1 == a.access.split:
        return value
    axes = tuple(range(a.access.split, a.access.rank - 1))
    return source.set(f"jnp.sum({source.name(value)}, {axes}, jnp.{result.dtype})", result.dims, result.dtype)


@OPERATOR_EXPORTS.register("tiled-product")
def _tiled(source: Source, result: AccessType, a: Operand, b: Operand, n: int, tile: int) -> Value:
    """Contracts; the tile only matters to processors."""
    return contract(source, a.value, b.value, n, len(a.access.item), result.dtype)


@OPERATOR_EXPORTS.register("overlap-add-product")
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


@OPERATOR_EXPORTS.register("systolic-array", "systolic-array-output-stationary", "systolic-array-with-blocking")
def _tile(source: Source, result: AccessType, rows: int, columns: int, a: Operand, b: Operand) -> Value:
    """Multiplies (G, M, K) by (G, K, N); a of shape (G) is one row for each element of G."""
    weights, groups = b.value, b.access.split
    transposed = source.transpose(weights, [*range(groups), groups + 1, groups])
    value = contract(source, a.value, transposed, groups, 1, result.dtype)
    return source.view(value, result.dims)


@OPERATOR_EXPORTS.register("product-unit")
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
    left = source.transpose(source.view(a.value, a_parts), a_order)
    right = source.transpose(source.view(b.value, b_parts), b_order)
    value = contract(source, left, right, n, len(a_parts) - a_split, result.dtype)
    return source.transpose(source.view(value, parts), order)


def _over_integers(row: Sequence[Fraction]) -> tuple[list[int], Fraction]:
    """Returns coprime integers and the factor that makes them the row: 1 if the row is integers."""
    below = lcm(*(value.denominator for value in row))
    whole = [int(value * below) for value in row]
    if below == 1:
        return whole, Fraction(1)
    divisor = gcd(*whole)
    return [value // divisor for value in whole], Fraction(divisor, below)


def _times(source: Source, x: Value, n: int) -> Value:
    """Multiplies an array by a positive integer, by doubling and adding; each multiple is computed once."""
    total: Value | None = None
    while n:
        if n & 1:
            total = x if total is None else source.call("jnp.add", [total, x])
        n >>= 1
        if n:
            x = source.call("jnp.add", [x, x])
    assert total is not None
    return total


def _combination(source: Source, x: Value, axis: int, row: Sequence[int]) -> Value:
    """Sums integer multiples of the elements of an axis; additions come first."""
    parts = [(n, _times(source, source.slice(x, axis, i, i + 1), abs(n))) for i, n in enumerate(row) if n]
    if not parts:
        return source.full(x.dims.set(axis, 1), zero(x.dtype), x.dtype)
    added, taken = [part for n, part in parts if n > 0], [part for n, part in parts if n < 0]
    start = added.pop(0) if added else source.call("jnp.negative", [taken.pop(0)])
    total = reduce(lambda a, b: source.call("jnp.add", [a, b]), added, start)
    return reduce(lambda a, b: source.call("jnp.subtract", [a, b]), taken, total)


@OPERATOR_EXPORTS.register("linear-map")
def _linear_map(source: Source, result: AccessType, a: Operand, axis: int, rows: int, coefficients: str) -> Value:
    """Exports a linear map; the rows with denominators are multiplied together, in one message."""
    value, count = a.value, a.access.dims[axis]
    numbers = exact_numbers(coefficients) or ()
    split = [_over_integers(numbers[row * count : (row + 1) * count]) for row in range(rows)]
    found = [_combination(source, value, axis, whole) for whole, _ in split]
    scaled = [row for row, (_, factor) in enumerate(split) if factor != 1]
    if scaled:
        factors = np.array([float(split[row][1]) for row in scaled], result.dtype)
        factors = factors.reshape([len(scaled) if i == axis else 1 for i in range(result.rank)])
        together = source.concat([found[row] for row in scaled], axis)
        together = source.call("jnp.multiply", [together, source.constant(factors)])
        for place, row in enumerate(scaled):
            found[row] = source.slice(together, axis, place, place + 1)
    return source.concat(found, axis) if found else source.slice(value, axis, 0, 0)
