"""Tests that files are read back before they take their name, and that killed writers leave nothing."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import glenside as gl
from glenside.formats import load, save
from glenside.ir import files, replacing
from glenside.ir.program import Program
from glenside.ir.replacing import WrittenWrong


def _program() -> Program:
    b = gl.Builder("net")
    x, w = b.input("x", (2, 3)), b.constant("w", (4, 3), value=np.ones((4, 3), np.float32))
    return b.finish(b.relu(b.linear(x, w, name="fc")))


def _listed(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


@pytest.mark.parametrize("ending", [".glenside", ".json", ".py"])
def test_another_text_does_not_take_the_name(ending: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / f"net{ending}"
    save(_program(), path)
    before = {name: (tmp_path / name).read_bytes() for name in _listed(tmp_path)}
    read = files.read_text
    monkeypatch.setattr(files, "read_text", lambda path: read(path).replace("relu", "negative").replace("(x", "(y"))
    with pytest.raises(WrittenWrong, match="reads back differently"):
        save(_program(), path)
    assert {name: (tmp_path / name).read_bytes() for name in _listed(tmp_path)} == before


def test_other_arrays_do_not_take_the_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    array = np.array([0.0, np.nan, 3], np.float32)
    plain = files._plain
    for name in ("bfloat16", "float32"):
        files.write_arrays(tmp_path / "a.npz", {"a": array.astype(name)})
    monkeypatch.setattr(files, "_plain", lambda name, array: plain(name, -array))
    for write in (
        lambda: files.write_arrays(tmp_path / "a.npz", {"a": array}),
        lambda: files.write_array(tmp_path / "a.npy", array),
        lambda: save(_program(), tmp_path / "net.glenside"),
    ):
        with pytest.raises(WrittenWrong, match="differs"):
            write()
    assert _listed(tmp_path) == ["a.npz"]
    assert np.array_equal(files.read_arrays(tmp_path / "a.npz")["a"], array, equal_nan=True)


_WRITER = """
import sys
from glenside.ir.replacing import replacing
with replacing(sys.argv[1]) as file:
    file.write(b"half")
    file.flush()
    print("written", flush=True)
    sys.stdin.read()
"""


def test_a_killed_writer_leaves_nothing_after_the_next(tmp_path: Path) -> None:
    path = tmp_path / "run.ckpt.npz"
    words = [sys.executable, "-c", _WRITER, str(path)]
    writer, other = (
        subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) for _ in range(2)
    )
    try:
        assert writer.stdout is not None
        assert other.stdout is not None
        assert [writer.stdout.readline(), other.stdout.readline()] == ["written\n"] * 2
        writer.kill()
        writer.wait()
        assert len(_listed(tmp_path)) == 2
        files.write_arrays(path, {"a": np.ones(3)})
        left = _listed(tmp_path)
        assert len(left) == 2, "the other writer still has its file"
        assert "run.ckpt.npz" in left
        assert other.stdin is not None
        other.stdin.close()
        assert other.wait(60) == 0
        assert _listed(tmp_path) == ["run.ckpt.npz"]
        assert path.read_bytes() == b"half"
    finally:
        for process in (writer, other):
            process.kill()
            process.wait()


def test_a_program_of_an_npu_is_read_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    b = gl.Builder("net")
    x, w = b.input("x", (8, 4)), b.constant("w", (4, 4), value=np.eye(4, dtype=np.float32))
    program = gl.npu_program(b.finish(b.linear(x, w)), gl.NPU(4, 4))
    from glenside.cli.instructions import write_code
    from glenside.npu.program import binary_format as npu_files

    for ending in (".bin", ".asm"):
        write_code(program, str(tmp_path / f"net{ending}"))
    content = npu_files.content
    calls = iter(range(100))
    monkeypatch.setattr(npu_files, "content", lambda program: content(program) + b"x" * next(calls))
    for ending in (".bin", ".asm"):
        with pytest.raises(WrittenWrong):
            write_code(program, str(tmp_path / f"new{ending}"))
    assert _listed(tmp_path) == ["net.asm", "net.bin"]


def test_names_of_every_length_can_be_written(tmp_path: Path) -> None:
    longest = os.pathconf(tmp_path, "PC_NAME_MAX")
    path = tmp_path / ("n" * (longest - 4) + ".npy")
    files.write_array(path, np.ones(2))
    assert load is not None
    assert _listed(tmp_path) == [path.name]
    assert replacing.shown(path) == str(path)


def test_a_model_of_onnx_is_read_back_as_a_file_is(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("onnx")
    from glenside.exporters.onnx import export

    made = export.model_of

    def other(*given: Any) -> Any:
        model = made(*given)
        next(node for node in model.graph.node if node.op_type == "Relu").op_type = "Neg"
        return model

    assert gl.export_onnx(_program()).graph.node
    monkeypatch.setattr(export, "model_of", other)
    with pytest.raises(WrittenWrong, match="the values of its result"):
        gl.export_onnx(_program())
    assert gl.export_onnx(_program(), verify=False).graph.node
