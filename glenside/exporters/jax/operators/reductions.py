"""Compute types of whole items."""

from __future__ import annotations

import numpy as np

from glenside.exporters.jax.registry import Export, Operand, exports_compute
from glenside.exporters.jax.source import Source, Value
from glenside.ir.operator import COMPUTES
from glenside.ir.scalar import Primitive
from glenside.ir.types import AccessType, Dims


def _reduced(source: Source, result: AccessType, a: Operand, call: str) -> Value:
    """A function of rows, `{}`, that gives one number each."""
    rows = a.rows()
    value = source.set(call.format(source.name(rows)), rows.dims.take(rows.rank - 1), result.dtype)
    return source.reshape(value, result.dims)


def _reduction(call: str) -> Export:
    return lambda source, result, a: _reduced(source, result, a, call)


def _widened(function: str) -> Export:
    return lambda source, result, a: _reduced(source, result, a, f"jnp.{function}({{}}, -1, jnp.{result.dtype})")


def _halves(source: Source, rows: Value, function: str) -> Value:
    """Rows combined by halves: dims (S, 1). SPU takes a round for each, by itself up to one for each number."""
    axis = rows.rank - 1
    while rows.dims[axis] > 1:
        count = rows.dims[axis]
        first, second = source.slice(rows, axis, 0, count // 2), source.slice(rows, axis, count // 2, count // 2 * 2)
        left = [source.slice(rows, axis, count - 1, count)] if count % 2 else []
        rows = source.concatenate([source.call(function, [first, second]), *left], axis)
    return rows


def _by_halves(combine: Primitive) -> Export:
    def export(source: Source, result: AccessType, a: Operand) -> Value:
        if not a.access.item.product():
            return source.broadcast(
                source.constant(np.full((1,) * result.rank, combine.neutral, result.dtype)), result.dims
            )
        return source.reshape(_halves(source, a.rows(), combine.jax), result.dims)

    return export


for _compute in COMPUTES.values():
    if _compute.combine is not None and _compute.name != "reduce-sum":
        exports_compute(_compute.name)(_by_halves(_compute.combine))
exports_compute("reduce-sum")(_widened("sum"))
exports_compute("reduce-mean")(_reduction("jnp.mean({}, -1)"))
exports_compute("argmax")(_reduction("jnp.argmax({}, -1).astype(jnp.int64)"))
exports_compute("argmin")(_reduction("jnp.argmin({}, -1).astype(jnp.int64)"))


@exports_compute("argsort")
def _argsort(source: Source, result: AccessType, a: Operand, direction: str) -> Value:
    rows = a.rows()
    options = f"-1, stable=True, descending={direction == 'descending'}"
    call = f"jnp.argsort({source.name(rows)}, {options}).astype(jnp.int64)"
    return source.reshape(source.set(call, rows.dims, result.dtype), result.dims)


def _shifted(source: Source, a: Operand) -> tuple[Value, Value, Value]:
    """The rows less their maximum, the exp of that, and its sum, of size 1 along the last axis."""
    rows = a.rows()
    ones = Dims(rows.dims.take(rows.rank - 1).append([1]))
    x = source.call("jnp.subtract", [rows, _halves(source, rows, "jnp.maximum")])
    powers = source.call("jnp.exp", [x])
    total = source.set(f"jnp.sum({source.name(powers)}, -1)", ones.take(len(ones) - 1), rows.dtype)
    return x, powers, source.reshape(total, ones)


@exports_compute("softmax")
def _softmax(source: Source, result: AccessType, a: Operand) -> Value:
    if not a.access.size:
        return a.value
    _, powers, total = _shifted(source, a)
    return source.reshape(source.call("jnp.divide", [powers, total]), result.dims)


@exports_compute("log-softmax")
def _log_softmax(source: Source, result: AccessType, a: Operand) -> Value:
    if not a.access.size:
        return a.value
    x, _, total = _shifted(source, a)
    return source.reshape(source.call("jnp.subtract", [x, source.call("jnp.log", [total])]), result.dims)
