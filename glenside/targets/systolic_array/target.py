"""Systolic arrays as targets: weight-stationary, output-stationary or double-buffered; optionally with layouts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from glenside.analysis.copies import Copy
from glenside.analysis.layers import adds_windows, product_sizes
from glenside.egraph.search import SearchResult
from glenside.ir.bounds import number
from glenside.ir.errors import BadInput
from glenside.ir.names import suggestion
from glenside.ir.program import Program
from glenside.ir.term import Term
from glenside.ir.types import ceil_div, if_fits
from glenside.passes.distinct_layers import until_added_up
from glenside.passes.network import fold_batch_norms
from glenside.passes.variants import Cheapest
from glenside.rewrites.layout.product_unit import UNIT_PRICES
from glenside.targets.base import (
    Amounts,
    BoundsProducts,
    Cone,
    Instruction,
    InstructionCost,
    Measure,
    MovesLayouts,
    Pass,
    Prices,
    Scope,
    Target,
    Variant,
    Way,
)
from glenside.targets.convolution_unit.target import LAYOUT_FAMILIES, ConvolutionUnit, copied_bytes
from glenside.targets.registry import target
from glenside.targets.systolic_array.array import UNLIMITED, Array, BitWidths
from glenside.targets.systolic_array.plan import Plan, mapping_label, nearest_miss

BLOCKING, MAPPINGS = ("tile-loops", "unrolled-tiles"), ("best", "baseline")
BASELINE = "baseline"

_ANALYSES = ("analyses", "mapping-analyses")
_SLICES = (*_ANALYSES, "products", "through-products", "systolic-array", "algebra", "through-computes")
_LOOPS = (*_ANALYSES, "matrices", "algebra", "through-products")
_TRANSPOSED = ("recipe-analyses", "transposed-analyses", "transposed")
_CROSSED = ("crossed-mapping-analyses", "crossed-mapping")
CYCLES = Measure("cycles", "cycles", "of the array, and of the vector unit beside it")


class SystolicArray(Target, BoundsProducts):
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

    ways = frozenset({"blocking", "mapping", "method", "extract_seconds", "explain"})
    repeatable = True
    measures: tuple[Measure, ...] = (
        CYCLES,
        Measure("tiles", "tiles", "single instructions of the array"),
        Measure("bytes", "bytes", "moved to and from on-chip memory", shown=""),
        Measure("weight bytes", "bytes", "of the right operand, as the mapping rearranges it", shown="growth"),
    )
    strategy = Cheapest

    def __new__(cls, *sizes: Any, objectives: Sequence[str] = ("cycles",), **options: Any) -> SystolicArray:
        return super().__new__(SystolicArrayWithLayouts if "copies" in objectives else cls)

    def __init__(
        self,
        rows: int,
        columns: int,
        *,
        dataflow: str = "weight-stationary",
        max_rows: int | None = None,
        capacity: int = 0,
        widths: BitWidths | None = None,
        vector_rate: int | None = None,
        objectives: Sequence[str] = ("cycles",),
        max_weight_growth: float | None = None,
        name: str | None = None,
    ) -> None:
        array = Array(rows, columns, dataflow, max_rows, capacity, widths or BitWidths(), vector_rate)
        if max_weight_growth is not None:
            number("the growth of weights, of which 1 means none,", max_weight_growth, least=1)
        self.array, self.max_weight_growth = array, max_weight_growth
        self.objectives = tuple(objectives)
        kind = "systolic-array" if dataflow == "weight-stationary" else dataflow
        self.name = name or f"{kind}:{rows}x{columns}"
        self.doc = SystolicArray.__doc__ or ""
        self.prices = Prices(array.instructions(), self.objectives, None if vector_rate is None else array.vector)
        self.peak = rows * columns + (vector_rate or 0)
        self.description = f"{array!r} {max_weight_growth}"

    def accept(self, way: Way) -> None:
        super().accept(way)
        for what, got, known in (("blocking", way.blocking, BLOCKING), ("mapping", way.mapping, MAPPINGS)):
            if got not in known:
                raise BadInput(f"{what} must be one of {', '.join(known)}, got {got!r}{suggestion(got, known)}")
        if way.blocking == "unrolled-tiles" and (self.array.dataflow != "weight-stationary" or self.array.max_rows):
            why = "unrolled tiles know no other dataflow and no limits"
            raise BadInput(f"{self.name} requires --blocking tile-loops: {why}")

    def scope(self, way: Way) -> Scope:
        return Scope.PROGRAM if way.blocking == "unrolled-tiles" else Scope.LAYERS_AND_BETWEEN

    def passes(self, way: Way) -> Sequence[Pass]:
        return () if way.blocking == "unrolled-tiles" else (fold_batch_norms, until_added_up)

    def families(self, way: Way, nodes: Sequence[Term]) -> tuple[str, ...]:
        """Returns the families of the way.

        Leaves out rules for operators between pairs and their sum, and rules of transposed convolutions, if no node
        needs them.
        """
        if way.blocking == "unrolled-tiles":
            return _SLICES
        stays = "output-stationary" if self.array.dataflow == "output-stationary" else "weight-stationary"
        own: tuple[str, ...] = ("windows", "mapping", *_CROSSED) if way.mapping == "best" else ("baseline-mapping",)
        own += _TRANSPOSED if way.mapping == "best" and any(map(adds_windows, nodes)) else ()
        between = any(_stands_between(node) for node in nodes)
        return (*(f for f in _LOOPS if between or f != "through-products"), *own, stays)

    def rule_parameters(self) -> dict[str, Any]:
        """Returns the sizes of the array, and its price and lower bound in its objectives."""
        array, growth = self.array, None if self.max_weight_growth is None else int(self.max_weight_growth * 1000)

        counted = [name for name in self.objectives if name in InstructionCost._fields] or ["cycles"]

        def objective(cost: InstructionCost, place: int = 0) -> Any:
            return getattr(cost, counted[place]) if place < len(counted) else 0 * cost.cycles

        def exceeds_growth(weights: Any, original: Any) -> Any:
            return 0 * weights if growth is None else if_fits(weights * 1000, original * growth, 0, 1)

        fallback = self.prices.fallback or array.tiled
        return {
            "rows": array.rows,
            "columns": array.columns,
            "max_rows": array.max_rows or UNLIMITED,
            "price": lambda *sizes: objective(array.tiled(*sizes)),
            "second-price": lambda *sizes: objective(array.tiled(*sizes), 1),
            "third-price": lambda *sizes: 0 * sizes[0],
            "within": lambda best: best,
            "fallback-price": lambda *sizes: objective(fallback(*sizes)),
            "bound": lambda *sizes: objective(array.bound(*sizes)),
            "exceeds-growth": exceeds_growth,
            "scatter": 0,
        }

    def variant(self, product: Term, cone: Cone, term: Term, searched: SearchResult) -> Variant:
        sizes = product_sizes(product)
        taken = [*cone.instructions]
        if self.prices.fallback is not None and not cone.constant:
            taken += [self.prices.fallback(sizes.groups, sizes.m, sizes.k, sizes.n) for _ in cone.products]
        mapped = not cone.products or self.prices.fallback is not None or sizes.macs == 0
        plan = None if cone.mapping is None else Plan.of(*cone.mapping)
        weights = sum(Plan.of(*mapping).weights for mapping in cone.mappings) or sizes.weights
        amounts = {part: sum(getattr(cost, part) for cost in taken) for part in ("cycles", "tiles", "bytes")}
        return Variant(
            label=mapping_label(product, cone, plan, self.array) if mapped else "not mapped",
            term=term,
            measures={**amounts, "weight bytes": weights * _word(product)},
            off="" if mapped else nearest_miss(cone, searched, self.prices.instructions[0]),
            details={"plan": None if plan is None else plan.as_dict()} | ({"constant": True} if cone.constant else {}),
        )

    def baselines(self, product: Term, variants: Sequence[Variant]) -> Mapping[str, Variant]:
        """Returns the baseline mapping: the product tiled as it is written."""
        sizes = product_sizes(product)
        idle = not sizes.macs or variants[0].details.get("constant")
        cost = InstructionCost(0, 0) if idle else self.array.tiled(sizes.groups, sizes.m, sizes.k, sizes.n)
        measures = {**cost._asdict(), "weight bytes": sizes.weights * _word(product)}
        return {BASELINE: Variant("baseline mapping", None, measures)}

    def bound(self, macs: int) -> int:
        """Returns the cycles with every multiplier busy in every cycle."""
        return int(ceil_div(macs, self.peak or 1)) if self.objectives[0] == "cycles" else 0


class SystolicArrayWithLayouts(SystolicArray, MovesLayouts):
    """An array whose objectives include copies: the network and its layouts are searched in one e-graph.

    A product runs as a `product-unit`, whose operands and result may have any axis order that the layout allows. Its
    cycles are those of the cheapest mapping, which needs only addressing and constants; tiles and bytes are unknown.
    Raises BadInput for objectives other than cycles and copies.
    """

    ways = frozenset()
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


def _stands_between(node: Term) -> bool:
    """True if an operator is between the pairs of a product and their sum."""
    product = node.operator.name == "compute" and node.attributes[0] == "dot-product"
    return product and node.children[0].operator.name != "access-product"


def _word(product: Term) -> int:
    return np.dtype(product.children[0].access.dtype).itemsize


def _load(path: str, content: Mapping[str, Any], **options: Any) -> SystolicArray:
    from glenside.targets.systolic_array.description import read_target

    return read_target(path, content, **options)


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
