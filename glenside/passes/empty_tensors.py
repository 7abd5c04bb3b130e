"""Tensors without elements, and sums of nothing, as constants: what reads no element of an input needs no machine."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from glenside.builder.layout import split_at
from glenside.ir.program import Program
from glenside.ir.term import Term, build, postorder, rebuild_all
from glenside.ir.types import AccessType

_SUMS = ("dot-product", "reduce-sum")
"""Computes that are 0 of an item without elements."""


def without_empty_tensors(program: Program) -> Program:
    """The program with 0 for each sum of nothing, and constants for tensors without elements; a layer that is one of
    these is no layer any more.
    """
    known = {term: made for term in postorder(program.term) if (made := _constant(term)) is not None}
    if not known:
        return program
    (term,) = rebuild_all([program.term], lambda *_: None, known)
    used = {*postorder(program.term, without=known)} - known.keys()
    layers: Mapping[str, Term] = {name: node for name, node in program.layers.items() if node in used}
    rebuilt = rebuild_all([*layers.values()], lambda *_: None, known)
    return replace(program, term=term, layers=dict(zip(layers, rebuilt, strict=True)), names={})


def _constant(term: Term) -> Term | None:
    """The constant that a term is, whatever the inputs are; None for others."""
    if not isinstance(term.type, AccessType):
        return None
    access = term.access
    is_sum = term.operator.name == "compute" and term.attributes[0] in _SUMS
    if access.size and not (is_sum and not term.children[0].access.item.product()):
        return None
    if not term.children and not is_sum and term.operator.name == "full":
        return None
    return split_at(build("full", access.dims, 0, access.dtype), access.split)
