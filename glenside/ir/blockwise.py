"""Results computed in blocks, in row-major order: an operator needs little memory beside its operands and its result.

Every array that an operator computes is a new one in row-major order, whatever its operands are views of, and what it
needs on the way is a known number of blocks: so that `glenside.analysis.liveness` can tell how much a program takes.
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
"""Elements of one block: a few microseconds of numpy, as long as calling it takes."""
BUFFER = 1 << 10
"""Elements that numpy converts or gathers at a time: its own 8192 of each operand are more than some programs hold."""
_FEW = 64  # elements of each of more items: numpy is called for each, and not to go along them
ERF_PART = 1 << 11
"""Elements of which the error function is taken at a time: each is an object of Python's for a while."""


def positions(dims: Sequence[int]) -> Iterator[tuple[Any, ...]]:
    """Every index of an array of those dims, the last axis first.

    As lists, not generators: Python keeps a freed tuple for each that was made of a generator, of which nobody told how
    long it is, so that numpy's own iterator, called in a loop, takes memory which no program asked for.
    """
    return product(*[range(size) for size in dims])


def blocks(dims: Sequence[int], count: int) -> Iterator[Index]:
    """Indices of leading axes that cut an array of those dims into contiguous blocks of at most `count` elements.

    There are none where the array has no elements.
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
    """How many elements the largest of the `blocks` of those dims has."""
    if not prod(dims):
        return 0
    index = next(blocks(dims, count))
    sizes = [min(i.stop, n) - i.start if isinstance(i, slice) else 1 for i, n in zip(index, dims, strict=False)]
    return prod(sizes) * prod(dims[len(index) :])


def row_major(function: Callable[..., Any], *arrays: Array, dtype: DTypeLike | None = None) -> Array:
    """An elementwise numpy function of arrays of one dtype, straight into a new array, of that dtype unless given."""
    out = np.empty(_broadcast_dims(arrays), arrays[0].dtype if dtype is None else dtype)
    function(*arrays, out=out)
    return out


def _broadcast_dims(arrays: Sequence[Array]) -> Sequence[int]:
    """As `np.broadcast_shapes` has them, which takes as long as a small array."""
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
    """A new array of dims (dims, item): `function` gives a block of it for the same block of each of the arrays.

    A block has all of the item's axes, and of the axes before only some: those of a block are cut from `dims`.
    """
    out = np.empty((*dims, *item), dtype)
    for index in blocks(dims, part):
        out[index] = function(*[x[index] for x in arrays])
    return out


def as_they_lie(function: Callable[..., None], arrays: Sequence[Array], dtype: DTypeLike, part: int) -> Array:
    """A new array that `function(out, *arrays)` fills, part by part, each in the cache; dims are broadcast. It lies in
    memory as the first of the arrays does that is not repeated along any axis, and parts follow that.
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
    """Copy an array into a part of a result, unless it is that part."""
    if _address(part) != _address(a):
        part[...] = a


def _address(a: Array) -> tuple[int, list[int]]:
    return a.__array_interface__["data"][0], [step for step, size in zip(a.strides, a.shape, strict=True) if size > 1]


def items_of(length: int) -> int:
    """How many items of that length are one block."""
    return max(1, PART // max(length, 1))


def reduced(ufunc: np.ufunc, a: Array, axes: tuple[int, ...], dtype: Any) -> Array:
    """The reduction over the last axes, into a new array in row-major order."""
    out = np.empty(a.shape[: a.ndim - len(axes)], dtype)
    if ufunc in (np.maximum, np.minimum) and 0 < prod(a.shape[out.ndim :]) <= _FEW < out.size:
        first, *others = ((..., *position) for position in positions(a.shape[out.ndim :]))
        out[...] = a[first]
        for position in others:
            ufunc(out, a[position], out=out)
    else:
        ufunc.reduce(a, axes, dtype=dtype, out=out)
    return out
