"""What a mapping did to a product, in words and numbers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from glenside.ir.sizes import ceil_div
from glenside.ir.term import Term
from glenside.targets.base import Target


@dataclass(frozen=True)
class ProductSizes:
    """groups x M x K x N of a product, from the types of its operands."""

    groups: int
    m: int
    k: int
    n: int

    @property
    def macs(self) -> int:
        return self.groups * self.m * self.k * self.n

    @property
    def weights(self) -> int:
        """Elements of the right operand."""
        return self.groups * self.k * self.n


def product_sizes(product: Term) -> ProductSizes:
    """The sizes of `(compute dot-product p)`: of p's operands when p is an access-product, else of its items."""
    pairs = product.children[0]
    if pairs.operator.name != "access-product":
        item = pairs.access.item
        return ProductSizes(1, pairs.access.shape.product(), item.drop(1).product(), 1)
    (shared,) = (v for v in pairs.attributes if isinstance(v, int))
    a, b = (child.access for child in pairs.children)
    return ProductSizes(
        a.dims.take(shared).product(), a.shape.drop(shared).product(), a.item.product(), b.shape.drop(shared).product()
    )


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


def cut_words(sizes: ProductSizes, target: Target) -> list[str]:
    """How matrices are cut: `K 1000->1024 in 16` is padded to 1024 and cut into 16 tiles."""
    axes = ((name, getattr(sizes, name.lower()), tile) for name, tile in target.tile.items())
    return [words for axis in axes if (words := _axis(*axis))]


def _axis(what: str, size: int, tile: int) -> str:
    cuts = ceil_div(size, tile)
    padded = f"->{cuts * tile}" if size % tile else ""
    cut = f" in {cuts}" if cuts > 1 else ""
    return f"{what} {size}{padded}{cut}" if padded or cut else ""
