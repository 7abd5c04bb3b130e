"""Convolutions and matrix products: the layers of a program."""

from __future__ import annotations

from glenside.importers.onnx.node import Node
from glenside.importers.onnx.registry import onnx_operator
from glenside.ir.term import Term


@onnx_operator("MatMul")
def matmul(node: Node) -> Term:
    return node.builder.matmul(node.term(0), node.term(1), name=node.scope.layer_name(node.name))
