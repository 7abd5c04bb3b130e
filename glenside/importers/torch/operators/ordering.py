"""Imports sorting, the largest elements, searches in sorted elements, order statistics, and running extremes."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from glenside.builder.indexing import gather_elements, iota, top
from glenside.builder.layout import broadcast, reshape, slice_axis
from glenside.builder.pointwise import cast, combine, compare, select
from glenside.builder.reductions import reduce_axes
from glenside.importers.torch.node import Node, Operand, Refused, aten, axis_of, register, with_axis
from glenside.ir.dtypes import FLOATS
from glenside.ir.term import Term, build


@aten("topk")
def topk(
    node: Node,
    self: Term,
    k: int,
    dim: int = -1,
    largest: bool = True,
    sorted: bool = True,
) -> tuple[Term, Term]:
    x, axis = with_axis(self), axis_of(dim, self.access.rank)
    values, places = top(x, k, axis, largest=largest)
    return reshape(values, node.dims), reshape(places, node.dims)


@aten("sort", "default", "stable")
def sort(
    node: Node, self: Term, dim: int = -1, descending: bool = False, stable: bool | None = None
) -> tuple[Term, Term]:
    x, axis = with_axis(self), axis_of(dim, self.access.rank)
    values, places = top(x, x.access.dims[axis], axis, largest=descending)
    return reshape(values, node.dims), reshape(places, node.dims)


@aten("searchsorted", "Tensor", "Scalar")
def searchsorted(
    node: Node,
    sorted_sequence: Term,
    self: Operand,
    out_int32: bool = False,
    right: bool = False,
    side: str | None = None,
    sorter: Term | None = None,
) -> Term:
    """Counts the elements of the sequence that are below, or not above, each value."""
    sequence, last = sorted_sequence, sorted_sequence.access.rank - 1
    if sorter is not None:
        sequence = gather_elements(sequence, sorter, last)
    values = self if isinstance(self, Term) else node.operand(self, sequence.access.dtype)
    goes_right = right or side == "right"
    at = reshape(values, (*values.access.dims, 1))
    between = (1,) * (values.access.rank - last) if last == 0 else (1,)
    dims = (
        (*between, sequence.access.dims[0]) if last == 0 else (*sequence.access.dims[:-1], 1, sequence.access.dims[-1])
    )
    ordered = reshape(sequence, dims)
    return _counted(node, compare("ge" if goes_right else "gt", at, ordered), values.access.dims)


def _counted(node: Node, below: Term, dims: Sequence[int]) -> Term:
    """Counts true elements along the last axis."""
    count = below.access.dims[-1]
    total = reduce_axes("reduce-sum", cast(below, "int64"), [below.access.rank - 1]) if count else None
    found = broadcast(build("full", (), 0, "int64"), dims) if total is None else reshape(total, dims)
    return cast(found, node.dtype)


@aten("bucketize", "Tensor", "Scalar")
def bucketize(node: Node, self: Operand, boundaries: Term, out_int32: bool = False, right: bool = False) -> Term:
    return searchsorted(node, boundaries, self, right=right)


@aten("kthvalue")
def kthvalue(node: Node, self: Term, k: int, dim: int = -1, keepdim: bool = False) -> tuple[Term, Term]:
    x, axis = with_axis(self), axis_of(dim, self.access.rank)
    found = topk(node.of_result(x), x, x.access.dims[axis], axis, largest=False)
    values, places = (slice_axis(part, axis, k - 1, k) for part in found)
    return reshape(values, node.dims), reshape(places, node.dims)


def _median(node: Node, x: Term, axis: int) -> tuple[Term, Term]:
    """Returns the lower median along an axis, or a NaN if there is one; the axis keeps size 1."""
    size = x.access.dims[axis]
    if size == 0:
        raise Refused("requires elements, got an axis of size 0")
    values, places = topk(node.of_result(x), x, size, axis, largest=False)
    middle = (size - 1) // 2
    found = [slice_axis(part, axis, middle, middle + 1) for part in (values, places)]
    if x.access.dtype in FLOATS:
        missing = cast(compare("ne", x, x), "int32")
        some = compare("gt", reduce_axes("reduce-max", missing, [axis], keep=True), build("full", (), 0, "int32"))
        first = reduce_axes("argmax", missing, [axis], keep=True)
        nothing = node.filled(found[0].access.dims, float("nan"), x.access.dtype)
        found = [select(some, nothing, found[0]), select(some, first, found[1])]
    return found[0], found[1]


@aten("median", "default", "dim")
def median(node: Node, self: Term, dim: int | None = None, keepdim: bool = False) -> Term | tuple[Term, Term]:
    if dim is None:
        return reshape(_median(node, reshape(self, (self.access.size,)), 0)[0], ())
    values, places = _median(node, with_axis(self), axis_of(dim, self.access.rank))
    return reshape(values, node.dims), reshape(places, node.dims)


def _running_extreme(relation: str, node: Node, self: Term, dim: int) -> tuple[Term, Term]:
    """Returns the running extreme, and the position of its last occurrence so far."""
    x, axis = with_axis(self), axis_of(dim, self.access.rank)
    size = x.access.dims[axis]
    if x.access.dtype == "bool":
        x = cast(x, "int32")
    values, places = x, broadcast(iota(size, axis, x.access.rank), x.access.dims)
    distance = 1
    while distance < size:
        earlier = [slice_axis(part, axis, 0, size - distance) for part in (values, places)]
        own = [slice_axis(part, axis, distance, size) for part in (values, places)]
        takes = compare(relation, own[0], earlier[0])
        if x.access.dtype in FLOATS:  # a NaN stays
            takes = combine("logical-and", takes, compare("eq", earlier[0], earlier[0]))
            takes = combine("logical-or", takes, compare("ne", own[0], own[0]))
        joined = [select(takes, a, b) for a, b in zip(own, earlier, strict=True)]
        values, places = (
            build("access-concatenate", slice_axis(part, axis, 0, distance), rest, axis)
            for part, rest in zip((values, places), joined, strict=True)
        )
        distance *= 2
    return cast(reshape(values, node.dims), node.dtype), reshape(places, node.dims)


register("cummax", partial(_running_extreme, "ge"), ("default",), "", __name__)
register("cummin", partial(_running_extreme, "le"), ("default",), "", __name__)
