"""Transformers: BERT https://arxiv.org/abs/1810.04805, ViT https://arxiv.org/abs/2010.11929 (small, of DeiT)."""

from __future__ import annotations

import math
from pathlib import Path

from glenside.ir.errors import BadInput
from glenside.ir.program import Program
from glenside.ir.term import Term
from glenside.models.network import Network, check_parameters
from glenside.models.registry import model


@model
def bert_base(
    sequence: int = 128,
    batch: int = 1,
    layers: int = 12,
    hidden: int = 768,
    heads: int = 12,
    vocabulary: int = 30522,
    seed: int = 0,
    weights: str | Path | None = None,
) -> Program:
    """BERT-base: 97 layers; token ids and token types in, the pooled output out.

    Inputs are int64: ids (batch, sequence) below the vocabulary, types (batch, sequence) of 0 and 1. Raises BadInput.
    """
    sizes = {"sequence": sequence, "batch": batch, "layers": layers, "hidden": hidden, "heads": heads}
    check_parameters("bert_base", {**sizes, "vocabulary": vocabulary}, seed)
    _check_heads("bert_base", hidden, heads)
    if sequence > 512:
        raise BadInput(f"bert_base requires a sequence of at most 512, got {sequence}")
    n = Network("bert-base", seed)
    b = n.b
    ids, types = (b.input(name, (batch, sequence), "int64") for name in ("ids", "types"))
    words = b.gather(n.normal("embeddings.words", (vocabulary, hidden), 0.5), ids)
    kinds = b.gather(n.normal("embeddings.types", (2, hidden), 0.5), types)
    places = b.cut(n.normal("embeddings.positions", (512, hidden), 0.5), 0, 0, sequence)
    x = _norm(n, "embeddings.norm", b.add(b.add(words, kinds), places), "1e-12")
    for i in range(layers):
        name = f"encoder.{i}"
        x = _norm(n, f"{name}.attention.norm", b.add(x, attention(n, f"{name}.attention", x, heads)), "1e-12")
        y = b.gelu(n.dense(f"{name}.intermediate", x, 4 * hidden))
        x = _norm(n, f"{name}.norm", b.add(x, n.dense(f"{name}.output", y, hidden)), "1e-12")
    first = b.reshape(b.cut(x, 1, 0, 1), (batch, hidden))
    return n.finish(b.compute("tanh", n.dense("pooler", first, hidden)), weights)


@model
def vit_s_16(
    resolution: int = 224,
    batch: int = 1,
    classes: int = 1000,
    layers: int = 12,
    hidden: int = 384,
    heads: int = 6,
    seed: int = 0,
    weights: str | Path | None = None,
) -> Program:
    """ViT-S/16: 98 layers on patches of 16x16; the resolution is a multiple of 16. Raises BadInput."""
    sizes = {"resolution": resolution, "batch": batch, "classes": classes, "layers": layers}
    check_parameters("vit_s_16", {**sizes, "hidden": hidden, "heads": heads}, seed)
    _check_heads("vit_s_16", hidden, heads)
    if resolution % 16:
        raise BadInput(f"vit_s_16 requires resolution to be a multiple of 16, got {resolution}")
    n = Network("vit-s-16", seed)
    b = n.b
    weight = n.normal("patches.weight", (hidden, 3, 16, 16), 1 / 28)
    bias = n.normal("patches.bias", (hidden,), 0.1)
    x = b.conv(b.input("x", (batch, 3, resolution, resolution)), weight, bias, strides=16, name="patches")
    count = (resolution // 16) ** 2
    x = b.transpose(b.reshape(x, (batch, hidden, count)), (0, 2, 1))
    token = b.broadcast(n.normal("class-token", (1, 1, hidden), 0.5), (batch, 1, hidden))
    x = b.add(b.concatenate([token, x], 1), n.normal("positions", (count + 1, hidden), 0.5))
    for i in range(layers):
        name = f"encoder.{i}"
        x = b.add(x, attention(n, f"{name}.attention", _norm(n, f"{name}.norm1", x, "1e-6"), heads))
        y = b.gelu(n.dense(f"{name}.intermediate", _norm(n, f"{name}.norm2", x, "1e-6"), 4 * hidden))
        x = b.add(x, n.dense(f"{name}.output", y, hidden))
    x = b.reshape(b.cut(_norm(n, "norm", x, "1e-6"), 1, 0, 1), (batch, hidden))
    return n.finish(b.softmax(n.dense("head", x, classes), axis=1), weights)


def attention(n: Network, name: str, x: Term, heads: int) -> Term:
    """Multi-head self-attention of ()(batch, sequence, hidden): softmax(q k' / sqrt(size)) v, and an output product."""
    b = n.b
    batch, sequence, hidden = x.access.dims
    size = hidden // heads

    def split(part: str) -> Term:
        """()(batch, heads, sequence, size)"""
        y = n.dense(f"{name}.{part}", x, hidden)
        return b.transpose(b.reshape(y, (batch, sequence, heads, size)), (0, 2, 1, 3))

    query, key, value = split("query"), split("key"), split("value")
    scores = b.matmul(query, b.transpose(key, (0, 1, 3, 2)), name=f"{name}.scores")
    scores = b.divide(scores, b.scalar(repr(math.sqrt(size)), scores))
    context = b.matmul(b.softmax(scores), value, name=f"{name}.context")
    joined = b.reshape(b.transpose(context, (0, 2, 1, 3)), (batch, sequence, hidden))
    return n.dense(f"{name}.output", joined, hidden)


def _norm(n: Network, name: str, x: Term, eps: str) -> Term:
    size = x.access.dims[-1]
    gamma, beta = n.near_one(f"{name}.gamma", size), n.normal(f"{name}.beta", (size,), 0.1)
    return n.b.layer_norm(x, gamma, beta, eps)


def _check_heads(model: str, hidden: int, heads: int) -> None:
    if hidden % heads:
        raise BadInput(f"{model} requires hidden to be a multiple of heads, got {hidden} and {heads}")
