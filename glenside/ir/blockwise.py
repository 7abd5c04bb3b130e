"""Computes results in blocks, in row-major order, so that operators need little memory besides operands and result.

Every array that an operator computes is new and in row-major order, even if its operands are views. Its temporaries
are a known number of blocks, so `glenside.analysis.liveness` can predict the memory of a program.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import product
from math import prod
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from glenside.ir.operand import Array
from glenside.ir.threads import in_parallel

Index = tuple[int | slice, ...]

PART = 1 << 14
"""Elements per block: numpy computes a block in a few microseconds, about the time of the call itself."""
BUFFER = 1 << 10
"""Number of elements that numpy buffers at a time. Its default, 8192 per operand, takes more memory than some programs
need.
"""
_SMALL_ITEM_ELEMENTS = 64  # items of at most this many elements are reduced by one numpy call per element
ERF_PART = 1 << 11
"""Elements per block of the error function, which makes a Python object of each element."""


def positions(dims: Sequence[int]) -> Iterator[tuple[Any, ...]]:
    """Yields every index of an array of `dims`; the last axis varies fastest.

    It uses lists, not generators: Python keeps a freed tuple for each one built from a generator of unknown length, so
    numpy's own iterator, called in a loop, would hold memory that the program did not allocate.
    """
    return product(*[range(size) for size in dims])


def blocks(dims: Sequence[int], count: int) -> Iterator[Index]:
    """Yields indices of leading axes that cut an array of `dims` into contiguous blocks of at most `count` elements.

    Yields nothing if the array has no elements.
    """
    if 0 in dims:
        return
    axis, inner = len(dims), 1
    while axis and inner * dims[axis - 1] <= count:
        axis -= 1
        inner *= dims[axis]
    if not axis:
        yield ()
        return
    step = max(1, count // inner)
    for prefix in positions(dims[: axis - 1]):
        for start in range(0, dims[axis - 1], step):
            yield (*prefix, slice(start, start + step))


def block_size(dims: Sequence[int], count: int) -> int:
    """Returns the number of elements of the largest of the `blocks` of `dims`."""
    if not prod(dims):
        return 0
    index = next(blocks(dims, count))
    sizes = [min(i.stop, n) - i.start if isinstance(i, slice) else 1 for i, n in zip(index, dims, strict=False)]
    return prod(sizes) * prod(dims[len(index) :])


def row_major(function: Callable[..., Any], *arrays: Array, dtype: DTypeLike | None = None) -> Array:
    """Applies an elementwise numpy function to arrays of one dtype, into a new array of that dtype or of `dtype`."""
    out = np.empty(_broadcast_dims(arrays), arrays[0].dtype if dtype is None else dtype)
    function(*arrays, out=out)
    return out


def _broadcast_dims(arrays: Sequence[Array]) -> Sequence[int]:
    """Returns the broadcast dims, without `np.broadcast_shapes` where they are equal: it costs as much as a small
    array.
    """
    first = arrays[0].shape
    return first if all(x.shape == first for x in arrays[1:]) else np.broadcast(*arrays).shape


def in_blocks(
    function: Callable[..., Array],
    dims: Sequence[int],
    *arrays: Array,
    dtype: DTypeLike,
    item: Sequence[int] = (),
    part: int = PART,
) -> Array:
    """Returns a new array of dims (dims, item): `function` computes each block from the same block of each array.

    A block contains all of the item's axes; only `dims` are cut into blocks.
    """
    out = np.empty((*dims, *item), dtype)
    for index in blocks(dims, part):
        out[index] = function(*[x[index] for x in arrays])
    return out


def in_operand_layout(function: Callable[..., None], arrays: Sequence[Array], dtype: DTypeLike, part: int) -> Array:
    """Returns a new array that `function(out, *arrays)` fills in parts, each in the cache; dims are broadcast.

    Its memory layout is that of the first array that is not repeated along any axis; the parts follow the layout.
    """
    dims = _broadcast_dims(arrays)
    whole = next((a for a in arrays if a.shape == dims and 0 not in a.strides), None)
    out = np.empty(dims, dtype) if whole is None else np.empty_like(whole, dtype, subok=False)
    if out.size <= part:
        function(out, *arrays)
        return out
    operands = [a if a.shape == dims else np.broadcast_to(a, dims) for a in arrays]
    order = sorted(range(out.ndim), key=lambda axis: -out.strides[axis])
    views = [a.transpose(order) for a in (out, *operands)]
    in_parallel(
        lambda index, _: function(*[view[index] for view in views]), blocks(views[0].shape, part), lambda _: None
    )
    return out


def store(part: Array, a: Array) -> None:
    """Copies an array into a part of a result, unless the array already is that part."""
    if _address(part) != _address(a):
        part[...] = a


def _address(a: Array) -> tuple[int, list[int]]:
    return a.__array_interface__["data"][0], [step for step, size in zip(a.strides, a.shape, strict=True) if size > 1]


def items_of(length: int) -> int:
    """Returns the number of items of `length` elements in one block."""
    return max(1, PART // max(length, 1))


def reduced(ufunc: np.ufunc, a: Array, axes: tuple[int, ...], dtype: Any) -> Array:
    """Reduces over the last axes, into a new array in row-major order."""
    out = np.empty(a.shape[: a.ndim - len(axes)], dtype)
    if ufunc in (np.maximum, np.minimum) and 0 < prod(a.shape[out.ndim :]) <= _SMALL_ITEM_ELEMENTS < out.size:
        first, *others = ((..., *position) for position in positions(a.shape[out.ndim :]))
        out[...] = a[first]
        for position in others:
            ufunc(out, a[position], out=out)
    else:
        ufunc.reduce(a, axes, dtype=dtype, out=out)
    return out
