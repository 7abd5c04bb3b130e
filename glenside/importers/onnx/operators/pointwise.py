"""Imports elementwise operators: arithmetic with broadcasting, logic, bits, comparisons, functions, casts."""

from __future__ import annotations

from functools import reduce

from glenside.builder.layout import common_dims, reshape
from glenside.builder.pointwise import add, cast, combine, compare, compute, divide, filled, multiply, select, subtract
from glenside.builder.quantization import saturated_float
from glenside.importers.onnx.node import Node, onnx_operator
from glenside.importers.onnx.tensors import dtype_name
from glenside.ir.dtypes import FLOATS, REALS, STORED, largest_float, limits
from glenside.ir.errors import BadInput
from glenside.ir.primitives import PRIMITIVES
from glenside.ir.term import Term, build

FUNCTIONS = {p.onnx: p.name for p in PRIMITIVES.values() if p.arity == 1}
PAIRS = {
    "Add": "elementwise-add",
    "Sub": "subtract",
    "Mul": "elementwise-mul",
    "Div": "elementwise-div",
    "And": "logical-and",
    "Or": "logical-or",
    "Xor": "(compare ne)",
    "BitwiseAnd": "bitwise-and",
    "BitwiseOr": "bitwise-or",
    "BitwiseXor": "bitwise-xor",
    "Equal": "(compare eq)",
    "Less": "(compare lt)",
    "LessOrEqual": "(compare le)",
    "Greater": "(compare gt)",
    "GreaterOrEqual": "(compare ge)",
}
VARIADIC = {"Sum": "elementwise-add", "Min": "minimum", "Max": "maximum"}


def operands(node: Node) -> tuple[Term, Term]:
    """Returns both inputs. Before version 7 only the second broadcasts, from `axis` on, if `broadcast` is set."""
    x, y = node.term(0), node.term(1)
    if node.version >= 7 or x.access.dims == y.access.dims:
        return x, y
    if not node.integer("broadcast", 0):
        raise BadInput(f"requires inputs of one shape, as attribute broadcast is 0, got {x.access} and {y.access}")
    rank, few = x.access.rank, y.access.rank
    first = node.axis("axis", 0, rank) if "axis" in node.attributes else max(rank - few, 0)
    most = rank - first
    if few > most:
        raise BadInput(f"input 1 requires at most the {most} axes of {x.access} from {first} on, got {y.access}")
    return x, reshape(y, (*y.access.dims, *(1,) * (most - few)))


@onnx_operator(*FUNCTIONS)
def function(node: Node) -> Term:
    x, name = node.term(0), FUNCTIONS[node.op_type]
    if node.op_type == "Erf" and x.access.dtype not in FLOATS:  # integers before version 13
        return _truncated_erf(x)
    return compute(name, x)


def _truncated_erf(x: Term) -> Term:
    """Computes the integer part of erf, which is 0 for |x| < 4: erf(4) is the first that float32 rounds to 1."""
    quotient = divide(x, filled(x, 4))
    above = combine("minimum", quotient, filled(x, 1))
    return above if x.access.dtype.startswith("u") else combine("maximum", above, filled(x, -1))


@onnx_operator("Reciprocal")
def reciprocal(node: Node) -> Term:
    x = node.term(0)
    return divide(filled(x, 1), x)


@onnx_operator("BitwiseNot")
def bitwise_not(node: Node) -> Term:
    x = node.term(0)
    ones = limits(x.access.dtype)[1] if x.access.dtype.startswith("u") else -1
    return combine("bitwise-xor", x, filled(x, ones))


@onnx_operator(*PAIRS)
def pair(node: Node) -> Term:
    return combine(PAIRS[node.op_type], *operands(node))


@onnx_operator(*VARIADIC)
def variadic(node: Node) -> Term:
    return reduce(lambda x, y: combine(VARIADIC[node.op_type], x, y), node.terms()[1:], node.term(0))


