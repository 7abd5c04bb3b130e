"""Element by element: arithmetic that broadcasts both ways, functions of one number, activations."""

from __future__ import annotations

from glenside.builder import pointwise
from glenside.importers.onnx.node import Node
from glenside.importers.onnx.registry import onnx_operator
from glenside.ir.term import Term

FUNCTIONS = {
    "Relu": "relu",
    "Neg": "negative",
    "Abs": "abs",
    "Sign": "sign",
    "Sqrt": "sqrt",
    "Exp": "exp",
    "Log": "log",
    "Tanh": "tanh",
    "Sigmoid": "sigmoid",
    "Erf": "erf",
    "Floor": "floor",
    "Ceil": "ceil",
    "Round": "round",
    "Not": "logical-not",
}
PAIRS = {"Add": "elementwise-add", "Sub": "subtract", "Mul": "elementwise-mul", "Div": "elementwise-div"}


@onnx_operator(*FUNCTIONS)
def function(node: Node) -> Term:
    return pointwise.compute(FUNCTIONS[node.op_type], node.term(0))


@onnx_operator(*PAIRS)
def pair(node: Node) -> Term:
    return pointwise.combine(PAIRS[node.op_type], node.term(0), node.term(1))
