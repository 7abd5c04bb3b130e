"""Tests `glenside check A B` with two programs in any formats."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from command_line import run

import glenside as gl


def _network(threshold: str = "6", scale: float = 1.0) -> gl.Program:
    b = gl.Builder("net")
    x = b.conv(b.input("x", (1, 3, 8, 7)), b.constant("w", (4, 3, 3, 3)), padding=1, name="conv")
    x = b.compute(f"(clip 0 {threshold})", x)
    values = {"w": scale * np.arange(108, dtype=np.float32).reshape(4, 3, 3, 3)}
    return b.finish(x).with_constants(values)


@pytest.fixture
def files(tmp_path: Path) -> Path:
    gl.save(_network(), tmp_path / "a.json")
    gl.save(_network(), tmp_path / "same.glenside")
    gl.save(_network("13/2"), tmp_path / "cut.json")
    gl.save(_network(scale=2.0), tmp_path / "other.json")
    return tmp_path


def test_equal_programs(files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("check", files / "a.json", files / "a.json") == 0
    printed = capsys.readouterr().out
    assert "result: exact" in printed
    assert "layers: 1 of 1 exact" in printed


def test_a_wrong_program(files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("check", files / "a.json", files / "cut.json") == 1
    assert "result: differs in " in capsys.readouterr().out


def test_constants_of_one_name_and_other_values(files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("check", files / "a.json", files / "other.json") == 1
    assert "conv: differs in " in capsys.readouterr().out


def test_what_a_target_makes_of_it(files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = files / "best.json"
    assert run("tensorize", files / "a.json", "--array", "4x4", "-o", out, "--no-cache") == 0
    assert run("check", files / "a.json", out) == 0
    out = files / "layout.json"
    assert run("layout", files / "a.json", "-o", out, "--no-cache") == 0
    assert run("check", files / "a.json", out) == 0
    assert "differs" not in capsys.readouterr().out


def test_other_inputs_are_refused(files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    b = gl.Builder("y")
    gl.save(b.finish(b.relu(b.input("y", (1, 3, 8, 7)))), files / "y.json")
    assert run("check", files / "a.json", files / "y.json") == 2
    assert "compared on the same inputs, and y has no x" in capsys.readouterr().err


@pytest.mark.parametrize(("value", "status"), [(0.1, 0), (0.2, 1)])
def test_a_number_and_its_nearest_float_are_one(tmp_path: Path, value: float, status: int) -> None:
    b = gl.Builder("number")
    x = b.input("x", (3,))
    gl.save(b.finish(b.multiply(x, b.full((3,), "0.1"))), tmp_path / "text.json")
    constant = b.finish(b.multiply(x, b.constant("c", (3,))))
    gl.save(constant.with_constants({"c": np.full(3, value, np.float32)}), tmp_path / "array.json")
    assert run("check", tmp_path / "text.json", tmp_path / "array.json") == status


def test_what_is_written_is_the_same_number(tmp_path: Path) -> None:
    pytest.importorskip("onnx")
    b = gl.Builder("tenths")
    gl.save(
        b.finish(b.compute("(clip -0.1 1/3)", b.multiply(b.input("x", (3,)), b.full((3,), "0.1")))), tmp_path / "a.json"
    )
    gl.save(gl.load(tmp_path / "a.json"), tmp_path / "a.onnx")
    assert run("check", tmp_path / "a.json", tmp_path / "a.onnx") == 0