@onnx_operator("Mean")
def mean(node: Node) -> Term:
    total = reduce(add, node.terms()[1:], node.term(0))
    return divide(total, filled(total, len(node.inputs)))


@onnx_operator("Mod")
def mod(node: Node) -> Term:
    rounding = "truncate" if node.integer("fmod", 0) else "floor"
    return combine(f"(mod {rounding})", node.term(0), node.term(1))


@onnx_operator("Pow")
def power(node: Node) -> Term:
    """Computes powers in the dtype of the first input; integers to float powers are computed in float64.

    Small integer powers are products, which are exact, and which rules of the e-graph match.
    """
    x, y = operands(node)
    dims, dtype = common_dims("Pow", x.access.dims, y.access.dims), x.access.dtype
    if dims == x.access.dims and y.access.size == 1:
        known = node.scope.known(y)
        exponent = None if known is None else float(known.reshape(()))
        if exponent in (1, 2, 3):
            return reduce(multiply, [x] * int(exponent))
    inner = "float64" if dtype not in FLOATS and y.access.dtype in FLOATS else dtype
    return cast(combine("pow", cast(x, inner), cast(y, inner)), dtype)


@onnx_operator("BitShift")
def bit_shift(node: Node) -> Term:
    """Shifts by products with powers of 2, which wrap to 0 from the width on; n / 0 and negative powers are 0."""
    x, y = node.term(0), node.term(1)
    factor = combine("pow", filled(y, 2), y)
    if node.text("direction", "", "LEFT", "RIGHT") == "LEFT":
        return multiply(x, factor)
    if x.access.dtype.startswith("u"):
        return divide(x, factor)
    below, ones = compare("lt", x, filled(x, 0)), filled(x, -1)
    bits = select(below, subtract(ones, x), x)
    shifted = divide(bits, factor)
    ones = filled(shifted, -1)
    return select(below, subtract(ones, shifted), shifted)


@onnx_operator("Where")
def where(node: Node) -> Term:
    return select(node.term(0), node.term(1), node.term(2))


@onnx_operator("IsNaN")
def is_nan(node: Node) -> Term:
    return compare("ne", node.term(0), node.term(0))


@onnx_operator("IsInf")
def is_inf(node: Node) -> Term:
    """Compares with the largest finite number, since infinity has no exact text."""
    x = node.term(0)
    largest = int(largest_float(x.access.dtype))
    below, above = node.integer("detect_negative", 1), node.integer("detect_positive", 1)
    if below and above:
        return compare("gt", compute("abs", x), filled(x, largest))
    if above:
        return compare("gt", x, filled(x, largest))
    if below:
        return compare("lt", x, filled(x, -largest))
    return build("full", x.access.dims, 0, "bool")


def _target(node: Node) -> str:
    if node.version < 6:  # in old versions, the name of a type
        name = node.text("to", "").lower()
        return {"float": "float32", "double": "float64"}.get(name, name)
    to = node.integer("to")
    if to is None:
        raise BadInput("attribute to requires an element type, got nothing")
    try:
        return dtype_name(to)
    except BadInput as error:
        raise BadInput(f"attribute to: {error.message}") from None


@onnx_operator("Cast")
def cast_to(node: Node) -> Term:
    return _cast(node, _target(node))


@onnx_operator("CastLike")
def cast_like(node: Node) -> Term:
    return _cast(node, node.term(1).access.dtype)


def _cast(node: Node, dtype: str) -> Term:
    """Casts; to 8-bit floats it saturates by default."""
    saturates = dtype in REALS and dtype in STORED and node.integer("saturate", 1) != 0
    return saturated_float(node.term(0), dtype) if saturates else cast(node.term(0), dtype)


@onnx_operator("BitCast")
def bit_cast(node: Node) -> Term:
    x, dtype = node.term(0), _target(node)
    return x if x.access.dtype == dtype else build("bitcast", x, dtype)
