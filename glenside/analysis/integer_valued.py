"""Finds terms whose elements are integers for all inputs and constants, so that rounding does not change them."""

from __future__ import annotations

from collections.abc import Container

import numpy as np

from glenside.analysis.ranges import numbers_of
from glenside.ir.dtypes import REALS
from glenside.ir.operator import Category, OperatorKind
from glenside.ir.operators.casting import cast
from glenside.ir.operators.compute import compute, compute_of
from glenside.ir.scalar import Applied, Number, Scalar
from glenside.ir.term import Term, postorder
from glenside.ir.types import AccessType

_ROUNDED = ("floor", "ceil", "round", "sign")
_KEPT = ("add", "subtract", "multiply", "negative", "abs", "min", "max", "select", "mod", "rem")
"""Primitives that map integers to integers."""


def whole_terms(*roots: Term) -> set[Term]:
    """Returns arrays of which all elements are integers. Arrays that are not returned may have integer elements too."""
    found: set[Term] = set()
    for term in postorder(*roots):
        if isinstance(term.type, AccessType) and (term.access.dtype not in REALS or _is_whole(term, found)):
            found.add(term)
    return found


def _is_whole(term: Term, known: Container[Term]) -> bool:
    of_whole = all(child in known for child in term.children)
    if term.operator is compute:
        record, parameters = compute_of(term)
        if record.scalar is not None:
            return _gives_whole(record.expression(*parameters), of_whole)
        kept = record.combine is not None and record.combine.name in _KEPT
        return of_whole and (kept or record.category is Category.CONTRACTION)
    if term.operator.kind is OperatorKind.LEAF:
        numbers = numbers_of(term)
        return numbers is not None and bool((np.rint(whole := numbers.astype(np.float64)) == whole).all())
    return of_whole and (term.operator is cast or term.operator.index_map is not None)


def _gives_whole(expression: Scalar, of_whole: bool) -> bool:
    if isinstance(expression, Number):
        return expression.value is not None and expression.value.denominator == 1
    if not isinstance(expression, Applied):
        return of_whole
    parts = (_gives_whole(argument, of_whole) for argument in expression.arguments)
    return expression.primitive.name in _ROUNDED or (expression.primitive.name in _KEPT and all(parts))
