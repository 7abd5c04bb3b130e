"""Layers: the terms of one, which are its product with all movement under it, and the sizes of the product.

A layer ends at its product, or where the windows that its product makes are added up.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from glenside.ir.operator import OperatorKind
from glenside.ir.operators.casting import truncate
from glenside.ir.program import Program, is_product
from glenside.ir.term import Term
from glenside.ir.types import ceil_div


def ends_layer(term: Term) -> bool:
    """True if a layer ends at a term that computes, reduces a product to the bits of a number, or moves elements to
    computed positions. Tuples are not operands of a product.
    """
    operator = term.operator
    return operator is truncate or (operator.index_map is None and operator.kind is not OperatorKind.LEAF)


def adds_windows(term: Term) -> bool:
    """True if it may contain a transposed convolution: something is spread, or windows are added up."""
    return term.operator.name in ("access-dilate", "access-overlap-add")


def from_product(layer: Term) -> tuple[Term, ...]:
    """Returns the last term of a layer of a written program, and those below it down to its product, which comes last.

    Only the layer itself if its product is below an operator with several operands, such as its scale.
    """
    found = [layer]
    while not is_product(found[-1]):
        if len(found[-1].children) != 1:
            return (layer,)
        found += found[-1].children
    return tuple(found)


def product_of(layer: Term) -> Term:
    """Returns the product of a layer of a written program."""
    return from_product(layer)[-1]


def layer_terms(layer: Term) -> frozenset[Term]:
    """Returns the terms of a layer from its last term to its product, with all movement below that, without leaves."""
    terms, own = set[Term](), from_product(layer)
    stack = [layer]
    while stack:
        term = stack.pop()
        if term not in terms and (term in own or not ends_layer(term)):
            terms.add(term)
            stack += term.children
    return frozenset(terms)


def added_up(program: Program) -> dict[str, Term]:
    """Maps each layer to its product or, if the product has no other use, to the part that is kept of its sum of
    windows.

    Moving the windows on the way does not count as another use; being a result of the program does.
    """
    users = program.info.users

    def cropped(sums: Term) -> Term:
        """Returns the part of the sum that is used, if it is cut out immediately."""
        end = term = sums
        while len(above := users.get(term, [])) == 1 and above[0].operator.name in ("access", "access-slice"):
            (term,) = above
            end = term if term.operator.name == "access-slice" else end
        return end

    def end(product: Term) -> Term:
        term = product
        while len(above := users.get(term, [])) == 1:
            (term,) = above
            if term.operator.name == "access-overlap-add":
                return cropped(term)
            if len(term.children) != 1 or term.operator.index_map is None:
                break
        return product

    return {name: end(layer) if is_product(layer) else layer for name, layer in program.layers.items()}


@dataclass(frozen=True)
class ProductSizes:
    """Returns groups x M x K x N of a product, from the types of its operands."""

    groups: int
    m: int
    k: int
    n: int

    @property
    def macs(self) -> int:
        return self.groups * self.m * self.k * self.n

    @property
    def weights(self) -> int:
        """The number of elements of the right operand."""
        return self.groups * self.k * self.n


def product_sizes(layer: Term) -> ProductSizes:
    """Returns the sizes of the product of a layer, `(compute dot-product p)`: those of p's operands if p is an
    access-product, otherwise those of its items.
    """
    pairs = product_of(layer).children[0]
    if pairs.operator.name != "access-product":
        item = pairs.access.item
        return ProductSizes(1, pairs.access.shape.product(), item.drop(1).product(), 1)
    (shared,) = (v for v in pairs.attributes if isinstance(v, int))
    a, b = (child.access for child in pairs.children)
    return ProductSizes(
        a.dims.take(shared).product(), a.shape.drop(shared).product(), a.item.product(), b.shape.drop(shared).product()
    )


def cut_words(sizes: ProductSizes, tile: Mapping[str, int]) -> list[str]:
    """Describes how matrices are cut: `K 1000->1024 in 16` is padded to 1024 and cut into 16 tiles."""
    axes = ((name, getattr(sizes, name.lower()), size) for name, size in tile.items())
    return [words for axis in axes if (words := _axis(*axis))]


def _axis(what: str, size: int, tile: int) -> str:
    cuts = ceil_div(size, tile)
    padded = f"->{cuts * tile}" if size % tile else ""
    cut = f" in {cuts}" if cuts > 1 else ""
    return f"{what} {size}{padded}{cut}" if padded or cut else ""
