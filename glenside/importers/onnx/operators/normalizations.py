"""Imports normalizations: standardizes, or divides by a norm, and then scales."""

from __future__ import annotations

from math import prod

import numpy as np

from glenside.builder import pointwise
from glenside.builder.layout import broadcast, channel_vector, pad, reshape, split_at
from glenside.builder.pointwise import add, cast, combine, divide, filled, mean_from, multiply, standardized
from glenside.builder.reductions import channel_statistics, reduce_axes
from glenside.builder.windows import powers, root, windows
from glenside.importers.onnx.node import Node, onnx_operator
from glenside.importers.onnx.tensors import dtype_name
from glenside.ir.errors import BadInput
from glenside.ir.term import Term, build

EPSILON = float(np.float32(1e-5))
"""ONNX's default epsilon; its attributes are float32."""


@onnx_operator("BatchNormalization")
def batch_normalization(node: Node) -> list[Term]:
    x, *parameters = (node.term(i) for i in range(5))
    dims = x.access.dims
    if len(dims) > 1 and node.integer("spatial", 1):
        return normalized_batch(node, x, parameters)
    # One channel, or one per element of an image.
    flat = reshape(x, (dims[0], prod(dims[1:])))
    y, *running = normalized_batch(node, flat, [reshape(v, flat.access.dims[1:]) for v in parameters])
    return [reshape(y, dims), *running]


def normalized_batch(node: Node, x: Term, parameters: list[Term]) -> list[Term]:
    gamma, beta, mean, var = parameters
    running = []
    if is_training(node):
        current = channel_statistics(x)
        running = [moved(node, old, new) for old, new in zip((mean, var), current, strict=True)]
        mean, var = current
    dtype = max((t.access.dtype for t in (x, gamma, mean)), key=lambda name: np.dtype(name).itemsize)
    wide, gamma, beta, mean, var = (cast(t, dtype) for t in (x, gamma, beta, mean, var))
    y = pointwise.batch_norm(wide, gamma, beta, mean, var, epsilon(node))
    return [cast(y, x.access.dtype), *running]


def is_training(node: Node) -> bool:
    """True if the batch's own mean and variance are used. Raises BadInput before opset 14, which defines them."""
    if node.version >= 14:
        return bool(node.integer("training_mode", 0))
    if node.version < 7 and not node.integer("is_test", 0):
        raise BadInput("attribute is_test requires 1: training is supported from opset 14 on")
    if any(node.wants(i) for i in range(1, 5)):
        raise BadInput("requires one output, got more: training is supported from opset 14 on")
    return False


def moved(node: Node, old: Term, new: Term) -> Term:
    """Updates a running statistic by one batch."""
    momentum = node.number("momentum", float(np.float32(0.9)))
    kept = multiply(old, filled(old, momentum))
    return add(kept, multiply(cast(new, old.access.dtype), filled(old, 1 - momentum)))


@onnx_operator("InstanceNormalization")
def instance_normalization(node: Node) -> Term:
    y, _, _ = standardized(node.term(0), 2, epsilon(node))
    return add(multiply(y, channel_vector(node.term(1), y)), channel_vector(node.term(2), y))


@onnx_operator("GroupNormalization")
def group_normalization(node: Node) -> Term:
    x, scale, bias = node.term(0), node.term(1), node.term(2)
    groups = node.integer("num_groups", 0)
    stage = stage_dtype(node) if node.version >= 21 else x.access.dtype
    # Before version 21, scale and bias were per group.
    return group_normalized(x, scale, bias, groups, epsilon(node), stage, of_channels=node.version >= 21)


def group_normalized(
    x: Term,
    scale: Term,
    bias: Term,
    groups: int,
    eps: float,
    stage: str = "float32",
    of_channels: bool = True,
    name: str = "num_groups",
) -> Term:
    """Standardizes ()(N C d..) in each group of channels, then scales and shifts. Raises BadInput.

    stage        the dtype in which it is standardized
    of_channels  True if scale and bias are per channel, not per group
    name         of the attribute that gives the number of groups
    """
    dims = x.access.dims
    if len(dims) < 2 or groups < 1 or dims[1] % groups:
        raise BadInput(f"attribute {name} requires a divisor of the channels of {x.access}, got {groups}")
    y, _, _ = standardized(reshape(cast(x, stage), (dims[0], groups, prod(dims[1:]) // groups)), 2, eps)
    y = cast(y, x.access.dtype)
    y = reshape(y, dims) if of_channels else y
    return reshape(add(multiply(y, channel_vector(scale, y)), channel_vector(bias, y)), dims)


def stage_dtype(node: Node) -> str:
    """Returns the dtype of the first stage."""
    return dtype_name(node.integer("stash_type", 1))


def epsilon(node: Node) -> float:
    return node.number("epsilon", EPSILON)


@onnx_operator("LayerNormalization")
def layer_normalization(node: Node) -> list[Term]:
    x, bias = node.term(0), node.optional(2)
    axis = node.axis("axis", -1, x.access.rank)
    y, mean, deviation = standardized(cast(x, stage_dtype(node)), axis, epsilon(node))
    y = cast(y, x.access.dtype)
    y = multiply(y, broadcast(node.term(1), x.access.dims))
    y = y if bias is None else add(y, broadcast(bias, x.access.dims))
    return [y, mean, divide(filled(deviation, 1), deviation)]


@onnx_operator("RMSNormalization")
def rms_normalization(node: Node) -> Term:
    x = node.term(0)
    wide = cast(x, stage_dtype(node))
    mean = mean_from(multiply(wide, wide), node.axis("axis", -1, x.access.rank))
    y = divide(wide, pointwise.compute("sqrt", add(mean, filled(mean, epsilon(node)))))
    return multiply(cast(y, x.access.dtype), broadcast(node.term(1), x.access.dims))


@onnx_operator("LpNormalization")
def lp_normalization(node: Node) -> Term:
    x, p = node.term(0), node.integer("p", 2)
    if p not in (1, 2):
        raise BadInput(f"attribute p requires 1 or 2, got {p}")
    axis = node.axis("axis", -1, x.access.rank)
    norm = root(reduce_axes("reduce-sum", powers(x, p), [axis], keep=True), p)
    zero = combine("(compare eq)", norm, filled(norm, 0))
    return divide(x, add(norm, cast(zero, x.access.dtype)))  # 0 / 1 if all elements are 0


@onnx_operator("LRN")
def local_response_normalization(node: Node) -> Term:
    x, size = node.term(0), node.integer("size", 0)
    rank = x.access.rank
    if rank < 2 or size < 1:
        raise BadInput(f"requires an input of (N C d..) and attribute size of at least 1, got {x.access} and {size}")
    alpha, beta = node.number("alpha", float(np.float32(1e-4))), node.number("beta", 0.75)
    squares = pad(multiply(x, x), [(0, 0), ((size - 1) // 2, size // 2), *[(0, 0)] * (rank - 2)])
    ones = [1] * (rank - 2)
    near = windows(split_at(squares, 1), (size, *ones), [1] * (rank - 1), [1] * (rank - 1))
    sums = split_at(build("compute", "reduce-sum", near), 0)
    scale = add(filled(x, node.number("bias", 1.0)), multiply(sums, filled(x, alpha / size)))
    return divide(x, combine("pow", scale, filled(x, beta)))
