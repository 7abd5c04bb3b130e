"""Contractions in blocks: the temporaries of a large product stay in the cache, whatever its operands are views of."""

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

# Elements per block. Smaller ones pay for Python and BLAS calls, larger ones for memory: a core has 1 MiB of cache.
BLOCK = 1 << 17

# A matrix product with fewer rows reads its weights more often than it uses them.
_LEAST_ROWS = 128

# As many elements copied side by side take little longer than fewer.
_RUN = 8

# Weights of one product that are converted at a time.
_MOST_WEIGHTS = 1 << 22


class _Job(NamedTuple):
    """One block of a contraction: out (any dims) = left as (g, m, k) times right as (g, n, k)."""

    out: Array
    left: Array
    left_dims: tuple[int, int, int]
    right: Array
    right_dims: tuple[int, int, int]


class _Space(NamedTuple):
    """What one worker computes in. It is there before any of them starts: how much memory a contraction takes does not
    depend on who is ahead.
    """

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
            np.empty(0 if _takes(largest.out, dtype) else g * m * n, dtype),
        )


def _matrices(block: Array, dims: tuple[int, int, int], dtype: DTypeLike, space: Array) -> Array:
    """The block as (g, rows, k) of a dtype, copied once at most; a transposed matrix stays as it is for BLAS, and is
    what is made of a block whose rows lie side by side.
    """
    if not _copied(block, dims, dtype):
        return block.reshape(dims)
    first, last = _cuts(block, dims)
    if not _along_rows(block, first, last):
        copy = _within(space, block.shape, dtype)
        copy[...] = block
        return copy.reshape(dims)
    order = (*range(first), *range(last, block.ndim), *range(first, last))
    turned = block.transpose(order)
    copy = _within(space, turned.shape, dtype)
    copy[...] = turned
    return copy.reshape(dims[0], dims[2], dims[1]).swapaxes(1, 2)


def _cuts(block: Array, dims: tuple[int, int, int]) -> tuple[int, int]:
    """Before which axes of a block its rows begin and end."""
    sizes = [prod(block.shape[:axis]) for axis in range(block.ndim + 1)]
    first = sizes.index(dims[0]) if dims[0] in sizes else 0
    return first, sizes.index(dims[0] * dims[1], first) if dims[0] * dims[1] in sizes[first:] else block.ndim


def _along_rows(block: Array, first: int, last: int) -> bool:
    """Whether the nearest neighbours of a block are many, and of different rows."""
    steps = [(abs(step), -axis) for axis, step in enumerate(block.strides) if step and block.shape[axis] >= _RUN]
    return bool(steps) and first <= -min(steps)[1] < last


def _within(space: Array, dims: Sequence[int], dtype: DTypeLike) -> Array:
    """An array of those dims in a space, or a new one where that is too small."""
    size = prod(dims)
    return space[:size].reshape(dims) if size <= space.size else np.empty(dims, dtype)


def _takes(out: Array, dtype: DTypeLike) -> bool:
    """Whether products may be stored where they belong at once."""
    return out.dtype == dtype and out.flags.c_contiguous


def matmul(a: Array, b: Array, out: Array) -> Array:
    """Multiply blocks (g, m, k) by (g, n, k) into `out`, (g, m, n), and return it."""
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
    """Fill out (G, A, B) with the sums over I of a (G, A, I) times b (G, B, I), where |G| = shared and |I| = item.

    `multiply` takes blocks (g, m, k) and (g, n, k), converted to dtype, and a place (g, m, n) of that dtype for its
    result, which it gives. `any_order` says that sums may be taken in the order that is copied fastest.
    """
    block = BLOCK
    if any_order:
        a, b = _as_they_lie(a, b, item)
        block *= 2  # what multiplies calls numpy more often, for which threads wait for each other

    def work(job: _Job, space: _Space) -> None:
        left = _matrices(job.left, job.left_dims, dtype, space.left)
        right = _matrices(job.right, job.right_dims, dtype, space.right)
        dims = (*left.shape[:2], right.shape[1])
        direct = _takes(job.out, dtype)
        result = multiply(left, right, job.out.reshape(dims) if direct else _within(space.product, dims, dtype))
        if not direct:
            job.out[...] = result.reshape(job.out.shape)

    in_parallel(work, _jobs(out, a, b, shared, item, dtype, block), lambda largest: _Space.of(largest, dtype))


