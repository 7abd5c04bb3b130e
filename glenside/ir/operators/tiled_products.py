"""Defines the product of a plain processor: rows are gathered tile by tile, and BLAS multiplies each tile."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np

from glenside.ir.blockwise import block_size, blocks, positions
from glenside.ir.contraction import contracted_dims, contraction_scratch
from glenside.ir.operand import Array, Operand
from glenside.ir.operator import Keeps, Kind, OperatorKind, example, fields, operator, require
from glenside.ir.operators.products import check_pairs
from glenside.ir.operators.requirements import require_number
from glenside.ir.types import AccessType

_NAME = "tiled-product"


def _check(a: AccessType, b: AccessType, n: int, tile: int) -> None:
    check_pairs(_NAME, a, b, n)
    require_number(_NAME, a)
    require(tile >= 1, _NAME, "a tile of at least one row", tile)


def by_blas(a: Array) -> bool:
    """True if BLAS multiplies matrices of that dtype."""
    return a.dtype.char in "fd"


def _evaluate(arithmetic: Any, a: Operand, b: Operand, n: int, tile: int, out: Array | None = None) -> Array:
    left, right, item = a.array, b.array, len(a.item_axes)
    if not (arithmetic.has_blas and by_blas(left)):
        contracted: Array = arithmetic.contract(left, right, n, item)
        return contracted
    if out is None:
        out = np.empty(contracted_dims(left, right, n, item), left.dtype)
    if out.size:
        _fill(out, left, right, n, item, tile)
    return out


def _fill(out: Array, a: Array, b: Array, n: int, item: int, tile: int) -> None:
    rows, k, count = a.shape[n : a.ndim - item], prod(a.shape[a.ndim - item :]), prod(b.shape[n : b.ndim - item])
    gathers = matrix_of(a[(0,) * n], prod(rows), k) is None
    columns = np.empty((block_size(rows, tile) if gathers else 0, k), a.dtype)
    for group in positions(a.shape[:n]):
        weights = gathered_matrix(b[group], count, k)
        results = out[(*group, ...)].reshape(*rows, count)
        matrix = None if gathers else matrix_of(a[group], prod(rows), k)
        if matrix is None:
            _multiply_tiles(results, a[group], weights, columns, rows, tile)
        else:
            _multiply(matrix, weights, results)


def _multiply_tiles(results: Array, a: Array, weights: Array, columns: Array, rows: Sequence[int], tile: int) -> None:
    for index in blocks(rows, tile):
        part = a[(*index, ...)]
        gathered = columns[: part.size // columns.shape[1]]
        gathered.reshape(part.shape)[...] = part
        _multiply(gathered, weights, results[(*index, ...)])


def _multiply(matrix: Array, weights: Array, out: Array) -> None:
    """Multiplies rows by weights into rows that may be strided, with as few matrix products as possible."""
    flat = _viewed(out, (len(matrix), len(weights)))
    if flat is not None:
        np.matmul(matrix, weights.T, out=flat)
    else:
        np.matmul(matrix.reshape(*out.shape[:-1], -1), weights.T, out=out)


def _stores(out: Array, a: AccessType, b: AccessType, n: int, tile: int) -> bool:
    """True if BLAS can store each row of the result directly: its columns are contiguous."""
    if np.dtype(a.dtype).char not in "fd" or not out.size:
        return False
    rows, count = a.shape.drop(n), b.shape.drop(n).product()
    view = _viewed(out[(0,) * n], (*rows, count))
    return view is not None and (count == 1 or view.strides[-1] == view.itemsize)


def matrix_of(a: Array, rows: int, columns: int) -> Array | None:
    """Returns the elements as a matrix that BLAS takes without a copy, a view; None if they must be gathered first."""
    matrix = _viewed(a, (rows, columns))
    if matrix is None or min(rows, columns) <= 1:
        return matrix if matrix is None or matrix.flags.c_contiguous else None
    last, size = matrix.itemsize, matrix.strides
    by_rows = size[1] == last and size[0] >= columns * last
    by_columns = size[0] == last and size[1] >= rows * last
    return matrix if by_rows or by_columns else None


def gathered_matrix(a: Array, rows: int, columns: int) -> Array:
    """Returns the elements as a matrix for BLAS, a copy if they must be gathered."""
    matrix = matrix_of(a, rows, columns)
    return np.array(a, order="C").reshape(rows, columns) if matrix is None else matrix


def _viewed(a: Array, dims: tuple[int, ...]) -> Array | None:
    view = a.view(np.ndarray)
    try:
        return np.reshape(view, dims, copy=False)
    except ValueError:
        return None


def gathered(a: Operand, n: int, tile: int) -> int:
    """Returns the number of rows that are gathered at a time; 0 if BLAS takes them without a copy."""
    rows = a.access.shape.drop(n)
    if matrix_of(a.array[(0,) * n], rows.product(), a.access.item.product()) is not None:
        return 0
    return block_size(rows, tile)


def _scratch(a: Operand, b: Operand, n: int, tile: int) -> int:
    left, right = a.array, b.array
    if not by_blas(left):
        return contraction_scratch(left, right, n, len(a.item_axes))
    if not (left.size and right.size):
        return 0
    _, _, k, count = matrices_of(a.access, b.access, n)
    columns = gathered(a, n, tile) * k
    weights = 0 if matrix_of(right[(0,) * n], count, k) is not None else count * k
    return (columns + weights) * left.itemsize


def _moved(a: Operand, b: Operand, n: int, tile: int) -> int:
    """Counts elements: gathered rows are read, written and read again; each tile reads b again."""
    left, right = a.array, b.array
    if not (left.size and right.size):
        return 0
    groups, m, _, count = matrices_of(a.access, b.access, n)
    rows = gathered(a, n, tile)
    tiles, reads = (-(-m // rows), 3) if rows else (1, 1)
    return (left.size * reads + right.size * tiles + groups * m * count) * left.itemsize


def matrices_of(a: AccessType, b: AccessType, n: int) -> tuple[int, int, int, int]:
    """Returns (groups, rows, depth, columns) of (G, A)(I) times (G, B)(I) with |G| = n."""
    rows, columns = a.shape.drop(n).product(), b.shape.drop(n).product()
    return a.dims.take(n).product(), rows, a.item.product(), columns


tiled_product = operator(
    name=_NAME,
    kind=OperatorKind.INSTRUCTION,
    fields=fields(a=Kind.TERM, b=Kind.TERM, n=Kind.INT, tile=Kind.INT),
    check=_check,
    result=lambda a, b, n, tile: (
        a.with_dims(a.shape.append(b.shape.drop(n))).with_split(a.split + b.split - n).widened()
    ),
    evaluate=_evaluate,
    adjoint=lambda terms, g, a, b, n, tile: terms.contraction_adjoint(g, a, b, n),
    doc="The dot-product of the product of a and b with n shared axes, (G, A)(I) x (G, B)(I) -> (G, A, B)(), as a "
    "plain processor computes it: at most `tile` rows of a at a time are copied to contiguous memory, unless they are "
    "contiguous already, and multiplied as a matrix. Its only temporary is one tile.",
    keeps=Keeps.ZERO,
    matrices=lambda a, b, n, tile: matrices_of(a, b, n),
    typed=True,
    stores=_stores,
    scratch=_scratch,
    moved=_moved,
    operations=lambda a, b, n, tile: a.size * b.shape.drop(n).product(),
    examples=example(
        "(tiled-product (access (access-tensor x) 2) (access (access-tensor y) 2) 1 2)", x="g m k", y="g n k"
    ),
)
