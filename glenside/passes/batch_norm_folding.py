"""Batch-norm folding: the scales of products go into their weights, which are computed beforehand."""

from __future__ import annotations

from glenside.analysis.copies import MOVEMENT, constant_terms
from glenside.egraph.saturation import SATURATED
from glenside.ir.program import Program, is_product
from glenside.ir.term import Term, postorder
from glenside.ir.types import AccessType
from glenside.passes.network import Search, rewritten
from glenside.targets.base.cost import Cost
from glenside.targets.base.prices import Prices, free
from rewrites.layout import folding

_SCALES = frozenset({"elementwise-mul", "elementwise-div"})


def has_scales_of_products(program: Program) -> bool:
    """Whether a product by constant weights is scaled by a constant: what `fold_batch_norms` can take away."""
    constant = constant_terms(program.term)
    scaled: dict[Term, bool] = {}
    for term in postorder(program.term):
        pair = term.children[0] if term.operator.name == "compute" else term
        operands = [c for c in pair.children if c not in constant]
        kind = term.attributes[0] if term.operator.name == "compute" else ""
        if is_product(term):
            scaled[term] = len(operands) == 1
        elif term.operator.name in MOVEMENT or kind in ("elementwise-add", "subtract", *_SCALES):
            scaled[term] = len(operands) == 1 and scaled.get(operands[0], False)
        if kind in _SCALES and scaled[term]:
            return True
    return False


_PRICES = Prices(fallback=free)
"""Of any machine: how products are run is searched next."""


def fold_batch_norms(program: Program, search: Search | None = None) -> tuple[Program, str]:
    """The program with scales of its products folded into their weights, and why the search for it ended.

    The program itself where nothing can be folded, or where that would multiply or compute no less.
    """
    if not has_scales_of_products(program):
        return program, SATURATED
    found = rewritten(program, folding.TOGETHER, {}, _PRICES, search)
    constant = constant_terms(program.term)
    cost = Cost()
    for term in postorder(program.term):
        if isinstance(term.type, AccessType) and all(isinstance(c.type, AccessType) for c in term.children):
            operands = [c.access for c in term.children]
            cost = cost.plus(_PRICES.cost(term.operator.name, term.attributes, operands, term.type, term in constant))
    better = (found.cost.unmapped, found.cost.scalar) < (cost.unmapped, cost.scalar)
    whole = len(found.program.layers) == len(program.layers)
    return found.program if better and whole else program, found.stopped
