"""Imports reductions of axes and of windows, running sums, and sorting."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from glenside.builder.indexing import gather_elements, top
from glenside.builder.layout import concatenate, flip, pad_or_crop, reshape, slice_axis, split_at
from glenside.builder.pointwise import add, cast, combine, compare, compute, filled, multiply
from glenside.builder.reductions import position, reduce_axes, running
from glenside.builder.windows import windows
from glenside.importers.jax.equation import Equation, Refused, primitive, register
from glenside.ir.dtypes import FLOATS, HALVES
from glenside.ir.term import Term, build

KINDS = {
    "reduce_sum": "reduce-sum",
    "reduce_max": "reduce-max",
    "reduce_min": "reduce-min",
    "reduce_prod": "reduce-prod",
    "reduce_or": "reduce-max",
    "reduce_and": "reduce-min",
}


def _reduced(kind: str, equation: Equation, x: Term) -> Term:
    axes, dtype = list(equation.params["axes"]), x.access.dtype
    if not axes:
        return x
    if dtype == "bool":
        found = reduce_axes(kind, cast(x, "int32"), axes)
        return compare("ne", found, filled(found, 0))
    wide = cast(x, "float32") if dtype in HALVES and kind in ("reduce-sum", "reduce-prod") else x
    return cast(reduce_axes(kind, wide, axes), equation.dtype)


for _name, _kind in KINDS.items():
    register(_name, partial(_reduced, _kind))


@primitive("argmax", "argmin")
def argument(equation: Equation, x: Term) -> Term:
    (axis,) = equation.params["axes"]
    x = cast(x, "int32") if x.access.dtype == "bool" else x
    return cast(reshape(position(equation.primitive, x, axis), equation.dims), equation.dtype)


def _running(combined: Callable[[Term, Term], Term], neutral: str, equation: Equation, x: Term) -> Term:
    axis, backwards = equation.params["axis"], equation.params["reverse"]
    wide = cast(x, "float32") if x.access.dtype in HALVES else x
    found = running(combined, flip(wide, axis) if backwards else wide, axis, neutral)
    return cast(flip(found, axis) if backwards else found, equation.dtype)


def _running_extreme(kind: str, equation: Equation, x: Term) -> Term:
    """Returns the largest or smallest element so far, in each of log2(size) steps that of twice as many."""
    axis, backwards = equation.params["axis"], equation.params["reverse"]
    x, size, distance = flip(x, axis) if backwards else x, x.access.dims[axis], 1
    while distance < size:
        later = combine(kind, slice_axis(x, axis, distance, size), slice_axis(x, axis, 0, size - distance))
        x = concatenate([slice_axis(x, axis, 0, distance), later], axis)
        distance *= 2
    return flip(x, axis) if backwards else x


register("cumsum", partial(_running, add, "0"))
register("cumprod", partial(_running, multiply, "1"))
register("cummax", partial(_running_extreme, "maximum"))
register("cummin", partial(_running_extreme, "minimum"))


def _of_windows(kind: str, filler: str, equation: Equation, x: Term) -> Term:
    params = equation.params
    if any(step != 1 for step in params["base_dilation"]):
        raise Refused("spreads its operand before it takes windows, which is not supported")
    dtype = x.access.dtype
    x = compute("negative", x) if kind == "reduce-min" else x
    x = cast(x, "float32") if dtype in HALVES else x
    if dtype == "bool" or (kind == "reduce-min" and dtype not in FLOATS):
        raise Refused(f"takes windows of {dtype}, which is not supported")
    x = pad_or_crop(x, params["padding"], filler)
    every = windows(split_at(x, 0), params["window_dimensions"], params["window_strides"], params["window_dilation"])
    found = build("compute", "reduce-max" if kind == "reduce-min" else kind, every)
    found = compute("negative", found) if kind == "reduce-min" else found
    return cast(split_at(found, 0), equation.dtype)


register("reduce_window_sum", partial(_of_windows, "reduce-sum", "zero-padding"))
register("reduce_window_max", partial(_of_windows, "reduce-max", "min-padding"))
register("reduce_window_min", partial(_of_windows, "reduce-min", "min-padding"))


@primitive("sort")
def sort(equation: Equation, *operands: Term) -> list[Term]:
    """Sorts all operands alike, by the first ones: stably by each key, the last one first."""
    axis, keys = equation.params["dimension"], operands[: equation.params["num_keys"]]
    order: Term | None = None
    for key in reversed(keys):
        own = cast(key, "int32") if key.access.dtype == "bool" else key
        own = own if order is None else gather_elements(own, order, axis)
        _, places = top(own, own.access.dims[axis], axis, largest=False)
        order = places if order is None else gather_elements(order, places, axis)
    if order is None:
        raise Refused("requires a key")
    return [gather_elements(x, order, axis) for x in operands]


@primitive("top_k")
def top_k(equation: Equation, x: Term) -> list[Term]:
    axis = equation.params.get("axis", x.access.rank - 1) % x.access.rank
    values, places = top(x, equation.params["k"], axis)
    return [values, cast(places, equation.results[1][1])]
