"""Movement that no export spells: elements picked at the places of its index map."""

from __future__ import annotations

import re
from collections.abc import Sequence

from glenside.exporters.jax.operators.movement import lowest, zero
from glenside.exporters.jax.registry import Operand
from glenside.exporters.jax.source import Source, Value, shape
from glenside.ir.index_map import Fill, Guard, Index, IndexMap, Within


def addressed(source: Source, found: IndexMap, operands: Sequence[Operand]) -> Value:
    """Each operand at computed places, and a choice between them where several have a part in the result."""
    dtype, axes = operands[0].access.dtype, _axes(source, found.dims)
    fill = lowest(dtype) if found.fill is Fill.LOWEST else zero(dtype)
    result = source.set(f"jnp.full({shape(found.dims)}, {fill})", found.dims, dtype)
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
    """Names of the axes of a result: each counts along itself, and broadcasts to the others."""
    alone = [[n if j == i else 1 for j in range(len(dims))] for i, n in enumerate(dims)]
    counted = [f"jnp.reshape(jnp.arange({n}), {shape(own)})" for n, own in zip(dims, alone, strict=True)]
    return [source.set(text, own, "int32").name for text, own in zip(counted, alone, strict=True)]


def _spelled(index: Index, axes: Sequence[str]) -> str:
    return re.sub(r"\bi(\d+)\b", lambda axis: axes[int(axis[1])], str(index))


def _place(index: Index, size: int, axes: Sequence[str]) -> str:
    """Where guards do not hold it may be outside of the axis."""
    low, high = index.bounds
    text = _spelled(index, axes)
    return text if 0 <= low and high < size else f"jnp.clip({text}, 0, {size - 1})"


def _holds(guard: Guard, axes: Sequence[str]) -> str:
    text = _spelled(guard.index, axes)
    if isinstance(guard, Within):
        return f"jnp.logical_and(jnp.greater_equal({text}, {guard.low}), jnp.less({text}, {guard.high}))"
    return f"jnp.equal(({text}) % {guard.divisor}, 0)"
