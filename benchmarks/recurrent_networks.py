"""Writes ONNX files of recurrent networks, and of a decoder with weights of four bits, with random weights."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}


def recurrent(operator: str, steps: int, layers: int = 1, direction: str = "forward", batch: int = 1) -> Any:
    """Returns layers of LSTM, GRU or RNN of 128 units over inputs of 64 numbers."""
    random, count, hidden, size = np.random.default_rng(0), 1 + (direction == "bidirectional"), 128, 64
    nodes, weights, x = [], [], "x"
    for layer in range(layers):
        rows, names = GATES[operator] * hidden, [f"{part}{layer}" for part in "wrb"]
        for name, shape in zip(names, ((rows, size), (rows, hidden), (2 * rows,)), strict=True):
            value = random.standard_normal((count, *shape)) / np.sqrt(shape[-1])
            weights.append(numpy_helper.from_array(value.astype(np.float32), name))
        nodes.append(helper.make_node(operator, [x, *names], [f"y{layer}"], hidden_size=hidden, direction=direction))
        nodes.append(helper.make_node("Transpose", [f"y{layer}"], [f"t{layer}"], perm=[0, 2, 1, 3]))
        size = count * hidden
        weights.append(numpy_helper.from_array(np.array([steps, batch, size]), f"s{layer}"))
        nodes.append(helper.make_node("Reshape", [f"t{layer}", f"s{layer}"], [x := f"x{layer}"]))
    return _model(nodes, {"x": (steps, batch, 64)}, {x: (steps, batch, size)}, weights)


def scan(steps: int) -> Any:
    """Returns a Scan of tanh(R h + x) over 128 numbers."""
    state, hidden = (1, 128), 128
    inner = [
        helper.make_node("MatMul", ["h", "r"], ["a"]),
        helper.make_node("Add", ["a", "x"], ["b"]),
        helper.make_node("Tanh", ["b"], ["next"]),
        helper.make_node("Identity", ["next"], ["y"]),
    ]
    body = helper.make_graph(inner, "body", _values({"h": state, "x": state}), _values({"next": state, "y": state}))
    node = helper.make_node("Scan", ["h0", "xs"], ["last", "ys"], body=body, num_scan_inputs=1)
    weights = [numpy_helper.from_array(np.eye(hidden, dtype=np.float32) / 2, "r")]
    return _model([node], {"h0": state, "xs": (steps, *state)}, {"last": state, "ys": (steps, *state)}, weights)


def decoder_int4(layers: int = 12, tokens: int = 16, width: int = 768, heads: int = 12) -> Any:
    """Returns blocks of GPT-2's shape whose products are MatMulNBits with blocks of 32."""
    random, nodes, weights = np.random.default_rng(0), list[Any](), list[Any]()

    def add(kind: str, given: list[str], name: str, **attributes: Any) -> str:
        nodes.append(helper.make_node(kind, given, [name], **attributes))
        return name

    def constant(name: str, value: Any) -> str:
        weights.append(numpy_helper.from_array(value, name))
        return name

    def product(x: str, name: str, rows: int, columns: int) -> str:
        codes = constant(f"{name}.codes", random.integers(0, 256, (rows, columns // 32, 16), np.uint8))
        scales = constant(f"{name}.scales", np.full(rows * columns // 32, 0.01, np.float32))
        how = {"domain": "com.microsoft", "N": rows, "K": columns, "bits": 4, "block_size": 32}
        made = add("MatMulNBits", [x, codes, scales], f"{name}.product", **how)
        return add("Add", [made, constant(f"{name}.bias", np.zeros(rows, np.float32))], name)

    def norm(x: str, name: str) -> str:
        gain, shift = (constant(f"{name}.{i}", np.full(width, float(i), np.float32)) for i in (1, 0))
        return add("LayerNormalization", [x, gain, shift], name)

    x, cut = "x", constant("cut", np.array([1, tokens, heads, width // heads]))
    joined = constant("joined", np.array([1, tokens, width]))
    mask = constant("mask", np.triu(np.full((tokens, tokens), -1e4, np.float32), 1))
    root = constant("root", np.array(np.sqrt(width / heads), np.float32))
    for n in range(layers):
        all_three = product(norm(x, f"n{n}"), f"qkv{n}", 3 * width, width)
        nodes.append(helper.make_node("Split", [all_three], [f"{p}{n}" for p in "qkv"], axis=2, num_outputs=3))
        q, k, v = (add("Reshape", [f"{p}{n}", cut], f"{p}{n}.heads") for p in "qkv")
        q, v = (add("Transpose", [t], f"{t}.t", perm=[0, 2, 1, 3]) for t in (q, v))
        scores = add("MatMul", [q, add("Transpose", [k], f"k{n}.t", perm=[0, 2, 3, 1])], f"scores{n}")
        scores = add("Add", [add("Div", [scores, root], f"scaled{n}"), mask], f"masked{n}")
        read = add("MatMul", [add("Softmax", [scores], f"shares{n}", axis=-1), v], f"read{n}")
        read = add("Reshape", [add("Transpose", [read], f"read{n}.t", perm=[0, 2, 1, 3]), joined], f"read{n}.joined")
        x = add("Add", [x, product(read, f"out{n}", width, width)], f"a{n}")
        inner = add("Gelu", [product(norm(x, f"m{n}"), f"up{n}", 4 * width, width)], f"g{n}", approximate="tanh")
        x = add("Add", [x, product(inner, f"down{n}", width, 4 * width)], f"b{n}")
    return _model(nodes, {"x": (1, tokens, width)}, {x: (1, tokens, width)}, weights, 20)


NETWORKS: dict[str, Callable[[], Any]] = {
    "LSTM, 3 layers, 80 steps": lambda: recurrent("LSTM", 80, 3),
    "LSTM, 200 steps": lambda: recurrent("LSTM", 200),
    "LSTM, 2 layers, both directions, 100 steps": lambda: recurrent("LSTM", 100, 2, "bidirectional"),
    "GRU, 100 steps, batch 4": lambda: recurrent("GRU", 100, batch=4),
    "RNN, 150 steps": lambda: recurrent("RNN", 150),
    "Scan, 200 steps": lambda: scan(200),
    "decoder of GPT-2's shape, int4": decoder_int4,
}


def written(title: str, folder: Path) -> Path:
    """Returns the path of a network's file in a folder, and writes it if it is missing."""
    path = folder / f"{title.replace(' ', '-').replace(',', '')}.onnx"
    if not path.exists():
        onnx.save(NETWORKS[title](), path)
    return path


def _values(shapes: dict[str, tuple[int, ...]]) -> list[Any]:
    return [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in shapes.items()]


def _model(nodes: list[Any], inputs: Any, results: Any, weights: list[Any], opset: int = 14) -> Any:
    graph = helper.make_graph(nodes, "network", _values(inputs), _values(results), weights)
    versions = [helper.make_opsetid("", opset), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=versions, ir_version=9)
