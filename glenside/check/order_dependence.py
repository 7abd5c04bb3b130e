"""Finds terms that depend on the order of two numbers, on their equality, or on the wrapping of integers."""

from __future__ import annotations

from collections.abc import Iterable

from glenside.ir.dtypes import FLOATS, REALS, WHOLE
from glenside.ir.operator import OperatorKind
from glenside.ir.operators.casting import cast
from glenside.ir.operators.compute import compute, compute_of
from glenside.ir.scalar import primitives
from glenside.ir.term import Term, nearest, postorder
from glenside.ir.types import TupleType, Type


def dtypes(kind: Type) -> Iterable[str]:
    """Returns the dtypes of a term's type."""
    return [d for item in kind.items for d in dtypes(item)] if isinstance(kind, TupleType) else [kind.dtype]


def has_order(*roots: Term) -> bool:
    """True if any term depends on the order of two numbers, on their equality, or on wrapping.

    Inputs must then be drawn so that all of these cases occur.
    """
    return any(depends_on_order(t) or _depends_on_equality(t) or _wraps(t) for t in postorder(*roots))


def _wraps(term: Term) -> bool:
    """True if the term computes integers from integers."""
    computes = term.operator.kind in (OperatorKind.COMPUTE, OperatorKind.INSTRUCTION) and bool(term.children)
    return computes and bool({*dtypes(term.type)} & {*WHOLE}) and not {*dtypes(term.children[0].type)} & {*REALS}


def _depends_on_equality(term: Term) -> bool:
    """True if the term tests equality, or selects by numbers.

    A selection by truth values does not count: these are drawn, or results of a comparison.
    """
    if term.operator is not compute:
        return any(attribute in ("min", "max") for attribute in term.attributes)  # of the scattered operand
    record, parameters = compute_of(term)
    found = primitives(record.expression(*parameters)) if record.scalar is not None else set()
    return not found.isdisjoint(("eq", "ne")) or ("select" in found and not _has_truths(term.children[0]))


def _has_truths(operand: Term) -> bool:
    """True if an operand rearranges a term with truth values."""
    return any(_is_truth(t) for t in nearest(operand, stops=lambda t: t.operator is compute or _is_truth(t)))


def _is_truth(term: Term) -> bool:
    return term.access.dtype == "bool" or (term.operator is cast and term.children[0].access.dtype == "bool")


def depends_on_order(term: Term) -> bool:
    """True if the term depends on the order of two numbers."""
    if term.operator is compute:
        return compute_of(term)[0].orders
    return term.operator is cast and not {*dtypes(term.type)} & {*FLOATS}


def rounds(*roots: Term) -> bool:
    """True if any term casts floats to integers."""
    return any(t.operator is cast and t.access.dtype in WHOLE and _is_real(t.children[0]) for t in postorder(*roots))


def _is_real(term: Term) -> bool:
    return not {*dtypes(term.type)}.isdisjoint(REALS)
