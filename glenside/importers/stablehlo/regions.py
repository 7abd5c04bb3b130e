"""Gives a meaning to operators that a region defines, by comparing the region with those that JAX writes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import inf
from types import SimpleNamespace
from typing import Any

import numpy as np

from glenside.builder.layout import reshape
from glenside.importers.jax.equation import Refused
from glenside.importers.stablehlo.reader import Application, Rule
from glenside.ir.dtypes import RECORDS
from glenside.ir.operand import Array
from glenside.ir.term import Term

Expression = Any
"""The place of an argument, or (operator, operand ..)."""

_NAMES = {"add": "sum", "multiply": "prod", "maximum": "max", "minimum": "min", "and": "and", "or": "or", "xor": "xor"}
_BINARY = {"add": "add", "multiply": "mul", "maximum": "max", "minimum": "min", "and": "and", "or": "or", "xor": "xor"}
_RUNNING = {"add": "cumsum", "multiply": "cumprod", "maximum": "cummax", "minimum": "cummin"}


def returned(a: Application, place: int = 0) -> list[Expression]:
    """Returns what a region of an operation returns, as expressions of its arguments and of known numbers."""
    region = a.op.regions[place]
    values: dict[str, Expression] = {name: place for place, name in enumerate(region.arguments)}

    def read(name: str) -> Expression:
        if name not in values and name in a.values:
            return _number(a.reader.scope.known.of(a.values[name]))
        return values.get(name)

    for op in region.operations[:-1]:
        name = op.name.removeprefix("stablehlo.")
        direction = op.words[0] if name == "compare" else ""
        constant = _number(op.attributes["value"].value) if name == "constant" else None
        values[",".join(op.results)] = constant or (direction or name, *map(read, op.operands))
    return [read(name) for name in region.returned]


def _number(value: Array | None) -> Expression:
    if value is None or value.size != 1:
        return None
    return ("nan",) if value != value else ("=", value.item())


def kind_of(a: Application) -> str:
    """Returns the operator by which a region joins its two arguments: add, maximum .., or replace. Raises Refused."""
    found = returned(a)
    if found == [1]:
        return "replace"
    if len(found) == 1 and isinstance(found[0], tuple) and set(found[0][1:]) == {0, 1} and found[0][0] in _NAMES:
        return str(found[0][0])
    raise Refused("joins elements by a function that is not a sum, product, maximum, minimum, and, or, xor")


def _neutral(kind: str, dtype: str) -> Any:
    """Returns the element that changes nothing."""
    record = RECORDS[dtype]
    if kind in ("add", "multiply"):
        return int(kind == "multiply")
    if dtype == "bool":
        return kind in ("and", "minimum")
    if record.kind == "float":
        return -inf if kind == "maximum" else inf
    limits = np.iinfo(record.numpy)
    return {
        "maximum": limits.min,
        "minimum": limits.max,
        "and": -1 if record.signed else limits.max,
        "or": 0,
        "xor": 0,
    }[kind]


def _is_neutral(a: Application, init: Term, kind: str) -> bool:
    known = a.reader.scope.known.of(init)
    return known is not None and bool(known == _neutral(kind, init.access.dtype))


def _reduce(a: Application) -> Sequence[Term]:
    if len(a.operands) == 4:
        return _argument(a)
    if len(a.operands) != 2:
        raise Refused("reduces several operands at once by a function that is not that of argmax or argmin")
    x, init = a.operands
    kind = a.op.words[1].removeprefix("stablehlo.") if "applies" in a.op.words else kind_of(a)
    if kind not in _NAMES:
        raise Refused(f"reduces by {kind}, which is not supported")
    found = a.primitive(f"reduce_{_NAMES[kind]}", x, params={"axes": a.attributes["dimensions"]})
    return found if _is_neutral(a, init, kind) else a.primitive(_BINARY[kind], *found, init)


def _argument(a: Application) -> list[Term]:
    """Returns the greatest or least elements along an axis, and their places: those of the first of equal ones."""
    x, first, places, start = a.operands
    (axis,), known = a.attributes["dimensions"], a.reader.scope.known
    for relation, kind in (("GT", "maximum"), ("LT", "minimum")):
        better = (relation, 0, 2)
        for own in (("or", better, ("NE", 0, 0)), better):
            both = ("and", ("EQ", 0, 2), ("LT", 1, 3))
            wanted = [("select", own, 0, 2), ("select", ("or", own, both), 1, 3)]
            if returned(a) != wanted or not _is_neutral(a, first, kind):
                continue
            dims, given = x.access.dims, known.of(places)
            counted = np.arange(dims[axis]).reshape([-1 if i == axis else 1 for i in range(len(dims))])
            if given is None or (given != counted).any() or known.of(start) != 0:
                continue
            name = "max" if kind == "maximum" else "min"
            (best,) = a.primitive(f"reduce_{name}", x, results=a.op.types[:1], params={"axes": (axis,)})
            (place,) = a.primitive(f"arg{name}", x, results=a.op.types[1:], params={"axes": (axis,)})
            return [best, place]
    raise Refused("reduces two operands at once by a function that is not that of argmax or argmin")


def _pairs(constant: Any) -> list[tuple[int, int]]:
    return [(int(low), int(high)) for low, high in np.broadcast_to(constant.value, constant.type[0])]


def _reduce_window(a: Application) -> list[Term]:
    """Reduces windows; those that grow along one axis are a running sum or maximum."""
    if len(a.operands) != 2:
        raise Refused("reduces windows of several operands at once, which is not supported")
    (x, init), kind, own = a.operands, kind_of(a), a.attributes
    if kind not in _RUNNING or not _is_neutral(a, init, kind):
        raise Refused(f"reduces windows by {kind} from an initial value, which is not supported")
    dims, ones = x.access.dims, (1,) * x.access.rank
    padding = _pairs(own["padding"]) if "padding" in own else [(0, 0)] * len(dims)
    params = {
        "window_dimensions": own["window_dimensions"],
        "window_strides": own.get("window_strides", ones),
        "window_dilation": own.get("window_dilations", ones),
        "base_dilation": own.get("base_dilations", ones),
        "padding": padding,
    }
    plain = {*params["window_strides"], *params["window_dilation"], *params["base_dilation"]} == {1}
    grown = [axis for axis, size in enumerate(own["window_dimensions"]) if size != 1]
    if plain and len(grown) == 1 and own["window_dimensions"][grown[0]] == dims[grown[0]]:
        rest = dims[grown[0]] - 1
        for pair, reverse in (((rest, 0), False), ((0, rest), True)):
            if padding == [pair if axis == grown[0] else (0, 0) for axis in range(len(dims))]:
                return a.primitive(_RUNNING[kind], x, params={"axis": grown[0], "reverse": reverse})
    if kind == "multiply":
        raise Refused("multiplies the elements of windows, which is not supported")
    return a.primitive(f"reduce_window_{_NAMES[kind]}", x, params=params)


def _select_and_scatter(a: Application) -> list[Term]:
    """Adds elements to the greatest or least ones of windows."""
    x, g, init = a.operands
    (chosen,), own, ones = returned(a), a.attributes, (1,) * x.access.rank
    known = a.reader.scope.known.of(init)
    if chosen not in (("GE", 0, 1), ("LE", 0, 1)) or returned(a, 1) != [("add", 0, 1)] or known is None or known.any():
        raise Refused("does not add to 0 at the greatest or least elements of windows, which is not supported")
    params = {
        "select_prim": chosen[0].lower(),
        "window_dimensions": own.get("window_dimensions", ones),
        "window_strides": own.get("window_strides", ones),
        "padding": _pairs(own["padding"]) if "padding" in own else [(0, 0)] * x.access.rank,
    }
    return a.primitive("select_and_scatter_add", g, x, params=params)


def columns_last(indices: Term, numbers: Mapping[str, Any]) -> Term:
    """Returns indices whose last axis holds the coordinates of one window."""
    axis, rank = numbers.get("index_vector_dim", 0), indices.access.rank
    if axis == rank:
        return reshape(indices, (*indices.access.dims, 1))
    if axis != rank - 1:
        raise Refused("has coordinates of a window along an axis that is not the last one, which is not supported")
    return indices


def _scatter(a: Application) -> list[Term]:
    """Writes windows; those that are not within the operand are left out."""
    if len(a.operands) != 3:
        raise Refused("writes to several operands at once, which is not supported")
    x, indices, updates = a.operands
    kind, numbers = kind_of(a), a.attributes["scatter_dimension_numbers"]
    if kind not in ("replace", *_RUNNING):
        raise Refused(f"writes by {kind}, which is not supported")
    names = "update_window_dims inserted_window_dims scatter_dims_to_operand_dims scatter_indices_batching_dims"
    own = {name: numbers.get(name, ()) for name in names.split()}
    own["operand_batching_dims"] = numbers.get("input_batching_dims", ())
    params = {"dimension_numbers": SimpleNamespace(**own)}
    name = "scatter" if kind == "replace" else f"scatter-{_BINARY[kind]}"
    return a.primitive(name, x, columns_last(indices, numbers), updates, params=params)


def _canonical(x: Expression) -> Expression:
    """Returns what a key of a comparison is without what makes zeros, and NaN, equal to each other."""
    match x:
        case ("select", ("NE", a, b), ("nan",), ("select", ("EQ", c, ("=", 0)), ("=", 0), d)) if a == b == c == d:
            return a
    return x


def _keys(x: Expression) -> int:
    """Returns by how many operands, from the first on, a comparison of rows sorts, upwards. Raises Refused."""

    def is_compared(relation: str, own: Expression, place: int) -> bool:
        match own:
            case (found, left, right):
                return found == relation and (_canonical(left), _canonical(right)) == (2 * place, 2 * place + 1)
        return False

    def count(own: Expression, place: int) -> int:
        if is_compared("LT", own, place):
            return place + 1
        match own:
            case ("or", less, ("and", same, rest)) if is_compared("LT", less, place) and is_compared("EQ", same, place):
                return count(rest, place + 1)
        raise Refused("sorts by a comparison that is not LT of its first operands, one after another")

    return count(x, 0)


def _sort(a: Application) -> list[Term]:
    (compared,) = returned(a)
    return a.primitive(
        "sort", *a.operands, params={"dimension": a.attributes["dimension"], "num_keys": _keys(compared)}
    )


OPERATORS: dict[str, Rule] = {
    "stablehlo.reduce": _reduce,
    "stablehlo.reduce_window": _reduce_window,
    "stablehlo.scatter": _scatter,
    "stablehlo.select_and_scatter": _select_and_scatter,
    "stablehlo.sort": _sort,
}
