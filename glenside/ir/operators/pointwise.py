"""Compute types that treat each element by itself."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from glenside.ir.blockwise import ERF_PART, PART, block_size, in_blocks, row_major
from glenside.ir.example import of_compute
from glenside.ir.operand import Array, Operand
from glenside.ir.operator import MONOTONE, MOVED, Category, Compute, Field, Keeps, Kind, register, require
from glenside.ir.operators.requirements import require_float, require_number, require_value
from glenside.ir.rational import exact
from glenside.ir.types import AccessType


def _ordered(name: str, doc: str, function: Callable[..., Any], keeps: Keeps, linear: bool = False) -> Compute:
    """A function of the order and the sign only: it means the same for numbers and for signed residues."""
    record: Compute = register(
        Compute(
            name=name,
            category=Category.POINTWISE,
            check=lambda a: require_number(name, a),
            evaluate=lambda _, a: row_major(function, a.array),
            doc=doc,
            linear=linear,
            keeps=keeps,
            examples=of_compute(name),
        )
    )
    return record


def _erf_scratch(a: Operand) -> int:
    """A list of Python's floats, and those that come of it."""
    return block_size(a.array.shape, ERF_PART) * (a.array.itemsize + 8 + 24 + 8)


def _transcendental(name: str, doc: str, keeps: Keeps = Keeps.NOTHING) -> Compute:
    """A function of reals. In a prime field a fixed pseudo-random function of that name stands for it."""
    record: Compute = register(
        Compute(
            name=name,
            category=Category.POINTWISE,
            check=lambda a: require_float(name, a),
            evaluate=lambda arithmetic, a: arithmetic.apply(name, a.array, Keeps.ZERO in keeps),
            scratch=_erf_scratch if name == "erf" else None,
            doc=doc,
            keeps=keeps,
            examples=of_compute(name),
        )
    )
    return record


relu = _ordered("relu", "max(x, 0).", lambda x, out: np.maximum(x, 0, out=out), MOVED)
negative = _ordered("negative", "-x.", np.negative, Keeps.ZERO | Keeps.DISTANCE, linear=True)
absolute = _ordered("abs", "|x|.", np.abs, Keeps.ZERO | Keeps.DISTANCE)
sign = _ordered("sign", "-1, 0 or 1.", np.sign, MONOTONE)

sqrt = _transcendental("sqrt", "The square root.", MONOTONE)
exp = _transcendental("exp", "e to the power of x.", Keeps.ORDER)
log = _transcendental("log", "The natural logarithm.", Keeps.ORDER)
tanh = _transcendental("tanh", "The hyperbolic tangent.", MONOTONE)
sigmoid = _transcendental("sigmoid", "1 / (1 + exp(-x)).", Keeps.ORDER)
erf = _transcendental("erf", "The error function.", MONOTONE)
sin = _transcendental("sin", "The sine.", Keeps.ZERO)
cos = _transcendental("cos", "The cosine.")
tan = _transcendental("tan", "The tangent.", Keeps.ZERO)
asin = _transcendental("asin", "The angle in [-pi/2, pi/2] of which x is the sine.", MONOTONE)
acos = _transcendental("acos", "The angle in [0, pi] of which x is the cosine.")
atan = _transcendental("atan", "The angle in [-pi/2, pi/2] of which x is the tangent.", MONOTONE)
sinh = _transcendental("sinh", "The hyperbolic sine.", MONOTONE)
cosh = _transcendental("cosh", "The hyperbolic cosine.")
asinh = _transcendental("asinh", "The number of which x is the hyperbolic sine.", MONOTONE)
acosh = _transcendental("acosh", "The number that is not negative of which x is the hyperbolic cosine.", Keeps.ORDER)
atanh = _transcendental("atanh", "The number of which x is the hyperbolic tangent.", MONOTONE)
floor = _transcendental("floor", "The largest integer that is not above x.", MONOTONE)
ceil = _transcendental("ceil", "The smallest integer that is not below x.", MONOTONE)
rounded = _transcendental("round", "The nearest integer; halves go to the even one.", MONOTONE)

logical_not = register(
    Compute(
        name="logical-not",
        category=Category.POINTWISE,
        check=lambda a: require(a.dtype == "bool", "logical-not", "dtype bool", a),
        evaluate=lambda _, a: row_major(np.logical_not, a.array),
        doc="Whether x does not hold.",
        examples=of_compute("logical-not", dtype="bool"),
    )
)


def _check_clip(a: AccessType, lo: str, hi: str) -> None:
    require_number("clip", a)
    require_value("clip", lo, a.dtype)
    require_value("clip", hi, a.dtype)
    low, high = exact(lo), exact(hi)
    require(low is not None and high is not None and low <= high, "clip", "lo <= hi", f"lo {lo} and hi {hi}")


def _evaluate_clip(arithmetic: Any, a: Operand, lo: str, hi: str) -> Array:
    dtype = a.access.dtype
    result = row_major(np.maximum, a.array, arithmetic.constant(exact(lo), dtype))
    np.minimum(result, arithmetic.constant(exact(hi), dtype), out=result)
    return result


clip = register(
    Compute(
        name="clip",
        category=Category.POINTWISE,
        parameters=(Field("lo", Kind.NUMBER), Field("hi", Kind.NUMBER)),
        check=_check_clip,
        evaluate=_evaluate_clip,
        doc="min(max(x, lo), hi).",
        keeps=Keeps.ORDER,
        examples=of_compute("(clip -1 2)"),
    )
)


def _check_leaky_relu(a: AccessType, alpha: str) -> None:
    require_float("leaky-relu", a)
    require_value("leaky-relu", alpha, a.dtype)


def _evaluate_leaky_relu(arithmetic: Any, a: Operand, alpha: str) -> Array:
    slope = arithmetic.constant(exact(alpha), a.access.dtype)
    x = a.array
    return in_blocks(lambda part: np.where(part < 0, arithmetic.multiply(part, slope), part), x.shape, x, dtype=x.dtype)


leaky_relu = register(
    Compute(
        name="leaky-relu",
        category=Category.POINTWISE,
        parameters=(Field("alpha", Kind.NUMBER),),
        check=_check_leaky_relu,
        evaluate=_evaluate_leaky_relu,
        scratch=lambda a, alpha: block_size(a.array.shape, PART) * (2 * a.array.itemsize + 1),
        doc="x, or alpha * x where x < 0.",
        keeps=Keeps.ZERO,
        examples=of_compute("(leaky-relu 1/4)"),
    )
)
