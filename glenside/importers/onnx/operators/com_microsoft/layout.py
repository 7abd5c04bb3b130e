"""Imports older or longer forms of standard operators: gathers, pads, ranges, unfolding, distances."""

from __future__ import annotations

from dataclasses import replace

from glenside.builder.layout import reshape, split_at, transpose
from glenside.builder.pointwise import add, compute, multiply, subtract
from glenside.builder.reductions import reduce_axes
from glenside.builder.windows import windows
from glenside.importers.onnx.node import Node, normal_axis
from glenside.importers.onnx.operators.com_microsoft import runtime_operator
from glenside.importers.onnx.operators.indexing import gathered_nd
from glenside.importers.onnx.operators.products import conv_transpose
from glenside.importers.onnx.operators.sampling import grid_sample
from glenside.importers.onnx.operators.slicing import counted, padded, triangle
from glenside.ir.errors import BadInput
from glenside.ir.term import Term

AS_STANDARD = {
    "GatherND": (gathered_nd, 12),
    "GridSample": (grid_sample, 16),
    "Pad": (padded, 13),
    "Range": (counted, 11),
    "Trilu": (triangle, 14),
}
"""Operator -> (the function of the standard operator, the version in which it has that meaning)."""


@runtime_operator(*AS_STANDARD)
def as_standard(node: Node) -> Term:
    function, version = AS_STANDARD[node.op_type]
    return function(replace(node, domain="", version=version))


@runtime_operator("ExpandDims")
def expand_dims(node: Node) -> Term:
    x, axis = node.term(0), node.known_int(1, 0, "axis")
    at = normal_axis(axis, x.access.rank + 1, "input 1")
    return reshape(x, (*x.access.dims[:at], 1, *x.access.dims[at:]))


@runtime_operator("UnfoldTensor")
def unfold_tensor(node: Node) -> Term:
    """Returns windows along one axis, with the elements of each in a new last axis."""
    x, size, step = node.term(0), node.integer("size", 0), node.integer("step", 1)
    axis = node.axis("dim", -1, x.access.rank)
    if not 1 <= size <= x.access.dims[axis] or step < 1:
        raise BadInput(f"attributes size and step require windows of axis {axis} of {x.access}, got {size} and {step}")
    order = [i for i in range(x.access.rank) if i != axis] + [axis]
    found = split_at(windows(split_at(transpose(x, order), x.access.rank - 1), [size], [step], [1]), 0)
    back = sorted(range(x.access.rank), key=order.__getitem__)
    return transpose(found, (*back, x.access.rank))


@runtime_operator("GatedAdd")
def gated_add(node: Node) -> Term:
    return add(node.term(0), multiply(node.term(1), node.term(2)))


@runtime_operator("CDist")
def cdist(node: Node) -> Term:
    """Computes distances between rows of two matrices, from squared differences."""
    metric = node.text("metric", "sqeuclidean", "sqeuclidean", "euclidean")
    a, b = node.term(0), node.term(1)
    if a.access.rank != 2 or b.access.rank != 2:
        raise BadInput(f"requires two matrices, got {a.access} and {b.access}")
    apart = subtract(reshape(a, (a.access.dims[0], 1, a.access.dims[1])), reshape(b, (1, *b.access.dims)))
    squares = reduce_axes("reduce-sum", multiply(apart, apart), [2])
    return compute("sqrt", squares) if metric == "euclidean" else squares


@runtime_operator("ConvTransposeWithDynamicPads")
def conv_transpose_with_dynamic_pads(node: Node) -> Term:
    pads = node.known_ints(2) or [0] * 2 * (node.term(0).access.rank - 2)
    inputs = (node.inputs[0], node.inputs[1], node.optional(3))
    return conv_transpose(replace(node, inputs=inputs, attributes={**node.attributes, "pads": pads}))
