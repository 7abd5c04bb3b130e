"""Changes of dtype."""

from __future__ import annotations

from glenside.builder.pointwise import cast
from glenside.importers.onnx.node import Node
from glenside.importers.onnx.registry import onnx_operator
from glenside.importers.onnx.tensors import dtype_name
from glenside.ir.errors import BadInput
from glenside.ir.term import Term, build


def _target(node: Node) -> str:
    if node.version < 6:  # the name of a type, in those days
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
    return cast(node.term(0), _target(node))


@onnx_operator("CastLike")
def cast_like(node: Node) -> Term:
    return cast(node.term(0), node.term(1).access.dtype)


@onnx_operator("BitCast")
def bit_cast(node: Node) -> Term:
    x, dtype = node.term(0), _target(node)
    return x if x.access.dtype == dtype else build("bitcast", x, dtype)
