"""Propagates cotangents in reverse mode, from results through each term's adjoint to the requested terms.

Every term is visited once, after all of its readers: their cotangents are summed, and one adjoint is built of the sum.
Nothing is built for terms that do not depend on the requested terms, or are not reals; zeros are not propagated.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from typing import Any

from glenside.gradients import algebra
from glenside.gradients.algebra import Pair
from glenside.ir.dtypes import REALS
from glenside.ir.errors import BadInput
from glenside.ir.operators.compute import name_of
from glenside.ir.operators.opaque import name_of as name_of_box
from glenside.ir.program import is_product
from glenside.ir.term import Term, postorder
from glenside.ir.types import TupleType

Cotangent = Term | tuple[Any, ...]
"""For a tuple, one cotangent per item, None for zero."""


@dataclass
class Reverse:
    """Cotangents of terms, and for each product the products in the cotangents of its first and second operand."""

    found: list[Term | None]
    products: dict[Term, tuple[Term | None, Term | None]] = field(default_factory=dict)


def reverse(
    cotangents: Mapping[Term, Cotangent], wrt: Sequence[Term], place: Callable[[Term], str] = lambda term: ""
) -> Reverse:
    """Returns the cotangents of `wrt` from those of other terms, ()(dims) each; None for zero.

    `place` returns text that messages put after the name of a term. Raises BadInput for a term without a derivative.
    """
    active = _active([*cotangents], wrt)
    sent: dict[Term, list[Cotangent]] = {term: [g] for term, g in cotangents.items() if term in active}
    result = Reverse([])
    kept: dict[Term, Cotangent] = {}
    wanted = set(wrt)
    for term in reversed([*postorder(*cotangents)]):
        if term not in sent:
            continue
        g = _total(sent.pop(term))
        if term in wanted:
            kept[term] = g
        if not term.children:
            continue
        children: Sequence[Term] = term.children
        for child, found in zip(children, _adjoint(term, g, place), strict=True):
            if isinstance(found, Pair):
                _record_product(result, term, found)
                for operand, part in zip(child.children, found, strict=True):
                    _send(sent, active, operand, part)
            else:
                _send(sent, active, child, found)
    for term in wrt:
        total = kept.get(term)
        assert total is None or isinstance(total, Term), "a tuple is no tensor"
        result.found.append(total)
    return result


def _active(roots: Sequence[Term], wrt: Sequence[Term]) -> set[Term]:
    """Returns the terms of reals that depend on a requested term."""
    found, wanted = set[Term](), set(wrt)
    for term in postorder(*roots):
        reals = isinstance(term.type, TupleType) or term.type.dtype in REALS
        if term in wanted or (reals and not found.isdisjoint(term.children)):
            found.add(term)
    return found


def _send(sent: dict[Term, list[Cotangent]], active: set[Term], term: Term, g: Cotangent | None) -> None:
    if g is None or term not in active:
        return
    if isinstance(g, Term):
        if algebra.number(g) == 0:
            return
        g = algebra.whole(g)
        assert g.access.dims == term.access.dims, f"{term.operator.name} sends {g.access} for {term.access}"
    sent.setdefault(term, []).append(g)


def _total(parts: Sequence[Cotangent]) -> Cotangent:
    """Sums cotangents; those of tuples item by item."""

    def plus(a: Any, b: Any) -> Any:
        if a is None or b is None:
            return b if a is None else a
        if isinstance(a, tuple):
            return tuple(plus(x, y) for x, y in zip(a, b, strict=True))
        return algebra.add(a, b)

    total: Cotangent = reduce(plus, parts)
    return total


def _adjoint(term: Term, g: Cotangent, place: Callable[[Term], str]) -> Sequence[Cotangent | None]:
    """Returns the cotangent of each child. Raises BadInput."""
    rule = term.operator.adjoint
    if not callable(rule):
        name = name_of(term)
        if term.operator.opaque:
            name = f"the black box {name_of_box(str(term.attributes[0]))}"
        reason = f": {rule}" if rule else ""
        raise BadInput(f"a gradient requires operators with a derivative, got {name}{place(term)}{reason}")
    found: Sequence[Cotangent | None] = rule(algebra, g, *term.arguments())
    return found


def _record_product(result: Reverse, term: Term, pair: Pair) -> None:
    if is_product(term):
        result.products[term] = (_product_in(pair.a), _product_in(pair.b))


def _product_in(x: Term | None) -> Term | None:
    """Returns the product whose moved elements a term is, or None."""
    while x is not None and not is_product(x):
        x = x.children[0] if x.operator.moves and len(x.children) == 1 else None
    return x
