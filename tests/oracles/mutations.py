"""Draws small networks and programs that differ from them in one place, and tests whether any number shows the
difference.

Networks have what a check may be blind to: maxima of windows under every padding, thresholds, comparisons, positions of
maxima, integers that wrap. What shows a difference is numpy's own arithmetic on many sets of small numbers: it shares
nothing with the check but the meaning of operators.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from fractions import Fraction
from typing import Any

import numpy as np

from glenside.builder import Builder
from glenside.check import check
from glenside.check.confined import Confined
from glenside.check.indices import index_limits, picks
from glenside.ir.dtypes import FLOATS
from glenside.ir.errors import GlensideError, OutOfBounds
from glenside.ir.operand import Array
from glenside.ir.operator import COMPUTES, Field, Kind
from glenside.ir.operators.casting import cast
from glenside.ir.operators.compute import compute, compute_text, parse_compute
from glenside.ir.program import Program
from glenside.ir.term import Term, build, make, postorder, rebuild, tensors, weave
from glenside.ir.types import Dims, Tensor
from glenside.semantics import Native
from glenside.semantics.interpreter import evaluate

NATIVE = Native()

_CLIPS = ("(clip -1/2 1/2)", "(clip 0 6)", "(clip -3 5/2)", "relu", "(leaky-relu 1/8)", "abs", "sign", "floor")
_WHOLE = ("(clip -3 2)", "(clip 0 6)", "relu", "abs", "sign", "negative")


def network(pick: random.Random) -> Term:
    """Draws a network of three to seven steps."""
    dtype = pick.choice(("float32", "float32", "int32", "int8"))
    dims = (pick.choice((1, 2, 3)), pick.choice((5, 6, 8)), pick.choice((5, 7)))
    x = build("access-tensor", Tensor("x", Dims(dims), dtype))
    for number in range(pick.randint(3, 7)):
        x = _step(pick, x, dtype, number)
    return _end(pick, x, dtype)


def _full(pick: random.Random, x: Term, dtype: str) -> Term:
    value = pick.choice(("1/2", "-1/4", "3", "1") if dtype == "float32" else ("1", "-2", "3"))
    return build("full", tuple(x.access.dims), value, dtype)


def _step(pick: random.Random, x: Term, dtype: str, number: int) -> Term:
    dims = x.access.dims
    match pick.randrange(8):
        case 0 | 1:
            return build("compute", pick.choice(_CLIPS if dtype == "float32" else _WHOLE), x)
        case 2 | 3 if min(dims[1:]) > 3:
            size, stride = pick.choice((2, 3)), pick.choice((1, 2))
            padding = pick.choice(("min-padding", "zero-padding"))
            for axis in (1, 2):
                x = build("access-pad", x, padding, axis, size // 2, size // 2)
            windows = build("access-windows", build("access", x, 1), (size, size), (stride, stride))
            return build(
                "access", build("compute", pick.choice(("reduce-max", "reduce-min", "reduce-max")), windows), 0
            )
        case 4:
            return Builder.combine(pick.choice(("maximum", "minimum", "elementwise-add")), x, _full(pick, x, dtype))
        case 5:
            w = build("access-tensor", Tensor(f"w{number}", Dims((pick.choice((1, 2, 4)), dims[0])), dtype))
            rows = build("access", build("access-transpose", build("access", x, 0), (1, 2, 0)), 2)
            product = build("compute", "dot-product", build("access-product", build("access", w, 1), rows, 0))
            return build("access", build("cast", product, dtype), 0)
        case 6:
            return build("access-flip", x, pick.choice((1, 2)))
        case _:
            y = Builder.combine("subtract", x, _full(pick, x, dtype))
            relation = f"(compare {pick.choice(('lt', 'le', 'gt'))})"
            pair = build("access-product", x, _full(pick, x, dtype), x.access.split)
            condition = build("compute", relation, pair)
            return Builder.combine("elementwise-mul", y, build("cast", condition, dtype))


def _end(pick: random.Random, x: Term, dtype: str) -> Term:
    match pick.randrange(5):
        case 0:
            return build("compute", pick.choice(("argmax", "argmin")), build("access", x, pick.choice((0, 1))))
        case 1:
            return build("compute", pick.choice(("reduce-max", "reduce-min", "reduce-sum")), build("access", x, 1))
        case 2:
            return build("compute", pick.choice(_CLIPS if dtype == "float32" else _WHOLE), x)
    return x


_TRIES = 400
_SIZED = ("bool", "int8", "uint8", "int16", "int32", "float16", "float32")


def mutants(term: Term, pick: random.Random, at: Sequence[Term] = ()) -> Iterator[Term]:
    """Yields terms of the same type that differ in one operator: other arguments, exchanged operands, or no operator.
    The operator is one of those `at`, or any. Ends after hundreds of changes without a result.

    It ends where hundreds of changes in a row give none.
    """
    nodes = at or list(postorder(term))
    tries = 0
    while tries < _TRIES:
        node = pick.choice(nodes)
        tries += 1
        try:
            changed = _changed(node, pick)
            whole = rebuild(term, lambda t, children, at=node, new=changed: new if t is at else None)
        except (GlensideError, ValueError, IndexError):
            continue
        if whole is not term and whole.type == term.type:
            tries = 0
            yield whole


def _changed(node: Term, pick: random.Random) -> Term:
    fields = [f for f in node.operator.fields if f.kind not in (Kind.TERM, Kind.TERMS)]
    if node.operator.name == "access-tensor":
        return build("access-flip", node, pick.randrange(node.access.rank))
    if not node.attributes or (node.children and pick.random() < 0.2):
        children = list(node.children)
        if pick.random() < 0.4:
            return pick.choice(children)
        pick.shuffle(children)
        return make(node.operator, weave(node.operator, children, node.attributes))
    attributes = list(node.attributes)
    for at in pick.sample(range(len(attributes)), min(len(attributes), pick.choice((1, 1, 2)))):
        attributes[at] = _other(node, fields[at], attributes[at], pick)
    return make(node.operator, weave(node.operator, node.children, attributes))


def _other(node: Term, field: Field, value: Any, pick: random.Random) -> Any:
    if node.operator is compute:
        return _other_compute(value, pick)
    if field.choices:
        return pick.choice(field.choices)
    if field.kind is Kind.DTYPE:
        return pick.choice(_SIZED)
    if isinstance(value, int):
        return value + pick.choice((-1, 1))
    if isinstance(value, tuple) and value:
        items = list(value)
        i, j = pick.randrange(len(items)), pick.randrange(len(items))
        if i != j:
            items[i], items[j] = items[j], items[i]
        else:
            items[i] += pick.choice((-1, 1))
        return type(value)(items)
    if field.kind in (Kind.NUMBER, Kind.TEXT):
        numbers = str(value).split()
        at = pick.randrange(len(numbers))
        off = pick.choice(("1", "-1", "1/8", "-1/4", "5"))
        numbers[at] = str(Fraction(numbers[at]) + Fraction(off))
        return " ".join(numbers)
    return value


def _other_compute(kind: str, pick: random.Random) -> str:
    record, parameters = parse_compute(kind)
    if parameters and pick.random() < 0.8:
        at = pick.randrange(len(parameters))
        field = record.parameters[at]
        other = (
            pick.choice(field.choices) if field.choices else str(pick.choice(("0", "1/2", "-1", "2", "25/4", "-1/4")))
        )
        return compute_text(record.name, *parameters[:at], other, *parameters[at + 1 :])
    others = [c for c in COMPUTES.values() if not c.parameters]
    alike = [c for c in others if c.category is record.category]
    return pick.choice(alike if alike and pick.random() < 0.8 else others).name


def flat(term: Term, size: int) -> Term:
    """Returns the first elements of an array as one axis of float32, padded with 0, so that terms of any dims can be
    compared.
    """
    item = build("access", build("access-insert-axis", build("access", term, 0), 0), 0)
    row = build("access-pad", build("access-flatten", item), "zero-padding", 0, 0, size)
    return build("cast", build("access-slice", row, 0, 0, size), "float32")


def apart(a: Term, b: Term, seed: int, trials: int = 60) -> bool:
    """True if terms differ by more than rounding on numpy's numbers, where both are defined: 0/0, infinity times 0 and
    the logarithm of -1 are undefined.
    """
    return any(differ_on(a, b, _numbers(a, b, seed + trial)) for trial in range(trials))


def apart_where_defined(a: Term, b: Term, seed: int) -> bool:
    """The same, also on floats above 1 and near 0: functions such as sqrt and asin are not defined for all reals."""
    sets = (_numbers(a, b, seed + trial) for trial in range(20))
    inside = [
        {n: (abs(v) + 1 if above else v / 16).astype(v.dtype) if v.dtype.kind == "f" else v for n, v in values.items()}
        for values in sets
        for above in (True, False)
        if not picks(a, b)
    ]
    return apart(a, b, seed) or any(differ_on(a, b, values) for values in inside)


def unseen(term: Term, others: Iterable[Term], seed: int, apart: Callable[..., bool] = apart) -> tuple[int, list[str]]:
    """Returns the number of other terms that numpy distinguishes from a term, and those of them
    that the check misses.
    """
    wrong, found = 0, []
    for other in others:
        if apart(term, other, seed):
            wrong += 1
            verdict = check(Program(term), Program(other), layers=False).result
            if not verdict.startswith("differs"):
                found.append(f"seed {seed}, {verdict}:\n{Program(term)}\n{Program(other)}")
    return wrong, found


def differ_on(a: Term, b: Term, values: dict[str, Array]) -> bool:
    """True if terms differ by more than rounding where both are defined."""
    found: dict[Term, Array] = {}
    undefined = []

    def watch(term: Term, value: Any) -> None:
        if isinstance(value, np.ndarray) and value.dtype.kind == "f" and np.isnan(value).any():
            undefined.append(term)
        if term in (a, b):
            found[term] = value

    try:
        evaluate(list(postorder(a, b)), values, watch=watch)
    except OutOfBounds:
        evaluate([a], values)
        return True
    return not undefined and _differ(found[a], found[b])


def _numbers(a: Term, b: Term, seed: int) -> dict[str, Array]:
    """Draws small numbers, mostly about one centre; in every fifth set large integers, and large floats where these are
    cast to integers: for others, functions are equal up to rounding. Indices are valid.
    """
    rng = np.random.default_rng(seed)
    limits = index_limits(a, others=[b])
    wraps = any(t.operator is cast and t.access.dtype not in FLOATS for t in postorder(a, b))
    values = {}
    for leaf in tensors(a, b):
        tensor = leaf.attributes[0]
        most = 20_000 if seed % 5 == 0 and (wraps or tensor.dtype not in FLOATS) else 9
        drawn = rng.integers(-most, most + 1, tensor.dims) + rng.choice((-6, 0, 0, 4))
        if tensor.name in limits:
            below = np.asarray(limits[tensor.name])
            drawn = np.where(below > 0, rng.integers(0, np.maximum(below, 1), tensor.dims), drawn)
        values[tensor.name] = (drawn / 4 if tensor.dtype in ("float32", "float64") else drawn).astype(tensor.dtype)
    return Confined(picks(a)).settle(values, NATIVE) or values


def _differ(x: Array, y: Array) -> bool:
    if x.dtype.kind != "f":
        return not np.array_equal(x, y)
    scale = np.maximum(1.0, np.abs(np.nan_to_num(x, posinf=0, neginf=0)).max(initial=0))
    return bool(np.any(~np.isclose(x, y, rtol=1e-4, atol=1e-4 * scale, equal_nan=True)))
