"""Imports grouped-query attention: heads share keys and values, with a cache of a length per batch entry."""

from __future__ import annotations

from itertools import pairwise

from glenside.builder.indexing import gather_nd, iota
from glenside.builder.layout import broadcast, concatenate, reshape, slice_axis, transpose
from glenside.builder.pointwise import (
    add,
    cast,
    combine,
    compare,
    compute,
    divide,
    filled,
    multiply,
    select,
    softmax,
    subtract,
)
from glenside.importers.onnx.node import Node
from glenside.importers.onnx.operators.com_microsoft import runtime_operator
from glenside.importers.onnx.operators.com_microsoft.attention import (
    context_of,
    in_heads,
    masked_scores,
    refuse,
    scores_of,
)
from glenside.importers.onnx.operators.com_microsoft.normalizations import rms
from glenside.importers.onnx.operators.com_microsoft.rotary import Rotation
from glenside.ir.errors import BadInput
from glenside.ir.term import Term, build


@runtime_operator("GroupQueryAttention")
def group_query_attention(node: Node) -> list[Term]:
    """Computes attention with a past of its own length per batch entry; `total` is the longest, including the new
    keys.
    """
    refuse(node, "sliding_window_cache", "qk_output", "kv_cache_bit_width")
    if node.optional(12) is not None or node.optional(13) is not None:
        raise BadInput("inputs 12 and 13 must be empty: caches of narrow integers are not supported")
    heads, keys = node.integer("num_heads", 0), node.integer("kv_num_heads", 0)
    q, k, v = _grouped_parts(node, heads, keys)
    batch, _, length, _ = q.access.dims
    total = node.known_int(6, 0, "total length")
    ends = add(reshape(cast(node.term(5), "int64"), (batch, 1)), build("full", (), 1, "int64"))
    prompt = total == length
    starts = filled(ends, 0) if prompt else subtract(ends, build("full", (), length, "int64"))
    if node.optional(14) is not None:
        q, k = (_normalized(node, x, node.term(i)) for x, i in ((q, 14), (k, 15)))
    if node.integer("do_rotary", 0):
        # Lengths beyond the cache would index no row.
        own = within(add(starts, iota(length, 1, 2)), node.term(7).access.dims[0])
        positions = own if node.optional(9) is None else node.term(9)
        rotation = Rotation(node.term(7), node.term(8), bool(node.integer("rotary_interleaved", 0)))
        q, k = rotation.rotated(q, positions), rotation.rotated(k, positions)
    k, v = (_written(node, x, node.optional(i), starts, total) for x, i in ((k, 3), (v, 4)))
    scores = _scores(node, q, k)
    scores = masked_scores(_seen(node, starts, ends, scores), scores)
    return [context_of(node, _shares(node, scores), v), k, v]


def _grouped_parts(node: Node, heads: int, keys: int) -> tuple[Term, Term, Term]:
    query, key, value = node.term(0), node.optional(1), node.optional(2)
    if key is not None and value is not None:
        return in_heads(query, heads), in_heads(key, keys), in_heads(value, keys)
    parts = in_heads(query, heads + 2 * keys)
    ends = (0, heads, heads + keys, heads + 2 * keys)
    q, k, v = (slice_axis(parts, 1, start, stop) for start, stop in pairwise(ends))
    return q, k, v


def _normalized(node: Node, x: Term, weight: Term) -> Term:
    return multiply(rms(x, 3, node.number("qk_norm_epsilon", 9.999999974752427e-07))[0], weight)


def _written(node: Node, new: Term, past: Term | None, starts: Term, total: int) -> Term:
    """Writes the new keys or values into the past at each entry's start, with zeros after them."""
    batch, keys, length, size = new.access.dims
    known = node.scope.known(starts)
    before = 0 if past is None else past.access.dims[2]
    most = max(before, total)
    if past is None or not before or (known is not None and not known.any()):
        zeros = build("full", (batch, keys, most - length, size), 0, new.access.dtype)
        return concatenate([new, zeros], 2) if most > length else new
    if known is not None and (known == before).all() and before + length == most:
        return concatenate([past, new], 2)
    places, start = iota(most, 2, 4), reshape(starts, (batch, 1, 1, 1))
    longer = concatenate([past, build("full", (batch, keys, most - before, size), 0, new.access.dtype)], 2)
    old = select(compare("lt", places, start), longer, filled(longer, 0))
    # Every position reads some new element; positions outside of the new ones keep theirs.
    offsets = subtract(reshape(places, (1, most)), starts)
    order = (0, 2, 1, 3)
    at = reshape(within(offsets, length), (batch, most, 1))
    moved = transpose(gather_nd(transpose(new, order), at, 1), order)
    end = add(start, filled(start, length))
    fresh = combine("logical-and", compare("ge", places, start), compare("lt", places, end))
    return select(fresh, moved, old)


def within(indices: Term, size: int) -> Term:
    """Clamps indices to 0 .. size - 1."""
    return combine("minimum", combine("maximum", indices, filled(indices, 0)), filled(indices, size - 1))


def _scores(node: Node, q: Term, k: Term) -> Term:
    """Returns the scores with softcap and bias, before any mask."""
    scores, softcap, bias = scores_of(node, q, k), node.number("softcap", 0.0), node.optional(10)
    if softcap > 0:
        cap = filled(scores, softcap)
        scores = multiply(cap, compute("tanh", divide(scores, cap)))
    return scores if bias is None else add(scores, _widened(bias, scores.access.dims[3]))


def _widened(bias: Term, total: int) -> Term:
    missing = total - bias.access.dims[3]
    if missing <= 0:
        return slice_axis(bias, 3, 0, total)
    dims = (*bias.access.dims[:3], missing)
    return concatenate([bias, build("full", dims, 0, bias.access.dtype)], 3)


def _seen(node: Node, starts: Term, ends: Term, scores: Term) -> Term:
    """Returns which positions each query attends to, ()(N 1 S T): up to its own, within the local window if there is
    one.
    """
    batch, _, length, total = scores.access.dims
    places = iota(total, 3, 4)
    if not node.integer("causal", 1):
        return compare("lt", places, reshape(ends, (batch, 1, 1, 1)))
    own = reshape(add(starts, iota(length, 1, 2)), (batch, 1, length, 1))
    seen = compare("le", places, own)
    window = node.integer("local_window_size", -1)
    if window <= 0:
        return seen
    return combine("logical-and", seen, compare("gt", places, subtract(own, filled(own, window))))


def _shares(node: Node, scores: Term) -> Term:
    """Computes the softmax, with one more element in its sum if a sink is requested."""
    sink, (batch, heads, length, total) = node.optional(11), scores.access.dims
    if sink is None and node.integer("smooth_softmax", -1) != 1:
        return softmax(scores)
    more = (batch, heads, length, 1)
    extra = (
        build("full", more, 0, scores.access.dtype) if sink is None else broadcast(reshape(sink, (heads, 1, 1)), more)
    )
    return slice_axis(softmax(concatenate([scores, extra], 3)), 3, 0, total)
