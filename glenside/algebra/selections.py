"""Products with known matrices that select elements, such as `eye`: they move elements, times a number, or are zero.

The elements of declared constants are not looked at: constants may be replaced, and the exact check draws them.
`with_known_matrices` makes those that select elements a part of the program, which then has no such constants.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from glenside.algebra.equations import FACTORS, IDENTITY, ROWS
from glenside.algebra.merging import SharedProduct
from glenside.builder.layout import concatenate, flip, pad, reshape, slice_axis, split_at, transpose
from glenside.builder.pointwise import multiply
from glenside.ir.dtypes import FLOATS
from glenside.ir.operand import Array
from glenside.ir.program import Program
from glenside.ir.term import Term, build, postorder, rebuild_all, tensors
from glenside.ir.types import Tensor
from glenside.semantics.interpreter import evaluate

MAX_ELEMENTS = 1 << 22
"""Maximum elements of a matrix that is evaluated."""
MAX_RUNS = 8
"""Maximum slices and runs of zeros that replace a product."""


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


def with_known_matrices(program: Program) -> tuple[Program, tuple[str, ...]]:
    """Returns the program with constants that are zero or select elements as terms, and the names of the constants.

    Constants that are generated or unpacked when they are first read are left as they are.
    """
    literals, names = dict[Term, Term](), list[str]()
    read: Callable[[str], Array | None] = getattr(program.constants, "read", program.constants.get)
    for leaf in tensors(*program.roots):
        tensor, own = leaf.attributes[0], leaf.access
        is_matrix = own.dtype in FLOATS and own.rank > 1 and 0 < own.size <= MAX_ELEMENTS
        if not isinstance(tensor, Tensor) or not tensor.constant or not is_matrix:
            continue
        value = read(tensor.name)
        if value is not None and (literal := _literal(np.asarray(value), leaf)) is not None:
            literals[leaf] = literal
            names.append(tensor.name)
    if not names:
        return program, ()
    roots = rebuild_all(program.roots, lambda *_: None, literals)
    return program.with_roots(roots), tuple(names)


def _literal(value: Array, leaf: Term) -> Term | None:
    """Returns a matrix, or weights whose first axis counts filters, as movement of an identity; None for others."""
    own = leaf.access
    matrix = value.reshape(len(value), -1)
    if np.count_nonzero(matrix[0]) > 1 or np.any(np.signbit(matrix) & (matrix == 0)):  # most others end here
        return None
    depth = matrix.shape[1]
    if matrix.any() and depth * depth > MAX_ELEMENTS:
        return None
    found = _selected(reshape(build("eye", depth, own.dtype), (1, depth, depth)), matrix)
    if found is None:
        return None
    literal = split_at(reshape(transpose(found, (0, 2, 1)), own.dims), own.split)
    return literal if np.array_equal(_elements(literal), value) else None


def _known(matrix: Term) -> Array | None:
    """Returns the elements of a matrix that reads no tensor."""
    if matrix.access.size > MAX_ELEMENTS:
        return None
    if any(not each.children and each.operator.name not in ("full", "eye") for each in postorder(matrix)):
        return None
    return _elements(matrix)


def _elements(literal: Term) -> Array:
    return np.asarray(evaluate([literal], {})[0])


def _sizes(operand: Term, shared: int) -> tuple[int, int, int]:
    """Returns the sizes of groups, rows and depth of an operand."""
    own = operand.access
    return own.shape.take(shared).product(), own.shape.drop(shared).product(), own.item.product()


def _moved(product: Term, other: Term, value: Array, shared: int, is_second: bool) -> Selection | None:
    """Returns the product with a matrix (groups, rows, depth) as movement of the other operand."""
    rows, depth = value.shape[1:]
    if np.any(value != value[0]) or (found := _selected(reshape(other, _sizes(other, shared)), value[0])) is None:
        return None
    found = found if is_second else transpose(found, (0, 2, 1))
    term = split_at(reshape(found, product.access.dims), product.access.split)
    names = [IDENTITY]
    if value.any() and (rows != depth or np.any((value[0] != 0) != np.eye(rows, dtype=bool))):
        names.append(ROWS)
    if np.any((value != 0) & (value != 1)):
        names.append(FACTORS)
    return Selection(term, other, tuple(names))


def _selected(x: Term, matrix: Array) -> Term | None:
    """Returns x (groups, lines, depth) times a transposed matrix (rows, depth) as movement, times a number.

    None if a row selects more than one element, if the numbers differ, or if no movement has this order.
    """
    rows, groups, lines = len(matrix), *x.access.dims[:2]
    factors = matrix[matrix != 0]
    if not factors.size:
        return build("full", (groups, lines, rows), "0", x.access.dtype)
    if np.any(factors != factors[0]) or not np.isfinite(factors[0]) or np.any(np.count_nonzero(matrix, 1) > 1):
        return None
    chosen = np.flatnonzero(matrix.any(1))
    low, high = int(chosen[0]), int(chosen[-1]) + 1
    places = np.where(matrix.any(1), (matrix != 0).argmax(1), -1)[low:high]
    found = _in_runs(x, places) if np.any(places < 0) else _ordered(x, places) or _in_runs(x, places)
    if found is None:
        return None
    found = pad(found, [(0, 0), (0, 0), (low, rows - high)])
    return found if factors[0] == 1 else multiply(found, build("full", (), repr(float(factors[0])), x.access.dtype))


def _in_runs(x: Term, places: Array) -> Term | None:
    """Returns the elements at these places of the last axis, zeros for -1, as slices side by side; None for many."""
    breaks = np.flatnonzero(places[1:] != np.where(places[:-1] < 0, -1, places[:-1] + 1)) + 1
    if len(breaks) >= MAX_RUNS:
        return None
    parts = []
    for run in np.split(places, breaks):
        if run[0] < 0:
            parts.append(build("full", (*x.access.dims[:2], len(run)), "0", x.access.dtype))
        else:
            parts.append(slice_axis(x, 2, int(run[0]), int(run[-1]) + 1))
    return concatenate(parts, 2)


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
