"""Selects mappings that cost more than the cheapest but need less memory; a machine with memories chooses among them.

At each cost level above the least, the mappings of least second cost, of least third cost, and of the least sum of both
are kept, separately for swapped operands, since their right operands differ. Levels are denser near the least cost; the
highest is `within` of it. The product as it is written is also always a choice (`baseline_mapping_is_made`). A product
has at most 3 x 2 x LEVELS mappings, most of which coincide.
"""

from __future__ import annotations

from dataclasses import replace

from glenside.rewrites.declare import ROOT, Clauses, V, rule, set_, when
from glenside.rewrites.facts import ACCESS, INT, function, relation
from glenside.rewrites.mapping.mapping_search import EXAMPLE_PARAMETERS, EXAMPLES, candidate, cheapest, planned
from glenside.rewrites.parameters import within

FAMILY = "mapping-front"
LEVELS = 6
FINE = 1024
"""Number of steps in which costs are compared; among mappings of equal memory the cheapest is kept."""
level = relation("front-level", number=INT, rows=range(LEVELS))
_HELD = {
    what: function(f"front-least-{what}", INT, "min", product=ACCESS, swapped=INT, level=INT)
    for what in ("second", "third", "sum")
}
_EXAMPLES = [
    replace(example, parameters={**EXAMPLE_PARAMETERS, "within": lambda best: 2 * best}) for example in EXAMPLES
]


@rule(FAMILY, *_EXAMPLES)
def front_of_mappings_is_made(
    best: V, price: V, second: V, third: V, weight: V, swapped: V, plan: V, number: V
) -> Clauses:
    """dot(a x b) = the results of the plans on a front: at each level, those that need the least memory.

    It only adds demands, for plans that are all known before. Sound because a demand adds no e-node.
    """
    last = (LEVELS - 1) ** 2
    on_level = (
        *(best == cheapest(ROOT), candidate(ROOT, price, second, third, weight, swapped, plan), level(number)),
        (price - best) * last <= (within(best) - best) * (number * number),
    )
    finer = ((price - best) * FINE) // (within(best) + 1)
    scores = {"second": second, "third": third, "sum": second + third}
    return tuple(
        clause
        for what, held in scores.items()
        for clause in (
            when(*on_level).then(set_(_HELD[what](ROOT, swapped, number), held * FINE + finer)),
            when(*on_level, held * FINE + finer == _HELD[what](ROOT, swapped, number)).then(planned(ROOT, plan, plan)),
        )
    )
