"""Tests onnxruntime in another process: arrays are passed unchanged, and a crash there does not end this process."""

from __future__ import annotations

import io
import os
import random
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from itertools import product
from pathlib import Path

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

from ending_runtimes import WAITS, WAYS, write_runtime  # noqa: E402
from onnx import helper  # noqa: E402
from slow_cases import quick  # noqa: E402

from glenside.importers.onnx.sessions import _ONNXRUNTIME, CannotRun, Ended, Session  # noqa: E402
from glenside.ir.child_processes import receive, send  # noqa: E402
from glenside.ir.dtypes import RECORDS  # noqa: E402

X = np.arange(6, dtype=np.float32).reshape(2, 3)


def identity(dtype: str = "float32", dims: tuple[int, ...] = (2, 3), nodes: tuple[onnx.NodeProto, ...] = ()) -> bytes:
    kind = onnx.TensorProto.DataType.Value(RECORDS[dtype].onnx)
    ends = [helper.make_tensor_value_info(name, kind, dims) for name in "xy"]
    graph = helper.make_graph([*nodes, helper.make_node("Identity", ["x"], ["y"])], "g", ends[:1], ends[1:])
    opset = max(17, RECORDS[dtype].opset)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=10).SerializeToString()


def crashing() -> bytes:
    """onnxruntime 1.32 dereferences a type that an output without a name does not have."""
    return identity(nodes=(helper.make_node("Split", ["x"], ["", ""], axis=0),))


