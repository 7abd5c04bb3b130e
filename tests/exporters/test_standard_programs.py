"""Tests files of standard operators after a search for a processor: no more nodes than the original."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import glenside as gl

onnx = pytest.importorskip("onnx")


def test_quantized_transposed_convolutions_stay_nodes(tmp_path: Path) -> None:
    """As sums of integers, which a processor adds up, they are many nodes."""
    helper = onnx.helper
    weights = np.random.default_rng(0).integers(-127, 128, (4, 3, 4, 4)).astype(np.int8)
    constants = {"w": weights, "s": np.float32(0.05), "z": np.uint8(7), "t": np.float32(0.01), "n": np.int8(0)}
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "s", "z"], ["q"]),
        helper.make_node("DequantizeLinear", ["q", "s", "z"], ["a"]),
        helper.make_node("DequantizeLinear", ["w", "t", "n"], ["b"]),
        helper.make_node("ConvTranspose", ["a", "b"], ["y"], strides=[2, 2], pads=[1, 1, 1, 1]),
    ]
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, (1, 4, 5, 6))],
        [helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, (1, 3, 10, 12))],
        [onnx.numpy_helper.from_array(np.asarray(value), name) for name, value in constants.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    onnx.save(model, tmp_path / "in.onnx")
    result = gl.optimize(gl.load(tmp_path / "in.onnx"), gl.CPU(), verify=False)
    gl.save(result.standard, tmp_path / "out.onnx")
    found = [node.op_type for node in onnx.load(tmp_path / "out.onnx").graph.node]
    assert sorted(found) == sorted(node.op_type for node in nodes)
