"""Takes tuples out of programs: items of tuples that are built in the program become the terms themselves."""

from __future__ import annotations

from glenside.ir.term import Term, rebuild_all
from glenside.ir.types import TupleType


def arrays_of(program: Term) -> list[Term]:
    """Returns the terms of a program's results from left to right, in which no item of a built tuple is left."""
    return _flat(*rebuild_all([program], _item))


def _flat(term: Term) -> list[Term]:
    if not isinstance(term.type, TupleType):
        return [term]
    return [found for child in term.children for found in _flat(child)]


def _item(term: Term, children: tuple[Term, ...]) -> Term | None:
    """Returns the item that a `tuple-get-item` of a built tuple is."""
    if term.operator.name != "tuple-get-item" or children[0].operator.name != "construct-tuple":
        return None
    (number,) = term.attributes
    assert isinstance(number, int), "the index of an item is a number"
    return children[0].children[number]
