"""Imports reductions over axes, positions of extremes, running sums, and softmax."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from math import prod

import numpy as np

from glenside.builder.layout import diagonal, gather, reshape, slice_axis
from glenside.builder.pointwise import add, cast, compare, compute, divide, filled, multiply, select, subtract
from glenside.builder.pointwise import softmax as softmax_along
from glenside.builder.reductions import position, reduce_axes, running
from glenside.builder.windows import powers, root
from glenside.importers.torch.node import Node, Refused, aten, axes_of, axis_of, register, with_axis
from glenside.ir.dtypes import FLOATS, HALVES, limits
from glenside.ir.term import Term


def reduced(kind: str, node: Node, x: Term, axes: Sequence[int], keepdim: bool) -> Term:
    """Reduces axes in the dtype of the result."""
    return reduce_axes(kind, cast(x, node.dtype), axes, keepdim)


@aten("sum", "default", "dim_IntList")
def sum_(
    node: Node, self: Term, dim: Sequence[int] | None = None, keepdim: bool = False, dtype: str | None = None
) -> Term:
    return reduced("reduce-sum", node, self, axes_of(dim, self.access.rank), keepdim)


@aten("prod", "default", "dim_int")
def product(node: Node, self: Term, dim: int | None = None, keepdim: bool = False, dtype: str | None = None) -> Term:
    return reduced("reduce-prod", node, self, axes_of(dim, self.access.rank), keepdim)


@aten("mean", "default", "dim")
def mean(
    node: Node, self: Term, dim: Sequence[int] | None = None, keepdim: bool = False, dtype: str | None = None
) -> Term:
    axes = axes_of(dim, self.access.rank)
    if all(self.access.dims[axis] for axis in axes):
        return reduced("reduce-mean", node, self, axes, keepdim)
    total = reduced("reduce-sum", node, self, axes, keepdim)
    return divide(total, filled(total, 0))


def _extreme(kind: str, node: Node, self: Term, dim: Sequence[int] | None = None, keepdim: bool = False) -> Term:
    return reduced(kind, node, self, axes_of(dim, self.access.rank), keepdim)


register("amax", partial(_extreme, "reduce-max"), ("default",), "", __name__)
register("amin", partial(_extreme, "reduce-min"), ("default",), "", __name__)


def _truths(kind: str, of_nothing: bool, node: Node, self: Term, dim: object = None, keepdim: bool = False) -> Term:
    axes = axes_of(dim, self.access.rank)  # type: ignore[arg-type]
    if not all(self.access.dims[axis] for axis in axes):
        return node.filled(node.dims, of_nothing, node.dtype)
    return cast(reduce_axes(kind, cast(self, "bool"), axes, keepdim), node.dtype)


register("any", partial(_truths, "reduce-max", False), ("default", "dim", "dims"), "", __name__)
register("all", partial(_truths, "reduce-min", True), ("default", "dim", "dims"), "", __name__)


def first_position(kind: str, x: Term, axis: int) -> Term:
    """Returns the position of the first extreme along one axis, which keeps size 1; a NaN is the extreme."""
    found = position(kind, x, axis)
    if x.access.dtype not in FLOATS:
        return found
    missing = cast(compare("ne", x, x), "int32")
    return select(reduce_axes("reduce-max", missing, [axis], keep=True), position("argmax", missing, axis), found)


def _with_position(kind: str, node: Node, self: Term, dim: int, keepdim: bool = False) -> tuple[Term, Term]:
    x, axis = with_axis(self), axis_of(dim, self.access.rank)
    arg = "argmax" if kind == "reduce-max" else "argmin"
    return reshape(reduce_axes(kind, x, [axis], keep=True), node.dims), reshape(first_position(arg, x, axis), node.dims)


def _max_or_min(kind: str, node: Node, self: Term, dim: int | None = None, keepdim: bool = False) -> object:
    return _extreme(kind, node, self) if dim is None else _with_position(kind, node, self, dim, keepdim)


register("max", partial(_max_or_min, "reduce-max"), ("default", "dim"), "", __name__)
register("min", partial(_max_or_min, "reduce-min"), ("default", "dim"), "", __name__)


def _arg(kind: str, node: Node, self: Term, dim: int | None = None, keepdim: bool = False) -> Term:
    x = reshape(self, (self.access.size,)) if dim is None else with_axis(self)
    axis = 0 if dim is None else axis_of(dim, self.access.rank)
    return reshape(first_position(kind, x, axis), node.dims)


register("argmax", partial(_arg, "argmax"), ("default",), "", __name__)
register("argmin", partial(_arg, "argmin"), ("default",), "", __name__)


def moments(x: Term, axes: Sequence[int], correction: float) -> tuple[Term, Term]:
    """Returns the variance and the mean over axes, which keep size 1; the divisor is the count less a correction."""
    count = prod(x.access.dims[axis] for axis in axes)
    total = reduce_axes("reduce-sum", x, axes, keep=True)
    average = divide(total, filled(total, count))
    centred = subtract(x, average)
    squares = reduce_axes("reduce-sum", multiply(centred, centred), axes, keep=True)
    return divide(squares, filled(squares, float(max(count - correction, 0)))), average


@aten("var", "default", "dim", "correction")
def var(
    node: Node,
    self: Term,
    dim: Sequence[int] | bool | None = None,
    unbiased: bool = True,
    keepdim: bool = False,
    correction: float | None = None,
) -> Term:
    if isinstance(dim, bool):  # var(x, unbiased)
        unbiased, dim = dim, None
    lost = (1.0 if unbiased else 0.0) if correction is None else float(correction)
    x = cast(self, "float32") if self.access.dtype in HALVES else self
    found, _ = moments(x, axes_of(dim, self.access.rank), lost)
    return cast(reshape(found, node.dims), node.dtype)


@aten("var_mean", "correction")
def var_mean(
    node: Node, self: Term, dim: Sequence[int] | None = None, correction: float | None = None, keepdim: bool = False
) -> tuple[Term, Term]:
    x = cast(self, "float32") if self.access.dtype in HALVES else self
    found = moments(x, axes_of(dim, self.access.rank), 1.0 if correction is None else float(correction))
    return cast(reshape(found[0], node.dims), node.dtype), cast(reshape(found[1], node.dims), node.dtype)


def _running(multiplies: bool, node: Node, self: Term, dim: int, dtype: str | None = None) -> Term:
    x, axis = cast(with_axis(self), node.dtype), axis_of(dim, self.access.rank)
    wide = cast(x, "float32") if node.dtype in HALVES else x
    found = running(multiply if multiplies else add, wide, axis, "1" if multiplies else "0")
    return cast(reshape(found, node.dims), node.dtype)


register("cumsum", partial(_running, False), ("default",), "", __name__)
register("cumprod", partial(_running, True), ("default",), "", __name__)


def lowest(dtype: str, sign: float) -> float | int:
    """Returns the least number of a dtype, or the largest if `sign` is positive: infinities for floats."""
    if dtype in FLOATS:
        return float(np.copysign(np.inf, sign))
    return limits(dtype)[sign > 0]


def _softmax(kind: str, node: Node, self: Term, dim: int, half_to_float: bool = False) -> Term:
    x = with_axis(cast(self, "float32") if self.access.dtype in HALVES else self)
    if not x.access.size:
        return node.filled(node.dims, 0, node.dtype)
    return cast(reshape(softmax_along(x, axis_of(dim, self.access.rank), kind), node.dims), node.dtype)


register("_softmax", partial(_softmax, "softmax"), ("default",), "", __name__)
register("_log_softmax", partial(_softmax, "log-softmax"), ("default",), "", __name__)


@aten("_pdist_forward", but="p below 1")
def pairwise_distance(node: Node, self: Term, p: float = 2) -> Term:
    rows, columns = np.triu_indices(self.access.dims[0], 1)
    ends = [gather(self, node.constant(np.asarray(i, np.int64), part)) for i, part in ((rows, "rows"), (columns, "to"))]
    return distance(subtract(*ends), p)


@aten("_cdist_forward", but="p below 1")
def distances(node: Node, x1: Term, x2: Term, p: float, compute_mode: int | None = None) -> Term:
    rows = reshape(x1, (*x1.access.dims[:-1], 1, x1.access.dims[-1]))
    columns = reshape(x2, (*x2.access.dims[:-2], 1, *x2.access.dims[-2:]))
    if not x1.access.dims[-1]:
        return node.filled(node.dims, 0, node.dtype)
    return distance(subtract(rows, columns), p)


def distance(difference: Term, p: float) -> Term:
    """Computes the p-norm of the last axis."""
    last = [difference.access.rank - 1]
    if p == 0:
        return reduce_axes("reduce-sum", cast(compare("ne", difference, filled(difference, 0)), "float32"), last)
    if p == float("inf"):
        return reduce_axes("reduce-max", compute("abs", difference), last)
    if p < 1:
        raise Refused(f"requires p of 0 or at least 1, got {p}")
    return root(reduce_axes("reduce-sum", powers(difference, p), last), p)


@aten("trace", "default")
def trace(node: Node, self: Term) -> Term:
    size = min(self.access.dims)
    square = slice_axis(slice_axis(self, 0, 0, size), 1, 0, size)
    return reduce_axes("reduce-sum", cast(diagonal(square), node.dtype), [0])
