"""Computes intervals that contain the elements of terms for all inputs and constants, from the leaves up.

A range is never too narrow: if an operator's record does not say enough, the range is all numbers.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import cache, lru_cache, reduce
from itertools import product
from typing import Any, NamedTuple

import numpy as np

from glenside.ir.dtypes import REALS, limits
from glenside.ir.index_map import Fill
from glenside.ir.operand import Array, distinct
from glenside.ir.operator import Category, Keeps, Kind, OperatorKind
from glenside.ir.operators.compute import compute, compute_of
from glenside.ir.operators.products import access_product
from glenside.ir.operators.reductions import reduce_max
from glenside.ir.scalar import Applied, Element, Number, Scalar, arity
from glenside.ir.term import Term, postorder, weave
from glenside.ir.types import AccessType
from glenside.semantics import Native
from glenside.semantics.interpreter import evaluate


class Range(NamedTuple):
    """The numbers from `low` to `high`, both included."""

    low: float
    high: float

    def joined(self, other: Range) -> Range:
        return Range(min(self.low, other.low), max(self.high, other.high))


EVERY = Range(-math.inf, math.inf)
_LARGEST_LEAF = 1 << 20
Seen = Callable[[Term, str, Sequence[Range]], None]
"""(term, primitive, ranges of its arguments), of each primitive of a term's scalar expression."""


def ranges(*roots: Term, seen: Seen = lambda term, primitive, arguments: None) -> dict[Term, Range]:
    """Returns the range of each array's elements."""
    found: dict[Term, Range] = {}
    for term in postorder(*roots):
        if isinstance(term.type, AccessType):
            every = _of_dtype(term.type.dtype)
            made = _of(term, found, seen)
            found[term] = made if every.low <= made.low and made.high <= every.high else every  # others wrap
    return found


@cache
def _of_dtype(dtype: str) -> Range:
    return EVERY if dtype in REALS else Range(*map(float, limits(dtype)))


def _of(term: Term, found: Mapping[Term, Range], seen: Seen) -> Range:
    operator, operands = term.operator, [found.get(child, EVERY) for child in term.children]
    if operator.matrices is not None and len(operands) == 2:
        return _sum_of(_corners(np.multiply, operands))
    if operator is compute:
        paired = term.children[0].operator is access_product
        parts = [found[part] for part in term.children[0].children] if paired else operands
        operand = _of_padded_items(term, found) if term.attributes[0] == reduce_max.name else None
        return _of_compute(term, operand or operands[0], parts, seen)
    if operator.kind is OperatorKind.LEAF:
        return _of_leaf(term)
    if operator.index_map is None or not operands:
        return EVERY
    if operator.kind is OperatorKind.VIEW or operator.shares is True:
        return reduce(Range.joined, operands)
    moved = operator.index_map(*weave(operator, [child.type for child in term.children], term.attributes))
    lowest = _of_dtype(term.access.dtype).low
    filled = {None: (), Fill.ZERO: (Range(0.0, 0.0),), Fill.LOWEST: (Range(lowest, lowest),)}[moved.fill]
    return reduce(Range.joined, [*operands, *filled])


def _of_leaf(term: Term) -> Range:
    numbers = numbers_of(term)
    return EVERY if numbers is None or not numbers.size else Range(float(numbers.min()), float(numbers.max()))


def numbers_of(leaf: Term) -> Array | None:
    """Returns the numbers that a leaf holds for all inputs; None for a tensor, or for very many."""
    kinds = {field.kind for field in leaf.operator.fields}
    if Kind.TENSOR in kinds or (leaf.access.size > _LARGEST_LEAF and Kind.NUMBER not in kinds):
        return None
    return distinct(leaf.operator.evaluate(Native(), *leaf.attributes))


def _of_compute(term: Term, operand: Range, parts: Sequence[Range], seen: Seen) -> Range:
    record, parameters = compute_of(term)
    if record.scalar is not None:
        expression = record.expression(*parameters)
        if record.category is not Category.FOLD:
            return _of_expression(term, expression, [operand], seen)
        if term.children[0].access.item[0] <= arity(expression):
            return _of_expression(term, expression, parts if len(parts) == arity(expression) else [operand], seen)
        made = _of_expression(term, expression, [operand], seen)  # of the values folded so far, and the next
        return operand if made.joined(operand) == operand else _of_expression(term, expression, [EVERY], seen)
    if record.category is Category.CONTRACTION:
        return _sum_of(_corners(np.multiply, parts)) if len(parts) == 2 else EVERY
    if Keeps.ORDER not in record.keeps:
        return EVERY
    if record.linear:
        return _sum_of(operand)
    whole = record.combine is not None and term.children[0].access.item.product()
    return operand if whole and Keeps.DISTANCE in record.keeps else EVERY


