"""Tests runs in SPU between two processes. Optional, like tests/targets/test_spu.py; without SPU, tests the message
that says so.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import pytest
import spu_simulation
from command_line import run

import glenside as gl
from glenside.execution.spu.comparison import compare
from glenside.execution.spu.session import VARIABLE, interpreter
from glenside.ir.errors import BadInput
from glenside.targets.mpc.costs import load_costs


@pytest.fixture
def network(tmp_path: Path) -> Path:
    b = gl.Builder("network")
    x = b.relu(b.conv(b.input("x", (1, 3, 8, 8)), b.constant("w", (4, 3, 3, 3)), padding=1, name="conv"))
    path = tmp_path / "network.glenside"
    gl.save(b.finish(b.conv(x, b.constant("v", (2, 4, 1, 1)), name="last")), path)
    return path


@pytest.fixture
def spu() -> None:
    reason = spu_simulation.missing()
    if reason:
        pytest.skip(reason)


def test_without_spu_it_is_said_how_to_get_it(
    network: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    for arguments in (("run", network, "--on", "spu"), ("calibrate", "--target", "mpc", "-o", tmp_path / "c.toml")):
        assert run(*arguments) == 2
        error = capsys.readouterr().err
        assert f"{VARIABLE} does not name the python" in error
        assert "-m venv E && E/bin/pip install spu==0.9.5 jax==0.4.34 jaxlib==0.4.34" in error
        assert error.count("\n") == 1
    assert not (tmp_path / "c.toml").exists()
    monkeypatch.setenv(VARIABLE, "/nowhere/python")
    with pytest.raises(BadInput, match="does not run"):
        interpreter()


def test_a_python_without_spu_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, sys.executable)
    with pytest.raises(BadInput, match="has no SPU"):
        interpreter()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--on", "gpu"), "a program runs in the interpreter, --on spu, or --on native, plain, amx"),
        (("--on", "spu", "--target", "cpu:1MB"), "cpu:1MB is not run on spu"),
        (("--on", "spu", "--link", "man"), "a link is lan, wan, or RATE,LATENCY"),
        (("--on", "spu", "--runs", "0"), "the number of --runs is a whole number from 1"),
        (("--runs", "0"), "--runs is for programs that run on SPU: give --on spu too"),
        (("--target", ""), "--target is for programs that run on SPU: give --on spu too"),
        (("--link", "lan"), "--link is for programs that run on SPU: give --on spu too"),
        (("--json", "-"), "--json is for programs that run on SPU: give --on spu too"),
    ],
)
def test_bad_input_is_a_sentence(
    network: Path, arguments: tuple[str, ...], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("run", network, *arguments) == 2
    error = capsys.readouterr().err
    assert words in error
    assert error.count("\n") == 1


def test_what_cannot_be_calibrated_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for target, out, words in (
        ("cpu:1MB", "costs.toml", "a machine is native, plain"),
        ("npu", "costs.toml", "npu:64x64 has no costs that are measured: give cpu, or two parties such as mpc:semi2k"),
        ("mpc", "costs.json", "costs are written as TOML"),
        ("mpc", "nowhere/costs.toml", "there is no folder"),
    ):
        assert run("calibrate", "--target", target, "-o", tmp_path / out) == 2
        assert words in capsys.readouterr().err


@pytest.mark.usefixtures("spu")
def test_a_program_sends_what_is_told_and_gives_what_it_means(network: Path) -> None:
    found = compare(gl.load(network), gl.MPC(link="lan"), runs=1)
    assert found.agrees
    assert found.drawn == ["x"]
    assert [row.names for row in found.layers] == [["conv"], ["last"]]
    for row in (*found.layers, found.whole, found.between()):
        assert (row.predicted.bytes, row.predicted.messages) == (row.measured.bytes, row.measured.messages)
    assert found.whole.measured.seconds > found.whole.measured.messages * 0.15e-3


@pytest.mark.usefixtures("spu")
def test_run_prints_what_is_told_beside_what_is_measured(
    network: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "y.npz"
    assert run("run", network, "--on", "spu", "--input", "x=0.5", "--runs", 1, "--link", "wan", "-o", out) == 0
    printed = capsys.readouterr().out
    for words in ("the whole, run as one", "between layers", "44 MB/s and 20 ms", "agrees with the interpreter's"):
        assert words in printed
    assert "random" not in printed
    assert run("run", network, "--input", "x=0.5", "-o", tmp_path / "z.npz") == 0
    with np.load(out) as got, np.load(tmp_path / "z.npz") as want:
        assert np.allclose(got["output"], want["output"], atol=1e-3)


@pytest.mark.usefixtures("spu")
def test_run_writes_the_same_as_json(network: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("run", network, "--on", "spu", "--runs", 1, "--json", "-") == 0
    said = json.loads(capsys.readouterr().out)
    assert said["link"] == {"bandwidth": 384e6, "latency": 0.15e-3}
    assert [row["names"] for row in said["layers"]] == [["conv"], ["last"]]
    assert said["whole"]["predicted"]["bytes"] == said["whole"]["measured"]["bytes"]
    assert (said["runs"], said["agrees"], said["drawn"]) == (1, True, ["x"])


@pytest.mark.slow
@pytest.mark.usefixtures("spu")
def test_costs_are_measured_and_used(network: Path, tmp_path: Path) -> None:
    path = tmp_path / "costs.toml"
    assert run("calibrate", "--target", "mpc", "--runs", 2, "-o", path) == 0
    assert load_costs(path).costs.opened > 0
    assert run("tensorize", network, "--target", path) == 0
