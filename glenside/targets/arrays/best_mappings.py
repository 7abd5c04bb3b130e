"""Cycles of single products with their best mappings, by which the algebra between layers is chosen for an array."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import ClassVar

from glenside.egraph.saturation import SATURATED, Limits
from glenside.egraph.search import search_here
from glenside.ir.program import Program, is_product
from glenside.ir.term import Term, build, postorder, rebuild_all, tensors
from glenside.ir.types import Tensor, ceil_div
from glenside.passes.distinct_layers import distinct_layers
from glenside.rewrites import of_families
from glenside.targets.arrays.array import Array
from glenside.targets.base import Target, Way

_TIE = 1e-6
"""Cycles of an element between layers: of two forms with equal products, the one that moves less is chosen."""
_LIMITS = Limits(nodes=50_000, seconds=None)
"""Limits of the search for the mappings of a few products; not of time, so that it gives the same answer again."""
_MAPPINGS = ("mapping",)
"""Relations that the search must report."""


@dataclass(frozen=True, slots=True)
class TilePrices:
    """Cycles of products, by their sizes; sums between them cost nothing.

    Operands are in the better order, and groups are packed or crossed, where that takes fewer cycles. Windows are
    priced as they are written: only `MappedCycles` knows how they can be regrouped.
    """

    times_elements: ClassVar[bool] = False
    array: Array

    def count(self, size: int) -> int:
        """Returns the size."""
        return size

    def product(self, groups: int, rows: int, depth: int, columns: int, read: int) -> float:
        """Returns the cycles of products."""
        return _cycles(self.array, groups, rows, depth, columns) if self.array.rows else 0

    def elementwise(self, read: int, written: int) -> float:
        """Returns next to nothing: it decides between forms with equal products."""
        return _TIE * (read + written)


@lru_cache(maxsize=1 << 16)
def _cycles(array: Array, groups: int, rows: int, depth: int, columns: int) -> float:
    joined = sorted({ceil_div(groups, left) for left in range(1, groups + 1)})  # others leave as many groups
    sizes = [(ceil_div(groups, p), rows, p * depth, p * columns) for p in joined]
    sizes += [(ceil_div(groups, p), p * rows, depth, p * columns) for p in joined]
    orders = [(g, m, k, n) for g, a, k, b in sizes for m, n in ((a, b), (b, a))]
    return float(min(array.tiled(*one).cycles for one in orders))


@dataclass
class MappedCycles:
    """Finds the least cycles of the products of programs by searching their mappings; of equal products once."""

    target: Target
    known: dict[str, int | None] = field(default_factory=dict)

    def of(self, program: Program) -> float | None:
        """Returns the cycles of the products of a program that are not constant; None if they were not found."""
        constant = program.info.constant
        products = [term for term in program.info.order if is_product(term) and not constant[term]]
        layers = {str(number): term for number, term in enumerate(products)}
        found = distinct_layers(replace(program, layers=layers))
        texts = [str(_renamed(product)) for product in found.products]
        new = {text: term for text, term in zip(texts, found.products, strict=True) if text not in self.known}
        if new:
            own = [_renamed(product, f"{number}.") for number, product in enumerate(new.values())]
            self.known |= zip(new, self._searched(own), strict=True)
        total = 0
        for number in (found.places[name][0] for name in layers):
            if (cycles := self.known[texts[number]]) is None:
                return None
            total += cycles
        return float(total)

    def _searched(self, products: Sequence[Term]) -> list[int | None]:
        way, nodes = Way(), tuple(postorder(*products))
        rules = of_families(self.target.families(way, nodes))
        searched = search_here(nodes, rules, self.target.rule_parameters(), _LIMITS, reported=_MAPPINGS)
        if searched.stopped != SATURATED:
            return [None] * len(products)
        place = {term: number for number, term in enumerate(nodes)}
        extractor = self.target.strategy(self.target, searched, way)
        variants = [extractor.layer(searched.snapshot.program[place[term]], term).variants[0] for term in products]
        return [None if variant.off else variant.measures["cycles"] for variant in variants]


def _renamed(product: Term, prefix: str = "") -> Term:
    """Returns a product of tensors that are named by number, so that equal products are equal terms."""
    names: dict[Term, Term] = {}
    for number, leaf in enumerate(tensors(product)):
        tensor = leaf.attributes[0]
        assert isinstance(tensor, Tensor)
        names[leaf] = build("access-tensor", replace(tensor, name=f"{prefix}{number}"))
    (renamed,) = rebuild_all([product], lambda *_: None, names)
    return renamed
