"""Tests dropout in files: inference requires no seed and drops nothing; in training mode a seed may be given."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import glenside as gl

onnx = pytest.importorskip("onnx")
helper = onnx.helper

X = np.ones((4, 50), np.float32)


def _saved(path: Path, version: int, known: dict[str, np.ndarray], **attributes: Any) -> Path:
    float32 = onnx.TensorProto.FLOAT
    nodes = [helper.make_node("Dropout", ["x", *known], ["d"], **attributes), helper.make_node("Relu", ["d"], ["y"])]
    formals = [helper.make_tensor_value_info("x", float32, X.shape)]
    results = [helper.make_tensor_value_info("y", float32, X.shape)]
    constants = [onnx.numpy_helper.from_array(value, name) for name, value in known.items()]
    graph = helper.make_graph(nodes, "g", formals, results, constants)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", version)], ir_version=8)
    onnx.save(model, path)
    return path


@pytest.mark.parametrize(
    ("version", "known", "attributes"),
    [
        (6, {}, {"ratio": 0.3, "is_test": 1}),
        (10, {}, {"ratio": 0.3}),
        (13, {"ratio": np.float32(0.3)}, {}),
        (13, {"ratio": np.float32(0.3), "training": np.array(False)}, {}),
        (13, {"ratio": np.float32(0), "training": np.array(True)}, {}),
    ],
)
def test_an_inference_takes_no_seed(version: int, known: Any, attributes: Any, tmp_path: Path) -> None:
    program = gl.load(_saved(tmp_path / "d.onnx", version, known, **attributes))
    assert list(program.inputs) == ["x"]
    assert (gl.compile(program, machine="plain")(X) == 1).all()


def test_a_dropout_that_runs_takes_a_seed_or_none(tmp_path: Path) -> None:
    known = {"ratio": np.float32(0.3), "training": np.array(True)}
    program = gl.load(_saved(tmp_path / "d.onnx", 13, known))
    compiled = gl.compile(program, machine="plain")
    first = compiled(X)
    assert 0.1 < (first == 0).mean() < 0.5
    assert np.array_equal(first, compiled(X, np.uint32(0)))
    assert not np.array_equal(first, compiled(X, np.uint32(1)))
    gl.save(program, tmp_path / "again.onnx")
    assert list(gl.load(tmp_path / "again.onnx").inputs) == ["x", "dropout-seed"]
    runtime = pytest.importorskip("onnxruntime")
    session = runtime.InferenceSession(tmp_path / "again.onnx", providers=["CPUExecutionProvider"])
    assert np.allclose(session.run(None, {"x": X})[0], first)
