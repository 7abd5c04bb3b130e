"""Products with matrices of zeros and ones that the program fixes, such as `eye`: they move elements, or are zero.

The elements of declared constants are not looked at: constants may be replaced, and the exact check draws them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from glenside.algebra.equations import IDENTITY, ROWS
from glenside.algebra.merging import SharedProduct
from glenside.builder.layout import flip, pad, reshape, slice_axis, split_at, transpose
from glenside.ir.dtypes import FLOATS
from glenside.ir.operand import Array
from glenside.ir.term import Term, build, postorder
from glenside.semantics.interpreter import evaluate

MAX_ELEMENTS = 1 << 22
"""Maximum elements of a matrix that is evaluated."""


@dataclass(frozen=True, slots=True)
class Selection:
    """A product as movement of its other operand; `equations` are the names of the rules that it takes."""

    term: Term
    operand: Term
    equations: tuple[str, ...]


def selection(product: Term, constant: Callable[[Term], bool] = lambda _: True) -> Selection | None:
    """Returns a contraction as movement; None if no operand is a known matrix that only selects elements.

    constant  False for operands that are no known matrices
    """
    one = SharedProduct.of(product)
    if product.access.dtype not in FLOATS or not product.access.size or not one.a.access.item.product():
        return None
    for matrix, other, is_second in ((one.b, one.a, True), (one.a, one.b, False)):
        if not constant(matrix) or other.access.dtype != product.access.dtype:
            continue
        if (value := _known(matrix)) is not None:
            return _moved(product, other, value.reshape(*_sizes(matrix, one.shared)), one.shared, is_second)
    return None


def _known(matrix: Term) -> Array | None:
    """Returns the elements of a matrix that reads no tensor."""
    if matrix.access.size > MAX_ELEMENTS:
        return None
    if any(not each.children and each.operator.name not in ("full", "eye") for each in postorder(matrix)):
        return None
    return np.asarray(evaluate([matrix], {})[0])


def _sizes(operand: Term, shared: int) -> tuple[int, int, int]:
    """Returns the sizes of groups, rows and depth of an operand."""
    own = operand.access
    return own.shape.take(shared).product(), own.shape.drop(shared).product(), own.item.product()


def _moved(product: Term, other: Term, value: Array, shared: int, is_second: bool) -> Selection | None:
    """Returns the product with a matrix (groups, rows, depth) as movement of the other operand."""
    rows, depth = value.shape[1:]
    first = value[0]
    if np.any(value != first) or np.any((first != 0) & (first != 1)) or np.any(np.count_nonzero(first, 1) > 1):
        return None
    if not first.any():
        zeros = build("full", product.access.dims, "0", product.access.dtype)
        return Selection(split_at(zeros, product.access.split), other, (IDENTITY,))
    chosen = np.flatnonzero(first.any(1))
    low, high = int(chosen[0]), int(chosen[-1]) + 1
    if len(chosen) != high - low:
        return None
    x = reshape(other, _sizes(other, shared))
    found = _ordered(x, first[low:high].argmax(1))
    if found is None:
        return None
    found = pad(found, [(0, 0), (0, 0), (low, rows - high)])
    found = found if is_second else transpose(found, (0, 2, 1))
    is_identity = rows == depth and np.array_equal(first, np.eye(rows))
    term = split_at(reshape(found, product.access.dims), product.access.split)
    return Selection(term, other, (IDENTITY,) if is_identity else (IDENTITY, ROWS))


def _ordered(x: Term, places: Array) -> Term | None:
    """Returns the elements at these places of the last axis; None if no reordering of a slice has them."""
    low, count = int(places.min()), len(places)
    part = slice_axis(x, 2, low, min(low + count, x.access.dims[2]))
    order = places - low
    if part.access.dims[2] < count or not np.array_equal(np.sort(order), np.arange(count)):
        return None
    if np.array_equal(order, np.arange(count)):
        return part
    if np.array_equal(order, np.arange(count)[::-1]):
        return flip(part, 2)
    outer = next((n for n in range(2, count) if count % n == 0 and order[1] == n), 0)
    if not outer or not np.array_equal(order, np.arange(count).reshape(-1, outer).T.ravel()):
        return None
    groups, lines, _ = part.access.dims
    apart = reshape(part, (groups, lines, count // outer, outer))
    return reshape(transpose(apart, (0, 1, 3, 2)), part.access.dims)
