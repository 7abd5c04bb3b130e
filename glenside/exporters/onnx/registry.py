"""Defines the registries of exports, which the modules of `operators/` fill.

There is one function for each operator without an index map or with a shorter form, for each compute type without a
scalar expression, and for each with a special node or without any.
"""

from __future__ import annotations

from typing import TypeAlias

from glenside.exporters import writer
from glenside.exporters.writer import Value

Held: TypeAlias = writer.Held[Value]
Operand: TypeAlias = writer.Operand[Value]

# (emitter, type of the result, *arguments in field order, operands for terms) -> the exported result
OPERATOR_EXPORTS: writer.Exports[Held] = writer.Exports(writer.REARRANGING)
# (emitter, type of the result, operand, *parameters as text) -> the exported result
COMPUTE_EXPORTS: writer.Exports[Value] = writer.Exports()
# (emitter, *values) -> the value
PRIMITIVE_EXPORTS: writer.Exports[Value] = writer.Exports()
