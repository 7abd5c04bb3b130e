"""Exports functions of float64 that runtimes compute in float32 at most, by functions that they have in float64.

`Sin`, `Exp`, `Log`, `Sqrt` and `Tanh` are such functions. The inverse tangent corrects the float32 result by one step;
the inverse hyperbolic functions use `log(1 + u)` without cancellation (Kahan); the others are identities.
"""

from __future__ import annotations

from functools import partial

from glenside.exporters.onnx.emitter import Emitter
from glenside.exporters.onnx.registry import PRIMITIVE_EXPORTS
from glenside.exporters.writer import Value, written
from glenside.ir.primitives import PRIMITIVES
from glenside.ir.scalar import Scalar, x, y

_sin, _cos, _tanh, _atan, _exp, _log, _sqrt, _sign, _select, _eq = (
    PRIMITIVES[name] for name in ("sin", "cos", "tanh", "atan", "exp", "log", "sqrt", "sign", "select", "eq")
)
_LARGE = "1e300"
"""The inverse tangents of larger numbers are equal, and products with smaller ones do not overflow."""


def _log_of_one_plus(u: Scalar) -> Scalar:
    """log(1 + u): the quotient cancels the error of 1 + u."""
    above = u + 1
    less = above - 1
    return _select(_eq(less, 0), u, _select(u > 1, _log(above), _log(above) * (u / less)))


_IDENTITIES: dict[str, Scalar] = {
    "cos": 1 - 2 * (_sin(x / 2) * _sin(x / 2)),
    "tan": _sin(x) / _cos(x),
    "asin": _atan(x / _sqrt((1 - x) * (1 + x))),
    "acos": 2 * _atan(_sqrt((1 - x) / (1 + x))),
    "cosh": (_exp(x) + _exp(-x)) / 2,
    "sinh": _tanh(x) * ((_exp(x) + _exp(-x)) / 2),
    "asinh": _sign(x) * _log_of_one_plus(abs(x) + abs(x) / (1 / abs(x) + _sqrt(1 + (1 / abs(x)) * (1 / abs(x))))),
    "acosh": _log_of_one_plus((x - 1) + _sqrt(x - 1) * _sqrt(x + 1)),
    "atanh": _sign(x) * _log_of_one_plus(2 * abs(x) / (1 - abs(x))) / 2,
}
_CORRECTED = y + (x * _cos(y) - _sin(y)) / (_cos(y) + x * _sin(y))
"""The inverse tangent of x from an estimate y: the tangent of their difference is added, its square is below 1e-13."""


def _function(name: str, emit: Emitter, a: Value) -> Value:
    if a.dtype != "float64":
        return emit.apply(PRIMITIVES[name], [a])
    return written(emit, PRIMITIVE_EXPORTS, _IDENTITIES[name], [a])


for _name in _IDENTITIES:
    PRIMITIVE_EXPORTS.register(_name)(partial(_function, _name))


@PRIMITIVE_EXPORTS.register("atan")
def _inverse_tangent(emit: Emitter, a: Value) -> Value:
    estimate = emit.apply(PRIMITIVES["atan"], [a])
    if a.dtype != "float64":
        return estimate
    bounds = [emit.number(bound, a.dtype) for bound in (f"-{_LARGE}", _LARGE)]
    bounded = emit.of_each([a], a.dims, lambda each, dims: emit.run("Clip", each, dims, extra=bounds))
    return written(emit, PRIMITIVE_EXPORTS, _CORRECTED, [bounded, estimate])
