"""Imports functions of single elements."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial, reduce

from glenside.builder.functions import angle, expm1, log1p, shifted
from glenside.builder.layout import broadcast
from glenside.builder.pointwise import (
    cast,
    combine,
    compare,
    compute,
    divide,
    filled,
    multiply,
    select,
    subtract,
)
from glenside.importers.jax.equation import Equation, Refused, primitive, register
from glenside.ir.dtypes import HALVES, RECORDS, largest_float
from glenside.ir.term import Term, build

UNARY = {
    **{name: name for name in "abs acos acosh asin asinh atan atanh ceil cos cosh erf exp floor log sign".split()},
    **{name: name for name in "sin sinh sqrt tan tanh".split()},
    "neg": "negative",
    "logistic": "sigmoid",
}
BINARY = {
    "add": "elementwise-add",
    "add_any": "elementwise-add",
    "sub": "subtract",
    "mul": "elementwise-mul",
    "div": "elementwise-div",
    "rem": "(mod truncate)",
    "max": "maximum",
    "min": "minimum",
    "pow": "pow",
}
LOGICAL = {"and": "logical-and", "or": "logical-or", "xor": "(compare ne)"}
OF_TRUTHS = {"add": "or", "add_any": "or", "mul": "and", "max": "or", "min": "and", **{name: name for name in LOGICAL}}


def _unary(kind: str, _: Equation, x: Term) -> Term:
    return compute(kind, x)


def _binary(kind: str, equation: Equation, x: Term, y: Term) -> Term:
    if x.access.dtype == "bool":
        return combine(LOGICAL[OF_TRUTHS[equation.primitive]], x, y)
    return combine(kind, x, cast(y, x.access.dtype))  # an integer power of a float has another dtype


def _compared(relation: str, _: Equation, x: Term, y: Term) -> Term:
    return compare(relation, x, y)


def _identity(_: Equation, *operands: Term) -> list[Term]:
    return list(operands)


for _name, _kind in UNARY.items():
    register(_name, partial(_unary, _kind))
for _name, _kind in BINARY.items():
    register(_name, partial(_binary, _kind))
for _name in LOGICAL:
    register(_name, partial(_binary, f"bitwise-{_name}"))
for _name in ("eq", "ne", "lt", "le", "gt", "ge"):
    register(_name, partial(_compared, _name))
for _name in ("copy", "copy_p", "device_put", "optimization_barrier", "sharding_constraint", "stop_gradient", "pvary"):
    register(_name, _identity)


def _derived(function: Callable[[Term], Term], equation: Equation, x: Term) -> Term:
    """Applies a function that is computed in the dtype of the result, halves in float32."""
    wide = "float32" if equation.dtype in HALVES else equation.dtype
    return cast(function(cast(x, wide)), equation.dtype)


def _cube_root(x: Term) -> Term:
    return multiply(compute("sign", x), combine("pow", compute("abs", x), divide(filled(x, 1), filled(x, 3))))


DERIVED: dict[str, Callable[[Term], Term]] = {
    "log1p": log1p,
    "expm1": expm1,
    "exp2": lambda x: combine("pow", filled(x, 2), x),
    "rsqrt": lambda x: divide(filled(x, 1), compute("sqrt", x)),
    "square": lambda x: multiply(x, x),
    "cbrt": _cube_root,
    "erfc": lambda x: subtract(filled(x, 1), compute("erf", x)),
}
for _name, _function in DERIVED.items():
    register(_name, partial(_derived, _function))


@primitive("not")
def not_(_: Equation, x: Term) -> Term:
    if x.access.dtype == "bool":
        return compute("logical-not", x)
    record = RECORDS[x.access.dtype]
    return combine("bitwise-xor", x, filled(x, -1 if record.signed else (1 << record.bits) - 1))


@primitive("round")
def round_(equation: Equation, x: Term) -> Term:
    if int(equation.params["rounding_method"]):
        return compute("round", x)
    half = filled(x, 0.5)  # away from zero
    up = combine("elementwise-add", compute("abs", x), half)
    return multiply(compute("sign", x), compute("floor", up))


@primitive("is_finite")
def is_finite(_: Equation, x: Term) -> Term:
    """Compares with the largest finite number, since infinity has no exact text."""
    return compare("le", compute("abs", x), filled(x, int(largest_float(x.access.dtype))))


@primitive("integer_pow")
def integer_pow(equation: Equation, x: Term) -> Term:
    """Small powers are products, which are exact, and which rules of the e-graph match."""
    y = int(equation.params["y"])
    if abs(y) > 4:
        return combine("pow", x, filled(x, y))
    product = reduce(multiply, [x] * abs(y)) if y else filled(x, 1)
    return divide(filled(x, 1), product) if y < 0 else product


@primitive("atan2")
def atan2(_: Equation, y: Term, x: Term) -> Term:
    return angle(y, x)


@primitive("shift_left", "shift_right_arithmetic", "shift_right_logical")
def shift(equation: Equation, x: Term, by: Term) -> Term:
    """Shifts bits; by their width and more, to 0 or to the sign."""
    record = RECORDS[x.access.dtype]
    if equation.primitive == "shift_right_logical" and record.signed:
        found = shift(equation, build("bitcast", x, f"u{record.name}"), build("bitcast", by, f"u{record.name}"))
        return build("bitcast", found, record.name)
    left = equation.primitive == "shift_left"
    inside = combine("logical-and", compare("ge", by, filled(by, 0)), compare("lt", by, filled(by, record.bits)))
    beyond = filled(x, 0)
    if record.signed and not left:
        beyond = select(compare("lt", x, beyond), filled(x, -1), beyond)
    return select(inside, shifted(x, select(inside, by, filled(by, 0)), left=left), beyond)


@primitive("clamp")
def clamp(_: Equation, low: Term, x: Term, high: Term) -> Term:
    return combine("minimum", combine("maximum", x, low), high)


@primitive("select_n")
def select_n(_: Equation, which: Term, *cases: Term) -> Term:
    found, *others = cases
    if which.access.dtype == "bool":
        return select(broadcast(which, found.access.dims), others[0], found) if others else found
    for place, case in enumerate(others, 1):
        found = select(compare("ge", which, filled(which, place)), case, found)
    return found


@primitive("convert_element_type")
def convert(equation: Equation, x: Term) -> Term:
    if equation.dtype == "bool":
        return compare("ne", x, filled(x, 0)) if x.access.dtype != "bool" else x
    return cast(x, equation.dtype)


_FORMATS = {(8, 23): "float32", (8, 7): "bfloat16", (5, 10): "float16", (11, 52): "float64"}


@primitive("reduce_precision")
def reduce_precision(equation: Equation, x: Term) -> Term:
    bits = equation.params["exponent_bits"], equation.params["mantissa_bits"]
    if bits not in _FORMATS:
        raise Refused(f"rounds to {bits[0]} bits of exponent and {bits[1]} of mantissa, which is no dtype here")
    wider = RECORDS[_FORMATS[bits]].bits >= RECORDS[x.access.dtype].bits
    return x if wider else cast(cast(x, _FORMATS[bits]), x.access.dtype)
