"""Imports attention with fused projections, masks, biases, past keys and values, and rotary embeddings."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate, pairwise
from math import sqrt

from glenside.builder.indexing import iota
from glenside.builder.layout import concatenate, element, reshape, slice_axis, stack, transpose
from glenside.builder.pointwise import (
    add,
    cast,
    combine,
    compare,
    filled,
    multiply,
    select,
    softmax,
)
from glenside.importers.onnx.node import Node
from glenside.importers.onnx.operators.com_microsoft import runtime_operator
from glenside.importers.onnx.operators.quantized import by_line, integer_product
from glenside.ir.dtypes import largest_float
from glenside.ir.errors import BadInput
from glenside.ir.term import Term, build


def masked_scores(seen: Term, scores: Term) -> Term:
    """Masks scores: the lowest number of their dtype where a query does not attend."""
    return select(seen, scores, filled(scores, -largest_float(scores.access.dtype)))


def in_heads(x: Term, heads: int) -> Term:
    """Splits heads: ()(N S heads*H) -> ()(N heads S H). Raises BadInput."""
    if x.access.rank != 3 or heads < 1 or x.access.dims[2] % heads:
        raise BadInput(f"requires (batch sequence hidden) of {heads} heads, got {x.access}")
    batch, length, size = x.access.dims
    return transpose(reshape(x, (batch, length, heads, size // heads)), (0, 2, 1, 3))


def joined(x: Term) -> Term:
    """Merges heads: ()(N heads S H) -> ()(N S heads*H)."""
    batch, heads, length, size = x.access.dims
    return reshape(transpose(x, (0, 2, 1, 3)), (batch, length, heads * size))


def scores_of(node: Node, q: Term, k: Term) -> Term:
    """Computes q k^T times the attribute scale, or 1 / sqrt(H) if it is 0: ()(N heads S H) and (N keys T H).

    Queries of several heads may share a key; they become rows of one product.
    """
    (batch, heads, length, size), (_, keys, total, _) = q.access.dims, k.access.dims
    if k.access.dims != (batch, keys, total, size) or keys < 1 or heads % keys:
        raise BadInput(f"queries of {q.access} require keys of that batch and size, got {k.access}")
    rows = reshape(q, (batch, keys, heads // keys * length, size))
    scores = node.builder.matmul(rows, transpose(k, (0, 1, 3, 2)), name=node.layer_name(".scores"))
    scale = node.number("scale", 0.0) or 1 / sqrt(size)
    scores = multiply(scores, filled(scores, scale))
    return reshape(scores, (batch, heads, length, total))


def context_of(node: Node, shares: Term, v: Term) -> Term:
    """Multiplies attention weights by values: ()(N heads S T) and (N keys T H) -> ()(N S heads*H)."""
    (batch, heads, length, total), (_, keys, _, size) = shares.access.dims, v.access.dims
    if v.access.dims[2] != total:
        raise BadInput(f"values of {total} positions are required, got {v.access}")
    rows = reshape(shares, (batch, keys, heads // keys * length, total))
    context = node.builder.matmul(rows, v, name=node.layer_name(".context"))
    return joined(reshape(context, (batch, heads, length, size)))


def _filter(node: Node, kept: Term, like: Term) -> Term:
    """Returns the addend of a mask to scores: 0 where `kept`, otherwise the attribute mask_filter_value."""
    removed = node.number("mask_filter_value", -10000.0)
    none = build("full", kept.access.dims, 0, like.access.dtype)
    return select(kept, none, filled(none, removed))


def _kept(mask: Term, batch: int, length: int, total: int) -> Term:
    """Returns a mask as bool, ()(N 1 S T) or broadcastable: given per position, or as starts and ends."""
    dims = mask.access.dims
    zero = build("full", (), 0, mask.access.dtype)
    if dims in ((batch, total), (batch, length, total)):
        return reshape(compare("gt", mask, zero), (batch, 1, dims[1] if len(dims) == 3 else 1, total))
    if dims not in ((batch,), (2 * batch,)):
        wanted = f"({batch}), ({2 * batch}), ({batch} {total}) or ({batch} {length} {total})"
        raise BadInput(f"a mask requires {wanted}, got {mask.access}")
    places = iota(total, 3, 4, mask.access.dtype)

    def column(first: int) -> Term:
        return reshape(slice_axis(mask, 0, first, first + batch), (batch, 1, 1, 1))

    kept = compare("lt", places, column(0))
    return (
        kept
        if len(dims) == 1 and dims[0] == batch
        else combine("logical-and", kept, compare("ge", places, column(batch)))
    )


def attended(node: Node, q: Term, k: Term, v: Term, mask: Term | None, bias: Term | None) -> tuple[Term, Term]:
    """Returns the context ()(N S D), and the scores before the softmax."""
    (batch, _, length, _), total = q.access.dims, k.access.dims[2]
    scores = scores_of(node, q, k)
    added = None if mask is None else _filter(node, _kept(mask, batch, length, total), scores)
    if bias is not None:
        if bias.access.rank != 4:
            raise BadInput(f"the attention bias requires four axes, got {bias.access}")
        added = bias if added is None else add(added, bias)
    if added is not None:
        scores = add(scores, added)
    if node.integer("unidirectional", 0) and length > 1:
        past = filled(iota(length, 2, 4), total - length)
        seen = compare("le", iota(total, 3, 4), add(iota(length, 2, 4), past))
        scores = masked_scores(seen, scores)
    return context_of(node, softmax(scores), v), scores


def refuse(node: Node, *names: str) -> None:
    """Raises BadInput if one of these attributes is not 0: in-place updates are not supported."""
    for name in names:
        if node.integer(name, 0) > 0:
            raise BadInput(
                f"attribute {name} requires 0, since in-place updates are not supported, got {node.integer(name)}"
            )


def _self_attention(node: Node, projected: Term, sizes: Sequence[int], mask: int, past: int, bias: int) -> list[Term]:
    """Computes attention of the parts q, k and v of ()(N S D+D+E); mask, past and bias are inputs of these numbers."""
    heads = node.integer("num_heads", 0)
    ends = accumulate(sizes, initial=0)
    q, k, v = (in_heads(slice_axis(projected, 2, start, stop), heads) for start, stop in pairwise(ends))
    before = node.optional(past)
    if before is not None:
        if before.access.rank != 5 or before.access.dims[0] != 2:
            raise BadInput(f"input {past} requires keys and values (2 batch heads length size), got {before.access}")
        k, v = (concatenate([element(before, 0, i), x], 2) for i, x in enumerate((k, v)))
    context, _ = attended(node, q, k, v, node.optional(mask), node.optional(bias))
    return [context, stack([k, v])] if node.wants(1) else [context]


@runtime_operator("Attention")
def attention(node: Node) -> list[Term]:
    refuse(node, "do_rotary", "past_present_share_buffer")
    x, weights, bias = node.term(0), node.term(1), node.optional(2)
    if x.access.rank != 3 or weights.access.rank != 2:
        raise BadInput(
            f"inputs 0 and 1 require (batch sequence size) and a matrix, got {x.access} and {weights.access}"
        )
    third = weights.access.dims[1] // 3
    sizes = node.integers("qkv_hidden_sizes") or [third, third, third]
    if len(sizes) != 3 or sum(sizes) != weights.access.dims[1]:
        raise BadInput(
            f"attribute qkv_hidden_sizes requires three sizes of {weights.access.dims[1]} in all, got {sizes}"
        )
    projected = node.builder.matmul(x, weights, name=node.layer_name(".qkv"))
    return _self_attention(node, projected if bias is None else add(projected, bias), sizes, 3, 4, 5)


@runtime_operator("QAttention")
def qattention(node: Node) -> list[Term]:
    refuse(node, "do_rotary", "past_present_share_buffer")
    x, w = node.term(0), node.term(1)
    zeros = (
        None if node.optional(6) is None else node.single(6),
        None if node.optional(7) is None else by_line(node, 7, w, False),
    )
    sums = integer_product(node, (x, w), zeros, ".qkv")
    scale = multiply(node.single(3), by_line(node, 4, w, False))
    projected = add(multiply(cast(sums, "float32"), scale), node.term(2))
    return _self_attention(node, projected, [w.access.dims[1] // 3] * 3, 5, 8, 99)


@runtime_operator("MultiHeadAttention")
def multi_head_attention(node: Node) -> list[Term]:
    for i in (8, 9):
        if node.optional(i) is not None:
            raise BadInput(f"input {i} must be empty, since caches are not updated in place")
    heads = node.integer("num_heads", 0)
    q, k, v = _queries_keys_values(node, heads)
    before = [node.optional(i) for i in (6, 7)]
    k, v = (x if past is None else concatenate([past, x], 2) for past, x in zip(before, (k, v), strict=True))
    context, scores = attended(node, q, k, v, node.optional(4), node.optional(5))
    return [context, k, v, scores]


def _queries_keys_values(node: Node, heads: int) -> list[Term]:
    """Returns q, k and v in heads, ()(N heads S H), with their bias: from three inputs, or packed in one or two."""
    query, key, value, bias = node.term(0), node.optional(1), node.optional(2), node.optional(3)
    packed = query if key is None else key
    if packed.access.rank == 5:
        made = [transpose(element(packed, 3, i), (0, 2, 1, 3)) for i in range(packed.access.dims[3])]
        made = made if key is None else [in_heads(query, heads), *made]
    else:
        given = [x for x in (query, key, value) if x is not None]
        made = [x if x.access.rank == 4 else in_heads(x, heads) for x in given]
    if len(made) != 3:
        raise BadInput("requires a query, a key and a value, or packed tensors of five axes")
    if bias is None:
        return made
    ends = list(accumulate((heads * x.access.dims[3] for x in made), initial=0))
    if bias.access.dims != (ends[-1],):
        raise BadInput(f"input 3 requires a bias of {ends[-1]} numbers, for query, key and value, got {bias.access}")
    parts = [slice_axis(bias, 0, start, stop) for start, stop in pairwise(ends)]
    return [add(x, reshape(part, (heads, 1, x.access.dims[3]))) for x, part in zip(made, parts, strict=True)]
