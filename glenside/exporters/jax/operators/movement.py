"""Operators that only move elements."""

from __future__ import annotations

from typing import Any

import numpy as np

from glenside.exporters.jax.registry import Held, Operand, Stack, exports
from glenside.exporters.jax.source import Source, Value, number, shape
from glenside.ir.types import FLOATS, AccessType, Dims


def _kept(source: Source, result: AccessType, a: Operand, *_: Any) -> Held:
    """A pair stays one under another split; its consumers look at the types."""
    return a.held


def _reshaped(source: Source, result: AccessType, a: Operand, *_: Any) -> Value:
    return source.reshape(a.value, result.dims)


for _name in ("truncate",):  # SPU truncates after each product by itself
    exports(_name)(_kept)
for _name in ("access-reshape", "access-flatten", "access-insert-axis", "access-squeeze"):
    exports(_name)(_reshaped)


@exports("access")
def _access(source: Source, result: AccessType, a: Operand, split: int) -> Held:
    return a.held if split == a.access.split else a.value


@exports("access-shift-right")
def _shift_right(source: Source, result: AccessType, a: Operand) -> Value:
    return a.value


@exports("access-transpose")
def _transpose(source: Source, result: AccessType, a: Operand, order: Dims) -> Value:
    return source.transpose(a.value, order)


@exports("access-rearrange")
def _rearrange(
    source: Source, result: AccessType, a: Operand, parts: Dims, order: Dims, target: tuple[Dims, Dims]
) -> Value:
    return source.reshape(source.transpose(source.reshape(a.value, parts), order), result.dims)


@exports("access-broadcast")
def _broadcast(source: Source, result: AccessType, a: Operand, target: tuple[Dims, Dims]) -> Value:
    return source.broadcast(a.value, result.dims)


@exports("access-flip")
def _flip(source: Source, result: AccessType, a: Operand, axis: int) -> Value:
    return source.set(f"jnp.flip({source.name(a.value)}, {axis})", result.dims, result.dtype)


@exports("access-slice")
def _slice(source: Source, result: AccessType, a: Operand, axis: int, lo: int, hi: int) -> Value:
    return source.slice(a.value, axis, lo, hi)


# More parts than this are no operands of a fold.
_MOST_PARTS = 16


@exports("access-concatenate")
def _concatenate(source: Source, result: AccessType, a: Operand, b: Operand, axis: int) -> Held:
    """Along the first axis of an item it may be what a fold combines: then its parts are never put together."""
    if axis != result.split or max(a.access.item[0], b.access.item[0]) > _MOST_PARTS:
        return source.concatenate([a.value, b.value], axis)
    return Stack((*a.parts(), *b.parts()), axis)


def zero(dtype: str) -> str:
    """The zero of a dtype as an expression."""
    return number(np.zeros((), dtype).item(), dtype)


def lowest(dtype: str) -> str:
    """The lowest value of a dtype as an expression."""
    if dtype in FLOATS:
        return number(-np.inf, dtype)
    return number(False if dtype == "bool" else int(np.iinfo(dtype).min), dtype)


def padded(source: Source, value: Value, axis: int, before: int, after: int, between: int, fill: str) -> Value:
    """Elements at the ends of an axis and between its neighbours."""
    if not (before or after or between):
        return value
    size = value.dims[axis]
    config = [(0, 0, 0)] * value.rank
    config[axis] = (before, after, between)
    dims = value.dims.set(axis, before + size + max(size - 1, 0) * between + after)
    return source.set(f"lax.pad({source.name(value)}, {fill}, {config})", dims, value.dtype)


@exports("access-pad")
def _pad(source: Source, result: AccessType, a: Operand, kind: str, axis: int, before: int, after: int) -> Value:
    fill = zero(result.dtype) if kind == "zero-padding" else lowest(result.dtype)
    return padded(source, a.value, axis, before, after, 0, fill)


@exports("access-dilate")
def _dilate(source: Source, result: AccessType, a: Operand, axis: int, n: int) -> Value:
    return padded(source, a.value, axis, 0, 0, n, zero(result.dtype))


@exports("access-windows")
def _windows(source: Source, result: AccessType, a: Operand, window: Dims, strides: Dims) -> Value:
    """One axis after the other: the elements of a window, each as a slice with steps, side by side at the end."""
    value, first = a.value, a.access.split
    for axis, (k, t) in enumerate(zip(window, strides, strict=True), first):
        count = result.dims[axis]
        if count == 1 and k == value.dims[axis]:
            order = [i for i in range(value.rank) if i != axis]
            value = source.transpose(value, [*order, axis])
            value = source.reshape(value, value.dims.insert(axis, 1))
        else:
            slices = [source.slice(value, axis, j, j + (count - 1) * t + 1, t) for j in range(k)]
            empty = value.dims.set(axis, count).append([0])
            value = source.stack(slices, value.rank) if slices else _nothing(source, empty, value.dtype)
    return value


def _nothing(source: Source, dims: Dims, dtype: str) -> Value:
    return source.set(f"jnp.full({shape(dims)}, {zero(dtype)})", dims, dtype)


@exports("access-overlap-add")
def _overlap_add(source: Source, result: AccessType, a: Operand, out: Dims, strides: Dims) -> Value:
    ones, none = Dims((1,) * len(out)), Dims((0,) * len(out))
    return overlap_add(source, a.value, out, strides, ones, none)


def overlap_add(source: Source, value: Value, out: Dims, strides: Dims, dilations: Dims, starts: Dims) -> Value:
    """(.., places, window) -> (.., out): element u of window p is added to p * stride + u * dilation - start.

    One axis after the other, the last first: each element of a window, spread over the result, is added.
    """
    first = value.rank - 2 * len(out)
    for axis in reversed(range(len(out))):
        count, t, size = value.dims[first + axis], strides[axis], out[axis]
        total: Value | None = None
        for u in range(value.dims[-1] if count else 0):
            part, before = source.index(value, value.rank - 1, u), u * dilations[axis] - starts[axis]
            after = size - before - (count - 1) * t - 1
            part = padded(source, part, first + axis, before, after, t - 1, zero(value.dtype))
            total = part if total is None else source.call("jnp.add", [total, part])
        dims = value.dims.take(value.rank - 1).set(first + axis, size)
        value = _nothing(source, dims, value.dtype) if total is None else total
    return value
