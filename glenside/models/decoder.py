"""Decoders of language models: one step over a cache of keys and values, from the numbers of a file's metadata."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from math import sqrt

import numpy as np

from glenside.builder.layout import broadcast, concatenate, reshape, slice_axis, transpose
from glenside.builder.pointwise import (
    add,
    cast,
    combine,
    compare,
    compute,
    divide,
    filled,
    gelu,
    multiply,
    relu,
    select,
    sigmoid,
    subtract,
)
from glenside.builder.reductions import reduce_axes
from glenside.ir.bounds import LARGEST, whole
from glenside.ir.errors import BadInput
from glenside.ir.operand import Array
from glenside.ir.program import Program
from glenside.ir.term import Term, build
from glenside.models.decoder_cache import Rows, kinds, require_cache, rows_of, stored
from glenside.models.decoder_weights import Weights

_MASKED = "-1e30"
"""The mask value: it is added to the attention scores of masked positions."""


_MOST = {"head": 1 << 16}
"""The greatest numbers of a decoder: the frequencies of a head are computed before its weights are read."""


@dataclass(frozen=True)
class Decoder:
    """The numbers of a decoder.

    head          elements of a head; `rotated` of them turn with the position, 0 for learned positions
    kv_heads      heads of keys and values, each read by heads / kv_heads heads of queries
    base          of the frequencies of rotation; `slower` has the factors by which they are divided
    window        positions that a query reads, itself included; 0 for all
    global_layers the layers whose queries read all positions in spite of the window
    local_base    of the frequencies of the other layers, which are not slower; 0 if they are those of all layers
    norm          "rms" or "layer"
    norms         "before" attention and feed-forward layers, "after" them, or "both"
    joint_norms   True if norms of queries and keys, where there are any, are of all heads together
    query_scale   the factor of scores; 0 for 1 / sqrt(head)
    score_limit   scores s become limit tanh(s / limit); 0 for no limit
    logit_limit   the same of logits
    activation    "silu", "gelu", "gelu-tanh" or "relu", of the feed-forward layer
    gated         True if the activation is multiplied by a second product
    scaled        True if embeddings are multiplied by the root of `hidden`
    cache         dtype of keys and values in the cache: one of `glenside.models.decoder_cache.CACHES`
    """

    name: str
    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head: int
    intermediate: int
    vocabulary: int
    epsilon: float = 1e-5
    rotated: int = 0
    base: float = 10000.0
    slower: tuple[float, ...] = ()
    window: int = 0
    norm: str = "rms"
    activation: str = "silu"
    gated: bool = True
    scaled: bool = False
    cache: str = "float32"
    global_layers: tuple[int, ...] = ()
    local_base: float = 0.0
    norms: str = "before"
    joint_norms: bool = False
    query_scale: float = 0.0
    score_limit: float = 0.0
    logit_limit: float = 0.0

    def __post_init__(self) -> None:
        """Raises BadInput for numbers that no decoder has."""
        for field in ("layers", "hidden", "heads", "kv_heads", "head", "intermediate", "vocabulary"):
            whole(f"{field} of the decoder {self.name}", getattr(self, field), 1, _MOST.get(field, LARGEST))
        if self.heads % self.kv_heads or self.rotated % 2 or self.rotated > self.head:
            own = f"{self.heads} heads of {self.head}, {self.kv_heads} of keys, {self.rotated} rotated"
            raise BadInput(f"the decoder {self.name} has {own}: heads of keys divide heads, and pairs of a head rotate")

    def window_of(self, layer: int) -> int:
        """Returns the positions that a query of a layer reads; 0 for all."""
        return 0 if layer in self.global_layers else self.window


def decoder_step(shape: Decoder, weights: Weights, rows: int, past: int) -> Program:
    """Returns the program of `rows` tokens after up to `past` others.

    Inputs are tokens ()(rows) and past ()(), the number of valid rows of the cache, int64; keys.N and values.N,
    ()(kv_heads past head), for each layer. Results are the logits of the last token ()(vocabulary), and new.keys.N and
    new.values.N, ()(kv_heads rows head), which the caller stores in the cache from row `past` on. Raises BadInput.
    """
    if rows < 1 or past < 1:
        raise BadInput(f"a step of a decoder has at least one row and one row of cache, got {rows} and {past}")
    return _Step(shape, weights, rows, past).program()


def growing_step(shape: Decoder, weights: Weights, rows: int, past: int, context: int) -> Program:
    """Returns the program of `rows` tokens after `past` others, over caches of just these.

    context  the most tokens of a sequence

    Inputs are tokens ()(rows), int64, and keys.N and values.N, ()(past kv_heads head), for each layer. Results are the
    logits of the last token ()(vocabulary), and present.keys.N and present.values.N, ()(past+rows kv_heads head), which
    are the inputs of the next step. Built for open sizes `rows` and `past`, it is one program for all lengths. Raises
    BadInput.
    """
    if rows < 1 or past < 0:
        raise BadInput(f"a step of a decoder has at least one row, and 0 or more before it, got {rows} and {past}")
    return _GrowingStep(shape, weights, rows, past, context).program()


def ring_step(shape: Decoder, weights: Weights, rows: int, most: int) -> Program:
    """Returns the program of `rows` tokens after any number of others, for decoders with a window.

    most  the most rows of a step that shares the cache

    Inputs are tokens ()(rows) and past ()(), the number of tokens before, int64; keys.N and values.N,
    ()(window+most-1 kv_heads head), for each layer: position p is row p modulo that size. Results are the logits of the
    last token ()(vocabulary), next.keys.N and next.values.N, of which the new rows are replaced, and next.past, which
    are the inputs of the next step. Raises BadInput.
    """
    if not shape.window or not shape.rotated or shape.global_layers:
        raise BadInput("a ring is for decoders with rotary positions and a window in all layers, unlike this one")
    if rows < 1:
        raise BadInput(f"a step of a decoder has at least one row, got {rows}")
    return _RingStep(shape, weights, rows, shape.window + most - 1).program()


class _Step:
    new = "new"
    """The prefix of names of results."""

    def __init__(self, shape: Decoder, weights: Weights, rows: int, past: int) -> None:
        self.shape, self.weights, self.rows, self.past, self.b = shape, weights, rows, past, weights.builder
        require_cache(shape.cache)
        self.tokens = self.b.input("tokens", (rows,), "int64")
        self.start = self.b.input("past", (), "int64")
        self.positions = add(build("iota", rows, "int64"), broadcast(self.start, (rows,)))
        self.context = past + rows

    def program(self) -> Program:
        s = self.shape
        x = self.weights.rows("token_embd.weight", s.vocabulary, s.hidden, self.tokens)
        if s.scaled:
            x = multiply(x, filled(x, f"{np.float32(sqrt(s.hidden))!s}"))
        if not s.rotated:
            x = add(x, self.weights.rows("position_embd.weight", self.context, s.hidden, self.positions))
        windows = dict.fromkeys(map(s.window_of, range(s.layers)))
        positions = {window: (self._turns(window) if s.rotated else None, self._masks(window)) for window in windows}
        new = dict[str, Term]()
        for layer in range(s.layers):
            within = f"blk.{layer}"
            read = self._norm_if("before", f"{within}.attn_norm", x)
            attended, rows_of_layer = self._attention(within, layer, read, *positions[s.window_of(layer)])
            x = add(self._read(layer, x), self._norm_if("after", f"{within}.post_attention_norm", attended))
            made = self._feed_forward(within, self._norm_if("before", f"{within}.ffn_norm", x))
            x = add(x, self._norm_if("after", f"{within}.post_ffw_norm", made))
            new |= rows_of_layer
        head = "output" if self.weights.has("output.weight") else "token_embd"
        logits = reshape(self._linear(head, self._norm("output_norm", x), s.vocabulary), (s.vocabulary,))
        logits = _limited(logits, s.logit_limit)
        program = self.b.finish(build("construct-tuple", logits, *new.values()))
        signature = replace(program.signature, outputs=("logits", *(f"{self.new}.{name}" for name in new)))
        return replace(program, name=s.name, signature=signature)

    def _read(self, layer: int, x: Term) -> Term:
        """Returns the rows of x that are read after the attention of a layer: of the last layer only the last row."""
        return slice_axis(x, 0, self.rows - 1, self.rows) if layer == self.shape.layers - 1 else x

    def _linear(self, name: str, x: Term, columns: int, heads: int = 0) -> Term:
        """Returns the product of x ()(M K) with weights, ()(M columns), and adds the bias if there is one."""
        depth = x.access.dims[-1]
        found = self.weights.matrix(f"{name}.weight", columns, depth, heads)
        result = self.b.linear(x, found.term, name=name)
        if found.mins is not None:
            blocks = found.mins.access.dims[-1]
            sums = reduce_axes(
                "reduce-sum", reshape(x, (*x.access.dims[:-1], blocks, depth // blocks)), [x.access.rank]
            )
            result = subtract(result, self.b.linear(sums, found.mins, name=f"{name}.mins"))
        if self.weights.has(f"{name}.bias"):
            result = add(result, self.weights.vector(f"{name}.bias", columns, heads))
        return result

    def _norm(self, name: str, x: Term, heads: int = 0) -> Term:
        s, size = self.shape, x.access.dims[-1]
        gain = self.weights.vector(f"{name}.weight", size, heads)
        if s.norm == "layer":
            return self.b.layer_norm(x, gain, self.weights.vector(f"{name}.bias", size), f"{np.float32(s.epsilon)!s}")
        mean = reduce_axes("reduce-mean", multiply(x, x), [x.access.rank - 1], keep=True)
        root = compute("sqrt", add(mean, filled(mean, f"{np.float32(s.epsilon)!s}")))
        return multiply(divide(x, root), gain)

    def _norm_if(self, place: str, name: str, x: Term) -> Term:
        """Returns the norm of x if the decoder has norms at a place, "before" or "after"; else x."""
        return self._norm(name, x) if self.shape.norms in (place, "both") else x

    def _named(self, name: str, window: int) -> str:
        """Returns the name of a constant of the layers with a window; those of one kind need no other name."""
        return f"{name}.local" if window and self.shape.global_layers else name

    def _turns(self, window: int) -> tuple[Term, Term]:
        """Returns the cosines and sines of the rows, ()(rows 1 rotated/2), of the layers with a window."""
        half, frequencies = self.shape.rotated // 2, self._frequencies(window)

        def table(function: Callable[[Array], Array]) -> Array:
            return function(np.arange(self.context)[:, None] * frequencies).astype(np.float32)

        found = []
        for name, function in (("cosines", np.cos), ("sines", np.sin)):
            dims = (self.context, half)
            own = self._named(name, window)
            values = self.b.constant(own, dims, value=lambda function=function: table(function))
            found.append(reshape(self.b.gather(values, self.positions), (self.rows, 1, half)))
        return found[0], found[1]

    def _frequencies(self, window: int) -> Array:
        """Returns the angles by which a position turns in layers with a window, float64 (rotated/2)."""
        s, half = self.shape, self.shape.rotated // 2
        if window and s.local_base:
            return np.asarray(s.local_base ** (-np.arange(half) / half))
        return np.asarray(s.base ** (-np.arange(half) / half) / np.asarray(s.slower or 1.0))

    def _rotated(self, x: Term, turns: tuple[Term, Term] | None) -> Term:
        """Returns x ()(rows heads head), rotated by position: element i of both halves together."""
        if turns is None:
            return x
        (cosines, sines), half, axis = turns, self.shape.rotated // 2, 2
        a, c = (slice_axis(x, axis, begin, begin + half) for begin in (0, half))
        parts = [subtract(multiply(a, cosines), multiply(c, sines)), add(multiply(c, cosines), multiply(a, sines))]
        rest = [slice_axis(x, axis, 2 * half, self.shape.head)] if 2 * half < self.shape.head else []
        return concatenate([*parts, *rest], axis)

    def _masks(self, window: int) -> tuple[Term, Term | None]:
        """Returns what is added to the scores of the cache, ()(rows past), and of the new rows, ()(rows rows)."""
        rows, past = self.rows, self.past
        columns = broadcast(reshape(build("iota", past, "int64"), (1, past)), (rows, past))
        read = compare("lt", columns, broadcast(self.start, (rows, past)))
        zero = build("full", (rows, past), 0, "float32")
        mask = select(read, zero, filled(zero, _MASKED))
        if window:
            first = subtract(self.positions, filled(self.positions, window - 1))
            near = compare("ge", columns, broadcast(reshape(first, (rows, 1)), (rows, past)))
            mask = select(near, mask, filled(zero, _MASKED))
        if rows == 1:
            return mask, None
        row, column = np.indices((rows, rows))
        later = (column > row) | ((row - column >= window) if window else False)
        values = np.where(later, np.float32(_MASKED), np.float32(0))
        return mask, self.b.constant(self._named("causal", window), (rows, rows), value=values)

    def _attention(
        self, within: str, layer: int, x: Term, turns: tuple[Term, Term] | None, masks: tuple[Term, Term | None]
    ) -> tuple[Term, dict[str, Term]]:
        """Returns the attention of x ()(rows hidden) to the cache and to itself, and what it stores, by name.

        The rows of the attention are those of `_read`.
        """
        s, rows = self.shape, self.rows
        q, k, v = self._projected(within, x)
        q, k = self._rotated(q, turns), self._rotated(k, turns)
        group = s.heads // s.kv_heads
        q = reshape(q, (rows, s.kv_heads, group, s.head))
        q = reshape(transpose(q, (1, 2, 0, 3)), (s.kv_heads, group * rows, s.head))
        new = {"keys": stored(k, s.cache), "values": stored(v, s.cache)}
        context, new = self._context(within, layer, q, new, masks)
        context = reshape(context, (s.kv_heads, group, rows, s.head))
        context = self._read(layer, reshape(transpose(context, (2, 0, 1, 3)), (rows, s.heads * s.head)))
        every = {f"{kind}.{layer}{end}": part for kind, rows in new.items() for end, part in rows.parts().items()}
        return self._linear(f"{within}.attn_output", context, s.hidden), every

    def _cached(self, layer: int, dims: tuple[int, int, int]) -> dict[str, dict[str, Term]]:
        """Returns the cache of a layer: inputs of its keys and of its values, by the endings of their names."""
        return {
            kind: {
                end: self.b.input(f"{kind}.{layer}{end}", *own) for end, own in kinds(dims, self.shape.cache).items()
            }
            for kind in ("keys", "values")
        }

    def _scores(self, name: str, q: Term, keys: Rows, mask: Term | None) -> Term:
        """Returns the masked scores of q ()(kv_heads group*rows head) and keys ()(kv_heads columns head)."""
        s, group = self.shape, self.shape.heads // self.shape.kv_heads
        found = keys.scaled(self.b.matmul(q, transpose(keys.floats(), (0, 2, 1)), name=name))
        found = multiply(found, filled(found, f"{np.float32(s.query_scale or 1 / sqrt(s.head))!s}"))
        found = _limited(found, s.score_limit)
        if mask is None:
            return found
        rows, columns = mask.access.dims
        own = reshape(found, (s.kv_heads, group, rows, columns))
        return reshape(add(own, reshape(mask, (1, 1, rows, columns))), (s.kv_heads, group * rows, columns))

    def _weighted(self, name: str, weights: Term, values: Rows) -> Term:
        """Returns the product of weights ()(kv_heads group*rows columns) and values ()(kv_heads columns head)."""
        return self.b.matmul(values.scaled(weights), values.floats(), name=name)

    def _attended(self, within: str, q: Term, rows: dict[str, Rows], mask: Term) -> Term:
        """Returns what queries read of keys and values ()(columns kv_heads head): ()(kv_heads group*rows head)."""
        keys, values = (own.transposed((1, 0, 2)) for own in rows.values())
        weights = self.b.softmax(self._scores(f"{within}.scores", q, keys, mask))
        return self._weighted(f"{within}.context", weights, values)

    def _context(
        self, within: str, layer: int, q: Term, new: dict[str, Rows], masks: tuple[Term, Term | None]
    ) -> tuple[Term, dict[str, Rows]]:
        """Returns what queries read, ()(kv_heads group*rows head), and the keys and values that are results."""
        s, rows, past = self.shape, self.rows, self.past
        cached = {kind: rows_of(parts) for kind, parts in self._cached(layer, (s.kv_heads, past, s.head)).items()}
        new = {kind: own.transposed((1, 0, 2)) for kind, own in new.items()}
        every = (("past", cached["keys"], masks[0]), ("own", new["keys"], masks[1]))
        scores = [self._scores(f"{within}.scores.{part}", q, read, mask) for part, read, mask in every]
        weights = self.b.softmax(concatenate(scores, 2))
        of_past = self._weighted(f"{within}.context.past", slice_axis(weights, 2, 0, past), cached["values"])
        of_own = self._weighted(f"{within}.context.own", slice_axis(weights, 2, past, past + rows), new["values"])
        return add(of_past, of_own), new

    def _projected(self, within: str, x: Term) -> tuple[Term, Term, Term]:
        """Returns queries ()(rows heads head), keys and values ()(rows kv_heads head), before rotation."""
        s, own = self.shape, self.shape.kv_heads * self.shape.head
        sizes = {"q": s.heads * s.head, "k": own, "v": own}
        if self.weights.has(f"{within}.attn_qkv.weight"):
            joined, parts, begin = self._linear(f"{within}.attn_qkv", x, sum(sizes.values())), [], 0
            for size in sizes.values():
                parts.append(slice_axis(joined, 1, begin, begin + size))
                begin += size
        else:
            turned = {"q": s.heads, "k": s.kv_heads, "v": 0} if s.rotated else {}
            parts = [self._linear(f"{within}.attn_{n}", x, size, turned.get(n, 0)) for n, size in sizes.items()]
        normed = self.weights.has(f"{within}.attn_q_norm.weight")

        def norms(q: Term, k: Term) -> list[Term]:
            return [self._norm(f"{within}.attn_q_norm", q, 1), self._norm(f"{within}.attn_k_norm", k, 1)]

        if normed and s.joint_norms:
            parts = [*norms(*parts[:2]), parts[2]]
        q, k, v = (reshape(part, (self.rows, part.access.dims[1] // s.head, s.head)) for part in parts)
        if normed and not s.joint_norms:
            q, k = norms(q, k)
        return q, k, v

    def _feed_forward(self, within: str, x: Term) -> Term:
        s = self.shape
        first = self._linear(f"{within}.ffn_{'gate' if s.gated else 'up'}", x, s.intermediate)
        inner = _ACTIVATIONS[s.activation](first)
        if s.gated:
            inner = multiply(inner, self._linear(f"{within}.ffn_up", x, s.intermediate))
        return self._linear(f"{within}.ffn_down", inner, s.hidden)


class _GrowingStep(_Step):
    new = "present"

    def __init__(self, shape: Decoder, weights: Weights, rows: int, past: int, context: int) -> None:
        self.shape, self.weights, self.rows, self.past, self.b = shape, weights, rows, past, weights.builder
        require_cache(shape.cache)
        self.tokens = self.b.input("tokens", (rows,), "int64")
        within = build("iota", rows, "int64")
        self.positions = add(within, filled(within, past))
        self.context = context

    def _masks(self, window: int) -> tuple[Term, Term | None]:
        """Returns what is added to the scores of all rows, ()(rows past+rows)."""
        rows, columns = self.rows, self.past + self.rows
        column = broadcast(reshape(build("iota", columns, "int64"), (1, columns)), (rows, columns))
        row = broadcast(reshape(self.positions, (rows, 1)), (rows, columns))
        zero = build("full", (rows, columns), 0, "float32")
        mask = select(compare("le", column, row), zero, filled(zero, _MASKED))
        if window:
            near = compare("lt", subtract(row, column), filled(column, window))
            mask = select(near, mask, filled(zero, _MASKED))
        return mask, None

    def _context(
        self, within: str, layer: int, q: Term, new: dict[str, Rows], masks: tuple[Term, Term | None]
    ) -> tuple[Term, dict[str, Rows]]:
        s = self.shape
        cached = self._cached(layer, (self.past, s.kv_heads, s.head))
        every = {kind: own.behind(cached[kind], 0) for kind, own in new.items()}
        return self._attended(within, q, every, masks[0]), every


class _RingStep(_Step):
    new = "next"

    def __init__(self, shape: Decoder, weights: Weights, rows: int, size: int) -> None:
        super().__init__(shape, weights, rows, size)
        self.slots = _modulo(self.positions, size)

    def program(self) -> Program:
        program = super().program()
        term = build("construct-tuple", *program.term.children, add(self.start, filled(self.start, self.rows)))
        signature = replace(program.signature, outputs=(*program.signature.outputs, "next.past"))
        return replace(program, term=term, signature=signature)

    def _turns(self, window: int) -> tuple[Term, Term]:
        frequencies = self.b.constant("frequencies", (self.shape.rotated // 2,), "float64", self._frequencies(window))
        positions = reshape(cast(self.positions, "float64"), (self.rows, 1, 1))
        angles = multiply(positions, reshape(frequencies, (1, 1, self.shape.rotated // 2)))
        cosines, sines = (cast(compute(function, angles), "float32") for function in ("cos", "sin"))
        return cosines, sines

    def _masks(self, window: int) -> tuple[Term, Term | None]:
        """Returns what is added to the scores of the ring, ()(rows size): its rows are of the last positions."""
        dims, last = (self.rows, self.past), add(self.start, filled(self.start, self.rows - 1))
        slot = build("iota", self.past, "int64")
        age = _modulo(subtract(broadcast(last, (self.past,)), slot), self.past)
        position = broadcast(reshape(subtract(broadcast(last, (self.past,)), age), (1, self.past)), dims)
        row = broadcast(reshape(self.positions, (self.rows, 1)), dims)
        zero = build("full", dims, 0, "float32")
        mask = select(compare("le", position, row), zero, filled(zero, _MASKED))
        near = compare("lt", subtract(row, position), filled(row, window))
        mask = select(near, mask, filled(zero, _MASKED))
        return select(compare("ge", position, filled(position, 0)), mask, filled(zero, _MASKED)), None

    def _context(
        self, within: str, layer: int, q: Term, new: dict[str, Rows], masks: tuple[Term, Term | None]
    ) -> tuple[Term, dict[str, Rows]]:
        s = self.shape
        cached = self._cached(layer, (self.past, s.kv_heads, s.head))
        every = {kind: own.replacing(cached[kind], self.slots) for kind, own in new.items()}
        return self._attended(within, q, every, masks[0]), every


def _modulo(x: Term, size: int) -> Term:
    """Returns x modulo a size, from 0 to size - 1."""
    return combine("(mod floor)", x, filled(x, size))


def _limited(x: Term, limit: float) -> Term:
    """Returns limit tanh(x / limit); x for no limit."""
    if not limit:
        return x
    most = filled(x, f"{np.float32(limit)!s}")
    return multiply(compute("tanh", divide(x, most)), most)


def _gelu_tanh(x: Term) -> Term:
    """Returns x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))) / 2."""
    cubic = add(x, multiply(multiply(multiply(x, x), x), filled(x, "0.044715")))
    turned = compute("tanh", multiply(cubic, filled(x, "0.7978845608028654")))
    return multiply(multiply(x, add(turned, filled(x, 1))), filled(x, "0.5"))


_ACTIVATIONS: dict[str, Callable[[Term], Term]] = {
    "silu": lambda x: multiply(x, sigmoid(x)),
    "gelu": gelu,
    "gelu-tanh": _gelu_tanh,
    "relu": relu,
}
