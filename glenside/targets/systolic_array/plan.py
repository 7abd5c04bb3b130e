"""Plans: what a mapping does to a product before it is cut into tiles, in words and numbers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from glenside.analysis.layers import ProductSizes
from glenside.ir.term import Term


@dataclass(frozen=True)
class Plan:
    """The steps that led to the calls of a product, and the matrices that they left.

    windows   (axis, outputs of that axis that one window serves), by axis
    rows      rows taken together
    groups    groups packed into one
    """

    windows: tuple[tuple[int, int], ...]
    rows: int
    groups: int
    swapped: bool
    sizes: ProductSizes
    """As the calls take them: operands that were swapped are."""

    @classmethod
    def of(cls, steps: Sequence[int], sizes: Sequence[int]) -> Plan:
        """From the vectors of a `mapping` fact: (i, j, q) for each regrouping, then r, p, s; and (g, m, k, o)."""
        *windows, rows, groups, swapped = steps
        factors = sorted(zip(windows[::3], windows[2::3], strict=True))
        g, m, k, o = sizes
        return cls(tuple(factors), rows, groups, bool(swapped), ProductSizes(g, m, k, o))

    @property
    def weights(self) -> int:
        """Elements of what became of the right operand."""
        s = self.sizes
        return s.groups * s.k * (s.m if self.swapped else s.n)

    def as_dict(self) -> dict[str, Any]:
        """For programs: factors by axis of the left operand, and the matrices as the calls take them."""
        return {
            "windows": {str(axis): factor for axis, factor in self.windows},
            "rows": self.rows,
            "groups": self.groups,
            "swapped": self.swapped,
            "matrices": asdict(self.sizes),
        }

    def words(self, product: Term, channels: bool) -> list[str]:
        """Such as "2 x 2 outputs per window", "7 channels per tile", "operands swapped"."""
        found = []
        if self.windows:
            found.append(f"{' x '.join(map(str, self._factors(product)))} outputs per window")
        if self.rows > 1:
            found.append(f"{self.rows} rows at once")
        if self.groups > 1:
            found.append(f"{self.groups} {'channels' if channels else 'groups'} per tile")
        if self.swapped:
            found.append("operands swapped")
        return found

    def _factors(self, product: Term) -> list[int]:
        """One factor for each axis of the windows, those that stayed 1 included."""
        a = product.children[0].children[0].access
        given = dict(self.windows)
        axes = range(a.split - max(len(a.item) - 1, 1), a.split)
        return [given.get(i, 1) for i in axes] if given.keys() <= set(axes) else list(given.values())
