"""Says which primitive of JAX an operator of StableHLO or CHLO is; the meaning is that of the primitive.

Operators whose meaning a region says (reductions, windows, scatters, sorting) are in `regions`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from types import SimpleNamespace
from typing import Any

from glenside.builder.layout import flip
from glenside.builder.pointwise import cast, compare, filled, select
from glenside.importers.jax.equation import Refused
from glenside.importers.stablehlo import regions
from glenside.importers.stablehlo.reader import Application, Rule
from glenside.ir.term import Term

SAME = {
    "stablehlo": {
        **{name: name for name in "abs add and atan2 cbrt ceil clamp floor is_finite log logistic not or".split()},
        **{name: name for name in "rsqrt shift_left shift_right_arithmetic shift_right_logical sign sqrt tan".split()},
        **{name: name for name in "tanh xor reshape dynamic_update_slice optimization_barrier".split()},
        "bitcast_convert": "bitcast_convert_type",
        "convert": "convert_element_type",
        "cosine": "cos",
        "divide": "div",
        "exponential": "exp",
        "exponential_minus_one": "expm1",
        "log_plus_one": "log1p",
        "maximum": "max",
        "minimum": "min",
        "multiply": "mul",
        "negate": "neg",
        "power": "pow",
        "remainder": "rem",
        "sine": "sin",
        "subtract": "sub",
    },
    "chlo": {name: name for name in "acos acosh asin asinh atan atanh cosh erf erfc sinh square tan".split()},
}
NAMED = {
    "stablehlo.broadcast_in_dim": ("broadcast_in_dim", {"broadcast_dimensions": "dims"}),
    "stablehlo.transpose": ("transpose", {"permutation": "dims"}),
    "stablehlo.reverse": ("rev", {"dimensions": "dims"}),
    "stablehlo.concatenate": ("concatenate", {"dimension": "dim"}),
    "stablehlo.iota": ("iota", {"dimension": "dim"}),
    "stablehlo.dynamic_slice": ("dynamic_slice", {"slice_sizes": "sizes"}),
    "chlo.top_k": ("top_k", {"k": "k"}),
}
"""Operator -> primitive, and parameter -> attribute."""


def _primitive(name: str, params: dict[str, Any], names: dict[str, str], a: Application) -> list[Term]:
    own = {param: a.attributes[attribute] for param, attribute in names.items()}
    return a.primitive(name, *a.operands, params={**params, **own})


def _compare(a: Application) -> list[Term]:
    relation, (x, y) = a.op.words[0].lower(), a.operands
    if "TOTALORDER" not in a.op.words:
        return a.primitive(relation, x, y)
    if relation == "ne":
        return a.primitive("not", *a.primitive("eq_to", x, y))
    return a.primitive(f"{relation}_to", x, y) if relation[0] != "g" else a.primitive(f"l{relation[1]}_to", y, x)


def _select(a: Application) -> list[Term]:
    which, yes, no = a.operands
    return a.primitive("select_n", which, no, yes)


def _slice(a: Application) -> list[Term]:
    starts, stops, steps = zip(*a.attributes["ranges"], strict=True) if a.attributes["ranges"] else ((), (), ())
    return a.primitive("slice", *a.operands, params={"start_indices": starts, "limit_indices": stops, "strides": steps})


def _pad(a: Application) -> list[Term]:
    config = tuple(zip(a.attributes["low"], a.attributes["high"], a.attributes["interior"], strict=True))
    return a.primitive("pad", *a.operands, params={"padding_config": config})


def _reduce_precision(a: Application) -> list[Term]:
    match = re.fullmatch(r"e(\d+)m(\d+)", str(a.attributes["format"]))
    if match is None:
        raise Refused(f"has the format {a.attributes['format']}, which is not written e8m7")
    return a.primitive(
        "reduce_precision", *a.operands, params={"exponent_bits": int(match[1]), "mantissa_bits": int(match[2])}
    )


def _dot_general(a: Application) -> list[Term]:
    left, right = a.attributes["contracting_dims"]
    batches = a.attributes.get("batching_dims", ((), ()))
    return a.primitive("dot_general", *a.operands, params={"dimension_numbers": ((left, right), tuple(batches))})


def _convolution(a: Application) -> list[Term]:
    lhs, rhs, out = a.attributes["dim_numbers"]
    lhs_x, rhs_w = a.operands
    window, axes = a.attributes["window"], range(len(lhs) - 2)

    def order(names: Sequence[object], first: str, second: str) -> tuple[int, ...]:
        return tuple(names.index(name) for name in (first, second, *axes))

    for axis, reverse in enumerate(window.get("reverse", ())):
        rhs_w = flip(rhs_w, rhs.index(axis)) if reverse else rhs_w
    ones = (1,) * len(axes)
    params = {
        "dimension_numbers": SimpleNamespace(
            lhs_spec=order(lhs, "b", "f"), rhs_spec=order(rhs, "o", "i"), out_spec=order(out, "b", "f")
        ),
        "window_strides": window.get("stride", ones),
        "padding": [tuple(pair) for pair in window.get("pad", ((0, 0),) * len(axes))],
        "lhs_dilation": window.get("lhs_dilate", ones),
        "rhs_dilation": window.get("rhs_dilate", ones),
        "feature_group_count": a.attributes["feature_group_count"],
        "batch_group_count": a.attributes["batch_group_count"],
    }
    return a.primitive("conv_general_dilated", lhs_x, rhs_w, params=params)


def _gather(a: Application) -> list[Term]:
    """Reads windows, which are moved inside of the operand."""
    x, indices = a.operands
    numbers = a.attributes["dimension_numbers"]
    names = "offset_dims collapsed_slice_dims start_index_map operand_batching_dims start_indices_batching_dims"
    params = {
        "dimension_numbers": SimpleNamespace(**{name: numbers.get(name, ()) for name in names.split()}),
        "slice_sizes": a.attributes["slice_sizes"],
        "mode": "CLIP",
    }
    return a.primitive("gather", x, regions.columns_last(indices, numbers), params=params)


def _while(a: Application) -> list[Term]:
    counts = {"cond_nconsts": 0, "body_nconsts": 0}
    return a.primitive("while", *a.operands, params={**counts, "cond_jaxpr": a.body(0), "body_jaxpr": a.body(1)})


def _case(a: Application) -> list[Term]:
    """Selects a branch; an index that no branch has is that of the last one."""
    (index,), last = a.operands, len(a.op.regions) - 1
    index = select(compare("lt", index, filled(index, 0)), filled(index, last), index)
    branches = [(lambda _, place=place: a.body(place)([])) for place in range(last + 1)]
    return a.primitive("cond", index, params={"branches": branches})


def _if(a: Application) -> list[Term]:
    branches = [(lambda _, place=place: a.body(place)([])) for place in (1, 0)]
    return a.primitive("cond", cast(a.operands[0], "int32"), params={"branches": branches})


def _call(a: Application) -> list[Term]:
    return a.primitive("closed_call", *a.operands, params={"jaxpr": a.reader.function(a.op.words[0].strip('@"'))})


def _composite(a: Application) -> Sequence[Term]:
    """Applies the operator of that name; one that has no meaning here, by its decomposition."""
    rule = OPERATORS.get(a.op.words[0])
    if rule is not None:
        own = a.attributes.get("composite_attributes", {})
        return rule(replace(a, op=replace(a.op, name=a.op.words[0], attributes=own)))
    body = a.reader.function(str(a.attributes["decomposition"]).strip('@"'))
    return a.primitive("closed_call", *a.operands, params={"jaxpr": body})


_CUSTOM = {"Sharding": "copy", "mhlo.erf": "erf"}


def _custom_call(a: Application) -> list[Term]:
    name = a.op.words[0].strip('@"')
    if name not in _CUSTOM:
        raise Refused(f"calls {name}, which has no meaning here")
    return a.primitive(_CUSTOM[name], *a.operands)


OPERATORS: dict[str, Rule] = {
    **{f"{d}.{name}": partial(_primitive, own, {}, {}) for d, names in SAME.items() for name, own in names.items()},
    **{name: partial(_primitive, own, {}, params) for name, (own, params) in NAMED.items()},
    "stablehlo.round_nearest_afz": partial(_primitive, "round", {"rounding_method": 0}, {}),
    "stablehlo.round_nearest_even": partial(_primitive, "round", {"rounding_method": 1}, {}),
    "stablehlo.compare": _compare,
    "stablehlo.select": _select,
    "stablehlo.slice": _slice,
    "stablehlo.pad": _pad,
    "stablehlo.reduce_precision": _reduce_precision,
    "stablehlo.dot_general": _dot_general,
    "stablehlo.convolution": _convolution,
    "stablehlo.gather": _gather,
    "stablehlo.while": _while,
    "stablehlo.case": _case,
    "stablehlo.if": _if,
    "stablehlo.composite": _composite,
    "stablehlo.custom_call": _custom_call,
    "call": _call,
    "func.call": _call,
    **regions.OPERATORS,
}
"""Operator -> its results, as those of primitives of JAX; `stablehlo.constant` is read by the reader."""