def _of_padded_items(term: Term, found: Mapping[Term, Range]) -> Range | None:
    """Returns the range of a maximum that is never the lowest number with which an operand was padded, because each
    item has another element. None if that is unknown.
    """
    sources, stack, fills = dict[Term, None](), [*term.children], set[Fill | None]()
    while stack:
        if (part := stack.pop()).index_map is None:
            sources[part] = None
        else:
            stack += part.children
            fills.add(part.index_map.fill)
    if Fill.LOWEST not in fills or any(s not in found or s.access.size > _LARGEST_LEAF for s in sources):
        return None
    given = {source: np.ones(source.access.dims, source.access.dtype) for source in sources}
    (ones,) = evaluate([term], {}, given=given)
    known = [found[source] for source in sources] + [Range(0.0, 0.0)] * (Fill.ZERO in fills)
    return reduce(Range.joined, known) if ones.size and (ones == 1).all() else None


def _sum_of(each: Range) -> Range:
    """Returns the range of sums of any number of elements: only their sign, which rounding does not change."""
    return Range(0.0 if each.low >= 0 else -math.inf, 0.0 if each.high <= 0 else math.inf)


def _of_expression(term: Term, expression: Scalar, operands: Sequence[Range], seen: Seen) -> Range:
    """Returns the union of the ranges of operands, or a range that contains them."""
    if isinstance(expression, Element):
        return operands[expression.position] if len(operands) > 1 else operands[0]
    if isinstance(expression, Number):
        value = expression.value
        return EVERY if value is None else Range(float(value), float(value))
    assert isinstance(expression, Applied)
    primitive = expression.primitive
    arguments = [_of_expression(term, argument, operands, seen) for argument in expression.arguments]
    seen(term, primitive.name, arguments)
    if primitive.gives == "bool":
        return Range(0.0, 1.0)
    if primitive.name == "select":
        return arguments[1].joined(arguments[2])
    if primitive.name == "pow" and term.access.dtype in REALS and arguments[0].low >= 0:
        return Range(0.0, math.inf)
    if primitive.name in _SCALES:
        divided = primitive.name == "divide"
        known = term.access.dtype in REALS and not (divided and arguments[1].low < 0 <= arguments[1].high)
        return _widened(_corners(primitive.numpy, arguments)) if known else EVERY
    if not (primitive.linear or Keeps.ORDER in primitive.keeps):
        return EVERY
    return _corners(primitive.numpy, arguments, None)


_SCALES = ("multiply", "divide")
"""Primitives of two numbers that are monotonic in each; the sign of the other number gives the direction."""
_ROUNDED = 1e-6  # of rounded results, not of the exact bounds


def _corners(function: Callable[..., Any], operands: Sequence[Range], unknown: float | None = 0.0) -> Range:
    """Returns the range of a function that is monotonic in each operand, from its values at the ends of their ranges.
    If such a value is undefined, like 0 times infinity, the range is `unknown`, or all numbers if that is not given.
    """
    return _at_corners(function, np.array(operands, np.float64).tobytes(), unknown)


@lru_cache(maxsize=1 << 12)
def _at_corners(function: Callable[..., Any], operands: bytes, unknown: float | None) -> Range:
    """Returns the range from the corners of the operands' ranges, memoized by their bytes: 0 and -0 are equal but
    differ in bytes. A network has few distinct ranges.
    """
    ends = np.array(list(product(*np.frombuffer(operands).reshape(-1, 2)))).T
    corners = np.empty(ends.shape[1])
    with np.errstate(all="ignore"):
        function(*ends, out=corners)
    if unknown is None and np.isnan(corners).any():
        return EVERY
    corners[np.isnan(corners)] = unknown
    return Range(float(corners.min()) + 0.0, float(corners.max()) + 0.0)  # no zero below 0


def _widened(exact: Range) -> Range:
    return Range(exact.low - abs(exact.low) * _ROUNDED, exact.high + abs(exact.high) * _ROUNDED)
