"""Defines the instructions of a systolic array."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from glenside.ir.operand import Array, Operand
from glenside.ir.operator import Example, Keeps, Kind, Operator, OperatorKind, example, fields, operator, require
from glenside.ir.operators.requirements import require_number
from glenside.ir.types import AccessType


def _evaluate_tile(arithmetic: Any, rows: int, columns: int, a: Operand, b: Operand) -> Array:
    """Multiplies (G, M, K) by (G, K, N); a of shape (G) is one row for each element of G."""
    single = a.split == b.split
    left = np.expand_dims(a.array, -2) if single else a.array
    result: Array = arithmetic.contract(left, np.swapaxes(b.array, -1, -2), b.split, 1)
    return np.squeeze(result, -2) if single else result


def _matrices(rows: int, columns: int, a: AccessType, b: AccessType) -> tuple[int, int, int, int]:
    """Returns one product for each element of G: of one row of a, or of all its rows."""
    groups, (depth, results) = b.shape.product(), b.item
    return groups, a.shape.product() // max(groups, 1), depth, results


def _adjoint(terms: Any, g: Any, rows: int, columns: int, a: Any, b: Any) -> tuple[Any, ...]:
    """Returns two products; the results are the last axis of b."""
    split = b.access.split
    transposed = terms.at(terms.transpose(b, (*range(split), split + 1, split)), split + 1)
    left, right = terms.contraction_adjoint(g, a, transposed, split)
    return left, terms.transpose(right, (*range(split), split + 1, split))


def _instruction(
    name: str, check: Callable[..., None], result: Callable[..., AccessType], doc: str, examples: tuple[Example, ...]
) -> Operator:
    """Registers a product of tiles by an array of rows x columns; `check` refuses tiles that do not fit."""

    def checks(rows: int, columns: int, a: AccessType, b: AccessType) -> None:
        require(rows > 0 and columns > 0, name, "an array of at least 1 x 1", f"{rows} x {columns}")
        require(a.dtype == b.dtype, name, "dtypes to agree", f"{a} and {b}")
        require_number(name, a)
        check(name, rows, columns, a, b)

    return operator(
        name=name,
        kind=OperatorKind.INSTRUCTION,
        fields=fields(rows=Kind.INT, columns=Kind.INT, a=Kind.TERM, b=Kind.TERM),
        check=checks,
        result=result,
        evaluate=_evaluate_tile,
        doc=doc,
        keeps=Keeps.ZERO,
        matrices=_matrices,
        adjoint=_adjoint,
        typed=True,
        examples=examples,
    )


def _check_systolic(name: str, rows: int, columns: int, a: AccessType, b: AccessType) -> None:
    require(a.item == (rows,), name, f"a with item ({rows})", a)
    require(b.item == (rows, columns), name, f"b with item ({rows} {columns})", b)
    mapped = a.split - b.split in (0, 1) and a.dims.take(b.split) == b.shape
    require(mapped, name, "a of shape (G) or (G, M) over b of shape (G)", f"{a} and {b}")


systolic_array = _instruction(
    "systolic-array",
    _check_systolic,
    result=lambda rows, columns, a, b: a.with_dims(a.shape.append([columns])).with_split(a.split + 1).widened(),
    doc="One weight tile and a stream of rows, for each element of G: a (G, M)(rows) or (G)(rows) times "
    "b (G)(rows, columns) -> (G, M, columns)() or (G, columns)().",
    examples=example("(systolic-array $k $n (access (access-tensor x) 1) (access-tensor y))", x="m k", y="k n"),
)


def _check_output_stationary(name: str, rows: int, columns: int, a: AccessType, b: AccessType) -> None:
    require(len(a.item) == 1, name, "a with item (K)", a)
    require(b.item == (*a.item, columns), name, f"b with item ({a.item[0]} {columns})", b)
    mapped = a.split == b.split + 1 and a.shape == (*b.shape, rows)
    require(mapped, name, f"a of shape (G {rows}) over b of shape (G)", f"{a} and {b}")


systolic_array_output_stationary = _instruction(
    "systolic-array-output-stationary",
    _check_output_stationary,
    result=lambda rows, columns, a, b: (
        a.with_dims(a.shape.append([b.dims.get(b.split + 1)])).with_split(a.split + 1).widened()
    ),
    doc="One stationary tile of results whose operands stream, for each element of G: a (G, rows)(K) times "
    "b (G)(K, columns) -> (G, rows, columns)().",
    examples=example(
        "(systolic-array-output-stationary $m $n (access (access-tensor x) 1) (access-tensor y))", x="m k", y="k n"
    ),
)


def _check_blocking(name: str, rows: int, columns: int, a: AccessType, b: AccessType) -> None:
    require(a.split <= 1 and len(a.item) == 1, name, "a of the form (M)(K) or ()(K)", a)
    require(b.split == 0 and len(b.item) == 2, name, "b of the form ()(K, N)", b)
    require(a.item[0] == b.item[0], name, f"b with item ({a.item[0]}, N)", b)
    require(b.item[0] % rows == 0, name, f"K to be a multiple of {rows}", b.item[0])
    require(b.item[1] % columns == 0, name, f"N to be a multiple of {columns}", b.item[1])


systolic_array_with_blocking = _instruction(
    "systolic-array-with-blocking",
    _check_blocking,
    result=lambda rows, columns, a, b: a.with_dims(a.shape.append([b.dims.get(1)])).with_split(a.split + 1).widened(),
    doc="A whole matrix product that the array cuts into tiles itself: a (M)(K) or ()(K) times b ()(K, N) -> "
    "(M, N)() or (N)(); K is a multiple of rows, N of columns.",
    examples=example(
        "(systolic-array-with-blocking 3 2 (access (access-tensor x) 1) (access-tensor y))", x="m 9", y="9 4"
    ),
)
