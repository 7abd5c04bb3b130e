"""Batch-norm folding: the scales of products go into their weights, which are computed beforehand."""

from __future__ import annotations

from glenside.egraph.saturation import SATURATED
from glenside.ir.constants import constants_under
from glenside.ir.operator import Category, Keeps
from glenside.ir.operators import parse_compute
from glenside.ir.program import Program, is_product
from glenside.ir.term import Term, postorder
from glenside.ir.types import AccessType
from glenside.passes.network import Search, rewritten
from glenside.targets.base import Cost, Prices, free
from rewrites.layout import folding


def has_scales_of_products(program: Program) -> bool:
    """Whether a product by constant weights is scaled by a constant: what `fold_batch_norms` can take away."""
    constant = constants_under(program.term)
    scaled: dict[Term, bool] = {}
    for term in postorder(program.term):
        pair = term.children[0] if term.operator.name == "compute" else term
        operands = [c for c in pair.children if not constant[c]]
        record = parse_compute(str(term.attributes[0]))[0] if term.operator.name == "compute" else None
        scales = record is not None and Keeps.FACTOR in record.keeps
        adds = record is not None and record.category is Category.FOLD and record.linear
        if is_product(term):
            scaled[term] = len(operands) == 1
        elif term.operator.index_map is not None or scales or adds:
            scaled[term] = len(operands) == 1 and scaled.get(operands[0], False)
        if scales and scaled[term]:
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
    constant = constants_under(program.term)
    cost = Cost()
    for term in postorder(program.term):
        if isinstance(term.type, AccessType) and all(isinstance(c.type, AccessType) for c in term.children):
            operands = [c.access for c in term.children]
            cost = cost.plus(_PRICES.cost(term.operator.name, term.attributes, operands, term.type, constant[term]))
    better = (found.cost.unmapped, found.cost.scalar) < (cost.unmapped, cost.scalar)
    whole = len(found.program.layers) == len(program.layers)
    return found.program if better and whole else program, found.stopped
