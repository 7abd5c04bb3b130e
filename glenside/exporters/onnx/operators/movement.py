"""Operators that move elements, casts and tuples."""

from __future__ import annotations

from typing import Any

from glenside.exporters.onnx.emitter import Emitter
from glenside.exporters.onnx.graph import Value
from glenside.exporters.onnx.registry import Held, Operand, exports
from glenside.ir.types import FLOATS, AccessType, Dims, Type


@exports("access")
@exports("access-shift-right")
@exports("access-reshape")
@exports("access-flatten")
@exports("access-insert-axis")
@exports("access-squeeze")
def _view(emit: Emitter, result: AccessType, a: Operand, *_: Any) -> Value:
    """The elements stay in row-major order."""
    return emit.view(a.value, result.dims)


@exports("truncate")
def _truncate(_: Emitter, __: AccessType, a: Operand) -> Value:
    """Floats have their own rounding."""
    return a.value


@exports("access-transpose")
def _transpose(emit: Emitter, _: AccessType, a: Operand, order: Dims) -> Value:
    return emit.transpose(a.value, order)


@exports("access-rearrange")
def _rearrange(emit: Emitter, result: AccessType, a: Operand, parts: Dims, order: Dims, _: tuple[Dims, Dims]) -> Value:
    return emit.view(emit.transpose(emit.view(a.value, parts), order), result.dims)


@exports("access-broadcast")
def _broadcast(emit: Emitter, result: AccessType, a: Operand, _: tuple[Dims, Dims]) -> Value:
    return emit.expand(a.value, result.dims)


@exports("access-flip")
def _flip(emit: Emitter, _: AccessType, a: Operand, axis: int) -> Value:
    return emit.flip(a.value, axis)


@exports("access-slice")
def _slice(emit: Emitter, _: AccessType, a: Operand, axis: int, lo: int, hi: int) -> Value:
    return emit.slice(a.value, axis, lo, hi)


@exports("access-concatenate")
def _concatenate(emit: Emitter, _: AccessType, a: Operand, b: Operand, axis: int) -> Value:
    return emit.concat([a.value, b.value], axis)


@exports("access-pad")
def _pad(emit: Emitter, _: AccessType, a: Operand, kind: str, axis: int, before: int, after: int) -> Value:
    fill = emit.number(0, a.access.dtype) if kind == "zero-padding" else emit.lowest(a.access.dtype)
    zeros = Dims((0,) * a.access.rank)
    return emit.pad(a.value, zeros.set(axis, before), zeros.set(axis, after), fill)


@exports("access-dilate")
def _dilate(emit: Emitter, _: AccessType, a: Operand, axis: int, n: int) -> Value:
    return dilated(emit, a.value, axis, n)


def dilated(emit: Emitter, x: Value, axis: int, n: int) -> Value:
    """Zeros after each element, less those after the last one."""
    zeros = Dims((0,) * (x.rank + 1))
    apart = emit.view(x, x.dims.insert(axis + 1, 1))
    padded = emit.pad(apart, zeros, zeros.set(axis + 1, n), emit.number(0, x.dtype))
    together = emit.view(padded, x.dims.set(axis, x.dims[axis] * (n + 1)))
    return emit.slice(together, axis, 0, max(0, x.dims[axis] * (n + 1) - n))


@exports("cast")
def _cast(emit: Emitter, _: AccessType, a: Operand, dtype: str) -> Value:
    return emit.cast(a.value, dtype)


@exports("bitcast")
def _bitcast(emit: Emitter, result: AccessType, a: Operand, dtype: str) -> Value:
    """Integers of one width are casts of each other, which wrap; ONNX has BitCast from version 26 on."""
    if {a.access.dtype, dtype} & {*FLOATS} and a.access.dtype != dtype:
        emit.versions.add(("", "BitCast", 26))
        return emit.graph.node("BitCast", [a.value], result.dims, dtype, {"to": dtype}, main=True)
    return emit.cast(a.value, dtype)


@exports("construct-tuple")
def _construct_tuple(_: Emitter, __: Type, *items: Operand) -> Held:
    return tuple(item.held for item in items)


@exports("tuple-get-item")
def _tuple_get_item(_: Emitter, __: Type, a: Operand, index: int) -> Held:
    assert isinstance(a.held, tuple), "the term was checked when it was built"
    held: Held = a.held[index]
    return held
