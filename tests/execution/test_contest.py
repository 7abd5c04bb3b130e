"""Tests timing against other runtimes: each in its own process, interleaved; runtimes that fail are reported."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

import glenside as gl
from glenside.codegen.processor.model import machine_of
from glenside.codegen.runtime.compiled_function import Lowered
from glenside.execution.interleaved_runs import CannotRun, Entrant, Runner, busy, run_in_turn, started
from glenside.execution.peers import PEERS
from glenside.execution.runtime_comparison import Contest, peer_names
from glenside.ir.files import write_arrays

pytestmark = pytest.mark.needs_compiler
X = np.random.default_rng(0).standard_normal((1, 3, 12, 12)).astype(np.float32)


def _model(folder: Path, seed: int = 0) -> Path:
    b = gl.Builder("net")
    x = b.conv(b.input("x", X.shape), b.constant("w", (8, 3, 3, 3)), padding=1)
    gl.save(b.finish(b.relu(x)).seeded_constants(seed), path := folder / f"net{seed}.onnx")
    return path


@contextmanager
def _contest(path: Path, model: Path | None, peers: list[str]) -> Iterator[Contest]:
    program = gl.load(path)
    own = {name: Lowered(program, machine_of(name)) for name in ("native", "plain")}
    with Contest(own, model, {"x": X}, peers) as contest:
        yield contest


def test_all_run_the_same_model(tmp_path: Path) -> None:
    path = _model(tmp_path)
    with _contest(path, path, ["onnxruntime"]) as contest:
        rows = {row.title.split()[0]: row for row in contest.run(1, 3)}
        assert list(rows) == ["native", "plain,", "onnxruntime"]
        assert rows["native"].ratio == 1
        assert len(rows["onnxruntime"].seconds) == 3
        assert len(rows["plain,"].seconds) == 1
        assert all(row.difference < 1e-5 and row.median > 0 for row in rows.values())
        if Path("/proc/self/clear_refs").exists():
            assert all(0 <= (row.grown or 0) < 1 << 29 for row in rows.values())
        assert len(contest.run(2, 1, beside=1)) == 3
    assert not contest.notes
    assert not contest.folder.exists()


def test_another_model_differs(tmp_path: Path) -> None:
    with _contest(_model(tmp_path), _model(tmp_path, 1), ["onnxruntime"]) as contest:
        rows = contest.run(1, 1)
    assert rows[-1].difference > 0.01


def test_what_does_not_load_is_told(tmp_path: Path) -> None:
    (tmp_path / "broken.onnx").write_bytes(b"no model")
    with _contest(_model(tmp_path), tmp_path / "broken.onnx", peer_names()) as contest:
        assert [row.title for row in contest.run(1, 1)] == ["native", "plain, one thread"]
    installed = [peer for peer in PEERS.values() if not peer.missing]
    assert len(contest.notes) == len(PEERS)
    assert sum(" is not installed: pip install " in note for note in contest.notes) == len(PEERS) - len(installed)
    assert any(note.startswith("onnxruntime") and "does not run it" in note for note in contest.notes)


def test_a_crash_of_a_runtime_is_told(tmp_path: Path) -> None:
    """onnxruntime 1.32 crashes on a Split whose outputs have no names."""
    onnx = pytest.importorskip("onnx")
    model = onnx.load(_model(tmp_path))
    model.graph.node.append(onnx.helper.make_node("Split", ["x"], ["", ""], axis=3, num_outputs=2))
    onnx.save(model, tmp_path / "unnamed.onnx")
    with _contest(_model(tmp_path), tmp_path / "unnamed.onnx", ["onnxruntime"]) as contest:
        assert [row.title for row in contest.run(1, 1)] == ["native", "plain, one thread"]
    (note,) = contest.notes
    assert note.startswith("onnxruntime ")
    assert "does not run it: its process ended by SIGSEGV when it loaded unnamed.onnx" in note


def test_what_ends_early_leaves_the_others(tmp_path: Path) -> None:
    write_arrays(tmp_path / "inputs.npz", {"x": X})
    failed: list[str] = []

    def fails(entrant: Entrant, error: CannotRun) -> None:
        failed.append(f"{entrant.title}: {error}")

    entrants = [Entrant("onnxruntime", _model(tmp_path), title) for title in ("first", "second")]
    with started(entrants, 1, tmp_path, fails) as runners:
        assert len(runners) == 2
        ended: Runner = runners[0]
        ended.process.kill()
        run_in_turn(runners, 2, fails, lambda _: None)
        assert [runner.entrant.title for runner in runners] == ["second"]
        assert len(runners[0].seconds) == 2
        process = runners[0].process
    assert failed == ["first: its process ended by SIGKILL (out of memory?) when it ran net0.onnx"]
    assert process.poll() is not None


def test_busy_processes_end() -> None:
    with busy(2):
        pass
    with pytest.raises(KeyboardInterrupt), busy(1):
        raise KeyboardInterrupt
