"""Finds the terms that a nest reads to compute a term, without building formulas."""

from __future__ import annotations

from collections.abc import Container

from glenside.codegen.lowering.inline_reductions import join_of
from glenside.ir.index_map import reshaped
from glenside.ir.term import Term
from glenside.ir.types import Dims


def asking_of(term: Term, stored: Container[Term]) -> list[Term]:
    """Returns the operands that are padded or concatenated, so that each read needs a guard.

    If such an operand is stored, it is read without a guard for every product.
    """
    found: dict[Term, None] = {}
    stack = [(child, term.operator.name == "compute") for child in term.children]
    while stack:
        own, is_tuple = stack.pop()
        if own in stored or own in found:
            continue
        name, of = own.operator.name, own.index_map if own.operator.moves else None
        beside = name == "access-product" or (is_tuple and name == "access-concatenate" and _is_of_tuples(own))
        if of is not None and (of.fill is not None or len(of.pieces) > 1) and not beside:
            found[own] = None
        else:
            stack += [(child, beside or name == "compute") for child in own.children]
    return list(found)


def dims_of_parts(term: Term, stored: Container[Term]) -> Dims | None:
    """Returns the dims of an elementwise operand with the same elements in the same order, but more dims; else None.

    A flattened image can thus be stored with its channels last, too. Operands of a sum do not count, even if they have
    as many elements.
    """
    stack = [term] if join_of(term) is None else []
    while stack:
        own = stack.pop()
        if own.access.size != term.access.size and own.operator.name != "access-product":
            continue
        ends = own is not term and (own in stored or join_of(own) is not None)
        if not ends and (own.operator.name in ("compute", "cast", "access-product") or _keeps_order(own)):
            stack += reversed(own.children)
        elif len(own.access.dims) > len(term.access.dims):
            return own.access.dims
    return None


def _keeps_order(term: Term) -> bool:
    """True if a term has the elements of its only operand in the same order (a reshape)."""
    found = term.index_map if term.operator.moves and len(term.children) == 1 else None
    return found is not None and found == reshaped(term.children[0].access.dims, term.access.dims)


def _is_of_tuples(concatenation: Term) -> bool:
    """True if a concatenation builds a tuple of operands of a compute, each of which is read by itself."""
    return concatenation.attributes[0] == concatenation.access.split
