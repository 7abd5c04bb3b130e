"""Layers: the terms of one, which are its product with all movement under it, and the sizes of the product."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from glenside.ir.operator import OperatorKind
from glenside.ir.operators.casting import truncate
from glenside.ir.term import Term
from glenside.ir.types import ceil_div


def ends_layer(term: Term) -> bool:
    """Whether a layer ends there: at what computes, cuts a product to the bits of a number, or moves elements to places
    that are computed. Tuples are no operands of a product.
    """
    operator = term.operator
    return operator is truncate or (operator.index_map is None and operator.kind is not OperatorKind.LEAF)


def layer_terms(product: Term) -> frozenset[Term]:
    """The product of a layer with all movement under it, without the leaves."""
    terms: set[Term] = set()
    stack = [product]
    while stack:
        term = stack.pop()
        if term not in terms and (term is product or not ends_layer(term)):
            terms.add(term)
            stack += term.children
    return frozenset(terms)


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


def cut_words(sizes: ProductSizes, tile: Mapping[str, int]) -> list[str]:
    """How matrices are cut: `K 1000->1024 in 16` is padded to 1024 and cut into 16 tiles."""
    axes = ((name, getattr(sizes, name.lower()), size) for name, size in tile.items())
    return [words for axis in axes if (words := _axis(*axis))]


def _axis(what: str, size: int, tile: int) -> str:
    cuts = ceil_div(size, tile)
    padded = f"->{cuts * tile}" if size % tile else ""
    cut = f" in {cuts}" if cuts > 1 else ""
    return f"{what} {size}{padded}{cut}" if padded or cut else ""
