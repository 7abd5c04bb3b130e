"""Imports gathers, indices of nonzero elements, and scatters."""

from __future__ import annotations

import numpy as np

from glenside.builder.indexing import gather_elements, gather_nd, iota, scatter_elements, scatter_nd
from glenside.builder.layout import concatenate, gather, reshape, slice_axis, transpose, untransposed
from glenside.builder.pointwise import add, cast, compare, divide, multiply, select, subtract
from glenside.importers.onnx.node import Node, normal_axis, onnx_operator
from glenside.ir.errors import BadInput
from glenside.ir.term import Term, build


def check_indices(node: Node, i: int, sizes: list[int]) -> Term:
    """Returns input i as indices into axes of these sizes; with several sizes, along the last axis. Raises BadInput."""
    indices = node.term(i)
    value = node.scope.known(indices)
    if value is not None and value.size:
        columns = [value] if len(sizes) == 1 else [value[..., column] for column in range(len(sizes))]
        for column, size in zip(columns, sizes, strict=True):
            if column.min() < -size or column.max() >= size:
                need = f"indices from {-size} to {size - 1}"
                raise BadInput(f"input {i} requires {need}, got {column.min()} to {column.max()}")
    return indices


@onnx_operator("Gather")
def gathered(node: Node) -> Term:
    x = node.term(0)
    axis = node.axis("axis", 0, x.access.rank)
    size = x.access.dims[axis]
    indices = check_indices(node, 1, [size])
    value = node.scope.known(indices)
    if value is None or value.size != 1:
        return gather(x, indices, axis)
    place = int(value.item()) % size  # a known index becomes a slice
    dims = (*x.access.dims[:axis], *indices.access.dims, *x.access.dims[axis + 1 :])
    number = node.scope.known(x) if x.access.rank == 1 and x.access.dtype == "int64" else None
    if number is not None:  # one size of a shape is a number, whatever the others are
        return node.scope.filled(dims, number[place])
    return reshape(slice_axis(x, axis, place, place + 1), dims)


@onnx_operator("GatherElements")
def gathered_elements(node: Node) -> Term:
    x = node.term(0)
    axis = node.axis("axis", 0, x.access.rank)
    return gather_elements(x, check_indices(node, 1, [x.access.dims[axis]]), axis)


@onnx_operator("GatherND")
def gathered_nd(node: Node) -> Term:
    x, indices = node.term(0), node.term(1)
    shared = node.integer("batch_dims", 0)
    if not 0 <= shared < min(x.access.rank, indices.access.rank):
        least = min(x.access.rank, indices.access.rank)
        raise BadInput(f"attribute batch_dims requires a number from 0 to {least - 1}, got {shared}")
    count = indices.access.dims[-1]
    if not 1 <= count <= x.access.rank - shared:
        raise BadInput(f"input 1 requires from 1 to {x.access.rank - shared} numbers for each index, got {count}")
    return gather_nd(x, check_indices(node, 1, list(x.access.dims[shared : shared + count])), shared)


@onnx_operator("Compress")
def compressed(node: Node) -> Term:
    x, kept = node.term(0), node.known(1)
    if kept.dtype != np.bool_ or kept.ndim != 1:
        raise BadInput(f"input 1 requires one axis of bool, got {kept.ndim} of {kept.dtype}")
    flat = "axis" not in node.attributes
    x = reshape(x, (x.access.size,)) if flat else x
    axis = 0 if flat else node.axis("axis", 0, x.access.rank)
    places = np.flatnonzero(kept)
    if places.size and places[-1] >= x.access.dims[axis]:
        raise BadInput(f"input 1 requires at most {x.access.dims[axis]} elements, got {kept.size}")
    return gather(x, node.constant(places.astype(np.int64), f"{node.name}.places"), axis)


@onnx_operator("NonZero")
def nonzero(node: Node) -> Term:
    value = node.known(0)
    places = np.nonzero(np.atleast_1d(value))
    return node.constant(np.array(places, np.int64).reshape(value.ndim or len(places), -1))


@onnx_operator("OneHot")
def one_hot(node: Node) -> Term:
    indices, values = node.term(0), node.term(2)
    depth = node.known(1).reshape(-1)
    if depth.size != 1 or depth[0] < 0:
        raise BadInput(f"input 1 requires one number of at least 0, got {depth}")
    if values.access.dims != (2,):
        raise BadInput(f"input 2 requires two values, off and on, got {values.access}")
    rank, count = indices.access.rank + 1, int(depth[0])
    axis = normal_axis(node.integer("axis", -1), rank, "attribute axis")
    wanted = cast(indices, "int64")
    wanted = reshape(wanted, (*indices.access.dims[:axis], 1, *indices.access.dims[axis:]))
    below = compare("lt", wanted, build("full", (), 0, "int64"))
    wanted = select(below, add(wanted, build("full", (), count, "int64")), wanted)
    off, on = (slice_axis(values, 0, i, i + 1) for i in (0, 1))
    return select(compare("eq", wanted, iota(count, axis, rank)), on, off)


@onnx_operator("ReverseSequence")
def reversed_sequences(node: Node) -> Term:
    x, lengths = node.term(0), cast(node.term(1), "int64")
    rank = x.access.rank
    batch, time = node.axis("batch_axis", 1, rank), node.axis("time_axis", 0, rank)
    if {batch, time} != {0, 1}:
        raise BadInput(f"attributes batch_axis and time_axis require 0 and 1, got {batch} and {time}")
    size, longest = x.access.dims[batch], x.access.dims[time]
    if lengths.access.dims != (size,):
        raise BadInput(f"input 1 requires {size} lengths, got {lengths.access}")
    value = node.scope.known(node.term(1))
    if value is not None and value.size and not (0 <= value.min() and value.max() <= longest):
        raise BadInput(f"input 1 requires lengths from 0 to {longest}, got {value.min()} to {value.max()}")
    order = (batch, time, *range(2, rank))
    ends, places = reshape(lengths, (size, 1)), iota(longest, 1, 2)
    mirrored = subtract(subtract(ends, build("full", (), 1, "int64")), places)
    picked = select(compare("lt", places, ends), mirrored, places)
    return transpose(gather_nd(transpose(x, order), reshape(picked, (size, longest, 1)), 1), order)


def _reduction(node: Node) -> str:
    reduction = node.text("reduction", "none", "none", "add", "mul", "min", "max")
    return "replace" if reduction == "none" else reduction


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
        raise BadInput(f"input 1 requires from 1 to {x.access.rank} numbers for each index, got {indices.access}")
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
