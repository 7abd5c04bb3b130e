"""Tests the operator Gradient of ONNX's training operators."""

from __future__ import annotations

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")

import glenside as gl  # noqa: E402
from glenside.importers.onnx.model import program_of_model  # noqa: E402
from glenside.ir.errors import BadInput  # noqa: E402


def _model(attributes: str, inputs: str, results: str = "float[2,3] dx", early: bool = False) -> gl.Program:
    names = ", ".join(result.split()[-1] for result in results.split(", "))
    node = f"[back] {names} = ai.onnx.preview.training.Gradient <{attributes}> ({inputs})"
    forward = "t = Tanh (x)\n m = Mul (t, w)\n y = ReduceSum <keepdims = 0> (m)"
    body = f"{node}\n {forward}" if early else f"{forward}\n {node}"
    text = f"""
        <ir_version: 8, opset_import: ["" : 14, "ai.onnx.preview.training" : 1]>
        g (float[2,3] x, float[3] w, float[2,3] other, int64[2,3] i) => ({results}) {{ {body} }}"""
    return program_of_model(onnx.parser.parse_model(text))


def _run(program: gl.Program, **values: np.ndarray) -> list[np.ndarray]:
    (found,) = gl.evaluate([program.term], values)
    return [*found] if isinstance(found, tuple) else [found]


X, W, OTHER = (np.random.default_rng(seed).standard_normal(d).astype("f") for seed, d in enumerate([(2, 3), 3, (2, 3)]))


@pytest.mark.parametrize("early", [False, True])
def test_gradients_by_several_tensors_and_at_other_values(early: bool) -> None:
    program = _model('xs = ["x", "w"], y = "y"', "other, w", "float[2,3] dx, float[3] dw", early)
    dx, dw = _run(program, x=X, w=W, other=OTHER)
    np.testing.assert_allclose(dx, W * (1 - np.tanh(OTHER) ** 2), rtol=1e-5)
    np.testing.assert_allclose(dw, np.tanh(OTHER).sum(0), rtol=1e-5)


def test_gradients_by_a_tensor_between() -> None:
    program = _model('xs = ["t"], zs = ["w"], y = "y"', "other, w")
    np.testing.assert_allclose(_run(program, x=X, w=W, other=OTHER)[0], np.broadcast_to(W, (2, 3)))


@pytest.mark.parametrize(
    ("attributes", "inputs", "message"),
    [
        ('xs = ["x"], y = "z"', "x", "node back .*requires names of tensors in y, xs and zs, got .*z"),
        ('xs = ["x"], y = "m"', "x", "requires a y of one float and xs of floats"),
        ('xs = ["x", "w"], y = "y"', "x", "requires an input for each of 2 names in xs and zs, got 1"),
        ('xs = ["x"], y = "y"', "w", "requires the input for x like it"),
    ],
)
def test_what_has_no_gradient_is_a_sentence(attributes: str, inputs: str, message: str) -> None:
    with pytest.raises(BadInput, match=message):
        _model(attributes, inputs)
