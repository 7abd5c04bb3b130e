"""The terms of a layer: its product with all movement under it, down to what is computed or declared."""

from __future__ import annotations

from glenside.ir.operator import OperatorKind
from glenside.ir.operators.casting import truncate
from glenside.ir.term import Term


def ends_layer(term: Term) -> bool:
    """Whether a layer ends there: at what computes, cuts a product to the bits of a number, or moves elements to places
    that are computed. Tuples are no operands of a product.
    """
    operator = term.operator
    return operator is truncate or (operator.index_map is None and operator.kind is not OperatorKind.LEAF)


def layer_terms(product: Term) -> frozenset[Term]:
    """The product of a layer with all movement under it, without the leaves."""
    terms: set[Term] = set()
    stack = [product]
    while stack:
        term = stack.pop()
        if term not in terms and (term is product or not ends_layer(term)):
            terms.add(term)
            stack += term.children
    return frozenset(terms)
