"""Reductions that compute one element where it is read: dot products, reductions, and products of matrix units."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from glenside.codegen.loop_ir.ir import Formula, Number
from glenside.codegen.loop_ir.nest_builder import Places, product, under
from glenside.codegen.loop_ir.scalar_expr import apply, convert, number, sums_in
from glenside.ir.dtypes import HALVES, widen
from glenside.ir.index_map import Index
from glenside.ir.operator import Category
from glenside.ir.operators.compute import compute_of
from glenside.ir.primitives import PRIMITIVES
from glenside.ir.term import Term
from glenside.ir.types import Dims

Pull = Callable[[Term, Places], Formula]


@dataclass(frozen=True)
class Join:
    """One element: reduces `start` and the elements of an item by `combine`, then applies `finish`.

    exact  True if `start` is neutral however often it is combined, so that the reduction may be split into parts
    """

    item: Dims
    combine: str
    start: Formula
    element: Callable[[Places], Formula]
    finish: Callable[[Formula], Formula]
    exact: bool = True


def join_of(term: Term) -> Callable[[Term, Pull, Places], Join] | None:
    """Returns the function that describes an element of a term as a reduction; None if the term is no reduction."""
    if term.operator.name != "compute":
        return OF_OPERATOR.get(term.operator.name)
    kind = compute_of(term)[0]
    if kind.category is Category.CONTRACTION:
        return dot_product
    return reduction if kind.category is Category.REDUCTION and kind.name not in ("argmax", "argmin") else None


def _sum(item: Dims, dtype: str, factors: Callable[[Places], list[Formula]]) -> Join:
    """Returns the sum over an item of products of `factors`, which have dtype `dtype`."""
    inner, given = sums_in(dtype), widen(dtype)
    return Join(
        item, "add", number(0, inner), lambda within: product(factors(within), inner), lambda sum_: convert(sum_, given)
    )


def dot_product(term: Term, pull: Pull, at: Places) -> Join:
    """Returns the sum, over the other item axes, of products of the elements along the tuple axis."""
    (child,) = term.children
    item = child.access.item

    def factors(within: Places) -> list[Formula]:
        return [pull(child, (*at, Index() + part, *within)) for part in range(item[0])]

    return _sum(item.drop(1), child.access.dtype, factors)


def reduction(term: Term, pull: Pull, at: Places) -> Join:
    """Returns the reduction of an item to one number, or to its mean."""
    kind = compute_of(term)[0]
    (child,) = term.children
    item, dtype = child.access.item, child.access.dtype
    mean = kind.name == "reduce-mean"
    combine = "add" if mean else kind.combine.name if kind.combine else ""
    inner = (
        sums_in(dtype) if combine == "add" else "float32" if dtype in HALVES and combine in ("max", "min") else dtype
    )
    neutral = PRIMITIVES[combine].neutral
    if combine == "max":
        first: Formula = number(None, inner)  # the lowest number
    elif neutral is None:
        first = convert(pull(child, (*at, *(Index() for _ in item))), inner)
    else:
        first = number(neutral, inner)

    def finish(total: Formula) -> Formula:
        found = apply("divide", total, number(item.product(), inner)) if mean else total
        return convert(found, term.access.dtype)

    def element(within: Places) -> Formula:
        return convert(pull(child, (*at, *within)), inner)

    return Join(item, combine, first, element, finish, isinstance(first, Number) or combine == "min")


def tiled_product(term: Term, pull: Pull, at: Places) -> Join:
    """(G, A)(I) x (G, B)(I) -> (G, A, B)."""
    a, b, shared, *_ = term.arguments()
    left, right = at[: a.access.split], (*at[:shared], *at[a.access.split :])
    return _sum(a.access.item, a.access.dtype, lambda within: [pull(a, (*left, *within)), pull(b, (*right, *within))])


def tile_product(term: Term, pull: Pull, at: Places) -> Join:
    """(G, M)(K) x (G)(K, N) -> (G, M, N), or (G)(K) -> (G, N)."""
    a, b = term.children
    groups, columns = b.access.split, len(term.access.dims) - 1
    return _sum(
        a.access.item,
        a.access.dtype,
        lambda k: [pull(a, (*at[:columns], *k)), pull(b, (*at[:groups], *k, at[columns]))],
    )


def unit(term: Term, pull: Pull, at: Places) -> Join:
    """Returns a product whose operands and result are permuted in parts of their axes."""
    shared, a, ap, ao, a_split, b, bp, bo, b_split, parts, order = term.arguments()
    left, right = ap.permute(ao), bp.permute(bo)
    dims = left.take(a_split).append(right.take(b_split).drop(shared))
    cut = [at[order.index(i)] for i in range(len(parts))]
    row = under(dims, parts, cut)

    def read(operand: Term, sizes: Dims, permuted: Dims, indices: Places) -> Formula:
        own = [indices[permuted.index(i)] for i in range(len(sizes))]
        return pull(operand, under(operand.access.dims, sizes, own))

    return _sum(
        left.drop(a_split),
        a.access.dtype,
        lambda k: [
            read(a, ap, ao, (*row[:a_split], *k)),
            read(b, bp, bo, (*row[:shared], *row[a_split:], *k)),
        ],
    )


OF_OPERATOR: Mapping[str, Callable[[Term, Pull, Places], Join]] = {
    "tiled-product": tiled_product,
    "systolic-array": tile_product,
    "systolic-array-output-stationary": tile_product,
    "systolic-array-with-blocking": tile_product,
    "product-unit": unit,
}
