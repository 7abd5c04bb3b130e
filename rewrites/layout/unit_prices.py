"""The price of a product on a unit that reads and stores through any affine address: its cheapest mapping's."""

from __future__ import annotations

from rewrites import operators as op
from rewrites.declare import ROOT, Clauses, Example, V, analysis, when
from rewrites.facts import ACCESS, INT, access_at, relation
from rewrites.mapping.mapping_search import EXAMPLE_PARAMETERS, cheapest
from rewrites.terms import variables

ANALYSES = "unit-price-analyses"
UNIT_CYCLES = "unit-cycles"
unit_cycles = relation(UNIT_CYCLES, product=ACCESS, cycles=INT)
"""The cycles of a product in a mapping, and so of what a unit makes of it: the least of several counts."""

_MATMUL = "(compute dot-product (access-cartesian-product (access (access-tensor x) 1) (access (access-tensor w) 1)))"
_UNIT = (
    "(access-rearrange (product-unit 0 (access-tensor x) (shape 3 $k) (list 0 1) 1 (access-tensor w) (shape 6 $k)"
    " (list 0 1) 1 (shape 3 6) (list 0 1)) (shape 18) (list 0) (access-shape (shape 3) (shape 6)))"
)


@analysis(
    ANALYSES,
    Example(_MATMUL, {"x": "m k", "w": "n k"}, parameters=EXAMPLE_PARAMETERS),
    Example(_UNIT, {"x": "3 k", "w": "6 k"}, [unit_cycles(access_at("root"), 7)], EXAMPLE_PARAMETERS),
)
def units_take_the_cheapest_mapping(cycles: V, unit: V, linear: V, other: V) -> Clauses:
    """cycles(unit) = cycles(dot(p)) where dot(p) = rearrange(unit), and of two units that are rearrangements alike.

    An analysis: it adds no e-node. Sound because it only reads what is there: a mapping is addresses and constants, so
    a unit that addresses freely runs it in whatever order its operands lie.
    """
    flat = linear == op.rearrange(unit, *variables("parts order shape item"))
    moved = ROOT == op.rearrange(linear, *variables("parts1 order1 shape1 item1"))
    stored = ROOT == op.rearrange(other, *variables("parts2 order2 shape2 item2"))
    is_unit = other == op.product_unit(*variables("n a ap ao an b bp bo bn sp so"))
    return (
        when(cycles == cheapest(ROOT)).then(unit_cycles(ROOT, cycles)),
        when(unit_cycles(ROOT, cycles), stored, is_unit).then(unit_cycles(other, cycles)),
        when(unit_cycles(unit, cycles), flat, moved, stored, is_unit).then(unit_cycles(other, cycles)),
    )
