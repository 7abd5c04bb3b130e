"""Imports matrix products and convolutions, which become the layers of the program."""

from __future__ import annotations

from collections.abc import Sequence

from glenside.builder.indexing import iota
from glenside.builder.layout import gather, reshape
from glenside.builder.pointwise import add, cast, combine, compare, multiply
from glenside.builder.reductions import reduce_axes
from glenside.importers.torch.node import Node, Refused, aten, register
from glenside.importers.torch.promotion import Number
from glenside.ir.term import Term, build


def product(node: Node, x: Term, y: Term) -> Term:
    """Multiplies matrices, as numpy does; narrow integers wrap instead of widening."""
    return cast(node.builder.matmul(x, y, name=node.layer_name()), node.dtype)


@aten("mm")
def mm(node: Node, self: Term, mat2: Term) -> Term:
    return product(node, self, mat2)


@aten("bmm")
def bmm(node: Node, self: Term, mat2: Term) -> Term:
    return product(node, self, mat2)


@aten("matmul")
def matmul(node: Node, self: Term, other: Term) -> Term:
    return product(node, self, other)


@aten("mv")
def mv(node: Node, self: Term, vec: Term) -> Term:
    return product(node, self, vec)


@aten("dot")
def dot(node: Node, self: Term, tensor: Term) -> Term:
    return product(node, self, tensor)


def _times(node: Node, x: Term, factor: Number) -> Term:
    return x if factor == 1 else multiply(x, node.number(factor, node.dtype))


def _added(node: Node, self: Term, x: Term, y: Term, beta: Number, alpha: Number) -> Term:
    found = _times(node, product(node, x, y), alpha)
    return found if beta == 0 else add(found, _times(node, self, beta))


@aten("addmm")
def addmm(node: Node, self: Term, mat1: Term, mat2: Term, beta: Number = 1, alpha: Number = 1) -> Term:
    return _added(node, self, mat1, mat2, beta, alpha)


@aten("baddbmm")
def baddbmm(node: Node, self: Term, batch1: Term, batch2: Term, beta: Number = 1, alpha: Number = 1) -> Term:
    return _added(node, self, batch1, batch2, beta, alpha)


@aten("addmv")
def addmv(node: Node, self: Term, mat: Term, vec: Term, beta: Number = 1, alpha: Number = 1) -> Term:
    return _added(node, self, mat, vec, beta, alpha)


@aten("linear")
def linear(node: Node, input: Term, weight: Term, bias: Term | None = None) -> Term:
    if input.access.rank == 0 or weight.access.rank != 2:
        raise Refused(f"requires a matrix of weights, got {weight.access}")
    return cast(node.builder.linear(input, weight, bias, name=node.layer_name()), node.dtype)


def grouped_mm(
    node: Node,
    input: Term,
    weight: Term,
    offs: Term | None = None,
    bias: Term | None = None,
    out_dtype: str | None = None,
) -> Term:
    """Multiplies each row by the matrix of its group, ()(M K) by ()(G K N); groups of rows end at the offsets."""
    if input.access.rank != 2 or weight.access.rank != 3 or offs is None or bias is not None:
        raise Refused("requires rows in groups, a matrix for each group, their offsets, and no bias")
    rows, depth = input.access.dims
    ends = reshape(cast(offs, "int64"), (1, offs.access.size))
    passed = compare("ge", iota(rows, 0, 2), ends)
    groups = reduce_axes("reduce-sum", cast(passed, "int64"), [1])
    last = build("full", (), weight.access.dims[0] - 1, "int64")
    own = gather(weight, combine("minimum", groups, last), 0)
    return reshape(product(node, reshape(input, (rows, 1, depth)), own), node.dims)


for _name in ("_grouped_mm", "transformers.grouped_mm_fallback"):
    register(_name, grouped_mm, ("default",), "", __name__)


def per_axis(value: Sequence[int], axes: int) -> tuple[int, ...]:
    """Returns one number for each axis; a single one applies to all."""
    return tuple(value) * axes if len(value) == 1 else tuple(value)


@aten("convolution")
def convolution(
    node: Node,
    input: Term,
    weight: Term,
    bias: Term | None,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    transposed: bool,
    output_padding: Sequence[int],
    groups: int,
) -> Term:
    axes = weight.access.rank - 2
    unbatched = input.access.rank == axes + 1
    x = reshape(input, (1, *input.access.dims)) if unbatched else input
    lengths = per_axis(padding, axes)
    options = {
        "strides": per_axis(stride, axes),
        "padding": [(n, n) for n in lengths],
        "dilations": per_axis(dilation, axes),
        "groups": groups,
        "name": node.layer_name(),
    }
    if transposed:
        y = node.builder.conv_transpose(x, weight, bias, output_padding=per_axis(output_padding, axes), **options)  # type: ignore[arg-type]
    else:
        y = node.builder.conv(x, weight, bias, **options)  # type: ignore[arg-type]
    return cast(reshape(y, node.dims), node.dtype)
