"""Tensors with updates put in by index."""

from __future__ import annotations

from glenside.builder.indexing import iota, scatter_elements, scatter_nd
from glenside.builder.layout import concatenate, reshape, slice_axis, transpose, untransposed
from glenside.builder.pointwise import add, cast, divide, multiply, subtract
from glenside.importers.onnx.node import Node
from glenside.importers.onnx.operators.gathering import check_indices
from glenside.importers.onnx.registry import onnx_operator
from glenside.ir.errors import BadInput
from glenside.ir.term import Term, build

REDUCTIONS = {"none": "replace", "add": "add", "mul": "mul", "min": "min", "max": "max"}


def _reduction(node: Node) -> str:
    return REDUCTIONS[node.text("reduction", "none", *REDUCTIONS)]


@onnx_operator("Scatter", "ScatterElements")
def scattered_elements(node: Node) -> Term:
    x, updates = node.term(0), node.term(2)
    axis = node.axis("axis", 0, x.access.rank)
    indices = check_indices(node, 1, [x.access.dims[axis]])
    return scatter_elements(x, indices, updates, axis, _reduction(node))


@onnx_operator("ScatterND")
def scattered_nd(node: Node) -> Term:
    x, indices = node.term(0), node.term(1)
    count = indices.access.dims[-1] if indices.access.rank else 0
    if not 1 <= count <= x.access.rank:
        raise BadInput(f"input 1 requires from 1 to {x.access.rank} numbers for each place, got {indices.access}")
    indices = check_indices(node, 1, list(x.access.dims[:count]))
    return scatter_nd(x, indices, node.term(2), 0, _reduction(node))


@onnx_operator("TensorScatter")
def written(node: Node) -> Term:
    cache, update, start = node.term(0), node.term(1), node.optional(2)
    rank = cache.access.rank
    axis = node.axis("axis", -2, rank)
    mode = node.text("mode", "linear", "linear", "circular")
    batch, size = cache.access.dims[0] if rank else 0, cache.access.dims[axis]
    length = update.access.dims[axis] if update.access.rank == rank else -1
    if axis == 0 or update.access.dims != cache.access.dims.set(axis, length) or length > size:
        raise BadInput(f"requires an update within {cache.access} along an axis after the first, got {update.access}")
    if start is None:
        return concatenate([update, slice_axis(cache, axis, length, size)], axis)
    if start.access.dims != (batch,):
        raise BadInput(f"input 2 requires {batch} indices, got {start.access}")
    places = add(reshape(cast(start, "int64"), (batch, 1)), iota(length, 1, 2))
    if mode == "circular":
        turn = build("full", (), size, "int64")
        places = subtract(places, multiply(divide(places, turn), turn))
    order = (0, axis, *(i for i in range(1, rank) if i != axis))
    at = reshape(places, (batch, length, 1))
    return untransposed(scatter_nd(transpose(cache, order), at, transpose(update, order), 1), order)
