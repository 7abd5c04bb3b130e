"""Elements repeated, and elements between elements: weighted sums of those that stand around a position."""

from __future__ import annotations

from collections.abc import Sequence

from glenside.builder.layout import broadcast, gather, reshape, split_at, transpose
from glenside.builder.pointwise import multiply
from glenside.ir.operator import require
from glenside.ir.term import Term, build


def repeat(x: Term, counts: Sequence[int]) -> Term:
    """Each element repeated along each axis, so often as is said for that axis: ()(n..) -> ()(count*n..)."""
    dims = x.access.dims
    fits = len(counts) == len(dims) and all(count >= 0 for count in counts)
    require(fits, "repeat", f"a count of at least 0 for each of {len(dims)} axes", tuple(counts))
    if all(count == 1 for count in counts):
        return split_at(x, 0)
    pairs = [((n,), (n,)) if count == 1 else ((n, 1), (n, count)) for n, count in zip(dims, counts, strict=True)]
    apart = reshape(x, [size for before, _ in pairs for size in before])
    repeated = broadcast(apart, [size for _, after in pairs for size in after])
    return reshape(repeated, [n * count for n, count in zip(dims, counts, strict=True)])


def weighted_rows(table: Term, indices: Term, weights: Term) -> Term:
    """Weighted sums of rows of a table: ()(V C) at indices ()(S.. T) with weights ()(S.. T) -> ()(S.. C)."""
    dims = _checked("weighted rows", table, indices, weights)
    rank = len(dims)
    found = transpose(gather(table, indices), (*range(rank - 1), rank, rank - 1))
    pairs = build("access-product", split_at(found, rank), split_at(weights, rank - 1), rank - 1)
    return split_at(build("compute", "dot-product", pairs), 0)


def largest_weighted_rows(table: Term, indices: Term, weights: Term) -> Term:
    """The same, with the largest of the weighted elements in place of their sum."""
    dims = _checked("largest weighted rows", table, indices, weights)
    rank = len(dims)
    weighted = multiply(gather(table, indices), reshape(weights, (*dims, 1)))
    items = split_at(transpose(weighted, (*range(rank - 1), rank, rank - 1)), rank)
    return split_at(build("compute", "reduce-max", items), 0)


def _checked(name: str, table: Term, indices: Term, weights: Term) -> Sequence[int]:
    fits = table.access.rank == 2 and indices.access.rank >= 1 and indices.access.dims == weights.access.dims
    got = f"{table.access}, {indices.access} and {weights.access}"
    require(fits, name, "a table of ()(V C), indices and weights of equal dims", got)
    return indices.access.dims
