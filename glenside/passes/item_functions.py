"""Finds functions of whole items of one tensor, such as normalizations that are spelled out.

Each result is computed from elements of the item and from order-independent reductions of it, such as the mean.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from glenside.builder.layout import broadcast, reshape
from glenside.ir.operator import Category
from glenside.ir.operators.compute import parse_compute
from glenside.ir.term import Term, build, rebuild_all
from glenside.ir.types import AccessType, Dims, Tensor
from glenside.passes.element_functions import ELEMENT, is_one_number, narrowed, operands_of, pair_of

_VIEWS = ("access", "access-reshape", "access-squeeze", "access-insert-axis")
_OF_PLACES = ("argmax", "argmin")


class Items(NamedTuple):
    """The items of a tensor that a term is a function of: all axes of `base` from `split` on.

    whole   True if the term has a value for each element; False: one for each item
    """

    base: Term
    split: int
    whole: bool


def is_reduction(term: Term) -> bool:
    """True if the term reduces each item to a value that does not depend on the order of elements."""
    kind = str(term.attributes[0]) if term.operator.name == "compute" else ""
    return bool(kind) and parse_compute(kind)[0].category is Category.REDUCTION and kind not in _OF_PLACES


def functions_of_items(
    order: Sequence[Term], roots: Iterable[Term], constant: Mapping[Term, bool]
) -> dict[Term, tuple[Term, Items]]:
    """Returns term -> (its function of the items of a tensor, as a term over the tensor `element`; these items).

    `order`: all terms but constants, children first. The terms between a result and its base have no other readers.
    """
    known: dict[Term, Items] = {}
    for term in order:
        items = _items_of(term, known, constant)
        if items is not None:
            known[term] = items
    readers: dict[Term, list[Term]] = {}
    for term in order:
        for child in term.children:
            readers.setdefault(child, []).append(term)
    found: dict[Term, tuple[Term, Items]] = {}
    taken: set[Term] = set(roots)
    for term in reversed(order):
        items = known.get(term)
        if items is None or not items.whole or operands_of(term) is None or term in taken - {*roots}:
            continue
        inner = between(term, items.base, constant)
        if not inner & taken and all(reader in inner or reader is term for x in inner for reader in readers[x]):
            taken |= inner
            found[term] = _function(term, known, constant), items
    return found


def between(term: Term, base: Term, constant: Mapping[Term, bool]) -> set[Term]:
    """Returns the terms between a term and its base, without constants."""
    inner: set[Term] = set()
    stack = [*term.children]
    while stack:
        part = stack.pop()
        if part is not base and not constant[part] and part not in inner:
            inner.add(part)
            stack += part.children
    return inner


def _items_of(term: Term, known: Mapping[Term, Items], constant: Mapping[Term, bool]) -> Items | None:
    if not isinstance(term.type, AccessType) or not term.children:
        return None
    (child, *_), name = term.children, term.operator.name
    own = known.get(child)
    if is_reduction(term):
        return _reduced(child, known)
    if name == "access-broadcast" or name in _VIEWS:
        if own is None or own.whole:
            return None
        dims, split = own.base.access.dims, own.split
        if name == "access-broadcast":
            return own._replace(whole=True) if term.access.dims == dims and term.access.split == 0 else None
        kept = term.access.dims[:split] == dims[:split] and set(term.access.dims[split:]) <= {1}
        return own if kept else None
    operands = operands_of(term)
    return None if operands is None else _joined(operands, known, constant)


def _reduced(child: Term, known: Mapping[Term, Items]) -> Items | None:
    """Returns the items of a reduction's operand; None if it is not a tensor with known items."""
    if child.operator.name != "access":
        return None
    x, split = child.children[0], child.access.split
    if x.access.split or split == x.access.rank or 0 in x.access.dims or set(x.access.dims[split:]) == {1}:
        return None
    items = known.get(x, Items(x, split, True))
    return items._replace(whole=False) if items.whole and items.split == split else None


def _joined(operands: Sequence[Term], known: Mapping[Term, Items], constant: Mapping[Term, bool]) -> Items | None:
    """Returns the items of an elementwise function of the operands; None if they differ."""
    of = {known[o] for o in operands if o in known}
    if len(of) != 1:
        return None
    (items,) = of
    for operand in operands:
        if constant[operand]:
            numbers = is_one_number(operand)
            if not numbers and not (items.whole and set(narrowed(operand).access.dims[: items.split]) <= {1}):
                return None
        elif operand not in known and not (items.whole and operand is items.base):
            return None
    return items


def _function(term: Term, known: Mapping[Term, Items], constant: Mapping[Term, bool]) -> Term:
    base, split, _ = known[term]
    sizes = base.access.dims[split:]
    ones = Dims(1 for _ in sizes)
    done = {base: build("access-tensor", Tensor(ELEMENT, Dims(sizes), base.access.dtype))}

    def of_items(part: Term, children: tuple[Term, ...]) -> Term | None:
        name = part.operator.name
        if name == "access-broadcast":
            return broadcast(children[0], sizes)
        if name in _VIEWS:
            return children[0]
        if is_reduction(part):
            return reshape(build("compute", part.attributes[0], children[0]), ones)
        return None

    inner = [*between(term, base, constant), term]
    for part in inner:
        pair = pair_of(part)
        if pair is not None:
            level = known[part].whole
            for c in filter(constant.__getitem__, pair.children):
                narrow = narrowed(c)
                done[c] = broadcast(reshape(narrow, narrow.access.dims[split:]), sizes if level else ones)
    return rebuild_all([term], of_items, done)[0]
