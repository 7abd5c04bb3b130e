"""Compute types of each element by itself."""

from __future__ import annotations

from fractions import Fraction

import numpy as np

from glenside.exporters.jax.registry import Export, Operand, exports_compute
from glenside.exporters.jax.source import Source, Value, number
from glenside.ir.types import FLOATS, AccessType

_FUNCTIONS = {
    "negative": "jnp.negative",
    "abs": "jnp.abs",
    "sign": "jnp.sign",
    "sqrt": "jnp.sqrt",
    "exp": "jnp.exp",
    "log": "jnp.log",
    "tanh": "jnp.tanh",
    "sigmoid": "lax.logistic",
    "erf": "lax.erf",
    "sin": "jnp.sin",
    "cos": "jnp.cos",
    "tan": "jnp.tan",
    "asin": "jnp.arcsin",
    "acos": "jnp.arccos",
    "atan": "jnp.arctan",
    "sinh": "jnp.sinh",
    "cosh": "jnp.cosh",
    "asinh": "jnp.arcsinh",
    "acosh": "jnp.arccosh",
    "atanh": "jnp.arctanh",
    "floor": "jnp.floor",
    "ceil": "jnp.ceil",
    "round": "jnp.round",
    "logical-not": "jnp.logical_not",
}


def _function(name: str) -> Export:
    return lambda source, result, a: source.call(name, [a.value])


for _name, _called in _FUNCTIONS.items():
    exports_compute(_name)(_function(_called))


def _constant(text: str, dtype: str) -> str:
    """An exact number, rounded to the dtype."""
    value = Fraction(text)
    return number(np.asarray(float(value) if dtype in FLOATS else int(value), dtype).item(), dtype)


@exports_compute("relu")
def _relu(source: Source, result: AccessType, a: Operand) -> Value:
    return _with(source, "jnp.maximum", a.value, _constant("0", result.dtype))


@exports_compute("clip")
def _clip(source: Source, result: AccessType, a: Operand, lo: str, hi: str) -> Value:
    above = _with(source, "jnp.maximum", a.value, _constant(lo, result.dtype))
    return _with(source, "jnp.minimum", above, _constant(hi, result.dtype))


@exports_compute("leaky-relu")
def _leaky_relu(source: Source, result: AccessType, a: Operand, alpha: str) -> Value:
    scaled = _with(source, "jnp.multiply", a.value, _constant(alpha, result.dtype))
    below = _with(source, "jnp.less", a.value, _constant("0", result.dtype))
    return source.call("jnp.where", [below, scaled, a.value], result.dtype)


def _with(source: Source, function: str, value: Value, constant: str) -> Value:
    return source.set(f"{function}({source.name(value)}, {constant})", value.dims, value.dtype)
