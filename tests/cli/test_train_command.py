"""`glenside train`: files in, files out, exit status."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from command_line import run
from onnx import numpy_helper, parser
from slow_cases import quick

import glenside as gl

MODEL = """
<ir_version: 8, opset_import: ["" : 17]>
net (float[N,1,6,6] image) => (float[N,4] share) {{
  c = Conv<pads=[1,1,1,1]>(image, w1, b1)
  r = Relu(c)
  f = Flatten(r)
  l = Gemm<transB=1>(f, w2, b2)
  share = Softmax<axis=1>(l)
}}
"""


def _model(path: Path) -> None:
    model = parser.parse_model(MODEL.replace("{{", "{").replace("}}", "}"))
    draw = np.random.default_rng(0).standard_normal
    for name, dims in {"w1": (6, 1, 3, 3), "b1": (6,), "w2": (4, 216), "b2": (4,)}.items():
        model.graph.initializer.append(numpy_helper.from_array((0.2 * draw(dims)).astype("float32"), name))
    onnx.save(model, path)


def _quarters(path: Path, count: int = 160) -> dict[str, np.ndarray]:
    """Images of noise, one quarter of which is brighter."""
    random = np.random.default_rng(2)
    y = random.integers(0, 4, count)
    x = random.standard_normal((count, 1, 6, 6)) * 0.3
    for image, which in zip(x, y, strict=True):
        image[0, 3 * (which // 2) : 3 * (which // 2) + 3, 3 * (which % 2) : 3 * (which % 2) + 3] += 1
    np.savez(path, pictures=x, quarter=y)
    return {"x": x.astype("float32"), "y": y}


def test_an_onnx_file_is_trained_and_onnxruntime_runs_what_comes_of_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    net, data, out = (tmp_path / name for name in ("net.onnx", "data.npz", "out.onnx"))
    _model(net)
    examples = _quarters(data)
    words = ["train", net, data, "--input", "image=pictures", "--input", "labels=quarter", "--batch", "10"]
    more = ["--epochs", "4", "--held-out", "0.25", "--optimizer", "adam:0.005", "--plot", tmp_path / "curve.png"]
    more += ["--html", tmp_path / "curve.html"]
    assert run(*words, *more, "-o", out) == 0
    assert "After 4 epochs: loss" in (tmp_path / "curve.html").read_text()
    done = capsys.readouterr()
    assert "12 steps an epoch, of 10 of 120 examples, 40 more are held out; native code" in done.err
    assert [line.split(":")[0] for line in done.out.splitlines()] == [f"epoch {n}" for n in (1, 2, 3, 4)]
    session = onnxruntime.InferenceSession(out)
    found = session.run(None, {"image": examples["x"][:10]})[0]
    np.testing.assert_allclose(found.sum(1), 1, rtol=1e-5)
    assert np.mean(found.argmax(1) == examples["y"][:10]) >= 0.9
    assert (tmp_path / "curve.png").stat().st_size > 1000


@pytest.fixture
def points(tmp_path: Path) -> Path:
    b = gl.Builder("points")
    y = b.linear(b.input("x", (8, 2)), b.constant("w", (3, 2)), b.constant("b", (3,)))
    gl.save(b.finish(y), tmp_path / "points.glenside")
    random = np.random.default_rng(0)
    np.savez(tmp_path / "data.npz", x=random.standard_normal((64, 2)), y=random.integers(0, 3, 64))
    return tmp_path


def test_a_text_is_trained_and_its_weights_lie_beside_it(points: Path, capsys: pytest.CaptureFixture[str]) -> None:
    where = (points / "points.glenside", points / "data.npz", "--on", "interpreter")
    assert run("train", *where, "--epochs", "1", "-o", points / "out.glenside") == 0
    assert "; the interpreter" in capsys.readouterr().err
    trained = gl.load(points / "out.glenside", weights=points / "out.npz")
    assert {*trained.constants} == {"w", "b"}


def test_a_batch_is_of_examples_and_not_of_the_seed_of_dropout(
    points: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    b = gl.Builder("points")
    hidden = b.relu(b.linear(b.input("x", (8, 2)), b.constant("v", (5, 2)), b.constant("c", (5,))))
    y = b.linear(b.dropout(hidden, "1/4"), b.constant("w", (3, 5)), b.constant("b", (3,)))
    gl.save(b.finish(y), points / "dropped.glenside")
    words = ["train", points / "dropped.glenside", points / "data.npz", "--on", "interpreter", "--epochs", "1"]
    assert run(*words, "--batch", "8") == 0
    assert run(*words, "--batch", "9") == 2
    assert "x is (8 2)" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--batch", "9"], "--batch 9 is for a network whose batch is open, and x is (8 2)"),
        (["--loss", "crossentropy"], "training requires a loss (softmax-cross-entropy,"),
        (["--wrt", "v"], "constants of a float dtype, got v"),
        (["--checkpoint", "run.zip"], "a checkpoint is an .npz file, got run.zip"),
        (["--resume"], "requires a checkpoint"),
        (["--input", "x=z"], "the value of x is a number"),
        (["--on", "abacus"], "got 'abacus'"),
        (["-o", "missing/out.onnx"], "there is no folder missing"),
        (["-o", "HERE/data.glenside"], "data.npz, which is the data: name another file"),
        (
            ["-o", "HERE/run.json", "--checkpoint", "HERE/run.npz"],
            "run.npz, which is the checkpoint: name another file",
        ),
        (["--checkpoint", "HERE/data.npz", "--resume"], "data.npz is the data: name another file for the checkpoint"),
    ],
)
def test_what_cannot_be_is_one_sentence_and_nothing_is_written(
    points: Path, words: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    before = {path: path.read_bytes() for path in points.iterdir()}
    words = [word.replace("HERE", str(points)) for word in words]
    assert run("train", points / "points.glenside", points / "data.npz", *words) == 2
    said = capsys.readouterr().err
    assert message in said
    assert said.count("\n") == 1
    assert {path: path.read_bytes() for path in points.iterdir()} == before


@pytest.mark.parametrize("which", quick([signal.SIGINT, signal.SIGTERM], 0))
def test_a_signal_leaves_the_run_and_the_network_after_a_whole_step(points: Path, which: int) -> None:
    kept, out = points / "run.npz", points / "out.onnx"
    words = ["train", points / "points.glenside", points / "data.npz", "--on", "interpreter", "--epochs", "1000000"]
    command = [sys.executable, "-m", "glenside", *map(str, [*words, "--checkpoint", kept, "-o", out])]
    environment = dict(os.environ, PYTHONPATH=os.pathsep.join(sys.path))
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment, text=True)
    assert process.stdout is not None
    for _ in range(3):
        assert process.stdout.readline().startswith("epoch")
    time.sleep(0.2)
    process.send_signal(which)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 128 + which, errors
    assert "whole epochs" in errors
    assert "Traceback" not in errors
    arrays = np.load(kept)
    model = onnx.load(out)
    weights = {tensor.name: numpy_helper.to_array(tensor) for tensor in model.graph.initializer}
    np.testing.assert_array_equal(weights["w"], arrays["state.w"])
    assert arrays["state.steps"] == 8 * len(arrays["epochs"]) + arrays["now"][0]


def test_numbers_that_a_file_spells_out_are_no_weights(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A scale that a node is, and a number of no axes, unless they are named."""
    net, data, out = (tmp_path / name for name in ("net.onnx", "data.npz", "out.onnx"))
    text = """<ir_version: 8, opset_import: ["" : 17]>
    net (float[4, 3] x) => (float[4, 3] y) <float[3] w = {1, 2, 3}, float number = {2}>
    { scale = Constant <value = float[3] {1, 1, 2}> ()
      a = Mul (x, scale) b = Mul (a, number) y = Mul (b, w) }"""
    onnx.save(parser.parse_model(text), net)
    np.savez(data, x=np.ones((8, 3), np.float32), y=np.zeros((8, 3), np.float32))
    train = ["train", net, data, "--loss", "squared-error", "--epochs", "1", "--on", "interpreter", "-o", out]
    first = gl.load_onnx(net).constants
    for named, trained in (([], {"w"}), (["--wrt", "scale", "--wrt", "number"], {"scale", "number"})):
        assert run(*train, *named) == 0
        said = capsys.readouterr().err
        assert ("constants that are not initializers with axes are not trained" in said) == (not named)
        after = gl.load_onnx(out).constants
        assert {name for name, value in after.items() if np.any(value != first[name])} == trained
