"""Imports what moves elements."""

from __future__ import annotations

from glenside.builder.indexing import iota
from glenside.builder.layout import (
    broadcast,
    concatenate,
    flip,
    pad,
    reshape,
    slice_axis,
    stack,
    strided,
    surround,
    transpose,
)
from glenside.builder.layout import tile as repeated
from glenside.builder.pointwise import cast
from glenside.importers.jax.equation import Equation, primitive
from glenside.ir.term import Term


@primitive("reshape", "squeeze", "expand_dims")
def reshape_(equation: Equation, x: Term) -> Term:
    order = equation.params.get("dimensions") if equation.primitive == "reshape" else None
    return reshape(x if order is None else transpose(x, order), equation.dims)


@primitive("transpose")
def transpose_(equation: Equation, x: Term) -> Term:
    return transpose(x, equation.params["permutation"])


@primitive("rev")
def rev(equation: Equation, x: Term) -> Term:
    for axis in equation.params["dimensions"]:
        x = flip(x, axis)
    return x


@primitive("broadcast_in_dim")
def broadcast_in_dim(equation: Equation, x: Term) -> Term:
    dims = [1] * len(equation.dims)
    for axis, size in zip(equation.params["broadcast_dimensions"], x.access.dims, strict=True):
        dims[axis] = size
    return broadcast(reshape(x, dims), equation.dims)


@primitive("concatenate")
def concatenate_(equation: Equation, *parts: Term) -> Term:
    return concatenate(parts, equation.params["dimension"])


@primitive("stack")
def stack_(equation: Equation, *parts: Term) -> Term:
    return stack(parts, equation.params["axis"])


@primitive("split")
def split(equation: Equation, x: Term) -> list[Term]:
    found, start, axis = [], 0, equation.params["axis"]
    for size in equation.params["sizes"]:
        found.append(slice_axis(x, axis, start, start + size))
        start += size
    return found


@primitive("slice")
def slice_(equation: Equation, x: Term) -> Term:
    bounds = zip(equation.params["start_indices"], equation.params["limit_indices"], strict=True)
    for axis, (start, stop) in enumerate(bounds):
        x = slice_axis(x, axis, start, stop)
    steps = equation.params["strides"]
    return x if steps is None else strided(x, steps)


@primitive("pad")
def pad_(equation: Equation, x: Term, value: Term) -> Term:
    """Pads with a value: after and before each axis, also less than nothing, and between elements."""
    known = equation.known(value)
    zero = known is not None and not known.any()

    def grown(y: Term, axis: int, before: int, after: int) -> Term:
        pairs = [(before, after) if i == axis else (0, 0) for i in range(y.access.rank)]
        return pad(y, pairs) if zero and y.access.dtype != "bool" else surround(y, pairs, value)

    for axis, (before, after, between) in enumerate(equation.params["padding_config"]):
        dims, size = x.access.dims, x.access.dims[axis]
        if between and size > 1:
            apart = reshape(x, (*dims[: axis + 1], 1, *dims[axis + 1 :]))
            apart = grown(apart, axis + 1, 0, between)
            x = reshape(apart, (*dims[:axis], size * (between + 1), *dims[axis + 1 :]))
            x = slice_axis(x, axis, 0, size * (between + 1) - between)
        x = grown(x, axis, max(before, 0), max(after, 0))
        x = slice_axis(x, axis, max(-before, 0), x.access.dims[axis] - max(-after, 0))
    return x


@primitive("iota")
def iota_(equation: Equation) -> Term:
    axis, dims = equation.params["dimension"], equation.dims
    return broadcast(cast(iota(dims[axis], axis, len(dims)), equation.dtype), dims)


@primitive("empty", "empty2")
def empty(equation: Equation) -> Term:
    return equation.filled(equation.dims, 0, equation.dtype)


@primitive("tile")
def tile(equation: Equation, x: Term) -> Term:
    return repeated(x, equation.params["reps"])
