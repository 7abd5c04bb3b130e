"""Products that share an operand, merged into one: x A and x B are columns of x [A B], x W and y W rows of [x; y] W.

Shared weights are read once, and partial tiles of an array are filled. All products of an operand that do not depend on
each other are merged, or none. A merged product is never merged again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from glenside.algebra.equations import MERGE, SLICES
from glenside.builder.layout import concatenate, reshape, slice_axis, split_at, transpose
from glenside.ir.dtypes import FLOATS
from glenside.ir.operator import OperatorKind
from glenside.ir.program import Program, is_product
from glenside.ir.term import Term, build
from glenside.targets.base import ProductPrices

_VIEWS = ("access", "access-reshape", "access-transpose", "access-squeeze", "access-insert-axis")


@dataclass(frozen=True, slots=True)
class SharedProduct:
    """The product of a and b, (G L)(I) and (G R)(I), with `shared` axes G."""

    term: Term
    a: Term
    b: Term
    shared: int

    @classmethod
    def of(cls, term: Term) -> SharedProduct:
        """Returns a contraction with its operands."""
        (pairs,) = term.children
        (shared,) = pairs.attributes
        assert isinstance(shared, int)
        a, b = pairs.children
        return cls(term, a, b, shared)

    @property
    def sizes(self) -> tuple[int, int, int, int]:
        """The sizes of groups G, rows L, depth I and columns R."""
        a, b = self.a.access, self.b.access
        groups, rows = a.shape.take(self.shared).product(), a.shape.drop(self.shared).product()
        return groups, rows, a.item.product(), b.shape.drop(self.shared).product()


@dataclass(frozen=True, slots=True)
class Merging:
    """Products that become slices of one, in network order.

    products  the merged products
    product   the one product
    slices    what computes each merged product
    operands  the arrays that both forms read
    given     the cost of the products by prices, `cost` that of the one
    equations the names of the rules that it takes
    """

    products: tuple[Term, ...]
    product: Term
    slices: tuple[Term, ...]
    operands: tuple[Term, ...]
    given: float
    cost: float
    equations: tuple[str, ...]


def mergings(program: Program, constant: Callable[[Term], bool], prices: ProductPrices) -> Iterator[Merging]:
    """Yields mergings that cost less by prices; no product is in two of them."""
    order = program.info.order
    products = [SharedProduct.of(term) for term in order if is_contraction(term) and not constant(term)]
    dependencies = _Dependencies(program, products)
    merged: set[Term] = set()
    for rows in (True, False):
        sharing: dict[object, list[SharedProduct]] = {}
        for one in products:
            if one.term.access.dtype in FLOATS and one.term.access.size and one.a.access.item.product():
                key = (one.b if rows else one.a, one.shared, one.a.access.item, one.a.access.shape.take(one.shared))
                sharing.setdefault(key, []).append(one)
        for alike in sharing.values():
            able = [one for one in alike if one.term not in merged and (not rows or stored(one.a) == one.a.access.size)]
            chosen = dependencies.independent(able)
            if len(chosen) > 1:
                found = _merged(chosen, rows, constant, prices)
                if found.cost < found.given:
                    merged.update(found.products)
                    dependencies.merge(chosen)
                    yield found


def is_contraction(term: Term) -> bool:
    """True for the dot products of the pairs of two operands."""
    return is_product(term) and term.children[0].operator.name == "access-product"


class _Dependencies:
    """The products that each product depends on, as bits; merged products depend on what any of them depends on."""

    def __init__(self, program: Program, products: Sequence[SharedProduct]) -> None:
        self.bits = {one.term: 1 << number for number, one in enumerate(products)}
        found: dict[Term, int] = {}
        for term in program.info.order:
            found[term] = self.bits.get(term, 0)
            for child in term.children:
                found[term] |= found[child]
        self.below = {one.term: found[one.a] | found[one.b] for one in products}

    def independent(self, products: Sequence[SharedProduct]) -> list[SharedProduct]:
        """Returns products none of which depends on another: each that agrees with those before it."""
        found: list[SharedProduct] = []
        taken = needed = 0
        for one in products:
            own = self.bits[one.term]
            if not self.below[one.term] & taken and not own & needed:
                found.append(one)
                taken |= own
                needed |= self.below[one.term]
        return found

    def merge(self, products: Sequence[SharedProduct]) -> None:
        """Makes all that depends on one of these products depend on all of them: no later merging is circular."""
        together = needed = 0
        for one in products:
            together |= self.bits[one.term]
            needed |= self.below[one.term]
        for term, below in self.below.items():
            if (below | self.bits[term]) & together:
                self.below[term] |= needed | (together if below & together else 0)


def stored(term: Term) -> int:
    """Returns the number of elements that are read of a term, each once."""
    size = term.access.size
    while term.children and term.operator.kind in (OperatorKind.VIEW, OperatorKind.MOVEMENT):
        term = term.children[0]
        size = min(size, term.access.size)
    return size


def _merged(
    products: Sequence[SharedProduct], rows: bool, constant: Callable[[Term], bool], prices: ProductPrices
) -> Merging:
    first = products[0]
    groups, own_rows, depth, columns = first.sizes
    parts = [one.a if rows else one.b for one in products]
    sizes = [one.sizes[1 if rows else 3] for one in products]
    total = sum(sizes)
    slices_of = _joined_slices(parts, first.shared)
    moved = 0.0
    if slices_of is not None:
        source, joined = slices_of
        operands = [source]
    else:
        operands = parts
        dims = [
            (*part.access.shape.take(first.shared), size, *part.access.item)
            for part, size in zip(parts, sizes, strict=True)
        ]
        joined = concatenate([reshape(part, own) for part, own in zip(parts, dims, strict=True)], first.shared)
        if not all(map(constant, parts)):
            moved = prices.elementwise(joined.access.size, joined.access.size)
    joined = split_at(joined, first.shared + 1)
    pairs = (joined, first.b) if rows else (first.a, joined)
    product = build("compute", "dot-product", build("access-product", *pairs, first.shared))
    axis = first.shared if rows else product.access.rank - 1
    slices, start = [], 0
    for one, size in zip(products, sizes, strict=True):
        part = slice_axis(product, axis, start, start + size)
        slices.append(split_at(reshape(part, one.term.access.dims), one.term.access.split))
        start += size
    given = sum(prices.product(*one.sizes, one.a.access.size + one.b.access.size) for one in products)
    whole = (groups, total, depth, columns) if rows else (groups, own_rows, depth, total)
    cost = moved + prices.product(*whole, pairs[0].access.size + pairs[1].access.size)
    operands = [first.b if rows else first.a, *operands]
    equations = (MERGE,) if slices_of is None else (MERGE, SLICES)
    return Merging(tuple(one.term for one in products), product, tuple(slices), tuple(operands), given, cost, equations)


def _joined_slices(parts: Sequence[Term], shared: int) -> tuple[Term, Term] | None:
    """Returns an array, and all of its consecutive slices, rearranged as operands (G L)(I), as one (G nL I).

    None if the operands are no such slices.
    """
    chains = [_chain(part) for part in parts]
    views, source = chains[0]
    if source is None or any(own is None for _, own in chains):
        return None
    (x,), (axis, low, high) = source.children, source.attributes
    assert isinstance(axis, int)
    assert isinstance(low, int)
    assert isinstance(high, int)
    width = high - low
    for number, (own_views, own) in enumerate(chains):
        assert own is not None
        start = low + number * width
        alike = [(view.operator, view.attributes) for view in own_views] == [(v.operator, v.attributes) for v in views]
        if not alike or own.children[0] is not x or own.attributes != (axis, start, start + width):
            return None
    count, dims = len(parts), x.access.dims
    whole = slice_axis(x, axis, low, low + count * width)
    whole = reshape(whole, (*dims[:axis], count, width, *dims[axis + 1 :]))
    whole = transpose(whole, (axis, *(i for i in range(len(dims) + 1) if i != axis)))
    for view in reversed(views):
        if view.operator.name == "access-transpose":
            (order,) = view.attributes
            assert isinstance(order, tuple)
            whole = transpose(whole, (0, *(i + 1 for i in order)))
        elif view.operator.name != "access":
            whole = reshape(whole, (count, *view.access.dims))
    rank = whole.access.rank
    whole = transpose(whole, (*range(1, shared + 1), 0, *range(shared + 1, rank)))
    part = parts[0].access
    return x, reshape(whole, (*part.shape.take(shared), count * part.shape.drop(shared).product(), *part.item))


def _chain(term: Term) -> tuple[list[Term], Term | None]:
    """Returns the views above a slice, the last first, and the slice; None if there is none."""
    views: list[Term] = []
    while term.operator.name in _VIEWS:
        views.append(term)
        term = term.children[0]
    return views, term if term.operator.name == "access-slice" else None
