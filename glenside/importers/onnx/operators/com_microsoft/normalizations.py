"""Imports normalizations with fused sums and embeddings."""

from __future__ import annotations

from glenside.builder.indexing import iota
from glenside.builder.layout import broadcast, gather, reshape
from glenside.builder.pointwise import add, cast, compute, divide, filled, mean_from, multiply, standardized
from glenside.builder.quantization import dequantize
from glenside.builder.reductions import reduce_axes, upcast
from glenside.importers.onnx.node import Node, onnx_operator
from glenside.importers.onnx.operators.com_microsoft import runtime_operator
from glenside.importers.onnx.operators.com_microsoft.products import channels_first, channels_last
from glenside.importers.onnx.operators.normalizations import epsilon, group_normalized, stage_dtype
from glenside.ir.errors import BadInput
from glenside.ir.term import Term

TINY = 9.999999960041972e-13
"""The default epsilon that onnxruntime's fused normalizations add to variances."""


def rms(x: Term, axis: int, eps: float) -> tuple[Term, Term]:
    """Returns x divided by the root of its mean square over the axes from `axis` on, and the inverse of that
    divisor.
    """
    mean = mean_from(multiply(x, x), axis)
    inverse = divide(filled(mean, 1), compute("sqrt", add(mean, filled(mean, eps))))
    return multiply(x, inverse), inverse


@onnx_operator("SimplifiedLayerNormalization")
def simplified_layer_normalization(node: Node) -> list[Term]:
    x, scale = node.term(0), node.term(1)
    y, inverse = rms(cast(x, stage_dtype(node)), node.axis("axis", -1, x.access.rank), epsilon(node))
    return [multiply(cast(y, scale.access.dtype), broadcast(scale, x.access.dims)), inverse]


def _sum(node: Node, bias: int) -> Term:
    """Adds the skip, which may have fewer axes, and the bias, each if given, to the input."""
    x = add(node.term(0), node.term(1))
    if x.access.dims != node.term(0).access.dims:
        raise BadInput(f"input 1 requires a skip that broadcasts to {node.term(0).access}, got {node.term(1).access}")
    return x if node.optional(bias) is None else add(x, node.term(bias))


@runtime_operator("SkipLayerNormalization")
def skip_layer_normalization(node: Node) -> list[Term]:
    x, beta = _sum(node, 4), node.optional(3)
    y, mean, deviation = standardized(upcast(x), x.access.rank - 1, node.number("epsilon", TINY))
    y = multiply(cast(y, x.access.dtype), node.term(2))
    return [y if beta is None else add(y, beta), mean, divide(filled(deviation, 1), deviation), x]


@runtime_operator("SkipSimplifiedLayerNormalization")
def skip_simplified_layer_normalization(node: Node) -> list[Term]:
    x = _sum(node, 3)
    wide = upcast(x)
    y, inverse = rms(wide, x.access.rank - 1, node.number("epsilon", TINY))
    return [multiply(cast(y, x.access.dtype), node.term(2)), mean_from(wide, x.access.rank - 1), inverse, x]


@runtime_operator("EmbedLayerNormalization")
def embed_layer_normalization(node: Node) -> list[Term]:
    tables = node.term(2), node.term(3), node.optional(4)
    return _embedded(node, tables, node.term(5), node.term(6), node.optional(8))


@runtime_operator("QEmbedLayerNormalization")
def qembed_layer_normalization(node: Node) -> list[Term]:
    def real(i: int, scale: int, zero: int) -> Term:
        return dequantize(node.term(i), node.single(scale), node.single(zero))

    segments = None if node.optional(4) is None else real(4, 10, 15)
    tables = real(2, 8, 13), real(3, 9, 14), segments
    return _embedded(node, tables, real(5, 11, 16), real(6, 12, 17), None)[:2]


def _embedded(
    node: Node, tables: tuple[Term, Term, Term | None], gamma: Term, beta: Term, positions: Term | None
) -> list[Term]:
    """Returns the outputs, from the tables of words, positions and segments."""
    words, places, segments = tables
    ids, mask = node.term(0), node.optional(7)
    if ids.access.rank != 2:
        raise BadInput(f"input 0 requires words of (batch sequence), got {ids.access}")
    batch, length = ids.access.dims
    at = iota(length, 1, 2) if positions is None else positions
    x = add(gather(words, ids), gather(places, at))
    if segments is not None:
        x = add(x, gather(segments, node.term(1)))
    y, _, _ = standardized(upcast(x), 2, node.number("epsilon", TINY))
    y = cast(y, x.access.dtype)
    found = filled(ids, 0) if mask is None else mask
    lengths = cast(reduce_axes("reduce-sum", found, [1]), "int32")
    return [add(multiply(y, gamma), beta), reshape(lengths, (batch,)), x]


def _grouped(node: Node, x: Term) -> Term:
    """Normalizes in the dtype of gamma and beta, which may be the wider one."""
    wide, groups = cast(x, node.term(1).access.dtype), node.integer("groups", 0)
    eps = node.number("epsilon", 9.999999747378752e-06)
    y = group_normalized(wide, node.term(1), node.term(2), groups, eps, name="groups")
    return cast(multiply(y, compute("sigmoid", y)) if node.integer("activation", 0) else y, x.access.dtype)


def _either_layout(node: Node, x: Term) -> Term:
    """Normalizes x in groups, in the layout that the attribute channels_last gives."""
    return channels_last(_grouped(node, channels_first(x))) if node.integer("channels_last", 1) else _grouped(node, x)


@runtime_operator("GroupNorm")
def group_norm(node: Node) -> Term:
    return _either_layout(node, node.term(0))


@runtime_operator("SkipGroupNorm")
def skip_group_norm(node: Node) -> list[Term]:
    x, skip, bias = node.term(0), node.term(3), node.optional(4)
    if skip.access.rank == 2:
        n, c = skip.access.dims
        skip = reshape(skip, (n, *(1,) * (x.access.rank - 2), c))
    total = add(x, skip) if bias is None else add(add(x, skip), bias)
    return [_either_layout(node, total), total]


GATES = {"silu": lambda z: multiply(z, compute("sigmoid", z)), "sigmoid": lambda z: compute("sigmoid", z)}


@runtime_operator("GatedRMSNorm")
def gated_rms_norm(node: Node) -> Term:
    x, scale, gate = node.term(0), node.term(1), node.term(2)
    dims, width = x.access.dims, scale.access.size
    if not width or dims[-1] % width:
        raise BadInput(f"input 1 requires a divisor of the last axis of {x.access}, got {scale.access}")
    rows = reshape(cast(x, "float32"), (*dims[:-1], dims[-1] // width, width))
    y, _ = rms(rows, len(dims), node.number("epsilon", 9.999999747378752e-06))
    y = reshape(multiply(y, cast(scale, "float32")), dims)
    name = node.text("activation", "silu", "silu", "swish", "sigmoid").replace("swish", "silu")
    return cast(multiply(y, GATES[name](cast(gate, "float32"))), x.access.dtype)
