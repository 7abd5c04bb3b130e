"""Reads and writes elements at computed indices. All tensors are whole, ()(dims).

Negative indices count from the end of their axis.
"""

from __future__ import annotations

from collections.abc import Sequence

from glenside.builder.layout import concatenate, reshape, slice_axis, split_at, transpose, untransposed
from glenside.ir.operator import require
from glenside.ir.term import Term, build


def iota(n: int, axis: int = 0, rank: int = 1, dtype: str = "int64") -> Term:
    """Returns the numbers from 0 to n - 1 along one of `rank` axes; the others have size 1."""
    return reshape(build("iota", n, dtype), (*(1,) * axis, n, *(1,) * (rank - axis - 1)))


def gather_nd(x: Term, indices: Term, shared: int = 0) -> Term:
    """Gathers x ()(G n.. R) at indices ()(G M k) -> ()(G M R): k numbers index the k axes n..; G are `shared` axes."""
    return build("access-gather-nd", split_at(x, 0), split_at(indices, 0), shared)


def scatter_nd(x: Term, indices: Term, updates: Term, shared: int = 0, reduction: str = "replace") -> Term:
    """Scatters updates ()(G M R) into x ()(G n.. R) at indices ()(G M k); reduction is replace, add, mul, min or
    max.
    """
    return build("access-scatter-nd", *(split_at(t, 0) for t in (x, indices, updates)), shared, reduction)


def gather_elements(x: Term, indices: Term, axis: int) -> Term:
    """Gathers elements along one axis, with an index for each element; the result has the dims of the indices.

    On the other axes the indices may be smaller than x.
    """
    last = _last(x, indices, axis)
    corner = _corner(transpose(x, last), [indices.access.dims[i] for i in last[:-1]])
    return untransposed(gather_nd(corner, _single(transpose(indices, last)), len(last) - 1), last)


def scatter_elements(x: Term, indices: Term, updates: Term, axis: int, reduction: str = "replace") -> Term:
    """Returns x with each element of updates at its index along one axis, and at its own position on the others."""
    last = _last(x, indices, axis)
    require(updates.access.dims == indices.access.dims, "scatter", f"updates like {indices.access}", updates.access)
    x, indices, updates = (transpose(t, last) for t in (x, indices, updates))
    dims, sizes = x.access.dims, indices.access.dims[:-1]
    result = scatter_nd(_corner(x, sizes), _single(indices), updates, len(sizes), reduction)
    for i, size in enumerate(sizes):  # indices that are shorter than x on this axis leave the rest as it was
        if size < dims[i]:
            rest = _corner(x, [*dims[:i], dims[i], *sizes[i + 1 :]])
            result = concatenate([result, slice_axis(rest, i, size, dims[i])], i)
    return untransposed(result, last)


def top(x: Term, k: int, axis: int, *, largest: bool = True) -> tuple[Term, Term]:
    """Returns the k largest (or smallest) elements along one axis in order, and their positions; ties keep their
    order.
    """
    rank = x.access.rank
    last = [*(i for i in range(rank) if i != axis), axis]
    moved = transpose(x, last)
    direction = "descending" if largest else "ascending"
    order = split_at(build("compute", f"(argsort {direction})", split_at(moved, rank - 1)), 0)
    places = slice_axis(order, rank - 1, 0, k)
    values = gather_nd(moved, _single(places), rank - 1)
    return untransposed(values, last), untransposed(places, last)


def _last(x: Term, indices: Term, axis: int) -> list[int]:
    """Returns the order of axes that moves this one to the end. Raises TypeMismatch if the indices do not fit x."""
    rank, dims, sizes = x.access.rank, x.access.dims, indices.access.dims
    require(0 <= axis < rank, "elements by index", f"0 <= axis < {rank}", axis)
    fits = len(sizes) == rank and all(m <= n or i == axis for i, (m, n) in enumerate(zip(sizes, dims, strict=True)))
    require(fits, "elements by index", f"indices within {x.access} on all axes but {axis}", indices.access)
    return [*(i for i in range(rank) if i != axis), axis]


def _single(indices: Term) -> Term:
    """Returns indices of one axis as index tuples of one number."""
    return reshape(indices, (*indices.access.dims, 1))


def _corner(x: Term, sizes: Sequence[int]) -> Term:
    """Returns the first elements of the first axes."""
    for axis, size in enumerate(sizes):
        x = slice_axis(x, axis, 0, size)
    return x
