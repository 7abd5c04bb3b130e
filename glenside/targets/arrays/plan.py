"""Plans: the transformations of a product before it is tiled; labels for them, and reasons why a product has none."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from glenside.analysis.layers import ProductSizes, cut_words, product_of, product_sizes
from glenside.egraph.search import SearchResult
from glenside.ir.term import Term
from glenside.ir.types import AccessType
from glenside.targets.arrays.array import Array
from glenside.targets.base import Cone, Instruction
from glenside.targets.recipes import recipe_label


@dataclass(frozen=True)
class Plan:
    """The transformations of a mapped product, and the resulting matrices.

    windows   (axis, outputs along that axis per window), by axis
    rows      rows combined into one
    groups    groups packed into one
    swapped   True if the operands are swapped
    """

    windows: tuple[tuple[int, int], ...]
    rows: int
    groups: int
    swapped: bool
    sizes: ProductSizes
    """Sizes of the matrices of the instructions, after swapping."""
    crossed: bool = False
    """True if packed groups are stacked and their results are the diagonal of the product."""

    @classmethod
    def of(cls, steps: Sequence[int], sizes: Sequence[int]) -> Plan:
        """Builds the plan of a `mapping` fact: (i, j, q) for each regrouping, then r, p, s; and (g, m, k, o).

        s: bit 0 for swapped operands, bit 1 for crossed groups.
        """
        *windows, rows, groups, last = steps
        factors = sorted(zip(windows[::3], windows[2::3], strict=True))
        g, m, k, o = sizes
        return cls(tuple(factors), rows, groups, bool(last & 1), ProductSizes(g, m, k, o), bool(last & 2))

    @property
    def weights(self) -> int:
        """Elements of the right operand after the transformations."""
        s = self.sizes
        return s.groups * s.k * (s.m if self.swapped else s.n)

    def as_dict(self) -> dict[str, Any]:
        """Returns the plan for JSON: factors by axis of the left operand, and the matrices of the instructions."""
        return {
            "windows": {str(axis): factor for axis, factor in self.windows},
            "rows": self.rows,
            "groups": self.groups,
            "crossed": self.crossed,
            "swapped": self.swapped,
            "matrices": asdict(self.sizes),
        }

    def words(self, product: Term, channels: bool) -> list[str]:
        """Returns its parts as text, such as "2 x 2 outputs per window", "7 channels per tile", "operands swapped"."""
        found = []
        if self.windows:
            found.append(f"{' x '.join(map(str, self._factors(product)))} outputs per window")
        if self.rows > 1:
            found.append(f"{self.rows} rows at once")
        if self.groups > 1:
            what = "channels" if channels else "groups"
            found.append(f"{self.groups} {what} {'crossed' if self.crossed else 'per tile'}")
        if self.swapped:
            found.append("operands swapped")
        return found

    def _factors(self, product: Term) -> list[int]:
        """Returns one factor for each axis of the windows, 1 included."""
        a = product.children[0].children[0].access
        given = dict(self.windows)
        axes = range(a.split - max(len(a.item) - 1, 1), a.split)
        return [given.get(i, 1) for i in axes] if given.keys() <= set(axes) else list(given.values())


def mapping_label(layer: Term, cone: Cone, plan: Plan | None, array: Array) -> str:
    """Returns the label of a layer's mapping, such as "operands swapped, K 512 in 8"."""
    product, sizes = product_of(layer), product_sizes(layer)
    form = recipe_label(cone.recipe, "")
    if sizes.macs == 0:
        return "empty: nothing to compute"
    if cone.constant:
        return "constant: computed beforehand"
    if cone.products:
        return "on the vector unit"
    if not cone.instructions:
        return "shared with another layer"
    if len(cone.mappings) > 1:
        return f"{form}, {len(cone.mappings)} products of their own mapping each"
    if plan is None:
        count = len(cone.instructions)
        calls = f"{count} instruction{'s' if count > 1 else ''} for {sizes.groups} groups" if sizes.groups > 1 else ""
        parts = [calls, *cut_words(sizes, array.tile)]
    else:
        channels = sizes.groups > 1 and product.children[0].children[1].access.item.take(1) == (1,)
        parts = [*plan.words(product, channels), *cut_words(plan.sizes, array.tile)]
    return ", ".join(part for part in (form, *parts) if part) or "one whole tile"


def nearest_miss(cone: Cone, searched: SearchResult, instruction: Instruction) -> str:
    """Returns why a product was not mapped: its operands, and the operands that the instruction accepts."""
    snapshot = searched.snapshot
    node = snapshot.nodes[cone.products[0]]
    stopped = searched.stopped
    because = "" if stopped == "saturated" else f"; the search stopped at its {stopped} before that"
    pairs = next(
        (n for n in snapshot.classes[node.children[0]] if snapshot.nodes[n].operator == "access-product"), None
    )
    if pairs is None:
        return f"its pairs are not a product of two operands{because}"
    a, b = (snapshot.types[c] for c in snapshot.nodes[pairs].children)
    return f"operands {_spelled(a)} and {_spelled(b)}, the array takes {instruction.accepts}{because}"


def _spelled(type_: AccessType | None) -> str:
    return "?" if type_ is None else f"({' '.join(map(str, type_.shape))})({' '.join(map(str, type_.item))})"