@pytest.fixture
def runtime(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder for a package onnxruntime that is loaded instead of the real one."""
    _ONNXRUNTIME.end()
    monkeypatch.syspath_prepend(tmp_path)
    yield tmp_path
    _ONNXRUNTIME.end()


@pytest.mark.parametrize("dtype", RECORDS)
def test_arrays_of_each_dtype_come_back_bit_by_bit(dtype: str) -> None:
    rng = np.random.default_rng(3)
    taken = 0
    for dims in ((), (0,), (3,), (2, 0, 5), (3, 5, 7)):
        x = np.asarray(rng.integers(0, 2 if dtype == "bool" else 3, dims)).astype(dtype)
        try:
            (y,) = Session(identity(dtype, dims), "the model", seconds=60).run({"x": x})
        except CannotRun:  # it has no kernel for some
            continue
        taken += 1
        assert (y.dtype, y.shape) == (x.dtype, x.shape)
        assert np.array_equal(np.atleast_1d(y).view(np.uint8), np.atleast_1d(x).view(np.uint8))
    assert taken or RECORDS[dtype].stored


@pytest.mark.parametrize("dtype", ["float32", "uint8", "int64", "bool", "bfloat16"])
def test_scalars_beside_stored_dtypes_stay_scalars(dtype: str) -> None:
    kinds = [onnx.TensorProto.DataType.Value(RECORDS[name].onnx) for name in (dtype, "bfloat16")]
    formals = [helper.make_tensor_value_info(f"{end}{i}", kind, ()) for end in "xy" for i, kind in enumerate(kinds)]
    nodes = [helper.make_node("Identity", [f"x{i}"], [f"y{i}"]) for i in range(2)]
    graph = helper.make_graph(nodes, "g", formals[:2], formals[2:])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=10)
    given = {"x0": np.ones((), RECORDS[dtype].numpy), "x1": np.zeros((), RECORDS["bfloat16"].numpy)}
    found = Session(model.SerializeToString(), "the file", threads=1).run(given)
    assert [(array.shape, array.dtype) for array in found] == [((), array.dtype) for array in given.values()]


def test_messages_are_what_was_sent() -> None:
    rng, stream, sent = random.Random(5), io.BytesIO(), []
    for _ in range(50):
        parts = [rng.randbytes(rng.choice((0, 1, 8, 1000))) for _ in range(rng.randrange(4))]
        sent.append(([rng.random(), "é\n", None], parts))
        send(stream, *sent[-1])
    content = stream.getvalue()
    stream.seek(0)
    assert [receive(stream) for _ in sent] == sent
    for length in (0, 5, 12, len(content) - 1):
        cut = io.BytesIO(content[:length])
        with pytest.raises(EOFError):
            [receive(cut) for _ in sent]


def test_a_crash_of_onnxruntime_is_a_sentence() -> None:
    before = Session(identity(), "the first")
    assert np.array_equal(before.run({"x": X})[0], X)
    with pytest.raises(Ended, match=r"^onnxruntime's process ended by SIGSEGV when it (loaded|ran) the model\b"):
        Session(crashing(), "the model").run({"x": X})
    with pytest.raises(Ended, match="ended since it loaded the first"):
        before.run({"x": X})
    after = Session(identity(), "the next")
    with pytest.raises(CannotRun, match="onnxruntime cannot run the next: "):
        after.run({"x": X[:1]})
    assert np.array_equal(after.run({"x": X})[0], X)


@pytest.mark.parametrize(("when", "way"), quick(product(["load", "run"], WAYS), 0, 1, 6, 7, unpacked=True))
def test_whatever_ends_it_is_told(runtime: Path, way: str, when: str) -> None:
    write_runtime(runtime, **{when: f"print('its last words'); {WAYS[way]}"})
    how = {"SIGKILL": r"by SIGKILL \(out of memory\?\)", "status 7": "with status 7"}.get(way, f"by {way}")
    said = f"^onnxruntime's process ended {how} when it {'loaded' if when == 'load' else 'ran'} the model"
    with pytest.raises(Ended, match=said):
        Session(b"", "the model").run({"x": X})


def test_a_runtime_that_never_answers_is_ended(runtime: Path) -> None:
    write_runtime(runtime, run=WAITS)
    session = Session(b"", "the model", seconds=1)
    with pytest.raises(Ended, match=r"^onnxruntime's process was killed after 1 s when it ran the model$"):
        session.run({"x": X})


def test_ctrl_c_ends_what_it_waits_for(runtime: Path, press_ctrl_c: Callable[[float], None]) -> None:
    write_runtime(runtime, run=WAITS)
    session = Session(b"", "the model")
    process = _ONNXRUNTIME._process
    assert process is not None
    press_ctrl_c(0.3)
    with pytest.raises(KeyboardInterrupt):
        session.run({"x": X})
    assert process.returncode == -9
    with pytest.raises(Ended):
        session.run({"x": X})


def test_threads_take_turns() -> None:
    sessions = [Session(identity(dims=(n + 1, 3)), f"model {n}") for n in range(4)]
    wrong: list[int] = []

    def use(n: int) -> None:
        x = np.full((n + 1, 3), n, np.float32)
        for _ in range(20):
            if not np.array_equal(sessions[n].run({"x": x})[0], x):
                wrong.append(n)

    threads = [threading.Thread(target=use, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


@pytest.mark.skipif(not hasattr(os, "fork"), reason="nothing forks")
def test_a_forked_process_has_one_of_its_own() -> None:
    session = Session(identity(), "the model")
    if not (child := os.fork()):
        try:
            with pytest.raises(Ended):
                session.run({"x": X})
            same = np.array_equal(Session(identity(), "its own").run({"x": X})[0], X)
            _ONNXRUNTIME.end()
            os._exit(0 if same else 1)
        finally:
            os._exit(2)
    assert os.waitpid(child, 0)[1] == 0
    assert np.array_equal(session.run({"x": X})[0], X)


@pytest.mark.skipif(sys.platform != "linux", reason="/proc says what runs")
def test_it_ends_with_its_parent(tmp_path: Path) -> None:
    write_runtime(tmp_path, run="import time; time.sleep(1000)")
    code = (
        "import numpy as np, os, threading\n"
        "from glenside.importers.onnx.sessions import _ONNXRUNTIME, Session\n"
        "s = Session(b'', 'm')\nprint(_ONNXRUNTIME._process.pid, flush=True)\n"
        "s.run({'x': np.zeros((2, 3), 'f4')})"
    )
    path = os.pathsep.join([str(tmp_path), *sys.path])
    parent = subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, env={**os.environ, "PYTHONPATH": path}
    )
    assert parent.stdout is not None
    child = int(parent.stdout.readline())
    time.sleep(0.2)
    parent.kill()
    parent.wait()
    parent.stdout.close()
    status = Path(f"/proc/{child}/status")
    for _ in range(100):
        if not status.exists() or "State:\tZ" in status.read_text():
            return
        time.sleep(0.05)
    os.kill(child, 9)
    raise AssertionError("the process of onnxruntime goes on without its parent")
