"""Contracts arrays in blocks, so that the temporaries of a large product stay in the cache, for
operands in any layout.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from math import prod
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import DTypeLike

from glenside.ir.blockwise import PART, blocks, positions
from glenside.ir.dtypes import is_float
from glenside.ir.operand import Array
from glenside.ir.threads import in_parallel, processors

# Elements per block. Smaller blocks cost Python and BLAS calls, larger ones memory: a core has 1 MiB of cache.
BLOCK = 1 << 17

# A matrix product with fewer rows reads its weights more often than it uses them.
_LEAST_ROWS = 128

# Copying up to this many adjacent elements costs little more than copying one.
_MIN_RUN = 8

# Weights of one product that are converted at a time.
_WEIGHTS_AT_ONCE = 1 << 22


class _Job(NamedTuple):
    """One block of a contraction: out (any dims) = left as (g, m, k) times right as (g, n, k)."""

    out: Array
    left: Array
    left_dims: tuple[int, int, int]
    right: Array
    right_dims: tuple[int, int, int]


class _Space(NamedTuple):
    """Temporaries of one worker, allocated before any worker starts, so that memory does not depend on their timing."""

    left: Array
    right: Array
    product: Array

    @staticmethod
    def of(largest: _Job, dtype: DTypeLike) -> _Space:
        g, m, _ = largest.left_dims
        n = largest.right_dims[1]
        return _Space(
            np.empty(_copied(largest.left, largest.left_dims, dtype), dtype),
            np.empty(_copied(largest.right, largest.right_dims, dtype), dtype),
            np.empty(0 if _can_store(largest.out, dtype) else g * m * n, dtype),
        )


def _matrices(block: Array, dims: tuple[int, int, int], dtype: DTypeLike, space: Array) -> Array:
    """Returns the block as (g, rows, k) of a dtype, with at most one copy.

    A transposed matrix stays transposed for BLAS; a block whose rows are adjacent in memory is copied transposed.
    """
    if not _copied(block, dims, dtype):
        return block.reshape(dims)
    first, last = _cuts(block, dims)
    if not _along_rows(block, first, last):
        copy = _within(space, block.shape, dtype)
        copy[...] = block
        return copy.reshape(dims)
    order = (*range(first), *range(last, block.ndim), *range(first, last))
    transposed = block.transpose(order)
    copy = _within(space, transposed.shape, dtype)
    copy[...] = transposed
    return copy.reshape(dims[0], dims[2], dims[1]).swapaxes(1, 2)


def _cuts(block: Array, dims: tuple[int, int, int]) -> tuple[int, int]:
    """Returns the axes of a block at which its rows begin and end."""
    sizes = [prod(block.shape[:axis]) for axis in range(block.ndim + 1)]
    first = sizes.index(dims[0]) if dims[0] in sizes else 0
    return first, sizes.index(dims[0] * dims[1], first) if dims[0] * dims[1] in sizes[first:] else block.ndim


def _along_rows(block: Array, first: int, last: int) -> bool:
    """True if the elements with the smallest stride are many, and belong to different rows."""
    steps = [(abs(step), -axis) for axis, step in enumerate(block.strides) if step and block.shape[axis] >= _MIN_RUN]
    return bool(steps) and first <= -min(steps)[1] < last


def _within(space: Array, dims: Sequence[int], dtype: DTypeLike) -> Array:
    """Returns an array of `dims` in `space`, or a new one if the space is too small."""
    size = prod(dims)
    return space[:size].reshape(dims) if size <= space.size else np.empty(dims, dtype)


def _can_store(out: Array, dtype: DTypeLike) -> bool:
    """True if products can be stored directly into `out`."""
    return out.dtype == dtype and out.flags.c_contiguous


def matmul(a: Array, b: Array, out: Array) -> Array:
    """Multiplies blocks (g, m, k) by (g, n, k) into `out`, (g, m, n), and returns it."""
    np.matmul(a, b.swapaxes(1, 2), out=out)
    return out


def contract_into(
    out: Array,
    a: Array,
    b: Array,
    shared: int,
    item: int,
    dtype: DTypeLike,
    multiply: Callable[[Array, Array, Array], Array],
    any_order: bool = False,
) -> None:
    """Fills out (G, A, B) with the sums over I of a (G, A, I) times b (G, B, I), where |G| = shared and |I| = item.

    `multiply` takes blocks (g, m, k) and (g, n, k), converted to `dtype`, and an array (g, m, n) of that dtype for its
    result, which it returns. With `any_order`, sums may be taken in the order that is fastest to copy.
    """
    block = BLOCK
    if any_order:
        a, b = _in_layout_of_larger(a, b, item)
        block *= 2  # `multiply` then makes more numpy calls per block, for which threads wait on each other

    def work(job: _Job, space: _Space) -> None:
        left = _matrices(job.left, job.left_dims, dtype, space.left)
        right = _matrices(job.right, job.right_dims, dtype, space.right)
        dims = (*left.shape[:2], right.shape[1])
        direct = _can_store(job.out, dtype)
        result = multiply(left, right, job.out.reshape(dims) if direct else _within(space.product, dims, dtype))
        if not direct:
            job.out[...] = result.reshape(job.out.shape)

    in_parallel(work, _jobs(out, a, b, shared, item, dtype, block), lambda largest: _Space.of(largest, dtype))


def _in_layout_of_larger(a: Array, b: Array, item: int) -> tuple[Array, Array]:
    """Transposes both operands so that their item axes have the memory order of the larger operand."""
    larger = a if a.size >= b.size else b
    steps = larger.strides[larger.ndim - item :]
    order = sorted(range(item), key=lambda axis: -abs(steps[axis]))

    def transposed(x: Array) -> Array:
        return x.transpose(*range(x.ndim - item), *(x.ndim - item + axis for axis in order))

    return transposed(a), transposed(b)


def _jobs(out: Array, a: Array, b: Array, shared: int, item: int, dtype: DTypeLike, block: int) -> Iterator[_Job]:
    groups, rows = a.shape[:shared], a.shape[shared : a.ndim - item]
    m, n, k = prod(rows), prod(b.shape[shared : b.ndim - item]), prod(a.shape[a.ndim - item :])
    weight = m * (k + n) + n * k
    if n * k > _WEIGHTS_AT_ONCE and b.ndim - item > shared and b.shape[shared] > 1:
        before = (slice(None),) * shared
        for part in _cut(b.shape[shared], n * k):
            target = out[(*before, *(slice(None) for _ in rows), part)]
            yield from _jobs(target, a, b[(*before, part)], shared, item, dtype, block)
    elif weight <= block or not rows:
        for index in blocks(groups, max(1, block // max(weight, 1))):
            target = out[(*index, ...)]  # the dots keep it a view, even with no axes
            g = prod(target.shape[: target.ndim - (out.ndim - shared)])
            yield _Job(target, a[index], (g, m, k), b[index], (g, n, k))
    else:
        step = max(_LEAST_ROWS, block // max(k + n, 1))
        for group in positions(groups):
            right = _matrices(b[group][np.newaxis], (1, n, k), dtype, np.empty(0))
            for index in blocks(rows, step):
                left = a[group + index]
                m_block = prod(left.shape[: left.ndim - item])
                yield _Job(out[(*group, *index, ...)], left, (1, m_block, k), right, (1, n, k))


class Scratch(NamedTuple):
    """Elements that a contraction holds besides operands and result.

    `converted` counts operands in `dtype`; `multiplied` counts products that cannot be stored directly, for `jobs` jobs
    at a time.
    """

    converted: int
    multiplied: int
    jobs: int


def scratch(a: Array, b: Array, shared: int, item: int, dtype: DTypeLike, direct: bool) -> Scratch:
    """Returns the temporaries of `contract_into`: one job per core, and the weights that the jobs share.

    Only strides are read. With `direct`, contiguous parts of the result are stored without a temporary.
    """
    groups, rows = a.shape[:shared], a.shape[shared : a.ndim - item]
    m, n, k = prod(rows), prod(b.shape[shared : b.ndim - item]), prod(a.shape[a.ndim - item :])
    if not (prod(groups) and m and n and k):
        return Scratch(0, 0, 0)
    if n * k > _WEIGHTS_AT_ONCE and b.ndim - item > shared and b.shape[shared] > 1:
        part = next(_cut(b.shape[shared], n * k))
        direct &= prod(groups) * m == 1
        return scratch(a, b[(slice(None),) * shared + (part,)], shared, item, dtype, direct)
    weight = m * (k + n) + n * k
    if weight <= BLOCK or not rows:
        index = next(blocks(groups, max(1, BLOCK // max(weight, 1))))
        left, right = a[index], b[index]
        g = left.size // (m * k)
        jobs = min(processors(), -(-prod(groups) // g))
        copied = _copied(left, (g, m, k), dtype) + _copied(right, (g, n, k), dtype)
        return Scratch(jobs * copied, 0 if direct else jobs * g * m * n, jobs)
    group = (0,) * shared
    left = a[group + next(blocks(rows, max(_LEAST_ROWS, BLOCK // max(k + n, 1))))]
    block = left.size // k
    jobs = min(processors(), prod(groups) * -(-m // block))
    shared_weights = _copied(b[group][np.newaxis], (1, n, k), dtype) * min(jobs, prod(groups))
    multiplied = 0 if direct else jobs * block * n
    return Scratch(jobs * _copied(left, (1, block, k), dtype) + shared_weights, multiplied, jobs)


def summed_in(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """Returns the dtype in which BLAS multiplies and sums elements of a dtype; 16-bit floats are rounded once."""
    return np.dtype(np.float32 if is_float(dtype) and dtype.itemsize <= 4 else np.float64)


def contraction_scratch(a: Array, b: Array, shared: int, item: int) -> int:
    """Returns the bytes that a contraction of numpy's numbers needs besides operands and result, on all cores."""
    inner = summed_in(a.dtype)
    found = scratch(a, b, shared, item, inner, inner == a.dtype)
    exact = found.jobs * min(PART, found.multiplied) * 8 if not is_float(a.dtype) else 0
    return inner.itemsize * (found.converted + found.multiplied) + exact


def _copied(block: Array, dims: tuple[int, int, int], dtype: DTypeLike) -> int:
    """Returns the number of elements that `_matrices` copies."""
    kept = block.dtype == dtype and (block.shape == dims or block.flags.c_contiguous)
    return 0 if kept else block.size


def _cut(size: int, weights: int) -> Iterator[slice]:
    step = max(1, size * _WEIGHTS_AT_ONCE // weights)
    return (slice(start, start + step) for start in range(0, size, step))


def contracted_dims(a: Array, b: Array, shared: int, item: int) -> tuple[Any, ...]:
    """Returns the dims (G, A, B) of a contraction."""
    return (*a.shape[: a.ndim - item], *b.shape[shared : b.ndim - item])
