"""Defines small constant matrices that are applied along an axis, by additions."""

from __future__ import annotations

from typing import Any

from glenside.ir.blockwise import PART, block_size
from glenside.ir.operand import Array
from glenside.ir.operator import Keeps, Kind, OperatorKind, example, fields, operator
from glenside.ir.operators.requirements import require_axis, require_number, require_sizes, require_values
from glenside.ir.rational import exact_numbers, over_one_denominator
from glenside.ir.types import AccessType


def _check(a: AccessType, axis: int, rows: int, coefficients: str) -> None:
    name = "linear-map"
    require_number(name, a)
    require_axis(name, axis, a.rank)
    require_sizes(name, "rows", (rows,))
    require_values(name, coefficients, rows * a.dims[axis], a.dtype)


def _evaluate(arithmetic: Any, a: Array, axis: int, rows: int, coefficients: str, out: Array | None = None) -> Array:
    values, count = exact_numbers(coefficients) or (), a.shape[axis]
    matrix = [values[row * count : (row + 1) * count] for row in range(rows)]
    result: Array = arithmetic.linear_map(a, axis, matrix, out)
    return result


def _operations(a: AccessType, axis: int, rows: int, coefficients: str) -> int:
    """Counts multiplications by numbers other than 1 and -1, additions, and one multiplication per row of fractions."""
    values, count = exact_numbers(coefficients) or (), a.dims[axis]
    spent = 0
    for row in range(rows):
        whole, denominator = over_one_denominator(values[row * count : (row + 1) * count])
        used = [v for v in whole if v]
        spent += max(len(used) - 1, 0) + sum(abs(v) != 1 for v in used) + (bool(used) and used[0] < 0)
        spent += denominator != 1
    return spent * a.dims.remove(axis).product()


def _adjoint(terms: Any, g: Any, a: Any, axis: int, rows: int, coefficients: str) -> tuple[Any]:
    """Applies the transposed matrix."""
    words, columns = coefficients.split(), a.access.dims[axis]
    transposed = " ".join(words[row * columns + column] for column in range(columns) for row in range(rows))
    return (terms.linear_map(g, axis, columns, transposed),)


linear_map = operator(
    name="linear-map",
    kind=OperatorKind.COMPUTE,
    fields=fields(a=Kind.TERM, axis=Kind.INT, rows=Kind.INT, coefficients=Kind.TEXT),
    check=_check,
    result=lambda a, axis, rows, coefficients: a.with_dims(a.dims.set(axis, rows)),
    evaluate=_evaluate,
    stores=lambda *_: True,
    # Blocks: the sum before and after an addition, and the addend.
    scratch=lambda a, axis, *_: 3 * block_size((*a.shape[:axis], *a.shape[axis + 1 :]), PART) * a.itemsize,
    operations=_operations,
    linear=True,
    keeps=Keeps.ZERO,
    adjoint=_adjoint,
    doc="A constant matrix of exact numbers, written in row-major order, times the axis. Coefficients 0 are skipped, "
    "and 1 and -1 only add and subtract; a row of fractions is a sum of integer multiples over one denominator.",
    examples=example('(linear-map (access (access-tensor x) 1) 1 2 "1 0 -1 -1/2 1 3")', x="m 3 n"),
)
