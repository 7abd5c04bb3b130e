"""Changes of dtype."""

from __future__ import annotations

from glenside.exporters.jax.operators.movement import zero
from glenside.exporters.jax.registry import Operand, exports
from glenside.exporters.jax.source import Source, Value
from glenside.ir.types import AccessType


@exports("cast")
def _cast(source: Source, result: AccessType, a: Operand, dtype: str) -> Value:
    if dtype == "bool" != a.access.dtype:
        return _holds(source, a)
    return source.cast(a.value, dtype)


@exports("bitcast")
def _bitcast(source: Source, result: AccessType, a: Operand, dtype: str) -> Value:
    if dtype == a.access.dtype:
        return a.value
    if dtype == "bool":
        return _holds(source, a)
    if a.access.dtype == "bool":
        return source.cast(a.value, dtype)
    call = f"lax.bitcast_convert_type({source.name(a.value)}, jnp.{dtype})"
    return source.set(call, result.dims, dtype)


def _holds(source: Source, a: Operand) -> Value:
    call = f"jnp.not_equal({source.name(a.value)}, {zero(a.access.dtype)})"
    return source.set(call, a.access.dims, "bool")
