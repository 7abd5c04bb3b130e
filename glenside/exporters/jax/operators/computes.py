"""Exports the compute operator, compute types of whole items, and primitives without an equivalent JAX function. Also
primitives that JAX lacks in some dtype only, or that have a cheaper form in SPU.
"""

from __future__ import annotations

from functools import partial

import numpy as np

from glenside.exporters.jax.operators.movement import zero
from glenside.exporters.jax.registry import COMPUTE_EXPORTS, OPERATOR_EXPORTS, PRIMITIVE_EXPORTS, Operand, left_out
from glenside.exporters.jax.source import Source, Value, number
from glenside.exporters.writer import elementwise
from glenside.ir.dtypes import FLOATS
from glenside.ir.operator import COMPUTES
from glenside.ir.operators import parse_compute
from glenside.ir.scalar import Primitive
from glenside.ir.types import AccessType, Dims


@OPERATOR_EXPORTS.register("compute")
def _compute(source: Source, result: AccessType, kind: str, a: Operand) -> Value:
    compute, parameters = parse_compute(kind)
    if compute.name in COMPUTE_EXPORTS:
        return COMPUTE_EXPORTS[compute.name](source, result, a, *parameters)
    if compute.scalar is None:
        raise left_out(f"the compute type {compute.name}")
    return elementwise(PRIMITIVE_EXPORTS, result, a, compute, parameters)


def _rows(source: Source, a: Operand) -> Value:
    """Returns the items as rows of one axis: dims (S, I), with at least one axis before the last."""
    shape = a.access.shape or Dims((1,))
    return source.view(a.value, shape.append([a.access.item.product()]))


def _of_rows(call: str, source: Source, result: AccessType, a: Operand) -> Value:
    """Applies a function of rows, `{}`, that returns one number each, of dtype `{dtype}`."""
    rows = _rows(source, a)
    expression = call.format(source.name(rows), dtype=result.dtype)
    return source.view(source.set(expression, rows.dims.take(rows.rank - 1), result.dtype), result.dims)


