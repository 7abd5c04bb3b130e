"""Element by element: arithmetic that broadcasts both ways, logic, bits, functions of one number."""

from __future__ import annotations

from functools import reduce

import numpy as np

from glenside.builder import pointwise
from glenside.builder.layout import common_dims, reshape
from glenside.builder.pointwise import cast
from glenside.importers.onnx.node import Node
from glenside.importers.onnx.registry import onnx_operator
from glenside.ir.errors import BadInput
from glenside.ir.primitives import PRIMITIVES
from glenside.ir.term import Term
from glenside.ir.types import FLOATS

# Sigmoid is among the activations, which recurrent networks name too.
FUNCTIONS = {p.onnx: p.name for p in PRIMITIVES.values() if p.arity == 1 and p.name != "sigmoid"}
PAIRS = {
    "Add": "elementwise-add",
    "Sub": "subtract",
    "Mul": "elementwise-mul",
    "Div": "elementwise-div",
    "And": "logical-and",
    "Or": "logical-or",
    "BitwiseAnd": "bitwise-and",
    "BitwiseOr": "bitwise-or",
    "BitwiseXor": "bitwise-xor",
}
VARIADIC = {"Sum": "elementwise-add", "Min": "minimum", "Max": "maximum"}


def operands(node: Node) -> tuple[Term, Term]:
    """Both inputs. Before version 7 only the second is repeated, and only where `broadcast` says so, from `axis` on."""
    x, y = node.term(0), node.term(1)
    if node.version >= 7 or x.access.dims == y.access.dims:
        return x, y
    if not node.integer("broadcast", 0):
        raise BadInput(f"requires inputs of one shape, as attribute broadcast is 0, got {x.access} and {y.access}")
    rank, few = x.access.rank, y.access.rank
    first = node.axis("axis", 0, rank) if "axis" in node.attributes else max(rank - few, 0)
    after = rank - first - few
    if after < 0:
        raise BadInput(
            f"input 1 requires at most the {rank - first} axes of {x.access} from {first} on, got {y.access}"
        )
    return x, reshape(y, (*y.access.dims, *(1,) * after))


@onnx_operator(*FUNCTIONS)
def function(node: Node) -> Term:
    return pointwise.compute(FUNCTIONS[node.op_type], node.term(0))


@onnx_operator("Reciprocal")
def reciprocal(node: Node) -> Term:
    x = node.term(0)
    return pointwise.divide(pointwise.filled(x, 1), x)


@onnx_operator("BitwiseNot")
def bitwise_not(node: Node) -> Term:
    x = node.term(0)
    ones = int(np.iinfo(x.access.dtype).max) if x.access.dtype.startswith("u") else -1
    return pointwise.combine("bitwise-xor", x, pointwise.filled(x, ones))


@onnx_operator(*PAIRS)
def pair(node: Node) -> Term:
    return pointwise.combine(PAIRS[node.op_type], *operands(node))


@onnx_operator(*VARIADIC)
def variadic(node: Node) -> Term:
    return _folded(node, VARIADIC[node.op_type])


def _folded(node: Node, kind: str) -> Term:
    return reduce(lambda x, y: pointwise.combine(kind, x, y), node.terms()[1:], node.term(0))


@onnx_operator("Mean")
def mean(node: Node) -> Term:
    total = _folded(node, "elementwise-add")
    return pointwise.divide(total, pointwise.filled(total, len(node.inputs)))


@onnx_operator("Mod")
def mod(node: Node) -> Term:
    rounding = "truncate" if node.integer("fmod", 0) else "floor"
    return pointwise.combine(f"(mod {rounding})", node.term(0), node.term(1))


@onnx_operator("Pow")
def power(node: Node) -> Term:
    """Both in the dtype of the first input; of integers to powers that are floats, in float64.

    Small whole powers are products: those are exact, and the e-graph knows them.
    """
    x, y = operands(node)
    dims, dtype = common_dims("Pow", x.access.dims, y.access.dims), x.access.dtype
    if dims == x.access.dims and y.access.size == 1:
        known = node.scope.known(y)
        simple = None if known is None else _simple_power(x, float(known.reshape(())))
        if simple is not None:
            return simple
    inner = "float64" if dtype not in FLOATS and y.access.dtype in FLOATS else dtype
    return cast(pointwise.combine("pow", cast(x, inner), cast(y, inner)), dtype)


def _simple_power(x: Term, exponent: float) -> Term | None:
    if exponent == 1:
        return x
    if exponent == 2:
        return pointwise.multiply(x, x)
    if exponent == 3:
        return pointwise.multiply(pointwise.multiply(x, x), x)
    return None


@onnx_operator("BitShift")
def bit_shift(node: Node) -> Term:
    """Products with powers of 2, which wrap to 0 from the width on; n / 0 is 0, and negative powers are 0 too."""
    x, y = node.term(0), node.term(1)
    factor = pointwise.combine("pow", pointwise.filled(y, 2), y)
    if node.text("direction", "", "LEFT", "RIGHT") == "LEFT":
        return pointwise.multiply(x, factor)
    if x.access.dtype.startswith("u"):
        return pointwise.divide(x, factor)
    below, ones = pointwise.compare("lt", x, pointwise.filled(x, 0)), pointwise.filled(x, -1)
    bits = pointwise.select(below, pointwise.subtract(ones, x), x)
    shifted = pointwise.divide(bits, factor)
    ones = pointwise.filled(shifted, -1)
    return pointwise.select(below, pointwise.subtract(ones, shifted), shifted)
