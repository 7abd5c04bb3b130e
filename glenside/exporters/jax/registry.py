"""Defines the registries of exports, which the modules of `operators/` fill.

There is one function for each operator without an index map or with a shorter form, for each compute type without a
scalar expression, and for each primitive that is more than one JAX function.
"""

from __future__ import annotations

from typing import TypeAlias

from glenside.exporters import writer
from glenside.exporters.jax.source import Value
from glenside.ir.errors import BadInput

Held: TypeAlias = writer.Held[Value]
Operand: TypeAlias = writer.Operand[Value]

# (source, type of the result, *arguments in field order, operands for terms) -> the exported result
OPERATOR_EXPORTS: writer.Exports[Held] = writer.Exports(writer.REARRANGING)
# (source, type of the result, operand, *parameters as text) -> the exported result
COMPUTE_EXPORTS: writer.Exports[Value] = writer.Exports()
# (source, *values) -> the value
PRIMITIVE_EXPORTS: writer.Exports[Value] = writer.Exports()

# Operators without an export, and the reason. All others have one.
OPERATORS_LEFT_OUT = dict.fromkeys(("opaque", "opaque-pointwise", "opaque-items"), "its meaning is unknown")


def left_out(what: str) -> BadInput:
    """Returns the error for something without an export."""
    return BadInput(f"a function of JAX requires operations that JAX has, got {what}")
