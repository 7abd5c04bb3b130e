"""Transformer encoders: BERT, https://arxiv.org/abs/1810.04805, and ViT, https://arxiv.org/abs/2010.11929."""

from __future__ import annotations

from pathlib import Path

from glenside.ir.errors import BadInput
from glenside.ir.program import Program
from glenside.ir.term import Term
from glenside.models import model
from glenside.models.network import Network, require_integers, require_multiple


@model
def bert_base(
    sequence: int = 128,
    batch: int = 1,
    layers: int = 12,
    hidden: int = 768,
    heads: int = 12,
    intermediate: int = 3072,
    vocabulary: int = 30522,
    positions: int = 512,
    mask: int = 0,
    seed: int = 0,
    weights: str | Path | None = None,
) -> Program:
    """BERT-base: 97 layers in 12 encoders of 12 heads; token ids and types to the pooled first token.

    Inputs are ids and types (of 2), ()(batch sequence) of int64, and with mask=1 also mask, floats of those dims that
    are added to the scores of each token: 0 or a large negative number. Layers are encoder.0.attention.query, .key,
    .value, .scores, .context, .output, encoder.0.intermediate, encoder.0.output, .., and pooler. Weights are random
    ones of that seed, made when they are read, or the arrays of an .npz file: NAME.weight and NAME.bias of each layer
    but scores and context, NAME.gamma and NAME.beta of embeddings.norm, encoder.0.attention.norm and encoder.0.norm,
    and embeddings.words, embeddings.types and embeddings.positions. Raises BadInput.
    """
    name = "bert_base"
    require_integers(name, seed, sequence=sequence, batch=batch, layers=layers, hidden=hidden, heads=heads)
    require_integers(name, seed, intermediate=intermediate, vocabulary=vocabulary, positions=positions)
    require_multiple(name, "hidden", hidden, heads)
    if sequence > positions:
        raise BadInput(f"{name} requires sequence to be at most {positions}, the number of positions, got {sequence}")
    if mask not in (0, 1):
        raise BadInput(f"{name} requires mask to be 0 or 1, got {mask}")
    n, eps = Network("bert-base", seed), "1e-12"
    ids, types = (n.b.input(which, (batch, sequence), "int64") for which in ("ids", "types"))
    added = n.b.reshape(n.b.input("mask", (batch, sequence)), (batch, 1, 1, sequence)) if mask else None
    x = n.b.gather(n.normal("embeddings.words", (vocabulary, hidden), 1), ids)
    x = n.b.add(x, n.b.gather(n.normal("embeddings.types", (2, hidden), 1), types))
    places = n.normal("embeddings.positions", (positions, hidden), 1)
    x = n.layer_norm("embeddings.norm", n.b.add(x, n.b.slice_axis(places, 0, 0, sequence)), eps)
    for number in range(layers):
        within = f"encoder.{number}"
        attended = _attend(n, f"{within}.attention", x, heads, added)
        x = n.layer_norm(f"{within}.attention.norm", n.b.add(attended, x), eps)
        x = n.layer_norm(f"{within}.norm", n.b.add(_feed_forward(n, within, x, intermediate), x), eps)
    return n.finish(n.linear("pooler", _first(n, x), hidden, activation="tanh"), weights)


@model
def vit_s_16(
    resolution: int = 224,
    batch: int = 1,
    classes: int = 1000,
    layers: int = 12,
    hidden: int = 384,
    heads: int = 6,
    intermediate: int = 1536,
    patch: int = 16,
    seed: int = 0,
    weights: str | Path | None = None,
) -> Program:
    """ViT-S/16: 98 layers in 12 encoders of 6 heads, 384 wide; a class token before 14 x 14 patches.

    Layers are patches, those of bert_base for each encoder, and head. Weights are random ones of that seed, made when
    they are read, or the arrays of an .npz file: NAME.weight and NAME.bias of each layer but scores and context,
    NAME.gamma and NAME.beta of encoder.0.attention.norm, encoder.0.norm and so on, and norm, the last one, and token
    and positions. Raises BadInput.
    """
    name = "vit_s_16"
    require_integers(name, seed, resolution=resolution, batch=batch, classes=classes, layers=layers, hidden=hidden)
    require_integers(name, seed, heads=heads, intermediate=intermediate, patch=patch)
    require_multiple(name, "resolution", resolution, patch)
    require_multiple(name, "hidden", hidden, heads)
    n, eps = Network("vit-s-16", seed), "1e-6"
    x = n.project("patches", n.images(batch, resolution), hidden, patch)
    x = n.b.transpose(n.b.reshape(x, (batch, hidden, -1)), (0, 2, 1))
    token = n.b.broadcast(n.normal("token", (1, 1, hidden), 1), (batch, 1, hidden))
    x = n.b.concatenate([token, x], 1)
    x = n.b.add(x, n.normal("positions", (1, *x.access.dims[1:]), 0.5))
    for number in range(layers):
        within = f"encoder.{number}"
        normed = n.layer_norm(f"{within}.attention.norm", x, eps)
        x = n.b.add(x, _attend(n, f"{within}.attention", normed, heads, None))
        x = n.b.add(x, _feed_forward(n, within, n.layer_norm(f"{within}.norm", x, eps), intermediate))
    x = n.layer_norm("norm", _first(n, x), eps)  # of the one token that is read
    return n.finish(n.classify(x, classes, name="head"), weights)


def _attend(n: Network, name: str, x: Term, heads: int, mask: Term | None) -> Term:
    """Applies self-attention between linear layers of x's width."""
    hidden = x.access.dims[-1]
    q, k, v = (n.linear(f"{name}.{part}", x, hidden) for part in ("query", "key", "value"))
    return n.linear(f"{name}.output", n.b.attention(q, k, v, mask, heads=heads, name=name), hidden)


def _feed_forward(n: Network, name: str, x: Term, intermediate: int) -> Term:
    wide = n.linear(f"{name}.intermediate", x, intermediate, activation="gelu")
    return n.linear(f"{name}.output", wide, x.access.dims[-1], gain=2)


def _first(n: Network, x: Term) -> Term:
    """Returns the first token of each sequence: ()(N S D) -> ()(N D)."""
    batch, _, hidden = x.access.dims
    return n.b.reshape(n.b.slice_axis(x, 1, 0, 1), (batch, hidden))
