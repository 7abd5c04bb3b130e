"""The cost model of arrays of multipliers: mappings of products, their cycles, tiles and bytes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

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
from glenside.targets.arrays.array import UNLIMITED, Array, BitWidths
from glenside.targets.arrays.best_mappings import MappedCycles, TilePrices
from glenside.targets.arrays.plan import Plan, mapping_label, nearest_miss
from glenside.targets.base import (
    BoundsProducts,
    Cone,
    InstructionCost,
    Measure,
    Pass,
    Prices,
    PricesAlgebra,
    ProductPrices,
    Scope,
    Target,
    Variant,
    Way,
)

BLOCKING, MAPPINGS = ("tile-loops", "unrolled-tiles"), ("best", "baseline")
BASELINE = "baseline"

_ANALYSES = ("analyses", "mapping-analyses")
_SLICES = (*_ANALYSES, "products", "through-products", "systolic-array", "algebra", "through-computes")
_LOOPS = (*_ANALYSES, "matrices", "algebra", "through-products")
_TRANSPOSED = ("recipe-analyses", "transposed-analyses", "transposed")
_CROSSED = ("crossed-mapping-analyses", "crossed-mapping")
CYCLES = Measure("cycles", "cycles", "of the array, and of the vector unit beside it")


class MatrixArray(Target, BoundsProducts, PricesAlgebra):
    """The cost model of an array of R x C multipliers, and the rules that map products onto it."""

    ways = frozenset({"blocking", "mapping", "method", "extract_seconds", "explain"})
    repeatable = True
    measures: tuple[Measure, ...] = (
        CYCLES,
        Measure("tiles", "tiles", "single instructions of the array"),
        Measure("bytes", "bytes", "moved to and from on-chip memory", shown=""),
        Measure("weight bytes", "bytes", "of the right operand, as the mapping rearranges it", shown="growth"),
    )
    strategy = Cheapest

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
        self.doc = type(self).__doc__ or ""
        self.prices = Prices(array.instructions(), self.objectives, None if vector_rate is None else array.vector)
        self.peak = rows * columns + (vector_rate or 0)
        self.description = f"{array!r} {max_weight_growth}"
        self._mapped = MappedCycles(self)

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

    def product_prices(self) -> ProductPrices:
        """Returns the cycles of products by their sizes, without the memories that an npu has."""
        return TilePrices(self.array)

    def predicted(self, program: Program) -> float | None:
        """Returns the cycles of the products of a program, each with its best mapping."""
        return self._mapped.of(program) if self.array.rows else None

    def bound(self, macs: int) -> int:
        """Returns the cycles with every multiplier busy in every cycle."""
        return int(ceil_div(macs, self.peak or 1)) if self.objectives[0] == "cycles" else 0


def _stands_between(node: Term) -> bool:
    """True if an operator is between the pairs of a product and their sum."""
    product = node.operator.name == "compute" and node.attributes[0] == "dot-product"
    return product and node.children[0].operator.name != "access-product"


def _word(product: Term) -> int:
    return np.dtype(product.children[0].access.dtype).itemsize
