"""Contractions in blocks: the temporaries of a large product stay in the cache, whatever its operands are views of."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from math import prod
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from glenside.ir.operand import Array

Index = tuple[int | slice, ...]

# Elements per block. Measured on 2 cores with 256 KiB to 2 MiB of cache each: smaller blocks pay for Python and BLAS
# calls, larger ones for memory.
BLOCK = 1 << 17

# A matrix product with fewer rows reads its weights more often than it uses them.
_LEAST_ROWS = 128

# Weights of one product that are converted at a time.
_MOST_WEIGHTS = 1 << 22


def blocks(dims: tuple[int, ...], count: int) -> Iterator[Index]:
    """Indices of leading axes that cut an array of those dims into contiguous blocks of at most `count` elements."""
    axis, inner = len(dims), 1
    while axis and inner * dims[axis - 1] <= count:
        axis -= 1
        inner *= dims[axis]
    if not axis:
        yield ()
        return
    step = max(1, count // inner)
    for prefix in np.ndindex(*dims[: axis - 1]):
        for start in range(0, dims[axis - 1], step):
            yield (*prefix, slice(start, start + step))


def _matrices(block: Array, dims: tuple[int, int, int], dtype: DTypeLike) -> Array:
    """The block as (g, rows, k) of a dtype, copied once at most; a transposed matrix keeps its layout: BLAS reads it."""
    plain = block.ndim == 3 and block.shape == dims
    return block.astype(dtype, order="K" if plain else "C", copy=False).reshape(dims)


def contract_into(
    out: Array,
    a: Array,
    b: Array,
    shared: int,
    item: int,
    dtype: DTypeLike,
    multiply: Callable[[Array, Array], Array],
) -> None:
    """Fill out (G, A, B) with the sums over I of a (G, A, I) times b (G, B, I), where |G| = shared and |I| = item.

    `multiply` takes blocks (g, m, k) and (g, n, k), converted to dtype, and gives (g, m, n).
    """
    groups, rows = a.shape[:shared], a.shape[shared : a.ndim - item]
    m, n, k = prod(rows), prod(b.shape[shared : b.ndim - item]), prod(a.shape[a.ndim - item :])
    if n * k > _MOST_WEIGHTS and b.ndim - item > shared and b.shape[shared] > 1:
        for part in _cut(b.shape[shared], n * k):
            right = b[(slice(None),) * shared + (part,)]
            target = out[(slice(None),) * (shared + len(rows)) + (part,)]
            contract_into(target, a, right, shared, item, dtype, multiply)
        return
    weight = m * (k + n) + n * k
    if weight <= BLOCK or not rows:
        for index in blocks(groups, max(1, BLOCK // max(weight, 1))):
            left, right = a[index], b[index]
            g = prod(left.shape[: left.ndim - len(rows) - item])
            product = multiply(_matrices(left, (g, m, k), dtype), _matrices(right, (g, n, k), dtype))
            out[index] = product.reshape(out[index].shape)
        return
    step = max(_LEAST_ROWS, BLOCK // max(k + n, 1))
    for group in np.ndindex(*groups):
        right = _matrices(b[group][np.newaxis], (1, n, k), dtype)
        for index in blocks(rows, step):
            left = a[group + index]
            m_block = prod(left.shape[: left.ndim - item])
            product = multiply(_matrices(left[np.newaxis], (1, m_block, k), dtype), right)
            out[group + index] = product.reshape(out[group + index].shape)


def _cut(size: int, weights: int) -> Iterator[slice]:
    step = max(1, size * _MOST_WEIGHTS // weights)
    return (slice(start, start + step) for start in range(0, size, step))


def contracted_dims(a: Array, b: Array, shared: int, item: int) -> tuple[Any, ...]:
    """The dims (G, A, B) of a contraction."""
    return (*a.shape[: a.ndim - item], *b.shape[shared : b.ndim - item])
