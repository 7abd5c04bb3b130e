"""Imports reductions of axes and of windows, running sums, and sorting."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from math import inf, prod

from glenside.builder.indexing import gather_elements, iota, top
from glenside.builder.layout import concatenate, flip, pad_or_crop, reshape, slice_axis, split_at, spread, transpose
from glenside.builder.pointwise import add, cast, combine, compare, compute, filled, multiply, select
from glenside.builder.reductions import position, reduce_axes, running
from glenside.builder.windows import overlap_add, windows
from glenside.importers.jax.equation import Equation, Refused, primitive, register
from glenside.ir.dtypes import FLOATS, HALVES, all_bits, limits
from glenside.ir.term import Term, build

KINDS = {
    "reduce_sum": "reduce-sum",
    "reduce_max": "reduce-max",
    "reduce_min": "reduce-min",
    "reduce_prod": "reduce-prod",
}
BITWISE = {"reduce_or": ("or", "reduce-max"), "reduce_and": ("and", "reduce-min"), "reduce_xor": ("xor", "reduce-sum")}
"""Primitive -> how it joins integers, and how truths, as integers."""


def _reduced(kind: str, equation: Equation, x: Term) -> Term:
    axes, dtype = list(equation.params["axes"]), x.access.dtype
    if not axes:
        return x
    if not prod(x.access.dims[axis] for axis in axes) and kind in _OF_NOTHING:
        own = _OF_NOTHING[kind] if dtype in FLOATS else limits(dtype)[kind == "reduce-min"]
        return equation.filled(equation.dims, own, equation.dtype)
    if dtype == "bool":
        found = reduce_axes(kind, cast(x, "int32"), axes)
        return compare("ne", found, filled(found, 0))
    wide = cast(x, "float32") if dtype in HALVES and kind in ("reduce-sum", "reduce-prod") else x
    return cast(reduce_axes(kind, wide, axes), equation.dtype)


_OF_NOTHING = {"reduce-max": -inf, "reduce-min": inf}
"""Reduction that needs elements -> what it is of none: that, or the end of the range of integers on its side."""


def _reduced_bits(kind: str, of_truths: str, equation: Equation, x: Term) -> Term:
    """Joins halves of the elements, and halves of these; an element that is left over is joined with the last."""
    if x.access.dtype == "bool":
        found = reduce_axes(of_truths, cast(x, "int32"), list(equation.params["axes"]))
        return compare(
            "ne", combine("(mod floor)", found, filled(found, 2)) if kind == "xor" else found, filled(found, 0)
        )
    axes = sorted(equation.params["axes"])
    kept = [axis for axis in range(x.access.rank) if axis not in axes]
    x = reshape(transpose(x, [*kept, *axes]), (*equation.dims, prod(x.access.dims[axis] for axis in axes)))
    axis, rest = len(kept), x.access.dims[-1]
    if not rest:
        return equation.filled(equation.dims, 0 if kind != "and" else all_bits(equation.dtype), equation.dtype)
    while rest > 1:
        half = rest // 2
        joined = combine(f"bitwise-{kind}", slice_axis(x, axis, 0, half), slice_axis(x, axis, half, 2 * half))
        x = concatenate([joined, slice_axis(x, axis, 2 * half, rest)], axis) if rest % 2 else joined
        rest = x.access.dims[-1]
    return reshape(x, equation.dims)


for _name, _kind in KINDS.items():
    register(_name, partial(_reduced, _kind))
for _name, (_kind, _of_truths) in BITWISE.items():
    register(_name, partial(_reduced_bits, _kind, _of_truths))


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
    params, dtype = equation.params, x.access.dtype
    x = cast(x, {"bool": "int32"}.get(dtype, "float32" if dtype in HALVES else dtype))
    x = _opposite(x) if kind == "reduce-min" else x
    for axis, step in enumerate(params["base_dilation"]):
        x = spread(x, axis, step, filler)
    x = pad_or_crop(x, params["padding"], filler)
    every = windows(split_at(x, 0), params["window_dimensions"], params["window_strides"], params["window_dilation"])
    found = build("compute", "reduce-max" if kind == "reduce-min" else kind, every)
    found = split_at(_opposite(found) if kind == "reduce-min" else found, 0)
    return compare("ne", found, filled(found, 0)) if dtype == "bool" else cast(found, equation.dtype)


def _opposite(x: Term) -> Term:
    """Returns numbers in the opposite order: negative floats, and integers with opposite bits."""
    return (
        compute("negative", x)
        if x.access.dtype in FLOATS
        else combine("bitwise-xor", x, filled(x, all_bits(x.access.dtype)))
    )


register("reduce_window_sum", partial(_of_windows, "reduce-sum", "zero-padding"))
register("reduce_window_max", partial(_of_windows, "reduce-max", "min-padding"))
register("reduce_window_min", partial(_of_windows, "reduce-min", "min-padding"))


@primitive("select_and_scatter_add")
def select_and_scatter_add(equation: Equation, g: Term, x: Term) -> Term:
    """Adds each element of g to the first greatest element, or least, of its window of x: the gradient of a pool."""
    params, kind = equation.params, {"ge": "argmax", "le": "argmin"}.get(str(equation.params["select_prim"]))
    if kind is None:
        raise Refused(f"selects by {params['select_prim']}, which is not ge or le")
    sizes, strides, ones = params["window_dimensions"], params["window_strides"], (1,) * x.access.rank
    x = pad_or_crop(_opposite(x) if kind == "argmin" else x, params["padding"], "min-padding")
    every = windows(split_at(x, 0), sizes, strides, ones)
    best, places = split_at(build("compute", "argmax", every), 0), iota(prod(sizes))
    apart = reshape(best, (*g.access.dims, *ones)), reshape(g, (*g.access.dims, *ones))
    chosen = compare("eq", apart[0], reshape(cast(places, best.access.dtype), sizes))
    spread_out = select(chosen, apart[1], filled(apart[1], 0))
    found = overlap_add(split_at(spread_out, 0), x.access.dims, strides, ones)
    return pad_or_crop(found, [(-before, -after) for before, after in params["padding"]])


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
