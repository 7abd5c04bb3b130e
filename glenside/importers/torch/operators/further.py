"""Imports operators outside of Core ATen that PyTorch does not decompose: searches, order statistics and others."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np

from glenside.builder.indexing import iota
from glenside.builder.layout import broadcast, gather, reshape, slice_axis
from glenside.builder.pointwise import add, cast, combine, compare, compute, divide, filled, multiply, select, subtract
from glenside.builder.reductions import reduce_axes, running
from glenside.importers.torch.node import Node, Operand, Refused, aten, axis_of, register, with_axis
from glenside.importers.torch.operators.indexing import topk
from glenside.importers.torch.operators.pointwise import in_dtype
from glenside.importers.torch.promotion import Number
from glenside.ir.dtypes import FLOATS, largest_float
from glenside.ir.term import Term, build


def _is_negative(x: Term) -> Term:
    """True below 0, and for -0."""
    if x.access.dtype not in FLOATS:
        return compare("lt", x, filled(x, 0))
    zero = compare("eq", x, filled(x, 0))
    return compare("lt", select(zero, divide(filled(x, 1), x), x), filled(x, 0))


@aten("copysign", "Tensor", "Scalar")
def copysign(node: Node, self: Operand, other: Operand) -> Term:
    x, y = in_dtype(node, node.dtype, self, other)
    magnitude = compute("abs", x)
    return select(_is_negative(y), compute("negative", magnitude), magnitude)


@aten("signbit")
def signbit(node: Node, self: Term) -> Term:
    return filled(self, 0) if self.access.dtype == "bool" else _is_negative(self)


@aten("hypot")
def hypot(node: Node, self: Term, other: Term) -> Term:
    """Computes sqrt(x^2 + y^2), divided by the larger of both so that squares stay in range."""
    x, y = (compute("abs", part) for part in in_dtype(node, node.dtype, self, other))
    most, least = combine("maximum", x, y), combine("minimum", x, y)
    share = divide(least, select(compare("eq", most, filled(most, 0)), filled(most, 1), most))
    found = multiply(most, compute("sqrt", add(multiply(share, share), filled(share, 1))))
    largest = filled(most, int(largest_float(node.dtype)))
    infinite = combine("logical-or", compare("gt", x, largest), compare("gt", y, largest))  # also with a NaN
    return select(infinite, node.number(float("inf"), node.dtype), found)


def _shifted(left: bool, node: Node, self: Operand, other: Operand) -> Term:
    """Shifts by a product with, or a floor division by, a power of 2."""
    x, y = in_dtype(node, node.dtype, self, other)
    factor = combine("pow", filled(y, 2), y)
    if left:
        return multiply(x, factor)
    return divide(subtract(x, combine("(mod floor)", x, factor)), factor)


SHIFTS = ("Tensor", "Tensor_Scalar", "Scalar_Tensor")
register("bitwise_left_shift", partial(_shifted, True), SHIFTS, "", __name__)
register("bitwise_right_shift", partial(_shifted, False), SHIFTS, "", __name__)


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
    from glenside.builder.indexing import gather_elements

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


@aten("logcumsumexp", "default")
def logcumsumexp(node: Node, self: Term, dim: int) -> Term:
    """Computes log(cumsum(exp(x))) pair by pair as m + log(1 + exp(-|x - y|)), with the larger m of both."""
    from glenside.importers.torch.operators.pointwise import log1p

    x, axis = with_axis(self), axis_of(dim, self.access.rank)
    least = str(-3e38) if node.dtype == "float32" else str(-1e300)

    def joined(a: Term, b: Term) -> Term:
        most = combine("maximum", a, b)
        return add(most, log1p(compute("exp", compute("negative", compute("abs", subtract(a, b))))))

    return reshape(running(joined, x, axis, least), node.dims)


@aten("histc", but="bounds that are those of the elements")
def histc(node: Node, self: Term, bins: int = 100, min: Number = 0, max: Number = 0) -> Term:
    """Counts the elements in each of so many bins of equal width; the last one includes its upper end."""
    if min == max:
        raise Refused("requires min and max, which else are those of the elements")
    dtype = self.access.dtype if self.access.dtype in FLOATS else "float64"
    x = reshape(cast(self, dtype), (1, self.access.size))
    place = compute("floor", multiply(subtract(x, filled(x, min)), filled(x, bins / (max - min))))
    place = select(compare("eq", x, filled(x, max)), filled(x, bins - 1), place)
    inside = combine("logical-and", compare("ge", x, filled(x, min)), compare("le", x, filled(x, max)))
    found = compare("eq", place, reshape(cast(iota(bins), dtype), (bins, 1)))
    if not self.access.size:
        return node.filled(node.dims, 0, node.dtype)
    return cast(reduce_axes("reduce-sum", cast(combine("logical-and", found, inside), "int64"), [1]), node.dtype)


@aten("take", "default")
def take(node: Node, self: Term, index: Term) -> Term:
    return gather(reshape(self, (self.access.size,)), index, 0)


@aten("trace", "default")
def trace(node: Node, self: Term) -> Term:
    from glenside.builder.layout import diagonal

    size = min(self.access.dims)
    square = slice_axis(slice_axis(self, 0, 0, size), 1, 0, size)
    return reduce_axes("reduce-sum", cast(diagonal(square), node.dtype), [0])


@aten("diagonal_scatter", "default")
def diagonal_scatter(node: Node, self: Term, src: Term, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Term:
    """Replaces one diagonal of two axes."""
    rank = self.access.rank
    rows, columns = axis_of(dim1, rank), axis_of(dim2, rank)
    mask = np.eye(self.access.dims[rows], self.access.dims[columns], offset, np.bool_)
    dims = [1] * rank
    dims[rows], dims[columns] = mask.shape
    shown = mask if rows < columns else mask.T
    kept = broadcast(reshape(node.constant(np.ascontiguousarray(shown), "diagonal"), dims), self.access.dims)
    first = np.cumsum(mask.any(1)) - 1  # the element of the diagonal that is in each row
    places = node.constant(np.maximum(first, 0).astype(np.int64), "places")
    if not src.access.dims[-1]:
        return self
    spread = gather(src, places, src.access.rank - 1)  # ()(others.. rows)
    order = [axis for axis in range(rank) if axis not in (rows, columns)]
    from glenside.builder.layout import transpose

    whole = reshape(spread, (*spread.access.dims, 1))
    target = [*order, rows, columns]
    back = sorted(range(rank), key=target.__getitem__)
    return select(kept, broadcast(transpose(whole, back), self.access.dims), self)
