"""Defines compute types that compute each element by itself."""

from __future__ import annotations

from glenside.ir.operator import Category, Compute, Kind, compute_type, fields, of_compute, require
from glenside.ir.operators.requirements import require_float
from glenside.ir.primitives import PRIMITIVES, maximum, minimum, select
from glenside.ir.rational import exact
from glenside.ir.scalar import Scalar, x
from glenside.ir.types import AccessType


def _pointwise(name: str, doc: str, expression: Scalar) -> Compute:
    return compute_type(name, Category.POINTWISE, doc, scalar=expression)


# Each primitive of one operand is a compute type of its name.
_OF_PRIMITIVES = {p.name: _pointwise(p.name, p.doc, p(x)) for p in PRIMITIVES.values() if p.arity == 1}
negative = _OF_PRIMITIVES["negative"]
relu = _pointwise("relu", "max(x, 0).", maximum(x, 0))


def _check_clip(_: AccessType, lo: str, hi: str) -> None:
    low, high = exact(lo), exact(hi)
    require(low is not None and high is not None and low <= high, "clip", "lo <= hi", f"lo {lo} and hi {hi}")


clip = compute_type(
    name="clip",
    category=Category.POINTWISE,
    parameters=fields(lo=Kind.NUMBER, hi=Kind.NUMBER),
    scalar=lambda lo, hi: minimum(maximum(x, lo), hi),
    check=_check_clip,
    doc="min(max(x, lo), hi).",
    examples=of_compute("(clip -1 2)"),
)
leaky_relu = compute_type(
    name="leaky-relu",
    category=Category.POINTWISE,
    parameters=fields(alpha=Kind.NUMBER),
    scalar=lambda alpha: select(x < 0, x * alpha, x),
    check=lambda a, _: require_float("leaky-relu", a),
    doc="x, or alpha * x where x < 0.",
    examples=of_compute("(leaky-relu 1/4)"),
)
