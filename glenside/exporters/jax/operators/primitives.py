"""Primitives of scalar expressions that no function of JAX means in every dtype, or that SPU takes in other words."""

from __future__ import annotations

import numpy as np

from glenside.exporters.jax.operators.movement import zero
from glenside.exporters.jax.registry import exports_primitive
from glenside.exporters.jax.source import Source, Value, number
from glenside.ir.errors import BadInput
from glenside.ir.types import FLOATS


@exports_primitive("pow")
def _pow(source: Source, x: Value, y: Value) -> Value:
    if x.dtype not in FLOATS:
        raise BadInput(f"a function of JAX requires what JAX can say, got the compute type pow of {x.dtype}")
    return source.call("jnp.power", [x, y])


@exports_primitive("divide")
def _divide(source: Source, x: Value, y: Value) -> Value:
    return _quotient(source, x, y) if x.dtype in FLOATS else _whole(source, "lax.div", x, y)


@exports_primitive("mod")
def _mod(source: Source, x: Value, y: Value) -> Value:
    return _remainder(source, "jnp.remainder", x, y)


@exports_primitive("rem")
def _rem(source: Source, x: Value, y: Value) -> Value:
    return _remainder(source, "lax.rem", x, y)


def _remainder(source: Source, function: str, x: Value, y: Value) -> Value:
    if x.dtype not in FLOATS:
        return _whole(source, function, x, y)
    return source.call(function, _broadcast(source, x, y))


@exports_primitive("select")
def _select(source: Source, condition: Value, then: Value, otherwise: Value) -> Value:
    """By whether the condition is 0: SPU says that with less than whether it is not."""
    if condition.dtype == "bool":
        return source.call("jnp.where", [condition, then, otherwise], then.dtype)
    holds_not = source.set(f"jnp.equal({source.name(condition)}, {zero(condition.dtype)})", condition.dims, "bool")
    return source.call("jnp.where", [holds_not, otherwise, then], then.dtype)


def _quotient(source: Source, x: Value, y: Value) -> Value:
    """By numbers that are known it is a product, as XLA makes it too where it sees them."""
    if y.constant is not None and y.constant.all():
        return source.call("jnp.multiply", [x, source.constant(np.reciprocal(y.constant))])
    return source.call("jnp.divide", [x, y])


def _whole(source: Source, function: str, x: Value, y: Value) -> Value:
    """A division of integers that is cut towards zero, or what it leaves; by 0 it is 0."""
    (left, right), nothing = _broadcast(source, x, y), zero(x.dtype)
    one, y0 = number(1, x.dtype), source.name(right)
    none = source.set(f"jnp.equal({y0}, {nothing})", right.dims, "bool").name
    safe = source.set(f"jnp.where({none}, {one}, {y0})", right.dims, right.dtype).name
    value = source.set(f"{function}({source.name(left)}, {safe})", left.dims, left.dtype).name
    return source.set(f"jnp.where({none}, {nothing}, {value})", left.dims, left.dtype)


def _broadcast(source: Source, x: Value, y: Value) -> tuple[Value, Value]:
    """lax broadcasts nothing by itself."""
    dims = np.broadcast_shapes(x.dims, y.dims)
    return source.broadcast(x, dims), source.broadcast(y, dims)
