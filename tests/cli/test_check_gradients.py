"""Tests `glenside check PROGRAM GRADIENT`, with gradients named by results or by `--wrt`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from command_line import run
from hand_gradients import dense, squared
from slow_cases import quick

import glenside as gl
from glenside.builder.pointwise import relu
from glenside.builder.products import linear
from glenside.ir.program import Program
from glenside.ir.term import build
from glenside.ir.types import Dims, Tensor


@pytest.fixture
def network() -> Program:
    x = build("access-tensor", Tensor("x", Dims((3, 4)), "float32"))
    w = build("access-tensor", Tensor("w", Dims((5, 4)), "float32", constant=True))
    return Program(build("compute", "reduce-sum", relu(linear(x, w).result)))


@pytest.mark.parametrize("ending", quick(["json", "onnx"], 1))
def test_gradients_are_known_by_the_names_of_their_results(
    network: Program, ending: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    if ending == "onnx":
        pytest.importorskip("onnx")
        network = network.seeded_constants(0)
    gl.save(network, tmp_path / f"network.{ending}")
    gl.save(gl.value_and_gradient(network, ["w", "x"]), tmp_path / f"gradient.{ending}")
    assert run("check", tmp_path / f"network.{ending}", tmp_path / f"gradient.{ending}") == 0
    said = capsys.readouterr().out
    assert said.startswith("value: exact\ngradients: 2 of 2 exact\ndual numbers at random points")


def test_a_text_says_by_what(network: Program, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "network.glenside").write_text(str(network))
    (tmp_path / "gradient.glenside").write_text(str(gl.gradient(network, ["w", "x"])))
    (tmp_path / "shapes.json").write_text(json.dumps({"x": [3, 4], "w": [5, 4]}))
    files = (tmp_path / "network.glenside", tmp_path / "gradient.glenside", "--shapes", tmp_path / "shapes.json")
    assert run("check", *files, "--wrt", "w", "--wrt", "x") == 0
    assert run("check", *files, "--wrt", "x", "--wrt", "w") == 2
    said = capsys.readouterr()
    assert "gradients: 2 of 2 exact" in said.out
    assert "the gradient with respect to x requires float32 of (3 4), got ()(5 4) float32" in said.err
    assert run("check", *files) == 1
    assert "like tensors of the first: --wrt w --wrt x checks it as a gradient" in capsys.readouterr().out
    (tmp_path / "gradient.glenside").write_text(str(gl.value_and_gradient(network, ["w", "x"])))
    assert run("check", *files) == 1
    assert "--wrt w --wrt x" in capsys.readouterr().out
    (tmp_path / "gradient.glenside").write_text(
        "(constant w (shape 5 4) float32) (construct-tuple (access-tensor x) "
        "(access-transpose (access-tensor w) (list 1 0)))"
    )
    assert run("check", *files) == 1
    assert "--wrt" not in capsys.readouterr().out


def test_a_wrong_gradient_has_status_1(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    program, gradient, _ = dense(transposed=False)
    gl.save(program, tmp_path / "network.json")
    gl.save(gradient, tmp_path / "gradient.json")
    assert (
        run("check", tmp_path / "network.json", tmp_path / "gradient.json", *("--wrt", "x", "--wrt", "w"), "--wrt", "b")
        == 1
    )
    said = capsys.readouterr().out
    assert "gradients: 2 of 3 exact" in said
    assert "x: differs: gradient with respect to x, first at (0, 0)" in said


def test_without_a_gradient_there_is_nothing_to_take_it_by(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    gl.save(squared().program, tmp_path / "network.json")
    assert run("check", tmp_path / "network.json", "--wrt", "x") == 2
    assert "--wrt is for a program and its gradient" in capsys.readouterr().err
