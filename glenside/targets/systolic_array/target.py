"""Systolic arrays as targets: weight-stationary, output-stationary or double-buffered; optionally with layouts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from glenside.analysis.copies import Copy
from glenside.analysis.layers import product_sizes
from glenside.egraph.search import SearchResult
from glenside.ir.errors import BadInput
from glenside.ir.program import Program
from glenside.ir.term import Term
from glenside.rewrites.layout.product_unit import UNIT_PRICES
from glenside.targets.arrays.layout_unit import LAYOUT_FAMILIES, LayoutUnit, copied_bytes
from glenside.targets.arrays.matrix_array import BASELINE, CYCLES, MatrixArray
from glenside.targets.base import (
    Amounts,
    Cone,
    Instruction,
    InstructionCost,
    MovesLayouts,
    Pass,
    Prices,
    Scope,
    Variant,
    Way,
)
from glenside.targets.registry import target
from glenside.targets.systolic_array.description import read_options


class SystolicArray(MatrixArray):
    """A weight-stationary unit of R x C multipliers; m rows stream through a tile in m + 2R + C - 2 cycles.

    dataflow            weight-stationary, output-stationary or double-buffered
    max_rows            maximum rows that stream through a tile before its sums are read, or None
    capacity            bytes of on-chip memory that keep operands between tiles
    widths              bits of streamed inputs, weights and accumulators
    vector_rate         multiply-accumulates per cycle of a vector unit beside the array, or None
    objectives          measures to minimize, in order: "cycles" and "bytes", or "cycles" and "copies". With copies the
                        layouts of the network are searched too; `layout` is that of operands: nhwc, nchw16c ..
    max_weight_growth   maximum factor by which a mapping may enlarge the weights, or None

    Raises BadInput.
    """

    def __new__(cls, *sizes: Any, objectives: Sequence[str] = ("cycles",), **options: Any) -> SystolicArray:
        return super().__new__(SystolicArrayWithLayouts if "copies" in objectives else cls)


class SystolicArrayWithLayouts(SystolicArray, MovesLayouts):
    """An array whose objectives include copies: the network and its layouts are searched in one e-graph.

    A product runs as a `product-unit`, whose operands and result may have any axis order that the layout allows. Its
    cycles are those of the cheapest mapping, which needs only addressing and constants; tiles and bytes are unknown.
    Raises BadInput for objectives other than cycles and copies.
    """

    ways = frozenset()
    measures = (CYCLES, *LayoutUnit.measures)

    def __init__(self, rows: int, columns: int, *, layout: str = "nhwc", **options: Any) -> None:
        super().__init__(rows, columns, **options)
        self.doc = SystolicArray.__doc__ or ""
        if not {*self.objectives} <= {"cycles", "copies"}:
            raise BadInput(f"beside copies only cycles are counted, got the objectives {','.join(self.objectives)}")
        self.unit = LayoutUnit(layout)
        instruction = Instruction("product-unit", self._tiled, f"operands in {layout}")
        order = self.objectives if "cycles" in self.objectives else (*self.objectives, "cycles")
        self.prices = Prices((instruction,), order, self.prices.fallback, copied_bytes)
        self.description += f" {self.unit.description}"

    def _tiled(self, attributes: Sequence[Any], children: Sequence[Any], own: Any) -> InstructionCost:
        """Returns the price of a unit without a mapping from rules: that of the product tiled as it is written."""
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
        return Variant(on_unit.label, term, {**self.unit.unknown, "cycles": cycles}, off=off)

    def baselines(self, product: Term, variants: Sequence[Variant]) -> Mapping[str, Variant]:
        """Returns the baseline mapping of the program in the layouts in which it is written."""
        sizes = product_sizes(product)
        cycles = self.array.tiled(sizes.groups, sizes.m, sizes.k, sizes.n).cycles if sizes.macs else 0
        return {BASELINE: Variant("baseline mapping, as written", product, {**self.unit.unknown, "cycles": cycles})}

    def whole(self, program: Program) -> Amounts:
        return self.unit.whole(program)

    def copies(self, program: Program) -> Sequence[tuple[Term, Copy]]:
        return self.unit.copies(program)

    def report(self, before: Program, after: Program) -> Mapping[str, Any]:
        return self.unit.report(before, after)


def _load(path: str, content: Mapping[str, Any], **options: Any) -> SystolicArray:
    return SystolicArray(**read_options(path, content, **options))


@target("systolic-array", "systolic-array:RxC", options=SystolicArray, load=_load)
def _weight_stationary(rows: int, columns: int, **options: Any) -> SystolicArray:
    """A weight-stationary matrix unit of R x C multipliers; M rows stream through a tile in M + 2R + C - 2 cycles."""
    return SystolicArray(rows, columns, **options)


@target("output-stationary", "output-stationary:RxC", options=SystolicArray)
def _output_stationary(rows: int, columns: int, **options: Any) -> SystolicArray:
    """An output-stationary array of R x C sums; a tile takes K + R + C - 2 cycles for products of depth K."""
    return SystolicArray(rows, columns, dataflow="output-stationary", **options)


@target("double-buffered", "double-buffered:RxC", options=SystolicArray)
def _double_buffered(rows: int, columns: int, **options: Any) -> SystolicArray:
    """A weight-stationary array that loads the next weights while rows stream: max(R, M + R + C - 2) cycles a tile."""
    return SystolicArray(rows, columns, dataflow="double-buffered", **options)
