"""Compute types that treat each element by itself."""

from __future__ import annotations

from collections.abc import Callable

from glenside.ir.operator import Category, Compute, Example, Field, Kind, compute_type, of_compute, require
from glenside.ir.operators.requirements import require_float
from glenside.ir.primitives import PRIMITIVES, maximum, minimum, select
from glenside.ir.rational import exact
from glenside.ir.scalar import Scalar, x
from glenside.ir.types import AccessType


def _pointwise(
    name: str,
    doc: str,
    expression: Scalar | Callable[..., Scalar],
    *numbers: str,
    check: Callable[..., None] | None = None,
    examples: tuple[Example, ...] = (),
) -> Compute:
    """A compute type with a scalar expression, or a function to it from parameters of those names."""
    parameters = tuple(Field(number, Kind.NUMBER) for number in numbers)
    return compute_type(name, Category.POINTWISE, doc, parameters, expression, check=check, examples=examples)


# A primitive of one operand is a compute type of its name.
_OF_PRIMITIVES = {p.name: _pointwise(p.name, p.doc, p(x)) for p in PRIMITIVES.values() if p.arity == 1}
negative = _OF_PRIMITIVES["negative"]
relu = _pointwise("relu", "max(x, 0).", maximum(x, 0))


def _check_clip(_: AccessType, lo: str, hi: str) -> None:
    low, high = exact(lo), exact(hi)
    require(low is not None and high is not None and low <= high, "clip", "lo <= hi", f"lo {lo} and hi {hi}")


clip = _pointwise(
    "clip",
    "min(max(x, lo), hi).",
    lambda lo, hi: minimum(maximum(x, lo), hi),
    "lo",
    "hi",
    check=_check_clip,
    examples=of_compute("(clip -1 2)"),
)
leaky_relu = _pointwise(
    "leaky-relu",
    "x, or alpha * x where x < 0.",
    lambda alpha: select(x < 0, x * alpha, x),
    "alpha",
    check=lambda a, _: require_float("leaky-relu", a),
    examples=of_compute("(leaky-relu 1/4)"),
)
