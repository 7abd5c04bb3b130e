"""Cycles and layouts as objectives of one search: an array that loads and stores through any affine address."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from glenside.analysis.layers import product_sizes
from glenside.egraph.search import SearchResult
from glenside.ir.errors import BadInput
from glenside.ir.program import Program
from glenside.ir.term import Term
from glenside.passes.extraction import Cone
from glenside.passes.network import Pass
from glenside.targets.base import Amounts, Instruction, InstructionCost, Prices, Scope, Variant, Way
from glenside.targets.convolution_unit.target import LAYOUT_FAMILIES, ConvolutionUnit, copied_bytes
from glenside.targets.systolic_array.target import BASELINE, CYCLES, SystolicArray
from rewrites.layout.product_unit import UNIT_PRICES

_UNKNOWN = dict.fromkeys(m.name for m in ConvolutionUnit.measures)


class SystolicArrayWithLayouts(SystolicArray):
    """An array whose objectives count copies too: the network and its layouts are searched in one e-graph.

    A product runs on it as a `product-unit`, whose operands and result lie in any order that the layout allows; its
    cycles are those of the cheapest mapping, which is addresses and constants. Tiles and bytes of it are not told.
    Raises BadInput for other objectives beside.
    """

    ways = frozenset()
    checks_layers = False
    measures = (CYCLES, *ConvolutionUnit.measures)

    def __init__(self, rows: int, columns: int, *, layout: str = "nhwc", **options: Any) -> None:
        super().__init__(rows, columns, **options)
        if not {*self.objectives} <= {"cycles", "copies"}:
            raise BadInput(f"beside copies only cycles are counted, got the objectives {','.join(self.objectives)}")
        self.unit = ConvolutionUnit(layout)
        instruction = Instruction("product-unit", self._tiled, f"operands in {layout}")
        order = self.objectives if "cycles" in self.objectives else (*self.objectives, "cycles")
        self.prices = Prices((instruction,), order, self.prices.fallback, copied_bytes)
        self.description += f" {self.unit.description}"

    def _tiled(self, attributes: Sequence[Any], children: Sequence[Any], own: Any) -> InstructionCost:
        """The price of a unit of which rules tell no mapping: that of the product cut into tiles as it stands."""
        shared, _, a_order, a_split, *_ = attributes
        parts = attributes[1].permute(a_order)
        groups, rows, depth = parts.take(shared).product(), parts.take(a_split).product(), parts.drop(a_split).product()
        return self.array.tiled(groups, rows // max(groups, 1), depth, own.size // max(rows, 1))

    def scope(self, way: Way) -> Scope:
        return Scope.NETWORK

    def passes(self, way: Way) -> Sequence[Pass]:
        return ()

    def families(self, way: Way, nodes: Sequence[Term]) -> tuple[str, ...]:
        return (*LAYOUT_FAMILIES, "analyses", "mapping-analyses", UNIT_PRICES)

    def rule_parameters(self) -> dict[str, Any]:
        return {**super().rule_parameters(), **self.unit.rule_parameters()}

    def variant(self, product: Term, cone: Cone, term: Term, searched: SearchResult) -> Variant:
        on_unit = self.unit.variant(product, cone, term, searched)
        cycles = sum(cost.cycles for cost in cone.instructions)
        empty = product_sizes(product).macs == 0
        off = "" if cone.instructions or empty else "the array reads its operands in no order that was found"
        return Variant(on_unit.label, term, {**_UNKNOWN, "cycles": cycles}, off=off)

    def baselines(self, product: Term, variants: Sequence[Variant]) -> Mapping[str, Variant]:
        """The baseline mapping, of the program in the layouts in which it is written."""
        sizes = product_sizes(product)
        cycles = self.array.tiled(sizes.groups, sizes.m, sizes.k, sizes.n).cycles if sizes.macs else 0
        return {BASELINE: Variant("baseline mapping, as written", product, {**_UNKNOWN, "cycles": cycles})}

    def whole(self, program: Program) -> Amounts:
        return self.unit.whole(program)

    def report(self, before: Program, after: Program) -> Mapping[str, Any]:
        return self.unit.report(before, after)
