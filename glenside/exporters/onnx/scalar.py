"""Compute types that a scalar expression defines: each primitive is a node, or what stands in for one."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce

from glenside.exporters.onnx.emitter import Emitter
from glenside.exporters.onnx.graph import Value
from glenside.exporters.onnx.registry import PRIMITIVE_EXPORTS, Operand
from glenside.ir.elementwise import folds
from glenside.ir.operator import Category, Compute
from glenside.ir.scalar import Applied, Element, Number, Scalar, x, y
from glenside.ir.types import AccessType

# More operands than this are folded in halves, where the order does not matter.
_CHAIN = 8


def export_scalar(
    emit: Emitter, result: AccessType, a: Operand, compute: Compute, parameters: Sequence[str] = ()
) -> Value:
    """What stands for a compute type of an operand; operands of a pair broadcast, nothing is stacked."""
    expression = compute.expression(*parameters)
    if compute.category is Category.POINTWISE:
        return emit.expand(write(emit, expression, [a.value]), result.dims)
    if not folds(expression):
        return emit.expand(write(emit, expression, a.parts()), result.dims)
    primitive = expression.primitive if isinstance(expression, Applied) else None
    if primitive and primitive.associative and expression == primitive(x, y) and a.access.item[0] > _CHAIN:
        return emit.view(emit.tree(primitive.onnx, a.value, a.access.split), result.dims)
    return emit.expand(reduce(lambda p, q: write(emit, expression, [p, q]), a.parts()), result.dims)


def write(emit: Emitter, expression: Scalar, operands: Sequence[Value]) -> Value:
    """The value of an expression of operands of one rank that broadcast."""
    if isinstance(expression, Element):
        return operands[expression.position]
    if isinstance(expression, Number):
        return emit.number(expression.text, operands[0].dtype, operands[0].rank)
    assert isinstance(expression, Applied)
    primitive, arguments = expression.primitive, [write(emit, argument, operands) for argument in expression.arguments]
    if primitive.name in PRIMITIVE_EXPORTS:
        return PRIMITIVE_EXPORTS[primitive.name](emit, *arguments)
    return emit.elementwise(primitive.onnx, *arguments, dtype="bool" if primitive.gives == "bool" else None)
