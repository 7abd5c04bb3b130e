"""What is bool, and what bool decides."""

from __future__ import annotations

import numpy as np

from glenside.builder import pointwise
from glenside.importers.onnx.node import Node
from glenside.importers.onnx.operators.pointwise import operands
from glenside.importers.onnx.registry import onnx_operator
from glenside.ir.term import Term

RELATIONS = {"Equal": "eq", "Less": "lt", "LessOrEqual": "le", "Greater": "gt", "GreaterOrEqual": "ge"}


@onnx_operator(*RELATIONS)
def comparison(node: Node) -> Term:
    return pointwise.compare(RELATIONS[node.op_type], *operands(node))


@onnx_operator("Xor")
def exclusive_or(node: Node) -> Term:
    return pointwise.compare("ne", *operands(node))


@onnx_operator("Where")
def where(node: Node) -> Term:
    return pointwise.select(node.term(0), node.term(1), node.term(2))


@onnx_operator("IsNaN")
def is_nan(node: Node) -> Term:
    return pointwise.compare("ne", node.term(0), node.term(0))


@onnx_operator("IsInf")
def is_inf(node: Node) -> Term:
    """What is beyond the largest finite number: infinity itself has no exact text."""
    x = node.term(0)
    largest = int(np.finfo(x.access.dtype).max)
    below, above = node.integer("detect_negative", 1), node.integer("detect_positive", 1)
    if below and above:
        return pointwise.compare("gt", pointwise.compute("abs", x), pointwise.filled(x, largest))
    if above:
        return pointwise.compare("gt", x, pointwise.filled(x, largest))
    if below:
        return pointwise.compare("lt", x, pointwise.filled(x, -largest))
    return node.builder.full(x.access.dims, 0, "bool")
