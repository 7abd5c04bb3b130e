"""Builds sequence networks as ONNX models: BERT, a vision transformer, an LSTM tagger, with their shape arithmetic."""

from __future__ import annotations

import numpy as np
import onnx
from onnx import TensorProto
from onnx_graphs import Graph


def bert(
    *,
    layers: int = 12,
    hidden: int = 768,
    heads: int = 12,
    intermediate: int = 3072,
    vocabulary: int = 30522,
    positions: int = 512,
    norm_in_parts: bool = True,
) -> onnx.ModelProto:
    """Builds BERT as PyTorch traces it, with open batch and sequence; `norm_in_parts` as before opset 17."""
    g = Graph("bert", opset=14 if norm_in_parts else 17)
    dims = ["batch", "sequence"]
    ids, mask, kinds = (g.input(n, dims, TensorProto.INT64) for n in ("input_ids", "attention_mask", "token_type_ids"))

    def norm(x: str, name: str) -> str:
        return g.layer_norm(x, name, hidden, parts=norm_in_parts)

    wide = g.node("Unsqueeze", g.node("Unsqueeze", mask, g.tensor([1])), g.tensor([2]))
    away = g.node("Sub", g.constant(1.0), g.node("Cast", wide, to=TensorProto.FLOAT))
    away = g.node("Mul", away, g.constant(-10000.0))

    length = g.node("Unsqueeze", g.size(ids, 1), g.tensor([0]))
    all_places = g.tensor(np.arange(positions)[None], "embeddings.position_ids")
    places = g.node("Slice", all_places, g.tensor([0]), length, g.tensor([1]), g.tensor([1]))
    words = g.node("Gather", g.weight("word_embeddings.weight", vocabulary, hidden, scale=0.5), ids)
    types = g.node("Gather", g.weight("token_type_embeddings.weight", 2, hidden, scale=0.5), kinds)
    seats = g.node("Gather", g.weight("position_embeddings.weight", positions, hidden, scale=0.5), places)
    x = norm(g.node("Add", g.node("Add", words, types), seats), "embeddings.LayerNorm")

    def attention(x: str, name: str) -> str:
        def head(part: str, perm: tuple[int, ...]) -> str:
            made = g.linear(x, f"{name}.self.{part}", hidden, hidden)
            shape = g.dims(g.size(made, 0), g.size(made, 1), heads, hidden // heads)
            return g.node("Transpose", g.node("Reshape", made, shape), perm=perm)

        q, k, v = head("query", (0, 2, 1, 3)), head("key", (0, 2, 3, 1)), head("value", (0, 2, 1, 3))
        scores = g.node("Div", g.node("MatMul", q, k), g.constant((hidden / heads) ** 0.5))
        shares = g.node("Softmax", g.node("Add", scores, away), axis=-1)
        context = g.node("Transpose", g.node("MatMul", shares, v), perm=(0, 2, 1, 3))
        joined = g.node("Reshape", context, g.dims(g.size(context, 0), g.size(context, 1), hidden))
        return g.linear(joined, f"{name}.output.dense", hidden, hidden)

    for i in range(layers):
        name = f"encoder.layer.{i}"
        x = norm(g.node("Add", attention(x, f"{name}.attention"), x), f"{name}.attention.output.LayerNorm")
        inner = g.gelu(g.linear(x, f"{name}.intermediate.dense", intermediate, hidden))
        x = norm(g.node("Add", g.linear(inner, f"{name}.output.dense", hidden, intermediate), x), f"{name}.LayerNorm")
    first = g.node("Gather", x, g.constant(0), axis=1)
    weights = g.weight("pooler.dense.weight", hidden, hidden), g.weight("pooler.dense.bias", hidden, scale=0.1)
    return g.model({x: 3, g.node("Tanh", g.node("Gemm", first, *weights, transB=1)): 2})


def vit(
    *, layers: int = 12, hidden: int = 384, heads: int = 6, patch: int = 16, resolution: int = 224, classes: int = 1000
) -> onnx.ModelProto:
    """Builds a vision transformer: patches by a convolution, a class token for each image, q, k
    and v from one product.
    """
    g = Graph("vit", opset=20)
    depth = hidden // heads
    x = g.conv(g.input("pixels", ["batch", 3, resolution, resolution]), "patch", hidden, 3, patch, stride=patch, pad=0)
    batch = g.size(x, 0)
    x = g.node("Transpose", g.node("Reshape", x, g.dims(batch, hidden, -1)), perm=[0, 2, 1])
    token = g.node("Expand", g.weight("class_token", 1, 1, hidden), g.dims(batch, 1, 1))
    x = g.node("Concat", token, x, axis=1)
    x = g.node("Add", x, g.weight("position_embedding", 1, (resolution // patch) ** 2 + 1, hidden))

    def attention(x: str, name: str) -> str:
        made = g.linear(x, f"{name}.qkv", 3 * hidden, hidden)
        made = g.node("Reshape", made, g.dims(batch, g.size(x, 1), 3, heads, depth))
        parts = g.several(3, "Split", g.node("Transpose", made, perm=[2, 0, 3, 1, 4]), axis=0, num_outputs=3)
        q, k, v = (g.node("Squeeze", part, g.tensor([0])) for part in parts)
        q = g.node("Mul", q, g.constant(depth**-0.5))
        shares = g.node("Softmax", g.node("MatMul", q, g.node("Transpose", k, perm=[0, 1, 3, 2])), axis=-1)
        context = g.node("Transpose", g.node("MatMul", shares, v), perm=[0, 2, 1, 3])
        return g.linear(g.node("Reshape", context, g.tensor([0, 0, -1])), f"{name}.proj", hidden, hidden)

    for i in range(layers):
        name = f"blocks.{i}"
        x = g.node("Add", x, attention(g.layer_norm(x, f"{name}.norm1", hidden), f"{name}.attn"))
        inner = g.linear(g.layer_norm(x, f"{name}.norm2", hidden), f"{name}.fc1", 4 * hidden, hidden)
        x = g.node("Add", x, g.linear(g.node("Gelu", inner), f"{name}.fc2", hidden, 4 * hidden))
    first = g.node("Gather", g.layer_norm(x, "norm", hidden), g.constant(0), axis=1)
    weights = g.weight("head.weight", classes, hidden), g.weight("head.bias", classes, scale=0.1)
    return g.model({g.node("Gemm", first, *weights, transB=1): 2})


def lstm_tagger(*, vocabulary: int = 50, depth: int = 8, hidden: int = 6, tags: int = 4) -> onnx.ModelProto:
    """Builds a bidirectional LSTM that tags words; its initial state is zeros of a computed size."""
    g = Graph("lstm_tagger", opset=14)
    words = g.input("words", ["batch", "length"], TensorProto.INT64)
    x = g.node("Gather", g.weight("embedding.weight", vocabulary, depth, scale=1.0), words)
    x = g.node("Transpose", x, perm=[1, 0, 2])
    state = g.node("ConstantOfShape", g.dims(2, g.size(x, 1), hidden))
    weights = g.weight("lstm.W", 2, 4 * hidden, depth, scale=0.4), g.weight("lstm.R", 2, 4 * hidden, hidden, scale=0.4)
    bias = g.weight("lstm.B", 2, 8 * hidden, scale=0.1)
    x, _, _ = g.several(
        3, "LSTM", x, *weights, bias, "", state, state, hidden_size=hidden, direction="bidirectional"
    )  # fmt: skip
    x = g.node("Reshape", g.node("Transpose", x, perm=[2, 0, 1, 3]), g.tensor([0, 0, -1]))
    scores = g.node("LogSoftmax", g.linear(x, "out", tags, 2 * hidden), axis=2)
    best = g.node("ArgMax", scores, axis=2, keepdims=0)
    return g.model({scores: 3, best: 2}, integers=[best])
