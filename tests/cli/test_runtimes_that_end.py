"""A runtime of others that ends, or never answers, takes no command with it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from ending_runtimes import WAITS, WAYS, write_runtime

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

from onnx import helper  # noqa: E402

CHECK = ("tensorize", "net.onnx", "--array", "4x4", "--no-cache", "--check", "onnxruntime", "-o", "out.onnx")
BENCH = ("bench", "net.onnx", "--target", "none", "--rounds", "1", "--peers", "onnxruntime")


def _net(folder: Path, *nodes: onnx.NodeProto) -> None:
    """A product of x (2, 3), beside other nodes."""
    x, y = (helper.make_tensor_value_info(*entry) for entry in (("x", 1, [2, 3]), ("y", 1, [2, 5])))
    w = helper.make_tensor("w", 1, [3, 5], [0.5] * 15)
    graph = helper.make_graph([*nodes, helper.make_node("MatMul", ["x", "w"], ["y"])], "net", [x], [y], [w])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    (folder / "net.onnx").write_bytes(model.SerializeToString())


def _begin(folder: Path, *words: str) -> subprocess.Popen[str]:
    path = os.pathsep.join([str(folder / "packages"), *(entry or "." for entry in sys.path)])
    return subprocess.Popen(
        [sys.executable, "-P", "-m", "glenside", *words],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": path},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def _run(folder: Path, *words: str) -> tuple[int, str, str]:
    process = _begin(folder, *words)
    out, errors = process.communicate(timeout=120)
    return process.returncode, out, errors


def test_a_check_in_onnxruntime_that_crashes_keeps_the_answer(tmp_path: Path) -> None:
    """onnxruntime 1.32 crashes on a Split whose outputs have no names."""
    _net(tmp_path, helper.make_node("Split", ["x"], ["", ""], axis=0))
    status, out, errors = _run(tmp_path, *CHECK, "--json", "r.json")
    assert status == 1
    assert "1 of 1 mapped" in out
    said = "not compared, onnxruntime's process ended by SIGSEGV when it ran the original (net.onnx)"
    assert f"Check in onnxruntime: {said}" in " ".join(out.split())
    assert "The exact check finds no difference." in " ".join(out.split())
    assert "Traceback" not in out + errors
    told = json.loads((tmp_path / "r.json").read_text())["onnxruntime"]
    assert not told["equal"]
    assert told["verdict"] == said
    assert (tmp_path / "out.onnx").exists()


@pytest.mark.slow
@pytest.mark.needs_compiler
def test_a_bench_beside_onnxruntime_that_crashes_keeps_the_others(tmp_path: Path) -> None:
    _net(tmp_path, helper.make_node("Split", ["x"], ["", ""], axis=0))
    status, out, errors = _run(tmp_path, *BENCH)
    assert status == 0
    assert "compiled" in out
    assert "naive loops" in out
    assert "does not run it: its process ended by SIGSEGV when it loaded net.onnx" in errors


@pytest.mark.slow
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("when", ["load", "run"])
@pytest.mark.parametrize(
    "words", [CHECK, pytest.param(BENCH, marks=pytest.mark.needs_compiler)], ids=lambda words: words[0]
)
def test_whatever_ends_a_runtime_is_told(tmp_path: Path, words: tuple[str, ...], when: str, way: str) -> None:
    _net(tmp_path)
    write_runtime(tmp_path / "packages", **{when: WAYS[way]})
    status, out, errors = _run(tmp_path, *words)
    how = way if way.startswith("status") else f"by {way}"
    assert f"process ended {'with ' * way.startswith('status')}{how}" in " ".join((out + errors).split())
    assert status == (1 if words is CHECK else 0)
    assert ("1 of 1 mapped" if words is CHECK else "naive loops") in out


@pytest.mark.skipif(sys.platform != "linux", reason="/proc says what runs")
@pytest.mark.parametrize("which", [signal.SIGINT, pytest.param(signal.SIGTERM, marks=pytest.mark.slow)], ids=str)
@pytest.mark.parametrize(
    "words",
    [CHECK, pytest.param(BENCH, marks=[pytest.mark.needs_compiler, pytest.mark.slow])],
    ids=lambda words: words[0],
)
def test_a_runtime_that_never_answers_ends_with_the_command(
    tmp_path: Path, words: tuple[str, ...], which: signal.Signals
) -> None:
    _net(tmp_path)
    reached = f"open({str(tmp_path / 'reached')!r}, 'w').write(str(os.getpid())); {WAITS}"
    write_runtime(tmp_path / "packages", run=reached)
    process = _begin(tmp_path, *words)
    for _ in range(600):
        if (tmp_path / "reached").exists() and (tmp_path / "reached").read_text():
            break
        assert process.poll() is None, process.communicate()
        time.sleep(0.1)
    time.sleep(0.2)
    child = int((tmp_path / "reached").read_text())
    began = time.monotonic()
    process.send_signal(which)
    out, errors = process.communicate(timeout=60)
    assert time.monotonic() - began < 4
    assert process.returncode == 128 + which
    assert "Traceback" not in out + errors
    status = Path(f"/proc/{child}/status")
    assert not status.exists() or "State:\tZ" in status.read_text()
    assert words is BENCH or (tmp_path / "out.onnx").exists()
