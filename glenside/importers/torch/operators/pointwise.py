"""Imports functions of single elements: arithmetic with broadcasting, logic, bits, comparisons and casts."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial, reduce

import numpy as np

from glenside.builder.functions import expm1, log1p, truncated
from glenside.builder.layout import broadcast
from glenside.builder.pointwise import (
    add,
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
from glenside.importers.torch.node import Node, Operand, Refused, aten, register
from glenside.importers.torch.promotion import Number, is_number, promoted
from glenside.ir.dtypes import FLOATS, HALVES, RECORDS, all_bits, largest_float
from glenside.ir.term import Term

Function = Callable[[Term], Term]

PLAIN = {
    **dict.fromkeys("acos acosh asin asinh atan atanh cos cosh erf exp log sigmoid sin sinh sqrt tan tanh".split()),
    "abs": "abs",
    "neg": "negative",
    "sign": "sign",
}
"""Operators of one operand that are a primitive, by another name if one is given. Integers are cast to floats first
where PyTorch's result is a float.
"""


def _plain(name: str, node: Node, self: Term) -> Term:
    return compute(name, cast(self, node.dtype))


def _rounded(name: str, node: Node, self: Term) -> Term:
    """Rounds floats; integers are whole."""
    return compute(name, self) if self.access.dtype in FLOATS else self


def _derived(function: Function, node: Node, self: Term) -> Term:
    """Applies a function that is computed in the dtype of the result, halves in float32."""
    wide = "float32" if node.dtype in HALVES else node.dtype
    return cast(function(cast(self, wide)), node.dtype)


DERIVED: dict[str, Function] = {
    "log1p": log1p,
    "expm1": expm1,
    "exp2": lambda x: combine("pow", filled(x, 2), x),
    "log2": lambda x: divide(compute("log", x), filled(x, math.log(2))),
    "log10": lambda x: divide(compute("log", x), filled(x, math.log(10))),
    "rsqrt": lambda x: divide(filled(x, 1), compute("sqrt", x)),
    "reciprocal": lambda x: divide(filled(x, 1), x),
}

for _name, _own in PLAIN.items():
    register(_name, partial(_plain, _own or _name), ("default",), "", __name__)
for _name in ("floor", "ceil", "round"):
    register(_name, partial(_rounded, _name), ("default",), "", __name__)
for _name, _function in DERIVED.items():
    register(_name, partial(_derived, _function), ("default",), "", __name__)


@aten("trunc")
def trunc(node: Node, self: Term) -> Term:
    return truncated(self) if self.access.dtype in FLOATS else self


@aten("relu")
def relu(node: Node, self: Term) -> Term:
    return compute("relu", self)


@aten("isnan")
def isnan(node: Node, self: Term) -> Term:
    return compare("ne", self, self)


@aten("isinf")
def isinf(node: Node, self: Term) -> Term:
    """Compares with the largest finite number, since infinity has no exact text."""
    if self.access.dtype not in FLOATS:
        return filled(cast(self, "bool"), 0)
    return compare("gt", compute("abs", self), filled(self, int(largest_float(self.access.dtype))))


def in_dtype(node: Node, dtype: str, *operands: Operand) -> list[Term]:
    """Returns operands, tensors or numbers, in one dtype."""
    return [node.operand(operand, dtype) for operand in operands]


def arithmetic(node: Node, kind: str, *operands: Operand) -> Term:
    """Combines operands in the dtype of the result.

    PyTorch does not round a Python number to 16 bits: with one that needs more, it computes in float32.
    """
    dtype = node.dtype
    wide = dtype in HALVES and any(is_number(v) and _rounds(v, dtype) for v in operands if not isinstance(v, Term))
    x, y = in_dtype(node, "float32" if wide else dtype, *operands)
    return cast(combine(kind, x, y), dtype)


def _rounds(value: Number, dtype: str) -> bool:
    """True if a dtype does not hold a number."""
    with np.errstate(over="ignore"):
        return float(np.asarray(value, RECORDS[dtype].numpy)) != value


def _scaled(node: Node, x: Operand, alpha: Number) -> Operand:
    """Returns alpha * x."""
    if alpha == 1:
        return x
    return x * alpha if not isinstance(x, Term) else multiply(cast(x, node.dtype), node.number(alpha, node.dtype))


@aten("add", "Tensor", "Scalar")
def add_(node: Node, self: Operand, other: Operand, alpha: Number = 1) -> Term:
    if node.dtype == "bool":
        return logical(node, "logical-or", self, other) if alpha else node.operand(self, "bool")
    return arithmetic(node, "elementwise-add", self, _scaled(node, other, alpha))


@aten("sub", "Tensor", "Scalar")
def sub(node: Node, self: Operand, other: Operand, alpha: Number = 1) -> Term:
    return arithmetic(node, "subtract", self, _scaled(node, other, alpha))


@aten("rsub", "Tensor", "Scalar")
def rsub(node: Node, self: Operand, other: Operand, alpha: Number = 1) -> Term:
    return arithmetic(node, "subtract", other, _scaled(node, self, alpha))


@aten("mul", "Tensor", "Scalar")
def mul(node: Node, self: Operand, other: Operand) -> Term:
    if node.dtype == "bool":
        return logical(node, "logical-and", self, other)
    return arithmetic(node, "elementwise-mul", self, other)


@aten("div", "Tensor", "Scalar", "Tensor_mode", "Scalar_mode")
def div(node: Node, self: Operand, other: Operand, rounding_mode: str | None = None) -> Term:
    if rounding_mode is None:
        return arithmetic(node, "elementwise-div", self, other)
    x, y = in_dtype(node, node.dtype, self, other)
    if rounding_mode == "trunc":
        quotient = divide(x, y)
        return truncated(quotient) if node.dtype in FLOATS else quotient
    remainder = combine("(mod floor)", x, y)
    quotient = divide(subtract(x, remainder), y)
    if node.dtype not in FLOATS:
        return quotient
    zero = compare("eq", y, filled(y, 0))
    return select(zero, divide(x, y), compute("round", quotient))


@aten("floor_divide", "default", "Scalar")
def floor_divide(node: Node, self: Operand, other: Operand) -> Term:
    return div(node, self, other, "floor")


@aten("remainder", "Tensor", "Scalar", "Scalar_Tensor")
def remainder(node: Node, self: Operand, other: Operand) -> Term:
    return combine("(mod floor)", *in_dtype(node, node.dtype, self, other))


@aten("fmod", "Tensor", "Scalar")
def fmod(node: Node, self: Operand, other: Operand) -> Term:
    return combine("(mod truncate)", *in_dtype(node, node.dtype, self, other))


@aten("pow", "Tensor_Tensor", "Tensor_Scalar", "Scalar")
def power(node: Node, self: Operand, exponent: Operand) -> Term:
    """Small integer powers are products, which are exact, and which rules of the e-graph match."""
    if isinstance(self, Term) and not isinstance(exponent, Term):
        x = cast(self, node.dtype)
        if exponent in (1, 2, 3):
            return reduce(multiply, [x] * int(exponent))
        if exponent == 0.5:
            return compute("sqrt", x)
        if exponent == -1 and node.dtype in FLOATS:
            return divide(filled(x, 1), x)
    if node.dtype == "bool":  # only false to the power of true is false
        x, y = in_dtype(node, "bool", self, exponent)
        return combine("logical-or", x, compute("logical-not", y))
    return combine("pow", *in_dtype(node, node.dtype, self, exponent))


@aten("ldexp", "Tensor")
def ldexp(node: Node, self: Term, other: Term) -> Term:
    x, y = in_dtype(node, node.dtype, self, other)
    return multiply(x, combine("pow", filled(y, 2), y))


@aten("maximum")
def maximum(node: Node, self: Term, other: Term) -> Term:
    return combine("maximum", *in_dtype(node, node.dtype, self, other))


@aten("minimum")
def minimum(node: Node, self: Term, other: Term) -> Term:
    return combine("minimum", *in_dtype(node, node.dtype, self, other))


def _number_wins(kind: str, node: Node, self: Term, other: Term) -> Term:
    """Returns the extreme of two; a NaN counts only if both are."""
    x, y = in_dtype(node, node.dtype, self, other)
    found = combine(kind, x, y)
    return select(compare("ne", x, x), y, select(compare("ne", y, y), x, found)) if node.dtype in FLOATS else found


register("fmax", partial(_number_wins, "maximum"), ("default",), "", __name__)
register("fmin", partial(_number_wins, "minimum"), ("default",), "", __name__)


@aten("clamp", "default", "Tensor")
def clamp(node: Node, self: Term, min: Operand | None = None, max: Operand | None = None) -> Term:
    x = cast(self, node.dtype)
    for kind, bound in (("maximum", min), ("minimum", max)):
        if bound is not None:
            x = combine(kind, x, node.operand(bound, node.dtype))
    return x


@aten("hardtanh")
def hardtanh(node: Node, self: Term, min_val: Number = -1, max_val: Number = 1) -> Term:
    return clamp(node, self, min_val, max_val)


@aten("leaky_relu")
def leaky_relu(node: Node, self: Term, negative_slope: Number = 0.01) -> Term:
    return compute(f"(leaky-relu {float(negative_slope)!r})", self)


@aten("elu")
def elu(node: Node, self: Term, alpha: Number = 1, scale: Number = 1, input_scale: Number = 1) -> Term:
    dtype = "float32" if node.dtype in HALVES else node.dtype
    x = cast(self, dtype)
    below = multiply(expm1(multiply(x, filled(x, float(input_scale)))), filled(x, float(alpha) * float(scale)))
    above = multiply(x, filled(x, float(scale)))
    return cast(select(compare("gt", x, filled(x, 0)), above, below), node.dtype)


@aten("gelu")
def gelu(node: Node, self: Term, approximate: str = "none") -> Term:
    dtype = "float32" if node.dtype in HALVES else node.dtype
    x = cast(self, dtype)
    if approximate == "none":
        share = compute("erf", multiply(x, filled(x, math.sqrt(0.5))))
    else:
        cube = multiply(multiply(x, x), x)
        inner = add(x, multiply(cube, filled(x, 0.044715)))
        share = compute("tanh", multiply(inner, filled(x, math.sqrt(2 / math.pi))))
    half = multiply(x, filled(x, 0.5))
    return cast(multiply(half, add(share, filled(x, 1))), node.dtype)


@aten("silu")
def silu(node: Node, self: Term) -> Term:
    x = cast(self, "float32" if node.dtype in HALVES else node.dtype)
    return cast(multiply(x, compute("sigmoid", x)), node.dtype)


RELATIONS = ("eq", "ne", "lt", "le", "gt", "ge")


def _compared(relation: str, node: Node, self: Operand, other: Operand) -> Term:
    dtype = promoted(self, other)
    return compare(relation, *in_dtype(node, dtype, self, other))


for _name in RELATIONS:
    register(_name, partial(_compared, _name), ("Tensor", "Scalar"), "", __name__)


def logical(node: Node, kind: str, *operands: Operand) -> Term:
    """Combines operands as truth values."""
    return combine(kind, *in_dtype(node, "bool", *operands))


LOGICAL = {"and": "logical-and", "or": "logical-or", "xor": "(compare ne)"}


def _logical(kind: str, node: Node, self: Term, other: Term) -> Term:
    return logical(node, kind, self, other)


def _bitwise(name: str, node: Node, self: Operand, other: Operand) -> Term:
    if node.dtype == "bool":
        return logical(node, LOGICAL[name], self, other)
    return combine(f"bitwise-{name}", *in_dtype(node, node.dtype, self, other))


for _name, _kind in LOGICAL.items():
    register(f"logical_{_name}", partial(_logical, _kind), ("default",), "", __name__)
    register(f"bitwise_{_name}", partial(_bitwise, _name), ("Tensor", "Scalar", "Scalar_Tensor"), "", __name__)


@aten("logical_not")
def logical_not(node: Node, self: Term) -> Term:
    return compute("logical-not", cast(self, "bool"))


@aten("bitwise_not")
def bitwise_not(node: Node, self: Term) -> Term:
    if node.dtype == "bool":
        return compute("logical-not", self)
    return combine("bitwise-xor", self, filled(self, all_bits(node.dtype)))


@aten("where", "self", "ScalarSelf", "ScalarOther", "Scalar")
def where(node: Node, condition: Term, self: Operand, other: Operand) -> Term:
    chosen = select(cast(condition, "bool"), *in_dtype(node, node.dtype, self, other))
    return broadcast(chosen, node.dims)


@aten("_to_copy", but="conversions to complex numbers")
def to_copy(node: Node, self: Term, dtype: str | None = None) -> Term:
    return cast(self, node.dtype)


@aten("clone")
def clone(node: Node, self: Term) -> Term:
    return self


for _name in ("alias", "detach", "lift_fresh_copy", "lift_fresh", "detach_", "contiguous"):
    register(_name, clone, ("default",), "", __name__)


@aten("copy")
def copy(node: Node, self: Term, src: Term) -> Term:
    return broadcast(cast(src, node.dtype), node.dims)


@aten("fill", "Scalar", "Tensor")
def fill(node: Node, self: Term, value: Operand) -> Term:
    return broadcast(node.operand(value, node.dtype), node.dims)


@aten("_local_scalar_dense", but="values that are not known at export")
def local_scalar(node: Node, self: Term) -> Number:
    value = node.known(self)
    if value is None:
        raise Refused("requires a value that is known at export: what follows would depend on data")
    found: Number = value.item()
    return found
