"""The exports, found by `operators/__init__.py`: one function for each operator that has no index map or a shorter way
than it, each compute type without a scalar expression, and what has a node of its own, or none.
"""

from __future__ import annotations

from typing import TypeAlias

from glenside.exporters import writer
from glenside.exporters.writer import Value

Held: TypeAlias = writer.Held[Value]
Operand: TypeAlias = writer.Operand[Value]

# (emitter, type of the result, *arguments in field order, operands for terms) -> what stands for the result
OPERATOR_EXPORTS: writer.Exports[Held] = writer.Exports(writer.REARRANGING)
# (emitter, type of the result, operand, *parameters as text) -> what stands for the result
COMPUTE_EXPORTS: writer.Exports[Value] = writer.Exports()
# (emitter, *values) -> the value
PRIMITIVE_EXPORTS: writer.Exports[Value] = writer.Exports()