def _halves(source: Source, rows: Value, function: str) -> Value:
    """Reduces rows by halves: dims (S, 1). SPU takes one round per halving; its own reduction takes up to one per
    number.
    """
    axis = rows.rank - 1
    while rows.dims[axis] > 1:
        count = rows.dims[axis]
        first, second = source.slice(rows, axis, 0, count // 2), source.slice(rows, axis, count // 2, count // 2 * 2)
        left = [source.slice(rows, axis, count - 1, count)] if count % 2 else []
        rows = source.concat([source.call(function, [first, second]), *left], axis)
    return rows


def _by_halves(combine: Primitive, source: Source, result: AccessType, a: Operand) -> Value:
    if not a.access.item.product():
        neutral = np.full((1,) * result.rank, combine.neutral, result.dtype)
        return source.expand(source.constant(neutral), result.dims)
    return source.view(_halves(source, _rows(source, a), combine.jax), result.dims)


for _compute in COMPUTES.values():
    if _compute.combine is not None and _compute.name != "reduce-sum":
        COMPUTE_EXPORTS.register(_compute.name)(partial(_by_halves, _compute.combine))
COMPUTE_EXPORTS.register("reduce-sum")(partial(_of_rows, "jnp.sum({}, -1, jnp.{dtype})"))
COMPUTE_EXPORTS.register("reduce-mean")(partial(_of_rows, "jnp.mean({}, -1)"))
COMPUTE_EXPORTS.register("argmax")(partial(_of_rows, "jnp.argmax({}, -1).astype(jnp.int64)"))
COMPUTE_EXPORTS.register("argmin")(partial(_of_rows, "jnp.argmin({}, -1).astype(jnp.int64)"))


@COMPUTE_EXPORTS.register("argsort")
def _argsort(source: Source, result: AccessType, a: Operand, direction: str) -> Value:
    rows = _rows(source, a)
    options = f"-1, stable=True, descending={direction == 'descending'}"
    call = f"jnp.argsort({source.name(rows)}, {options}).astype(jnp.int64)"
    return source.view(source.set(call, rows.dims, result.dtype), result.dims)


def _shifted(source: Source, a: Operand) -> tuple[Value, Value, Value]:
    """Returns the rows less their maximum, their exp, and its sum, of size 1 along the last axis."""
    rows = _rows(source, a)
    ones = Dims(rows.dims.take(rows.rank - 1).append([1]))
    x = source.call("jnp.subtract", [rows, _halves(source, rows, "jnp.maximum")])
    powers = source.call("jnp.exp", [x])
    total = source.set(f"jnp.sum({source.name(powers)}, -1)", ones.take(len(ones) - 1), rows.dtype)
    return x, powers, source.view(total, ones)


@COMPUTE_EXPORTS.register("softmax")
def _softmax(source: Source, result: AccessType, a: Operand) -> Value:
    if not a.access.size:
        return a.value
    _, powers, total = _shifted(source, a)
    return source.view(source.call("jnp.divide", [powers, total]), result.dims)


@COMPUTE_EXPORTS.register("log-softmax")
def _log_softmax(source: Source, result: AccessType, a: Operand) -> Value:
    if not a.access.size:
        return a.value
    x, _, total = _shifted(source, a)
    return source.view(source.call("jnp.subtract", [x, source.call("jnp.log", [total])]), result.dims)


@PRIMITIVE_EXPORTS.register("pow")
def _pow(source: Source, x: Value, y: Value) -> Value:
    if x.dtype not in FLOATS:
        raise left_out(f"the compute type pow of {x.dtype}")
    return source.call("jnp.power", [x, y])


@PRIMITIVE_EXPORTS.register("divide")
def _divide(source: Source, x: Value, y: Value) -> Value:
    """Divides; a division by known numbers becomes a product, as XLA makes it too."""
    if x.dtype not in FLOATS:
        return _integer_division("lax.div", source, x, y)
    if y.constant is not None and y.constant.all():
        return source.call("jnp.multiply", [x, source.constant(np.reciprocal(y.constant))])
    return source.call("jnp.divide", [x, y])


def _remainder(function: str, source: Source, x: Value, y: Value) -> Value:
    if x.dtype not in FLOATS:
        return _integer_division(function, source, x, y)
    return source.call(function, _broadcast(source, x, y))


PRIMITIVE_EXPORTS.register("mod")(partial(_remainder, "jnp.remainder"))
PRIMITIVE_EXPORTS.register("rem")(partial(_remainder, "lax.rem"))


@PRIMITIVE_EXPORTS.register("select")
def _select(source: Source, condition: Value, then: Value, otherwise: Value) -> Value:
    """Selects by whether the condition is 0, which SPU computes with less communication than whether it is nonzero."""
    if condition.dtype == "bool":
        return source.call("jnp.where", [condition, then, otherwise], then.dtype)
    holds_not = source.set(f"jnp.equal({source.name(condition)}, {zero(condition.dtype)})", condition.dims, "bool")
    return source.call("jnp.where", [holds_not, otherwise, then], then.dtype)


def _integer_division(function: str, source: Source, x: Value, y: Value) -> Value:
    """Divides integers, truncating towards zero, or returns the remainder; by 0 the result is 0."""
    (left, right), nothing = _broadcast(source, x, y), zero(x.dtype)
    one, y0 = number(1, x.dtype), source.name(right)
    none = source.set(f"jnp.equal({y0}, {nothing})", right.dims, "bool").name
    safe = source.set(f"jnp.where({none}, {one}, {y0})", right.dims, right.dtype).name
    value = source.set(f"{function}({source.name(left)}, {safe})", left.dims, left.dtype).name
    return source.set(f"jnp.where({none}, {nothing}, {value})", left.dims, left.dtype)


def _broadcast(source: Source, x: Value, y: Value) -> tuple[Value, Value]:
    """Broadcasts both operands, since lax does not."""
    dims = np.broadcast_shapes(x.dims, y.dims)
    return source.expand(x, dims), source.expand(y, dims)
