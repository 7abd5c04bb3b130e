"""Convolutions and matrix products: the layers of a program."""

from __future__ import annotations

import numpy as np

from glenside.importers.onnx.node import Node
from glenside.importers.onnx.registry import onnx_operator
from glenside.importers.onnx.windows import cropped, windows_of
from glenside.ir.errors import BadInput
from glenside.ir.term import Term


def layer_name(node: Node) -> str:
    """The name under which the node's product is a layer."""
    return node.scope.layer_name(node.name)


@onnx_operator("MatMul")
def matmul(node: Node) -> Term:
    return node.builder.matmul(node.term(0), node.term(1), name=layer_name(node))


@onnx_operator("Gemm")
def gemm(node: Node) -> Term:
    a, b, c = node.term(0), node.term(1), node.optional(2)
    if a.access.rank != 2 or b.access.rank != 2:
        raise BadInput(f"inputs 0 and 1 require two axes, got {a.access} and {b.access}")
    x = node.builder.transpose(a, (1, 0)) if node.integer("transA", 0) else a
    w = b if node.integer("transB", 0) else node.builder.transpose(b, (1, 0))
    y = scaled(node, "alpha", node.builder.linear(x, w, name=layer_name(node)))
    if c is None or node.number("beta", 1) == 0:
        return y
    return node.builder.add(y, node.builder.broadcast(scaled(node, "beta", c), y.access.dims))


def scaled(node: Node, name: str, x: Term) -> Term:
    """x times the attribute of that name. Raises BadInput for a fraction of integers."""
    factor = node.number(name, 1)
    if factor == 1:
        return x
    dtype = np.dtype(x.access.dtype)
    if dtype.kind != "f" and not factor.is_integer():
        raise BadInput(f"attribute {name} requires a whole number for {dtype}, got {factor}")
    return node.builder.multiply(x, node.scope.filled(x.access.dims, np.array([factor]).astype(dtype)[0]))


@onnx_operator("Conv")
def conv(node: Node) -> Term:
    x, w = node.term(0), node.term(1)
    windows = windows_of(node, x.access.dims[2:], w.access.dims[2:])
    x, padding = cropped(x, windows)
    return node.builder.conv(
        x,
        w,
        node.optional(2),
        strides=windows.strides,
        padding=padding,
        dilations=windows.dilations,
        groups=node.integer("group", 1),
        name=layer_name(node),
    )