def _as_they_lie(a: Array, b: Array, item: int) -> tuple[Array, Array]:
    """Both with the axes of an item in the order in which those of the larger one lie in memory."""
    larger = a if a.size >= b.size else b
    steps = larger.strides[larger.ndim - item :]
    order = sorted(range(item), key=lambda axis: -abs(steps[axis]))

    def turned(x: Array) -> Array:
        return x.transpose(*range(x.ndim - item), *(x.ndim - item + axis for axis in order))

    return turned(a), turned(b)


def _jobs(out: Array, a: Array, b: Array, shared: int, item: int, dtype: DTypeLike, block: int) -> Iterator[_Job]:
    groups, rows = a.shape[:shared], a.shape[shared : a.ndim - item]
    m, n, k = prod(rows), prod(b.shape[shared : b.ndim - item]), prod(a.shape[a.ndim - item :])
    weight = m * (k + n) + n * k
    if n * k > _MOST_WEIGHTS and b.ndim - item > shared and b.shape[shared] > 1:
        before = (slice(None),) * shared
        for part in _cut(b.shape[shared], n * k):
            target = out[(*before, *(slice(None) for _ in rows), part)]
            yield from _jobs(target, a, b[(*before, part)], shared, item, dtype, block)
    elif weight <= block or not rows:
        for index in blocks(groups, max(1, block // max(weight, 1))):
            target = out[(*index, ...)]  # the dots keep it a view, also of no axes
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
    """Elements that a contraction holds beside operands and result: `converted` are operands of `dtype`, `multiplied`
    what is not stored where it belongs at once, by so many `jobs` at a time.
    """

    converted: int
    multiplied: int
    jobs: int


def scratch(a: Array, b: Array, shared: int, item: int, dtype: DTypeLike, direct: bool) -> Scratch:
    """What `contract_into` needs: a job for each core, and the weights that they share. Only strides are read.

    `direct` says that what lies next to each other in the result is stored at once.
    """
    groups, rows = a.shape[:shared], a.shape[shared : a.ndim - item]
    m, n, k = prod(rows), prod(b.shape[shared : b.ndim - item]), prod(a.shape[a.ndim - item :])
    if not (prod(groups) and m and n and k):
        return Scratch(0, 0, 0)
    if n * k > _MOST_WEIGHTS and b.ndim - item > shared and b.shape[shared] > 1:
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
    """The dtype in which numbers of another are multiplied by BLAS and added up: floats of 16 bits round once."""
    return np.dtype(np.float32 if is_float(dtype) and dtype.itemsize <= 4 else np.float64)


def contraction_scratch(a: Array, b: Array, shared: int, item: int) -> int:
    """Bytes that a contraction of numpy's numbers needs beside operands and result: what all cores do at a time."""
    inner = summed_in(a.dtype)
    found = scratch(a, b, shared, item, inner, inner == a.dtype)
    exact = found.jobs * min(PART, found.multiplied) * 8 if not is_float(a.dtype) else 0
    return inner.itemsize * (found.converted + found.multiplied) + exact


def _copied(block: Array, dims: tuple[int, int, int], dtype: DTypeLike) -> int:
    """How many elements `_matrices` copies."""
    kept = block.dtype == dtype and (block.shape == dims or block.flags.c_contiguous)
    return 0 if kept else block.size


def _cut(size: int, weights: int) -> Iterator[slice]:
    step = max(1, size * _MOST_WEIGHTS // weights)
    return (slice(start, start + step) for start in range(0, size, step))


def contracted_dims(a: Array, b: Array, shared: int, item: int) -> tuple[Any, ...]:
    """The dims (G, A, B) of a contraction."""
    return (*a.shape[: a.ndim - item], *b.shape[shared : b.ndim - item])
