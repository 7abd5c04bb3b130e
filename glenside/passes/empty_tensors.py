"""Replaces tensors without elements and sums over empty axes by constants: they read no input."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from glenside.builder.layout import split_at
from glenside.ir.program import Program
from glenside.ir.term import Term, build, postorder, rebuild_all
from glenside.ir.types import AccessType

_SUMS = ("dot-product", "reduce-sum")
"""Compute types with the result 0 for an item without elements."""


def without_empty_tensors(program: Program) -> Program:
    """Replaces empty sums by 0 and tensors without elements by constants; such layers are no layers any more."""
    known = {term: made for term in program.info.order if (made := _constant(term)) is not None}
    if not known:
        return program
    (term,) = rebuild_all([program.term], lambda *_: None, known)
    used = {*postorder(program.term, without=known)} - known.keys()
    layers: Mapping[str, Term] = {name: node for name, node in program.layers.items() if node in used}
    rebuilt = rebuild_all([*layers.values()], lambda *_: None, known)
    return replace(program, term=term, layers=dict(zip(layers, rebuilt, strict=True)), names={})


def _constant(term: Term) -> Term | None:
    """Returns the constant equal to an empty sum or a tensor without elements; None for other terms."""
    if not isinstance(term.type, AccessType):
        return None
    access = term.access
    is_sum = term.operator.name == "compute" and term.attributes[0] in _SUMS
    if access.size and not (is_sum and not term.children[0].access.item.product()):
        return None
    if not term.children and not is_sum and term.operator.name == "full":
        return None
    return split_at(build("full", access.dims, 0, access.dtype), access.split)
