"""Makes ONNX files of architectures that the tests do not have.

Convolutions with layer norms, gated recurrence, a decoder with its cache, a generator, and quantized ones as
onnxruntime's quantizer writes them. Weights are random, sizes are fixed.
"""

from __future__ import annotations

import logging
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import onnx
from onnx import TensorProto

sys.path.insert(0, str(Path(__file__).parent.parent / "tests" / "oracles"))

from onnx_graphs import Graph
from onnx_networks import random_inputs


def convnext(*, depths: tuple[int, ...] = (48, 96, 192), blocks: int = 2, resolution: int = 112) -> onnx.ModelProto:
    """Builds depthwise convolutions of 7 x 7, each with a layer norm and two linear layers over channels, which are the
    last axis.
    """
    g = Graph("convnext")
    x = g.conv(g.input("pixels", [1, 3, resolution, resolution]), "stem", depths[0], 3, 4, stride=4, pad=0)
    for stage, depth in enumerate(depths):
        if stage:
            x = g.conv(x, f"down{stage}", depth, depths[stage - 1], 2, stride=2, pad=0)
        for i in range(blocks):
            name = f"{stage}.{i}"
            y = g.node("Transpose", g.conv(x, f"{name}.depthwise", depth, depth, 7, groups=depth), perm=[0, 2, 3, 1])
            y = g.linear(g.layer_norm(y, f"{name}.norm", depth), f"{name}.expand", 4 * depth, depth)
            y = g.linear(g.gelu(y), f"{name}.project", depth, 4 * depth)
            y = g.node("Mul", g.positive(f"{name}.scale", depth), y)
            x = g.node("Add", x, g.node("Transpose", y, perm=[0, 3, 1, 2]))
    x = g.layer_norm(g.node("ReduceMean", x, axes=[2, 3], keepdims=0), "norm", depths[-1])
    return g.model({g.linear(x, "head", 100, depths[-1]): 2})


def gru_tagger(*, hidden: int = 96, depth: int = 64, length: int = 32) -> onnx.ModelProto:
    """Builds a word classifier with two layers of gated recurrence."""
    g = Graph("gru_tagger", opset=14)
    words = g.input("words", [1, length], TensorProto.INT64)
    x = g.node("Transpose", g.node("Gather", g.weight("embedding", 100, depth, scale=1.0), words), perm=[1, 0, 2])
    for i, inputs in enumerate((depth, hidden)):
        weights = [g.weight(f"{i}.W", 1, 3 * hidden, inputs, scale=0.2), g.weight(f"{i}.R", 1, 3 * hidden, hidden)]
        bias = g.weight(f"{i}.B", 1, 6 * hidden, scale=0.1)
        x, _ = g.several(2, "GRU", x, *weights, bias, hidden_size=hidden, linear_before_reset=1)
        x = g.node("Squeeze", x, g.tensor([1]))
    return g.model({g.linear(g.node("Transpose", x, perm=[1, 0, 2]), "out", 20, hidden): 3})


def decoder(*, tokens: int = 1, past: int = 63, layers: int = 3, depth: int = 256, heads: int = 4) -> onnx.ModelProto:
    """Builds a decoder that extends its cache: keys and values of one more token."""
    g = Graph("decoder")
    x = g.node("Gather", g.weight("tokens", 500, depth, scale=1.0), g.input("ids", [1, tokens], TensorProto.INT64))
    size, kept = depth // heads, {}
    for i in range(layers):
        y = g.linear(g.layer_norm(x, f"{i}.norm1", depth), f"{i}.qkv", 3 * depth, depth)
        shape = g.tensor([1, tokens, heads, size])
        parts = [g.node("Reshape", part, shape) for part in g.several(3, "Split", y, g.tensor([depth] * 3), axis=2)]
        q, k, v = (g.node("Transpose", part, perm=[0, 2, 1, 3]) for part in parts)
        k, v = (
            g.node("Concat", g.input(f"past.{i}.{name}", [1, heads, past, size]), own, axis=2)
            for name, own in (("key", k), ("value", v))
        )
        kept |= {k: 4, v: 4}
        scores = g.node("MatMul", q, g.node("Transpose", k, perm=[0, 1, 3, 2]))
        shares = g.node("Softmax", g.node("Div", scores, g.constant(size**0.5)), axis=-1)
        context = g.node("Transpose", g.node("MatMul", shares, v), perm=[0, 2, 1, 3])
        context = g.node("Reshape", context, g.tensor([1, tokens, depth]))
        x = g.node("Add", x, g.linear(context, f"{i}.out", depth, depth))
        y = g.gelu(g.linear(g.layer_norm(x, f"{i}.norm2", depth), f"{i}.fc1", 4 * depth, depth))
        x = g.node("Add", x, g.linear(y, f"{i}.fc2", depth, 4 * depth))
    scores = g.node("MatMul", g.layer_norm(x, "norm", depth), g.weight("head", depth, 500, scale=depth**-0.5))
    return g.model({scores: 3, **kept})


def generator(*, channels: int = 128, steps: int = 4) -> onnx.ModelProto:
    """Builds a generator: an image from a vector, by transposed convolutions and batch norms."""
    g = Graph("generator")
    x, given = g.input("noise", [1, 64, 1, 1]), 64
    for i in range(steps):
        made, stride, pad = channels >> i, 2 if i else 1, 1 if i else 0
        weight = g.weight(f"{i}.weight", given, made, 4, 4, scale=(given * 4) ** -0.5)
        x = g.node("ConvTranspose", x, weight, strides=[stride] * 2, pads=[pad] * 4, kernel_shape=[4, 4])
        x, given = g.node("Relu", g.batch_norm(x, f"{i}.norm", made)), made
    return g.model({g.node("Tanh", g.conv(x, "last", 3, given, 3)): 4})


def quantized(make: Callable[[], onnx.ModelProto], how: str) -> onnx.ModelProto:
    """Quantizes a model as onnxruntime's quantizer does: `qdq`, `qoperator` or `dynamic`."""
    import onnxruntime.quantization as quantization

    logging.disable(logging.WARNING)
    model = make()
    inputs = iter([random_inputs(model, {}, seed=seed) for seed in range(2)])

    class Inputs(quantization.CalibrationDataReader):  # type: ignore[misc]
        def get_next(self) -> Any:
            return next(inputs, None)

    with tempfile.TemporaryDirectory() as folder:
        path, out = Path(folder) / "model.onnx", Path(folder) / "quantized.onnx"
        onnx.save(onnx.shape_inference.infer_shapes(model), path)
        if how == "dynamic":
            quantization.quantize_dynamic(path, out)
        else:
            known = {"qdq": quantization.QuantFormat.QDQ, "qoperator": quantization.QuantFormat.QOperator}
            quantization.quantize_static(path, out, Inputs(), quant_format=known[how], per_channel=how == "qdq")
        return onnx.load(out)
