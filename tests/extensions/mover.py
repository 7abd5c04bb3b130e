"""Declares a target from outside the package: one class, in one file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rolls import FAMILY

from glenside.egraph.rule import Parameters
from glenside.ir.program import Program
from glenside.ir.term import Term, postorder
from glenside.targets.base import Amounts, Measure, Prices, Scope, Target, Variant, Way, free
from glenside.targets.registry import target


class Mover(Target):
    """A machine for which only moved elements count."""

    name = "mover:1"
    doc = "A machine for which only moved elements count."
    measures = (Measure("moved", "elements", "that are copied to other places"),)
    objectives = ("moved",)
    prices = Prices(objectives=("moved",), fallback=free)

    def scope(self, way: Way) -> Scope:
        return Scope.NETWORK

    def families(self, way: Way, nodes: Sequence[Term]) -> tuple[str, ...]:
        return (FAMILY,)

    def rule_parameters(self) -> Parameters:
        return {}

    def variant(self, product: Term, *found: Any) -> Variant:
        return Variant("as written", product, {"moved": 0})

    def baselines(self, product: Term, variants: Sequence[Variant]) -> Mapping[str, Variant]:
        return {"as written": variants[0]}

    def whole(self, program: Program) -> Amounts:
        terms = [t for t in postorder(program.term) if t.children]
        costs = [
            self.prices.cost(t.operator.name, t.attributes, [c.access for c in t.children], t.access, constant=False)
            for t in terms
        ]
        return {"moved": sum(cost.moved for cost in costs)}


@target("mover", "mover:1", read=lambda text: ())
def _mover() -> Mover:
    """Returns a machine for which only moved elements count."""
    return Mover()
