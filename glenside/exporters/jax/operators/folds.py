"""Compute types that fold the first axis of the item: operands of a pair broadcast, nothing is stacked."""

from __future__ import annotations

from functools import reduce

import numpy as np

from glenside.exporters.jax.operators.movement import zero
from glenside.exporters.jax.registry import Export, Operand, exports_compute
from glenside.exporters.jax.source import Source, Value, number
from glenside.ir.errors import BadInput
from glenside.ir.types import FLOATS, AccessType


def _fold(function: str) -> Export:
    def export(source: Source, result: AccessType, a: Operand) -> Value:
        return source.broadcast(reduce(lambda x, y: source.call(function, [x, y]), a.parts()), result.dims)

    return export


for _name, _function in {
    "elementwise-add": "jnp.add",
    "elementwise-mul": "jnp.multiply",
    "subtract": "jnp.subtract",
    "minimum": "jnp.minimum",
    "maximum": "jnp.maximum",
    "logical-and": "jnp.logical_and",
    "logical-or": "jnp.logical_or",
    "bitwise-and": "jnp.bitwise_and",
    "bitwise-or": "jnp.bitwise_or",
    "bitwise-xor": "jnp.bitwise_xor",
}.items():
    exports_compute(_name)(_fold(_function))


@exports_compute("pow")
def _pow(source: Source, result: AccessType, a: Operand) -> Value:
    if result.dtype not in FLOATS:
        raise BadInput(f"a function of JAX requires what JAX can say, got the compute type pow of {result.dtype}")
    return _fold("jnp.power")(source, result, a)  # type: ignore[return-value]


@exports_compute("elementwise-div")
def _divide(source: Source, result: AccessType, a: Operand) -> Value:
    if result.dtype in FLOATS:
        return source.broadcast(reduce(lambda x, y: _quotient(source, x, y), a.parts()), result.dims)
    value = reduce(lambda x, y: _whole(source, "lax.div", x, y), a.parts())
    return source.broadcast(value, result.dims)


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
    dims = [max(m, n) if m and n else 0 for m, n in zip(x.dims, y.dims, strict=True)]
    return source.broadcast(x, dims), source.broadcast(y, dims)


@exports_compute("mod")
def _mod(source: Source, result: AccessType, a: Operand, rounding: str) -> Value:
    function = "lax.rem" if rounding == "truncate" else "jnp.remainder"

    def step(x: Value, y: Value) -> Value:
        if result.dtype not in FLOATS:
            return _whole(source, function, x, y)
        return source.call(function, _broadcast(source, x, y))

    return source.broadcast(reduce(step, a.parts()), result.dims)


_RELATIONS = {
    "lt": "jnp.less",
    "le": "jnp.less_equal",
    "gt": "jnp.greater",
    "ge": "jnp.greater_equal",
    "eq": "jnp.equal",
    "ne": "jnp.not_equal",
}


@exports_compute("compare")
def _compare(source: Source, result: AccessType, a: Operand, relation: str) -> Value:
    return source.broadcast(source.call(_RELATIONS[relation], a.parts(), "bool"), result.dims)


@exports_compute("select")
def _select(source: Source, result: AccessType, a: Operand) -> Value:
    """By whether the condition is 0: SPU says that with less than whether it is not."""
    condition, then, otherwise = a.parts()
    if condition.dtype == "bool":
        return source.broadcast(source.call("jnp.where", [condition, then, otherwise], result.dtype), result.dims)
    holds_not = source.set(f"jnp.equal({source.name(condition)}, {zero(condition.dtype)})", condition.dims, "bool")
    return source.broadcast(source.call("jnp.where", [holds_not, otherwise, then], result.dtype), result.dims)
