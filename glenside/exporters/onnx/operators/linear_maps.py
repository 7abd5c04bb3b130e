"""Constant matrices along an axis, as the additions that they are."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

from glenside.exporters.onnx.emitter import Emitter
from glenside.exporters.onnx.graph import Value
from glenside.exporters.onnx.registry import Operand, exports
from glenside.ir.rational import exact_numbers
from glenside.ir.types import AccessType


@exports("linear-map")
def _linear_map(emit: Emitter, result: AccessType, a: Operand, axis: int, rows: int, coefficients: str) -> Value:
    """One row of the result at a time. Not a product with a matrix: 0 times an infinity is not left out there."""
    x, values = a.value, exact_numbers(coefficients) or ()
    count = x.dims[axis]
    parts = [emit.slice(x, axis, i, i + 1) for i in range(count)]
    made = [_row(emit, parts, values[row * count : (row + 1) * count]) for row in range(rows)]
    nothing = emit.full(result.dims.set(axis, 1), 0, x.dtype)
    return emit.concat([row or nothing for row in made], axis) if made else emit.full(result.dims, 0, x.dtype)


def _row(emit: Emitter, parts: Sequence[Value], coefficients: Sequence[Fraction]) -> Value | None:
    total = None
    for part, c in zip(parts, coefficients, strict=True):
        if c == 0:
            continue
        term = part if abs(c) == 1 else emit.elementwise("Mul", part, emit.number(str(abs(c)), part.dtype))
        start = emit.number(0, part.dtype) if total is None and c < 0 else total
        total = term if start is None else emit.elementwise("Add" if c > 0 else "Sub", start, term)
    return total
