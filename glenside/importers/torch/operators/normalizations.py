"""Imports normalizations over batches, channels, groups and last axes."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from glenside.builder.layout import reshape
from glenside.builder.pointwise import add, cast, compute, divide, filled, multiply, standardized, subtract
from glenside.importers.torch.node import Node, Refused, aten
from glenside.importers.torch.operators.reductions import moments
from glenside.ir.dtypes import HALVES
from glenside.ir.term import Term


def wide(x: Term) -> Term:
    """Returns halves as float32, in which PyTorch normalizes them."""
    return cast(x, "float32") if x.access.dtype in HALVES else x


def affine(x: Term, weight: Term | None, bias: Term | None, dims: Sequence[int]) -> Term:
    """Computes x * weight + bias, both reshaped to dims that broadcast to those of x."""
    if weight is not None:
        x = multiply(x, reshape(cast(weight, x.access.dtype), dims))
    return x if bias is None else add(x, reshape(cast(bias, x.access.dtype), dims))


def _reciprocal(x: Term) -> Term:
    return divide(filled(x, 1), x)


@aten("native_layer_norm")
def layer_norm(
    node: Node,
    input: Term,
    normalized_shape: Sequence[int],
    weight: Term | None,
    bias: Term | None,
    eps: float,
) -> tuple[Term, Term, Term]:
    x = wide(input)
    y, mean, deviation = standardized(x, x.access.rank - len(normalized_shape), eps)
    y = affine(y, weight, bias, normalized_shape)
    kinds = [meta.dtype if meta else node.dtype for meta in node.call.results]
    return cast(y, node.dtype), cast(mean, kinds[1]), cast(_reciprocal(deviation), kinds[2])


@aten("native_group_norm")
def group_norm(
    node: Node,
    input: Term,
    weight: Term | None,
    bias: Term | None,
    N: int,
    C: int,
    HxW: int,
    group: int,
    eps: float,
) -> tuple[Term, Term, Term]:
    dims = input.access.dims
    y, mean, deviation = standardized(reshape(wide(input), (N, group, prod(dims[1:]) // group)), 2, eps)
    y = affine(reshape(y, dims), weight, bias, (C, *(1 for _ in dims[2:])))
    kinds = [meta.dtype if meta else node.dtype for meta in node.call.results]
    per_group = [reshape(part, (N, group)) for part in (mean, _reciprocal(deviation))]
    return cast(y, node.dtype), cast(per_group[0], kinds[1]), cast(per_group[1], kinds[2])


def _over_channels(x: Term) -> tuple[int, ...]:
    return (x.access.dims[1], *(1 for _ in x.access.dims[2:]))


@aten("_native_batch_norm_legit_no_training")
def batch_norm_inference(
    node: Node,
    input: Term,
    weight: Term | None,
    bias: Term | None,
    running_mean: Term,
    running_var: Term,
    momentum: float,
    eps: float,
) -> tuple[Term, Term, Term]:
    """Computes x * scale + shift with scale = weight / sqrt(var + eps) and shift = bias - mean * scale."""
    x = wide(input)
    dtype, dims = x.access.dtype, _over_channels(x)
    mean, variance = cast(running_mean, dtype), cast(running_var, dtype)
    scale = _reciprocal(compute("sqrt", add(variance, filled(variance, eps))))
    scale = scale if weight is None else multiply(cast(weight, dtype), scale)
    shift = multiply(mean, scale)
    shift = compute("negative", shift) if bias is None else subtract(cast(bias, dtype), shift)
    y = add(multiply(x, reshape(scale, dims)), reshape(shift, dims))
    empty = [node.filled(meta.dims, 0, meta.dtype) for meta in node.call.results[1:] if meta is not None]
    return (cast(y, node.dtype), *empty)  # type: ignore[return-value]


def _trained(node: Node, x: Term, weight: Term | None, bias: Term | None, eps: float) -> tuple[Term, Term, Term, Term]:
    """Standardizes channels by the batch's own statistics: the result, mean, 1 / deviation, and variance."""
    x = wide(x)
    variance, mean = moments(x, [axis for axis in range(x.access.rank) if axis != 1], 0)
    inverse = _reciprocal(compute("sqrt", add(variance, filled(variance, eps))))
    y = affine(multiply(subtract(x, mean), inverse), weight, bias, _over_channels(x))
    channels = x.access.dims[1:2]
    return cast(y, node.dtype), reshape(mean, channels), reshape(inverse, channels), reshape(variance, channels)


@aten("_native_batch_norm_legit", "no_stats", but="statistics that are changed in place")
def batch_norm(
    node: Node,
    input: Term,
    weight: Term | None,
    bias: Term | None,
    training: bool,
    momentum: float,
    eps: float,
) -> tuple[Term, Term, Term]:
    return _trained(node, input, weight, bias, eps)[:3]


@aten("native_batch_norm", but="statistics that are changed in place")
def batch_norm_native(
    node: Node,
    input: Term,
    weight: Term | None,
    bias: Term | None,
    running_mean: Term | None,
    running_var: Term | None,
    training: bool,
    momentum: float,
    eps: float,
) -> tuple[Term, Term, Term]:
    if training and running_mean is None:
        return _trained(node, input, weight, bias, eps)[:3]
    if training or running_mean is None or running_var is None:
        raise Refused("requires training without running statistics, or running statistics without training")
    return batch_norm_inference(node, input, weight, bias, running_mean, running_var, momentum, eps)


@aten("_native_batch_norm_legit_functional")
def batch_norm_functional(
    node: Node,
    input: Term,
    weight: Term | None,
    bias: Term | None,
    running_mean: Term,
    running_var: Term,
    training: bool,
    momentum: float,
    eps: float,
) -> tuple[Term, ...]:
    """Also returns the running statistics, moved by one batch, whose variance is unbiased."""
    if not training:
        y, *empty = batch_norm_inference(node, input, weight, bias, running_mean, running_var, momentum, eps)
        return (y, *empty, running_mean, running_var)
    y, mean, inverse, variance = _trained(node, input, weight, bias, eps)
    count = input.access.size // max(input.access.dims[1], 1)
    unbiased = multiply(variance, filled(variance, count / max(count - 1, 1)))
    moved = [
        add(multiply(old, filled(old, 1 - momentum)), multiply(cast(new, old.access.dtype), filled(old, momentum)))
        for old, new in ((running_mean, mean), (running_var, unbiased))
    ]
    return (y, mean, inverse, *moved)
