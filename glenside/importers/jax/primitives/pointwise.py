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
from glenside.ir.dtypes import FLOATS, HALVES, INTEGERS, RECORDS, all_bits, largest_float, limits
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


def _compared_in_order(relation: str, _: Equation, x: Term, y: Term) -> Term:
    """Compares in the total order of IEEE 754: -0 is less than 0, and NaN is greater than all, or less if negative."""
    return compare(relation, *((_place_in_order(own) if own.access.dtype in FLOATS else own) for own in (x, y)))


def _place_in_order(x: Term) -> Term:
    """Returns the bits of floats as integers; of negative ones, which count downwards, with opposite bits."""
    bits = build("bitcast", x, f"int{RECORDS[x.access.dtype].bits}")
    return select(
        compare("lt", bits, filled(bits, 0)),
        combine("bitwise-xor", bits, filled(bits, limits(bits.access.dtype)[1])),
        bits,
    )


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
for _name in ("eq", "lt", "le"):
    register(f"{_name}_to", partial(_compared_in_order, _name))
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


@primitive("div", "rem")
def quotient(equation: Equation, x: Term, y: Term) -> Term:
    """Divides; integers by 0 as XLA does: all bits of the quotient are 1, and the remainder is the dividend."""
    y = cast(y, x.access.dtype)
    found = combine("elementwise-div" if equation.primitive == "div" else "(mod truncate)", x, y)
    if x.access.dtype in FLOATS or ((known := equation.known(y)) is not None and known.all()):
        return found
    return select(
        compare("eq", y, filled(y, 0)), filled(x, all_bits(x.access.dtype)) if equation.primitive == "div" else x, found
    )


@primitive("not")
def not_(_: Equation, x: Term) -> Term:
    if x.access.dtype == "bool":
        return compute("logical-not", x)
    return combine("bitwise-xor", x, filled(x, all_bits(x.access.dtype)))


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
    """Shifts bits; to the right, those of signed numbers for arithmetic shifts, and of unsigned ones for logical."""
    if equation.primitive == "shift_left":
        return shifted(x, by, left=True)
    own = x.access.dtype
    dtype = own.removeprefix("u") if equation.primitive == "shift_right_arithmetic" else f"u{own.removeprefix('u')}"
    if dtype == own:
        return shifted(x, by, left=False)
    return build("bitcast", shifted(build("bitcast", x, dtype), build("bitcast", by, dtype), left=False), own)


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
    if equation.dtype in INTEGERS and x.access.dtype in FLOATS:
        return _nearest_integer(x, equation.dtype)
    return cast(x, equation.dtype)


def _nearest_integer(x: Term, dtype: str) -> Term:
    """Rounds floats towards zero; beyond the range to its ends, as XLA does, and NaN to 0."""
    low, high = limits(dtype)
    x = cast(x, "float32") if x.access.dtype in HALVES else x
    inside = combine("logical-and", compare("ge", x, filled(x, low)), compare("lt", x, filled(x, high + 1)))
    found = cast(select(inside, x, filled(x, 0)), dtype)
    found = select(compare("lt", x, filled(x, low)), filled(found, low), found)
    return select(compare("ge", x, filled(x, high + 1)), filled(found, high), found)


@primitive("bitcast_convert_type")
def bitcast_convert(equation: Equation, x: Term) -> Term:
    own, width = equation.dtype, RECORDS[x.access.dtype].bits
    if RECORDS[own].bits != width or "bool" in (own, x.access.dtype):
        raise Refused(f"reads the bits of {x.access.dtype} as {own}, which has not as many")
    return build("bitcast", x, own)


_FORMATS = {(8, 23): "float32", (8, 7): "bfloat16", (5, 10): "float16", (11, 52): "float64"}


@primitive("reduce_precision")
def reduce_precision(equation: Equation, x: Term) -> Term:
    bits = equation.params["exponent_bits"], equation.params["mantissa_bits"]
    if bits not in _FORMATS:
        raise Refused(f"rounds to {bits[0]} bits of exponent and {bits[1]} of mantissa, which is no dtype here")
    wider = RECORDS[_FORMATS[bits]].bits >= RECORDS[x.access.dtype].bits
    return x if wider else cast(cast(x, _FORMATS[bits]), x.access.dtype)
