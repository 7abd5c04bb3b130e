"""Tests the check in onnxruntime: differences within the model's numerical noise pass, wrong programs do not."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

from onnx import TensorProto, helper, numpy_helper  # noqa: E402
from onnx_graphs import Graph  # noqa: E402

import glenside as gl  # noqa: E402
from glenside.check.indices import index_limits  # noqa: E402
from glenside.check.onnxruntime import TOLERANCE, check_onnxruntime  # noqa: E402
from glenside.ir.program import Program  # noqa: E402


def products(kind: str, seed: int = 0) -> Any:
    """Four products with float32 at both ends: in float16 between them, or with rounding to levels of 8 bits."""
    g = Graph("net", seed=seed)
    h = x = g.input("x", [2, 48])
    if kind == "float16":
        h = g.node("Cast", x, to=TensorProto.FLOAT16)
    for i in range(4):
        w = (g.random.standard_normal((48, 48)) / 7).astype(np.float16 if kind == "float16" else np.float32)
        if kind == "levels":
            scale, zero = g.tensor(np.float32(0.03)), g.tensor(np.int8(0))
            h = g.node("DequantizeLinear", g.node("QuantizeLinear", h, scale, zero), scale, zero)
        h = g.node("Relu", g.node("MatMul", h, g.tensor(w, f"w{i}")))
    y = g.node("Cast", h, to=TensorProto.FLOAT) if kind == "float16" else h
    return g.model({y: 2})


def reordered(program: Program) -> Program:
    """Returns the same program with every sum of products taken in another order: in the same
    halves of the arithmetic.
    """
    return gl.optimize(program, gl.SystolicArray(8, 8), verify=False).program


@pytest.mark.parametrize("kind", ["float16", "levels"])
def test_what_rounding_leaves_open_is_no_difference(kind: str, tmp_path: Path) -> None:
    path, errors = tmp_path / "net.onnx", []
    for seed in range(2):
        onnx.save(products(kind, seed), path)
        program = gl.load(path)
        report = check_onnxruntime(path, reordered(program), seed=seed)
        assert report.ok, report
        errors.append(report.error)
        mirrored = {name: value[::-1].copy() for name, value in program.constants.items() if name == "w3"}
        wrong = check_onnxruntime(path, program.with_constants(mirrored), seed=seed)
        assert "the output differs by" in wrong.verdict
    if kind == "float16":  # more than is allowed to a network in float32 alone
        assert max(errors) > TOLERANCE["float32"]


def test_a_change_of_one_level_is_measured_and_a_little_more_is_not_allowed(tmp_path: Path) -> None:
    path = tmp_path / "net.onnx"
    onnx.save(products("levels"), path)
    program = gl.load(path)
    nudged = {name: value * np.float32(1.001) for name, value in program.constants.items() if name.startswith("w")}
    report = check_onnxruntime(path, program.with_constants(nudged))
    assert report.ok
    assert report.error > TOLERANCE["float32"]
    assert "the original's own results are up to" in report.how
    scaled = {name: value * np.float32(1.2) for name, value in program.constants.items() if name == "w1"}
    assert not check_onnxruntime(path, program.with_constants(scaled)).ok


def test_a_model_that_is_noise_alone_is_not_compared(tmp_path: Path) -> None:
    """The sign of a difference of equal numbers: any other order of the sum turns it round."""
    g = Graph("noise")
    x, w = g.input("x", [4, 64]), g.weight("w", 64, 64)
    one = g.node("MatMul", x, w)
    other = g.node("MatMul", g.node("Mul", x, g.tensor(np.float32(1 / 3))), g.node("Mul", w, g.tensor(np.float32(3))))
    y = g.node("Sign", g.node("Sub", one, other))
    onnx.save(g.model({y: 2}), tmp_path / "net.onnx")
    report = check_onnxruntime(tmp_path / "net.onnx", reordered(gl.load(tmp_path / "net.onnx")))
    assert "is not compared: that of the original is itself up to" in report.verdict


def test_bytes_from_which_an_index_is_computed_are_drawn_over_their_range() -> None:
    g = Graph("image")
    image, word = g.input("image", [1, 6], TensorProto.UINT8), g.input("word", [1], TensorProto.UINT8)
    best = g.node("ArgMax", g.node("Cast", image, to=TensorProto.FLOAT), axis=1, keepdims=0)
    picked = g.node("Gather", g.weight("table", 6, 3), best)
    mask = g.input("mask", [2], TensorProto.INT64)
    counted = g.node("Gather", g.weight("places", 9, 3), g.node("CumSum", mask, g.tensor(0)))
    named = g.node("Gather", g.weight("words", 5, 3), g.node("Cast", word, to=TensorProto.INT64))
    from glenside.importers.onnx import program_of_model

    term = program_of_model(g.model({g.node("Sum", picked, named, counted): 2})).term
    assert index_limits(term) == {"word": 5}


def test_an_original_has_the_values_and_the_outputs_of_the_program(tmp_path: Path) -> None:
    path = tmp_path / "net.onnx"
    g = Graph("net")
    x, rate = g.input("x", [2, 4]), g.input("rate", [], TensorProto.INT64)
    fast = g.node("Greater", rate, g.tensor(np.int64(9000)))
    y = g.node("MatMul", g.node("Where", fast, x, g.node("Neg", x)), g.weight("w", 4, 3))
    onnx.save(g.model({g.node("NonZero", y): 2}, integers=["n"]), path)
    program = gl.load(path, values={"rate": 16000}, outputs=[y])
    assert check_onnxruntime(path, program).ok
    other = gl.load(path, values={"rate": 8000}, outputs=[y])
    assert not check_onnxruntime(path, replace(other, signature=program.signature)).ok


def test_integers_that_rounding_alone_decides_are_not_compared(tmp_path: Path) -> None:
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 8])
    w = numpy_helper.from_array(np.tile(np.arange(1, 9, dtype=np.float32)[:, None], (1, 50)), "w")
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["h"]),
        helper.make_node("ArgMax", ["h"], ["y"], axis=1, keepdims=0),
    ]
    y = helper.make_tensor_value_info("y", TensorProto.INT64, [1])
    graph = helper.make_graph(nodes, "g", [x], [y], [w])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), tmp_path / "n.onnx")
    program = gl.load(tmp_path / "n.onnx")
    shifted = program.with_constants({"w": program.constants["w"] + np.eye(8, 50, 7, dtype=np.float32) * 1e-6})
    report = check_onnxruntime(tmp_path / "n.onnx", shifted)
    assert "the output is not compared" in report.verdict  # the largest of equal numbers is any of them
