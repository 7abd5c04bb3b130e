"""Small constant matrices applied along an axis, by additions."""

from __future__ import annotations

from typing import Any

import numpy as np

from glenside.ir.operand import Array
from glenside.ir.operator import Kind, Operator, fields, register
from glenside.ir.operators.requirements import require_axis, require_number, require_sizes, require_values
from glenside.ir.rational import exact, exact_numbers
from glenside.ir.types import AccessType


def _check(a: AccessType, axis: int, rows: int, coefficients: str) -> None:
    name = "linear-map"
    require_number(name, a)
    require_axis(name, axis, a.rank)
    require_sizes(name, "rows", (rows,))
    require_values(name, coefficients, rows * a.dims[axis], a.dtype)


def _evaluate(arithmetic: Any, a: Array, axis: int, rows: int, coefficients: str) -> Array:
    """One row of the result at a time, from the slices that have a part in it."""
    count = a.shape[axis]
    zero = arithmetic.constant(exact("0"), a.dtype.name)
    result = np.empty((*a.shape[:axis], rows, *a.shape[axis + 1 :]), a.dtype)
    values = exact_numbers(coefficients) or ()
    before: tuple[slice | int, ...] = (slice(None),) * axis
    for row in range(rows):
        total: Array | None = None
        for i, value in enumerate(values[row * count : (row + 1) * count]):
            if value == 0:
                continue
            part = a[(*before, i)]
            if abs(value) != 1:
                part = arithmetic.multiply(part, arithmetic.constant(abs(value), a.dtype.name))
            if total is None:
                total = part if value > 0 else arithmetic.subtract(zero, part)
            else:
                total = arithmetic.add(total, part) if value > 0 else arithmetic.subtract(total, part)
        result[(*before, row)] = zero if total is None else total
    return result


linear_map = register(
    Operator(
        name="linear-map",
        fields=fields(a=Kind.TERM, axis=Kind.INT, rows=Kind.INT, coefficients=Kind.TEXT),
        check=_check,
        result=lambda a, axis, rows, coefficients: a.with_dims(a.dims.set(axis, rows)),
        evaluate=_evaluate,
        doc="Each element along the axis becomes a sum of those there, each times an exact number: a constant matrix, "
        "written in row-major order, times the axis. Terms that are 0 are left out, those of 1 and -1 are only added "
        "and subtracted.",
        movement=False,
    )
)
