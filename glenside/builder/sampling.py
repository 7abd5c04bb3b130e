"""Elements repeated, and elements between elements: weighted sums of those that stand around a position."""

from __future__ import annotations

from collections.abc import Sequence

from glenside.builder.layout import broadcast, reshape, split_at, transpose
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


def upsample(x: Term, factor: int = 2) -> Term:
    """Each element repeated along every axis but the first two: ()(N C d..) -> ()(N C factor*d..)."""
    require(x.access.rank >= 3 and factor >= 1, "upsample", "x of ()(N C d..), repeated", f"{x.access} by {factor}")
    return repeat(x, (1, 1, *(factor for _ in x.access.dims[2:])))


def weighted_elements(found: Term, weights: Term, kind: str = "reduce-sum") -> Term:
    """Sums of weighted elements, ()(S.. T R..) with weights of ()(S.. T) -> ()(S.. R..); or another reduction of them.

    This is elementwise: a product of so few elements for each result would be no work for a matrix unit.
    """
    dims, rank = weights.access.dims, found.access.rank
    at = len(dims) - 1
    fits = at >= 0 and found.access.dims[: at + 1] == dims
    require(fits, "weighted elements", "weights of the leading axes", f"{found.access} and {weights.access}")
    weighted = multiply(found, reshape(weights, (*dims, *(1 for _ in range(rank - len(dims))))))
    moved = transpose(weighted, (*range(at), *range(at + 1, rank), at))
    return split_at(build("compute", kind, split_at(moved, rank - 1)), 0)
