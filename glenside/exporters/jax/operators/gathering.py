"""Elements picked and put by computed indices; those out of range are undefined here."""

from __future__ import annotations

from glenside.exporters.jax.registry import Operand, exports
from glenside.exporters.jax.source import Source, Value, number, shape
from glenside.ir.errors import BadInput
from glenside.ir.types import AccessType


def _positions(source: Source, indices: Value, size: int) -> str:
    """Those below 0 count from the end."""
    name = source.name(indices)
    if indices.dtype.startswith("u"):
        return name
    below = f"jnp.less({name}, {number(0, indices.dtype)})"
    wide = source.set(f"{name}.astype(jnp.int32)", indices.dims, "int32").name if indices.dtype == "int8" else name
    return source.set(f"jnp.where({below}, {wide} + {size}, {wide})", indices.dims, "int32").name


@exports("access-gather")
def _gather(source: Source, result: AccessType, a: Operand, indices: Operand, axis: int) -> Value:
    places = _positions(source, indices.value, a.access.dims[axis])
    call = f"jnp.take({source.name(a.value)}, {places}, {axis}, mode='clip')"
    return source.set(call, result.dims, result.dtype)


def _places(source: Source, a: Operand, indices: Value, shared: int) -> str:
    """An array of positions for each of the axes that are picked from, which broadcast to each other."""
    lead = indices.dims.take(indices.rank - 1)
    grid = []
    for axis in range(shared):
        dims = tuple(lead[axis] if i == axis else 1 for i in range(len(lead)))
        grid.append(source.set(f"jnp.reshape(jnp.arange({lead[axis]}), {shape(dims)})", dims, "int32").name)
    for i in range(indices.dims[-1]):
        grid.append(_positions(source, source.index(indices, len(lead), i), a.access.dims[shared + i]))
    return f"({', '.join(grid)},)"


@exports("access-gather-nd")
def _gather_nd(source: Source, result: AccessType, a: Operand, indices: Operand, shared: int) -> Value:
    places = _places(source, a, indices.value, shared)
    return source.set(f"{source.name(a.value)}[{places}]", result.dims, result.dtype)


_REDUCTIONS = {"add": "add", "mul": "multiply", "min": "min", "max": "max"}


@exports("access-scatter-nd")
def _scatter_nd(
    source: Source, result: AccessType, a: Operand, indices: Operand, updates: Operand, shared: int, reduction: str
) -> Value:
    if reduction not in _REDUCTIONS:
        raise BadInput(
            "a function of JAX requires what JAX can say, got the operator access-scatter-nd with replace: JAX does "
            "not say which of several updates for one place stays"
        )
    places = _places(source, a, indices.value, shared)
    call = f"jnp.asarray({source.name(a.value)}).at[{places}].{_REDUCTIONS[reduction]}({source.name(updates.value)})"
    return source.set(call, result.dims, result.dtype)
