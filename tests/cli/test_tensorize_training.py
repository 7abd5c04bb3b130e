"""`glenside tensorize --train`: a row for each part of each layer, the baseline beside the best, from every source."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from command_line import run

import glenside as gl
from glenside.check import is_equal
from glenside.gradients.step_options import read_optimizer, step_from_options
from glenside.ir.errors import BadInput
from glenside.report.rows import by_layer

TINY = ("mobilenet-v1", "--set", "resolution=32", "--set", "width=0.1", "--set", "classes=7", "--set", "batch=2")


@pytest.mark.slow
def test_parts_of_a_layer_stand_together_with_the_baseline_beside(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """With the products as they are written: others have names of their own."""
    path = tmp_path / "r.json"
    assert run("tensorize", *TINY, "--train", "--exact-order", "--array", "8x4", "--json", path, "--all") == 0
    printed = capsys.readouterr().out
    content = json.loads(path.read_text())
    names = [row["name"] for row in content["layers"]]
    assert names[:5] == ["conv1", "conv1.weight-gradient", "dw1", "dw1.input-gradient", "dw1.weight-gradient"]
    assert names[-3:] == ["fc", "fc.input-gradient", "fc.weight-gradient"]
    assert len(names) == 3 * 28 - 1
    parts = {row["name"]: row["part"] for row in content["layers"]}
    assert (parts["dw1"], parts["dw1.input-gradient"]) == ("forward", "input-gradient")
    for row in content["layers"]:
        assert is_equal(row["checked"])
        assert row["variants"]["chosen"]["measures"]["cycles"] <= row["variants"]["baseline"]["measures"]["cycles"]
        lines = [line.split() for line in printed.splitlines() if line.split()[:1] == [row["name"]]]
        for which in ("baseline", "chosen"):
            assert any(f"{row['variants'][which]['measures']['cycles']:,}" in line for line in lines), row["name"]
    assert "forward, 28 layers: " in printed
    assert "input-gradient, 27 layers: " in printed
    assert "of the operand of softmax" in printed


def test_programs_and_onnx_files_are_trained(tmp_path: Path) -> None:
    b = gl.Builder("net")
    x = b.input("x", (3, 2, 6, 5))
    y = b.relu(b.conv(x, b.constant("w", (4, 2, 2, 3)), strides=(2, 1), name="first"))
    program = b.finish(b.linear(b.reshape(y, (3, -1)), b.constant("v", (6, 36)), name="second")).seeded_constants(0)
    rows: list[list[tuple[str, int]]] = []
    for ending in ("glenside", "onnx"):
        source, path = tmp_path / f"net.{ending}", tmp_path / f"{ending}.json"
        gl.save(program, source)
        status = run(*("tensorize", source, "--train", "--loss", "softmax-cross-entropy", "--optimizer"),
                     *("adam:rate=0.01", "--array", "4x3", "--json", path))  # fmt: skip
        assert status == 0
        content = json.loads(path.read_text())
        assert all(row["checked"] == "exact" for row in content["layers"])
        assert content["checked"] == "exact"
        taken = [(row["part"], row["variants"]["baseline"]["measures"]["cycles"]) for row in content["layers"]]
        rows.append(sorted(taken))
    assert rows[0] == rows[1]
    assert [part for part, _ in rows[0]].count("weight-gradient") == 2


@pytest.mark.slow
def test_a_comparison_is_of_the_step_too(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "step.glenside"
    assert run("tensorize", *TINY, "--train", "--array", "16x16", "--no-check", "-o", path) == 0
    step = gl.load(path)
    assert len(step.term.children) > 28  # the loss, and the next of each weight
    assert {t.name for t in step.inputs.values()} > {"x", "labels", "fc.weight"}
    assert run("compare", *TINY, "--train", "--array", "16x16", "--no-check") == 0
    assert "fc.weight-gradient" in capsys.readouterr().out


WRONG = {
    "--loss mse": "training requires a loss (softmax-cross-entropy, ",
    "--optimizer adm": "an optimizer is one of sgd, momentum, adam, adamw, got adm; did you mean adam?",
    "--optimizer adam:beta=1": "options of adam have the form rate=0.001, beta1=0.9",
    "--optimizer sgd:rate=often": "a learning rate requires a number of at least 0, got 'often'",
    "--optimizer momentum:nesterov=maybe": "nesterov is yes or no, got maybe",
    "--quantize random": "--train makes a step in floats",
}


@pytest.mark.parametrize("options", WRONG)
def test_what_cannot_be_trained_is_a_sentence(options: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("tensorize", *TINY, "--train", "--array", "8x4", *options.split()) == 2
    assert WRONG[options] in capsys.readouterr().err


def test_a_network_of_two_results_is_a_sentence() -> None:
    two = gl.parse("(construct-tuple (access-tensor x) (access-tensor x))", shapes={"x": (2, 3)})
    with pytest.raises(BadInput, match="training requires a network of one result, got"):
        step_from_options(two)


def test_how_to_train_is_for_training(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("compare", *TINY, "--array", "8x4", "--loss", "squared-error", "--optimizer", "sgd") == 2
    assert "--loss and --optimizer are for training: give --train too" in capsys.readouterr().err


def _ended(end: str, axis: int = -1) -> gl.Program:
    b = gl.Builder("net")
    y = b.linear(b.input("x", (2, 3)), b.constant("w", (4, 3)), name="out")
    return b.finish({"softmax": lambda: b.softmax(y, axis), "sigmoid": lambda: b.sigmoid(y), "": lambda: y}[end]())


@pytest.mark.parametrize(
    ("end", "axis", "loss"),
    [
        ("softmax", -1, "softmax-cross-entropy, of the operand of softmax"),
        ("softmax", 0, "softmax-cross-entropy, of the operand of softmax"),
        ("sigmoid", -1, "binary-cross-entropy, of the operand of sigmoid"),
        ("", -1, "squared-error"),
    ],
)
def test_the_loss_fits_the_end_of_the_network(end: str, axis: int, loss: str) -> None:
    step, said = step_from_options(_ended(end, axis))
    assert said == f"the loss is {loss}; weights are updated by sgd"
    if end == "softmax":  # classes are along the axis of the softmax
        labels = next(t for t in step.program.signature.inputs if t.name == "labels")
        assert labels.dims == ((2,) if axis == -1 else (4,))


def test_a_loss_that_does_not_begin_with_the_end_is_of_the_output() -> None:
    step, said = step_from_options(_ended("softmax"), "squared-error", "sgd")
    assert said == "the loss is squared-error; weights are updated by sgd"
    labels = next(t for t in step.program.signature.inputs if t.name == "labels")
    assert labels.dims == (2, 4)


def test_optimizers_are_read() -> None:
    assert read_optimizer("adamw:decay=0.1") == gl.AdamW(decay="0.1")
    assert read_optimizer("momentum:nesterov=yes,rate=1") == gl.Momentum("1", nesterov=True)
    with pytest.raises(BadInput, match="requires a number of at least 0 and below 1"):
        read_optimizer("adam:beta1=1")


def test_gradients_follow_their_layer_and_other_names_stay() -> None:
    names = ["a", "b", "x-gradient", "b.input-gradient", "a.first-gradient", "c.weight-gradient", "a.second-gradient"]
    expected = [
        "a",
        "a.first-gradient",
        "a.second-gradient",
        "b",
        "b.input-gradient",
        "x-gradient",
        "c.weight-gradient",
    ]
    assert by_layer(names) == expected


def test_rows_of_a_step_in_python() -> None:
    step = gl.training_step(_ended(""), "squared-error", gl.SGD())
    result = gl.optimize(step.program, gl.SystolicArray(4, 4))
    assert [(row.name, row.part) for row in result.report.layers] == [
        ("out", "forward"),
        ("out.weight-gradient", "weight-gradient"),
    ]
    assert result.report.ok
