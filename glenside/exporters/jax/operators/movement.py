"""Exports tensors, casts, and operators that move elements to known or computed indices."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import numpy as np

from glenside.exporters.jax.registry import OPERATOR_EXPORTS, Held, Operand, left_out
from glenside.exporters.jax.source import Source, Value, number, shape
from glenside.exporters.writer import Stack
from glenside.ir.dtypes import FLOATS
from glenside.ir.index_map import Fill, Guard, Index, IndexMap, Within
from glenside.ir.types import AccessType, Dims, Tensor


@OPERATOR_EXPORTS.register("access-tensor")
def _tensor(source: Source, result: AccessType, tensor: Tensor) -> Value:
    return Value(source.arguments[tensor.name], tensor.dims, tensor.dtype)


@OPERATOR_EXPORTS.register("truncate")
def _truncate(source: Source, result: AccessType, a: Operand, *_: Any) -> Held:
    """Returns a unchanged: SPU truncates after each product."""
    return a.held


# The maximum parts that are kept separate as operands of a fold.
_MOST_PARTS = 16


@OPERATOR_EXPORTS.register("access-concatenate")
def _concatenate(source: Source, result: AccessType, a: Operand, b: Operand, axis: int) -> Held:
    """Concatenates; along the first item axis it keeps the parts separate, since a fold may combine them."""
    if axis != result.split or max(a.access.item[0], b.access.item[0]) > _MOST_PARTS:
        return source.concat([a.value, b.value], axis)
    return Stack((*a.parts(), *b.parts()), axis)


def zero(dtype: str) -> str:
    """Returns the zero of a dtype as an expression."""
    return number(np.zeros((), dtype).item(), dtype)


def lowest(dtype: str) -> str:
    """Returns the lowest value of a dtype as an expression."""
    if dtype in FLOATS:
        return number(-np.inf, dtype)
    return number(False if dtype == "bool" else int(np.iinfo(dtype).min), dtype)


def padded(source: Source, value: Value, axis: int, before: int, after: int, between: int, fill: str) -> Value:
    """Pads an axis at its ends and between its elements."""
    if not (before or after or between):
        return value
    size = value.dims[axis]
    config = [(0, 0, 0)] * value.rank
    config[axis] = (before, after, between)
    dims = value.dims.set(axis, before + size + max(size - 1, 0) * between + after)
    return source.set(f"lax.pad({source.name(value)}, {fill}, {config})", dims, value.dtype)


@OPERATOR_EXPORTS.register("access-pad")
def _pad(source: Source, result: AccessType, a: Operand, kind: str, axis: int, before: int, after: int) -> Value:
    fill = zero(result.dtype) if kind == "zero-padding" else lowest(result.dtype)
    return padded(source, a.value, axis, before, after, 0, fill)


@OPERATOR_EXPORTS.register("access-dilate")
def _dilate(source: Source, result: AccessType, a: Operand, axis: int, n: int) -> Value:
    return padded(source, a.value, axis, 0, 0, n, zero(result.dtype))


@OPERATOR_EXPORTS.register("access-windows")
def _windows(source: Source, result: AccessType, a: Operand, window: Dims, strides: Dims) -> Value:
    """Computes windows axis by axis: each window element is a strided slice, and the slices are stacked at the end."""
    value, first = a.value, a.access.split
    for axis, (k, t) in enumerate(zip(window, strides, strict=True), first):
        count = result.dims[axis]
        if count == 1 and k == value.dims[axis]:
            order = [i for i in range(value.rank) if i != axis]
            value = source.transpose(value, [*order, axis])
            value = source.view(value, value.dims.insert(axis, 1))
        else:
            slices = [source.slice(value, axis, j, j + (count - 1) * t + 1, t) for j in range(k)]
            empty = value.dims.set(axis, count).append([0])
            value = source.stack(slices, value.rank) if slices else source.full(empty, zero(value.dtype), value.dtype)
    return value


@OPERATOR_EXPORTS.register("access-overlap-add")
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
        value = source.full(dims, zero(value.dtype), value.dtype) if total is None else total
    return value


@OPERATOR_EXPORTS.register("cast")
def _cast(source: Source, result: AccessType, a: Operand, dtype: str) -> Value:
    if dtype == "bool" != a.access.dtype:
        return _is_true(source, a)
    return source.cast(a.value, dtype)


@OPERATOR_EXPORTS.register("bitcast")
def _bitcast(source: Source, result: AccessType, a: Operand, dtype: str) -> Value:
    if dtype == a.access.dtype:
        return a.value
    if dtype == "bool":
        return _is_true(source, a)
    if a.access.dtype == "bool":
        return source.cast(a.value, dtype)
    call = f"lax.bitcast_convert_type({source.name(a.value)}, jnp.{dtype})"
    return source.set(call, result.dims, dtype)


def _is_true(source: Source, a: Operand) -> Value:
    call = f"jnp.not_equal({source.name(a.value)}, {zero(a.access.dtype)})"
    return source.set(call, a.access.dims, "bool")


def _positions(source: Source, indices: Value, size: int) -> str:
    """Counts negative indices from the end."""
    name = source.name(indices)
    if indices.dtype.startswith("u"):
        return name
    below = f"jnp.less({name}, {number(0, indices.dtype)})"
    wide = source.set(f"{name}.astype(jnp.int32)", indices.dims, "int32").name if indices.dtype == "int8" else name
    return source.set(f"jnp.where({below}, {wide} + {size}, {wide})", indices.dims, "int32").name


@OPERATOR_EXPORTS.register("access-gather")
def _gather(source: Source, result: AccessType, a: Operand, indices: Operand, axis: int) -> Value:
    places = _positions(source, indices.value, a.access.dims[axis])
    call = f"jnp.take({source.name(a.value)}, {places}, {axis}, mode='clip')"
    return source.set(call, result.dims, result.dtype)


def _places(source: Source, a: Operand, indices: Value, shared: int) -> str:
    """Returns an array of positions for each selected axis; they broadcast to each other."""
    lead = indices.dims.take(indices.rank - 1)
    grid = []
    for axis in range(shared):
        dims = tuple(lead[axis] if i == axis else 1 for i in range(len(lead)))
        grid.append(source.set(f"jnp.reshape(jnp.arange({lead[axis]}), {shape(dims)})", dims, "int32").name)
    for i in range(indices.dims[-1]):
        grid.append(_positions(source, source.index(indices, len(lead), i), a.access.dims[shared + i]))
    return f"({', '.join(grid)},)"


@OPERATOR_EXPORTS.register("access-gather-nd")
def _gather_nd(source: Source, result: AccessType, a: Operand, indices: Operand, shared: int) -> Value:
    places = _places(source, a, indices.value, shared)
    return source.set(f"{source.name(a.value)}[{places}]", result.dims, result.dtype)


_REDUCTIONS = {"add": "add", "mul": "multiply", "min": "min", "max": "max"}


@OPERATOR_EXPORTS.register("access-scatter-nd")
def _scatter_nd(
    source: Source, result: AccessType, a: Operand, indices: Operand, updates: Operand, shared: int, reduction: str
) -> Value:
    if reduction not in _REDUCTIONS:
        because = "JAX does not define which of several updates of one index applies"
        raise left_out(f"the operator access-scatter-nd with replace: {because}")
    places = _places(source, a, indices.value, shared)
    call = f"jnp.asarray({source.name(a.value)}).at[{places}].{_REDUCTIONS[reduction]}({source.name(updates.value)})"
    return source.set(call, result.dims, result.dtype)


def addressed(source: Source, found: IndexMap, operands: Sequence[Operand]) -> Value:
    """Exports movement by its index map: gathers of operands, and a select if several operands contribute."""
    dtype, axes = operands[0].access.dtype, _axes(source, found.dims)
    fill = lowest(dtype) if found.fill is Fill.LOWEST else zero(dtype)
    result = source.full(found.dims, fill, dtype)
    for piece in found.pieces:
        x = operands[piece.operand].value
        if not x.dims.product():
            continue
        places = "".join(f"{_place(i, n, axes)}, " for i, n in zip(piece.indices, x.dims, strict=True))
        picked = f"jnp.broadcast_to({source.name(x)}[({places})], {shape(found.dims)})"
        for guard in reversed(piece.guards):
            picked = f"jnp.where({_holds(guard, axes)}, {picked}, {result.name})"
        result = source.set(picked, found.dims, dtype)
    return result


def _axes(source: Source, dims: Sequence[int]) -> list[str]:
    """Returns names of the result's axes: each counts along itself, and broadcasts to the others."""
    alone = [[n if j == i else 1 for j in range(len(dims))] for i, n in enumerate(dims)]
    counted = [f"jnp.reshape(jnp.arange({n}), {shape(own)})" for n, own in zip(dims, alone, strict=True)]
    return [source.set(text, own, "int32").name for text, own in zip(counted, alone, strict=True)]


def _spelled(index: Index, axes: Sequence[str]) -> str:
    return re.sub(r"\bi(\d+)\b", lambda axis: axes[int(axis[1])], str(index))


def _place(index: Index, size: int, axes: Sequence[str]) -> str:
    """Clips an index to its axis, since it may be outside where guards do not hold."""
    low, high = index.bounds
    text = _spelled(index, axes)
    return text if 0 <= low and high < size else f"jnp.clip({text}, 0, {size - 1})"


def _holds(guard: Guard, axes: Sequence[str]) -> str:
    text = _spelled(guard.index, axes)
    if isinstance(guard, Within):
        return f"jnp.logical_and(jnp.greater_equal({text}, {guard.low}), jnp.less({text}, {guard.high}))"
    return f"jnp.equal(({text}) % {guard.divisor}, 0)"
