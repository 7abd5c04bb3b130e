"""Small networks drawn at random, programs that differ from them in one place, and whether any number shows it.

Networks have what a check may be blind to: maxima of windows under every padding, thresholds, comparisons, positions of
maxima, integers that wrap. What shows a difference is numpy's own arithmetic on many sets of small numbers: it shares
nothing with the check but the meaning of operators.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import numpy as np

from glenside.builder import Builder
from glenside.ir.errors import GlensideError
from glenside.ir.operand import Array
from glenside.ir.operator import COMPUTES, Kind
from glenside.ir.operators.compute import compute, compute_text, parse_compute
from glenside.ir.term import Term, build, make, postorder, rebuild, tensors, weave
from glenside.ir.types import Dims, Tensor
from glenside.semantics.interpreter import evaluate

_CLIPS = ("(clip -1/2 1/2)", "(clip 0 6)", "(clip -3 5/2)", "relu", "(leaky-relu 1/8)", "abs", "sign", "floor")
_WHOLE = ("(clip -3 2)", "(clip 0 6)", "relu", "abs", "sign", "negative")


def network(pick: random.Random) -> Term:
    """A network of three to seven steps."""
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


def mutants(term: Term, pick: random.Random) -> Iterator[Term]:
    """Terms of the same type that differ in one argument of one operator, or in the order of two operands."""
    nodes = [t for t in postorder(term) if t.children or t.attributes]
    while True:
        node = pick.choice(nodes)
        try:
            changed = _changed(node, pick)
            whole = rebuild(term, lambda t, children, at=node, new=changed: new if t is at else None)
        except (GlensideError, ValueError, IndexError):
            continue
        if whole is not term and whole.type == term.type:
            yield whole


def _changed(node: Term, pick: random.Random) -> Term:
    fields = [f for f in node.operator.fields if f.kind not in (Kind.TERM,)]
    if not node.attributes or pick.random() < 0.15:
        children = list(node.children)
        pick.shuffle(children)
        return make(node.operator, weave(node.operator, children, node.attributes))
    at = pick.randrange(len(node.attributes))
    value: Any = node.attributes[at]
    if node.operator is compute:
        value = _other_compute(value, pick)
    elif isinstance(value, int):
        value += pick.choice((-1, 1))
    elif isinstance(value, tuple) and value:
        place = pick.randrange(len(value))
        value = Dims((*value[:place], value[place] + pick.choice((-1, 1)), *value[place + 1 :]))
    elif fields[at].choices:
        value = pick.choice(fields[at].choices)
    attributes = [*node.attributes[:at], value, *node.attributes[at + 1 :]]
    return make(node.operator, weave(node.operator, node.children, attributes))


def _other_compute(kind: str, pick: random.Random) -> str:
    record, parameters = parse_compute(kind)
    if parameters and pick.random() < 0.8:
        at = pick.randrange(len(parameters))
        field = record.parameters[at]
        other = (
            pick.choice(field.choices) if field.choices else str(pick.choice(("0", "1/2", "-1", "2", "25/4", "-1/4")))
        )
        return compute_text(record.name, *parameters[:at], other, *parameters[at + 1 :])
    alike = [c.name for c in COMPUTES.values() if c.category is record.category and not c.parameters]
    return pick.choice(alike)


def apart(a: Term, b: Term, seed: int, trials: int = 60) -> bool:
    """Whether numpy's numbers show that two terms differ by more than rounding."""
    with np.errstate(all="ignore"):
        return any(_differ(*evaluate([a, b], _numbers(a, b, seed + trial))) for trial in range(trials))


def _numbers(a: Term, b: Term, seed: int) -> dict[str, Array]:
    rng = np.random.default_rng(seed)
    values = {}
    for leaf in tensors(a, b):
        tensor = leaf.attributes[0]
        drawn = rng.integers(-9, 10, tensor.dims) + rng.choice((-6, 0, 0, 4))
        values[tensor.name] = (drawn / 4 if tensor.dtype == "float32" else drawn).astype(tensor.dtype)
    return values


def _differ(x: Array, y: Array) -> bool:
    if x.dtype.kind != "f":
        return not np.array_equal(x, y)
    scale = np.maximum(1.0, np.abs(np.nan_to_num(x, posinf=0, neginf=0)).max(initial=0))
    return bool(np.any(~np.isclose(x, y, rtol=1e-4, atol=1e-4 * scale, equal_nan=True)))
