"""Between which numbers the elements of terms lie, whatever inputs and constants hold: intervals, from the leaves up.

A range is never too narrow: where a record does not say enough, it is every number.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import reduce
from itertools import product
from typing import NamedTuple

import numpy as np

from glenside.ir.dtypes import REALS, limits
from glenside.ir.index_map import Fill
from glenside.ir.operator import Category, Keeps, Kind, OperatorKind
from glenside.ir.operators.compute import compute, parse_compute
from glenside.ir.operators.products import access_product
from glenside.ir.scalar import Applied, Element, Number, Scalar, arity
from glenside.ir.term import Term, postorder, weave
from glenside.ir.types import AccessType
from glenside.semantics import Native


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
    """The range of each array's elements."""
    found: dict[Term, Range] = {}
    for term in postorder(*roots):
        if isinstance(term.type, AccessType):
            every = _of_dtype(term.type.dtype)
            made = _of(term, found, seen)
            found[term] = made if every.low <= made.low and made.high <= every.high else every  # others wrap
    return found


def _of_dtype(dtype: str) -> Range:
    return EVERY if dtype in REALS else Range(*map(float, limits(dtype)))


def _of(term: Term, found: Mapping[Term, Range], seen: Seen) -> Range:
    operator, operands = term.operator, [found.get(child, EVERY) for child in term.children]
    if operator is compute:
        paired = term.children[0].operator is access_product
        parts = [found[part] for part in term.children[0].children] if paired else operands
        return _of_compute(term, operands[0], parts, seen)
    if operator.kind is OperatorKind.LEAF:
        given = any(field.kind is Kind.TENSOR for field in operator.fields)
        return EVERY if given or term.access.size > _LARGEST_LEAF else _of_leaf(term)
    if operator.index_map is None or not operands:
        return EVERY
    moved = operator.index_map(*weave(operator, [child.type for child in term.children], term.attributes))
    lowest = _of_dtype(term.access.dtype).low
    filled = {None: (), Fill.ZERO: (Range(0.0, 0.0),), Fill.LOWEST: (Range(lowest, lowest),)}[moved.fill]
    return reduce(Range.joined, [*operands, *filled])


def _of_leaf(term: Term) -> Range:
    array = term.operator.evaluate(Native(), *term.attributes)
    return Range(float(array.min()), float(array.max())) if array.size else EVERY


def _of_compute(term: Term, operand: Range, parts: Sequence[Range], seen: Seen) -> Range:
    record, parameters = parse_compute(str(term.attributes[0]))
    if record.scalar is not None:
        expression = record.expression(*parameters)
        if record.category is not Category.FOLD:
            return _of_expression(term, expression, [operand], seen)
        if term.children[0].access.item[0] <= arity(expression):
            return _of_expression(term, expression, parts if len(parts) == arity(expression) else [operand], seen)
        made = _of_expression(term, expression, [operand], seen)  # of what was folded so far, and the next
        return operand if made.joined(operand) == operand else _of_expression(term, expression, [EVERY], seen)
    whole = record.combine is not None and Keeps.ORDER in record.keeps and term.children[0].access.item.product()
    return operand if whole and Keeps.DISTANCE in record.keeps else EVERY


def _of_expression(term: Term, expression: Scalar, operands: Sequence[Range], seen: Seen) -> Range:
    """Of elements of operands, or of one that holds them all."""
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
    if not (primitive.linear or Keeps.ORDER in primitive.keeps):
        return EVERY
    with np.errstate(all="ignore"):
        ends = np.array(list(product(*arguments))).T
        corners = np.empty(ends.shape[1])
        primitive.numpy(*ends, out=corners)
    return EVERY if np.isnan(corners).any() else Range(float(corners.min()), float(corners.max()))
