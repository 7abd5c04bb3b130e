"""The exports, found by `operators/__init__.py`: one function for each operator that has no index map or a shorter way
than it, each compute type without a scalar expression, and each primitive that is more than a function of JAX.
"""

from __future__ import annotations

from typing import TypeAlias

from glenside.exporters import writer
from glenside.exporters.jax.source import Value
from glenside.ir.errors import BadInput

Held: TypeAlias = writer.Held[Value]
Operand: TypeAlias = writer.Operand[Value]

# (source, type of the result, *arguments in field order, operands for terms) -> what stands for the result
OPERATOR_EXPORTS: writer.Exports[Held] = writer.Exports(writer.REARRANGING)
# (source, type of the result, operand, *parameters as text) -> what stands for the result
COMPUTE_EXPORTS: writer.Exports[Value] = writer.Exports()
# (source, *values) -> the value
PRIMITIVE_EXPORTS: writer.Exports[Value] = writer.Exports()

# What is not written, and why. Everything else of the language has an export.
OPERATORS_LEFT_OUT = dict.fromkeys(("opaque", "opaque-pointwise", "opaque-items"), "its meaning is unknown")


def left_out(what: str) -> BadInput:
    """What to raise for something that is not written."""
    return BadInput(f"a function of JAX requires what JAX can say, got {what}")
