"""Imports constants, and operators that return a tensor's shape."""

from __future__ import annotations

import numpy as np

from glenside.importers.onnx.node import Node, Value, onnx_operator
from glenside.ir.errors import BadInput
from glenside.ir.term import Term

NUMBERS = {"value_int": np.int64, "value_ints": np.int64, "value_float": np.float32, "value_floats": np.float32}


@onnx_operator("Constant")
def constant(node: Node) -> Term:
    if "value" in node.attributes:
        return node.constant(node.tensor("value"))
    for name, dtype in NUMBERS.items():
        if name in node.attributes:
            return node.constant(np.array(node.attributes[name], dtype))
    raise BadInput(f"requires a dense value of numbers, got {', '.join(node.attributes) or 'none'}")


@onnx_operator("Identity", "Optional")
def identity(node: Node) -> Value:
    return node.value(0)


@onnx_operator("Shape")
def shape(node: Node) -> Term:
    dims = node.term(0).access.dims
    part = slice(node.integer("start", 0), node.integer("end"))
    return node.constant(np.array(dims[part], np.int64))


@onnx_operator("Size")
def size(node: Node) -> Term:
    return node.constant(np.array(node.term(0).access.size, np.int64))


@onnx_operator("ConstantOfShape")
def constant_of_shape(node: Node) -> Term:
    dims = node.known_ints(0)
    value = node.tensor("value").reshape(-1) if "value" in node.attributes else np.zeros(1, np.float32)
    if value.size != 1:
        raise BadInput(f"attribute value requires one element, got {value.size}")
    return node.scope.filled(dims or [], value[0])
