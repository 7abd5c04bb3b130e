"""Small constant matrices applied along an axis, by additions."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import numpy as np

from glenside.ir.blockwise import PART, Index, block_size, blocks
from glenside.ir.operand import Array
from glenside.ir.operator import Keeps, Kind, OperatorKind, example, fields, operator
from glenside.ir.operators.requirements import require_axis, require_number, require_sizes, require_values
from glenside.ir.rational import exact, exact_numbers
from glenside.ir.types import AccessType


def _check(a: AccessType, axis: int, rows: int, coefficients: str) -> None:
    name = "linear-map"
    require_number(name, a)
    require_axis(name, axis, a.rank)
    require_sizes(name, "rows", (rows,))
    require_values(name, coefficients, rows * a.dims[axis], a.dtype)


def _evaluate(arithmetic: Any, a: Array, axis: int, rows: int, coefficients: str, out: Array | None = None) -> Array:
    """One row of the result at a time, from the slices that have a part in it, in blocks."""
    count = a.shape[axis]
    result = np.empty((*a.shape[:axis], rows, *a.shape[axis + 1 :]), a.dtype) if out is None else out
    if not result.size:
        return result
    values = exact_numbers(coefficients) or ()
    slices, sums = np.moveaxis(a, axis, 0), np.moveaxis(result, axis, 0)
    for index in blocks(sums.shape[1:], PART):
        for row in range(rows):
            sums[(row, *index)] = _sum(arithmetic, slices, index, values[row * count : (row + 1) * count])
    return result


def _scaled(values: Sequence[Fraction]) -> tuple[list[int], int]:
    """A row as whole numbers over one denominator."""
    denominator = math.lcm(*[v.denominator for v in values])
    return [int(v * denominator) for v in values], denominator


def _sum(arithmetic: Any, slices: Array, index: Index, values: Sequence[Fraction]) -> Array:
    """One block of a row: the slices, each times a whole number, and the sum over their denominator."""
    dtype = slices.dtype.name
    zero: Array = arithmetic.constant(exact("0"), dtype)
    whole, denominator = _scaled(values)
    total: Array | None = None
    for i, value in enumerate(whole):
        if value == 0:
            continue
        part = slices[(i, *index, ...)]
        if abs(value) != 1:
            part = arithmetic.multiply(part, arithmetic.constant(abs(value), dtype))
        if total is None:
            total = part if value > 0 else arithmetic.subtract(zero, part)
        else:
            total = arithmetic.add(total, part) if value > 0 else arithmetic.subtract(total, part)
    if total is None:
        return zero
    if denominator != 1:
        total = arithmetic.multiply(total, arithmetic.constant(Fraction(1, denominator), dtype))
    return total


def _operations(a: AccessType, axis: int, rows: int, coefficients: str) -> int:
    """Multiplications by what is not 1 or -1, additions, and one multiplication of a row of fractions."""
    values, count = exact_numbers(coefficients) or (), a.dims[axis]
    spent = 0
    for row in range(rows):
        whole, denominator = _scaled(values[row * count : (row + 1) * count])
        used = [v for v in whole if v]
        spent += max(len(used) - 1, 0) + sum(abs(v) != 1 for v in used) + (bool(used) and used[0] < 0)
        spent += denominator != 1
    return spent * a.dims.remove(axis).product()


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
    doc="Each element along the axis becomes a sum of those there, each times an exact number: a constant matrix, "
    "written in row-major order, times the axis. Terms that are 0 are left out, those of 1 and -1 are only added "
    "and subtracted; a row of fractions is a sum of whole multiples over one denominator.",
    examples=example('(linear-map (access (access-tensor x) 1) 1 2 "1 0 -1 -1/2 1 3")', x="m 3 n"),
)
