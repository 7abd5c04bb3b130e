"""Compute types that a scalar expression defines: each primitive is a function, or what stands in for one."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce

from glenside.exporters.jax.registry import PRIMITIVE_EXPORTS, Operand
from glenside.exporters.jax.source import Source, Value
from glenside.ir.elementwise import folds
from glenside.ir.operator import Category, Compute
from glenside.ir.scalar import Applied, Element, Number, Scalar
from glenside.ir.types import AccessType
from glenside.semantics.native import Native


def export_scalar(source: Source, result: AccessType, a: Operand, compute: Compute, parameters: Sequence[str]) -> Value:
    """What stands for a compute type of an operand; operands of a pair broadcast, nothing is stacked."""
    expression = compute.expression(*parameters)
    parts = [a.value] if compute.category is Category.POINTWISE else a.parts()
    if compute.category is Category.FOLD and folds(expression):
        value = reduce(lambda p, q: write(source, expression, [p, q]), parts)
    else:
        value = write(source, expression, parts)
    return source.broadcast(value, result.dims)


def write(source: Source, expression: Scalar, operands: Sequence[Value]) -> Value:
    """The value of an expression of operands that broadcast."""
    if isinstance(expression, Element):
        return operands[expression.position]
    if isinstance(expression, Number):
        assert expression.value is not None, "parameters are checked when a term is built"
        return source.constant(Native().constant(expression.value, operands[0].dtype))
    assert isinstance(expression, Applied)
    primitive = expression.primitive
    arguments = [write(source, argument, operands) for argument in expression.arguments]
    if primitive.name in PRIMITIVE_EXPORTS:
        return PRIMITIVE_EXPORTS[primitive.name](source, *arguments)
    return source.call(primitive.jax, arguments, "bool" if primitive.gives == "bool" else None)
