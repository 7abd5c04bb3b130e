"""Imports reductions over axes, positions, cumulative sums and products, einsum, determinants."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import prod
from typing import Any

import numpy as np

from glenside.builder.einsum import einsum as sum_of_products
from glenside.builder.layout import flip, reshape
from glenside.builder.pointwise import add, cast, compare, compute, divide, filled, multiply, select, subtract
from glenside.builder.reductions import determinant, position, reduce_axes, running
from glenside.importers.onnx.node import Node, normal_axis, onnx_operator
from glenside.importers.onnx.tensors import require_table
from glenside.ir.dtypes import FLOATS, largest_float, limits
from glenside.ir.errors import BadInput
from glenside.ir.term import Term

Reduction = Callable[[Node, Term, list[int]], Term]
"""Reduces over these axes, which keep size 1."""


def _sum(node: Node, x: Term, axes: list[int]) -> Term:
    return reduce_axes("reduce-sum", x, axes, keep=True)


def _mean(node: Node, x: Term, axes: list[int]) -> Term:
    """Computes the mean; of integers and of empty items it is the sum divided by the count."""
    count = prod(x.access.dims[axis] for axis in axes)
    if x.access.dtype in FLOATS and count:
        return reduce_axes("reduce-mean", x, axes, keep=True)
    total = _sum(node, x, axes)
    return divide(total, filled(total, count))


def _extreme(kind: str, of_nothing: float) -> Reduction:
    def reduced(node: Node, x: Term, axes: list[int]) -> Term:
        if all(x.access.dims[axis] for axis in axes):
            return reduce_axes(kind, x, axes, keep=True)
        dims = [1 if axis in axes else n for axis, n in enumerate(x.access.dims)]
        return node.scope.filled(dims, _limit(x.access.dtype, of_nothing))

    return reduced


def _limit(dtype: str, sign: float) -> Any:
    if dtype in FLOATS or dtype == "bool":
        return np.dtype(dtype).type(sign * np.inf if dtype in FLOATS else sign > 0)
    return np.dtype(dtype).type(limits(dtype)[sign > 0])


def _in_floats(function: str, x: Term) -> Term:
    """Applies a function of reals; integers are computed in float64 and truncated."""
    dtype = x.access.dtype
    return cast(compute(function, x if dtype in FLOATS else cast(x, "float64")), dtype)


def _log_sum_exp(node: Node, x: Term, axes: list[int]) -> Term:
    """Computes log(sum(exp(x - m))) + m, where m is the maximum if that is finite, else 0."""
    dtype = x.access.dtype
    if dtype not in FLOATS:
        return cast(_log_sum_exp(node, cast(x, "float64"), axes), dtype)
    if not all(x.access.dims[axis] for axis in axes):
        return _in_floats("log", _sum(node, x, axes))
    most = reduce_axes("reduce-max", x, axes, keep=True)
    largest = filled(most, int(largest_float(dtype)))
    most = select(compare("gt", compute("abs", most), largest), filled(most, 0), most)
    return add(compute("log", _sum(node, compute("exp", subtract(x, most)), axes)), most)


REDUCTIONS: Mapping[str, Reduction] = {
    "ReduceSum": _sum,
    "ReduceProd": lambda node, x, axes: reduce_axes("reduce-prod", x, axes, keep=True),
    "ReduceMean": _mean,
    "ReduceMax": _extreme("reduce-max", -1),
    "ReduceMin": _extreme("reduce-min", 1),
    "ReduceL1": lambda node, x, axes: _sum(node, compute("abs", x), axes),
    "ReduceL2": lambda node, x, axes: _in_floats("sqrt", _sum(node, multiply(x, x), axes)),
    "ReduceSumSquare": lambda node, x, axes: _sum(node, multiply(x, x), axes),
    "ReduceLogSum": lambda node, x, axes: _in_floats("log", _sum(node, x, axes)),
    "ReduceLogSumExp": _log_sum_exp,
}


@onnx_operator(*REDUCTIONS)
def reduction(node: Node) -> Term:
    x = node.term(0)
    axes = _axes(node, x.access.rank)
    result = REDUCTIONS[node.op_type](node, x, axes)
    if node.integer("keepdims", 1):
        return result
    return reshape(result, [n for axis, n in enumerate(x.access.dims) if axis not in axes])


def _axes(node: Node, rank: int) -> list[int]:
    as_input = node.version >= (13 if node.op_type == "ReduceSum" else 18)
    given = node.known_ints(1) if as_input else node.integers("axes")
    if not given:
        return [] if as_input and node.integer("noop_with_empty_axes", 0) else list(range(rank))
    axes = [normal_axis(axis, rank, "an axis") for axis in given]
    if len(set(axes)) < len(axes):
        raise BadInput(f"requires axes that are different, got {given}")
    return axes


@onnx_operator("ArgMax", "ArgMin")
def arg(node: Node) -> Term:
    x = node.term(0)
    axis = node.axis("axis", 0, x.access.rank)
    found = position(node.op_type.lower(), x, axis, last=bool(node.integer("select_last_index", 0)))
    return found if node.integer("keepdims", 1) else reshape(found, x.access.dims.remove(axis))


RUNNING = {"CumSum": (add, "0"), "CumProd": (multiply, "1")}


@onnx_operator(*RUNNING)
def cumulative(node: Node) -> Term:
    x = node.term(0)
    given = node.known_ints(1) or []
    if len(given) != 1:
        raise BadInput(f"input 1 requires one axis, got {given}")
    axis = normal_axis(given[0], x.access.rank, "input 1")
    combine, neutral = RUNNING[node.op_type]
    reverse = bool(node.integer("reverse", 0))
    exclusive = bool(node.integer("exclusive", 0))
    result = running(combine, flip(x, axis) if reverse else x, axis, neutral, exclusive=exclusive)
    return flip(result, axis) if reverse else result


@onnx_operator("Einsum")
def einsum(node: Node) -> Term:
    def product(x: Term, y: Term) -> Term:
        return node.builder.matmul(x, y, name=node.layer_name())

    return sum_of_products(node.text("equation", ""), node.terms(), product)


ROWS = 256
"""The maximum rows of a determinant: each is one step of elimination."""


@onnx_operator("Det")
def det(node: Node) -> Term:
    x = node.term(0)
    require_table("a column of a determinant", max(x.access.dims[-1:], default=0), most=ROWS)
    return determinant(x)
