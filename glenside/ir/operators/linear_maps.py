"""Small constant matrices applied along an axis, by additions."""

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
    """Multiplications by what is not 1 or -1, additions, and one multiplication of a row of fractions."""
    values, count = exact_numbers(coefficients) or (), a.dims[axis]
    spent = 0
    for row in range(rows):
        whole, denominator = over_one_denominator(values[row * count : (row + 1) * count])
        used = [v for v in whole if v]
        spent += max(len(used) - 1, 0) + sum(abs(v) != 1 for v in used) + (bool(used) and used[0] < 0)
        spent += denominator != 1
    return spent * a.dims.remove(axis).product()


def _adjoint(terms: Any, g: Any, a: Any, axis: int, rows: int, coefficients: str) -> tuple[Any]:
    """The transposed matrix."""
    words, columns = coefficients.split(), a.access.dims[axis]
    turned = " ".join(words[row * columns + column] for column in range(columns) for row in range(rows))
    return (terms.linear_map(g, axis, columns, turned),)


linear_map = operator(
    name="linear-map",
    kind=OperatorKind.COMPUTE,
    fields=fields(a=Kind.TERM, axis=Kind.INT, rows=Kind.INT, coefficients=Kind.TEXT),
    check=_check,
    result=lambda a, axis, rows, coefficients: a.with_dims(a.dims.set(axis, rows)),
    evaluate=_evaluate,
    stores=lambda *_: True,
    # Blocks: the sum before and after, and what is added to it.
    scratch=lambda a, axis, *_: 3 * block_size((*a.shape[:axis], *a.shape[axis + 1 :]), PART) * a.itemsize,
    operations=_operations,
    linear=True,
    keeps=Keeps.ZERO,
    adjoint=_adjoint,
    doc="Each element along the axis becomes a sum of those there, each times an exact number: a constant matrix, "
    "written in row-major order, times the axis. Terms that are 0 are left out, those of 1 and -1 are only added "
    "and subtracted; a row of fractions is a sum of whole multiples over one denominator.",
    examples=example('(linear-map (access (access-tensor x) 1) 1 2 "1 0 -1 -1/2 1 3")', x="m 3 n"),
)
