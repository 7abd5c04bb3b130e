"""Ctrl-C while programs are compiled or run as C: two seconds, all files or none, status 130, no process left."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from fuzzing import Fuzzing

import glenside as gl

ANSWERED = 5.0  # seconds: two where a machine does nothing else
UNET = ("unet-small", "--set", "resolution=64")
COMMANDS = {
    "compile": ("compile", *UNET, "--target", "cpu:unlimited,balance=2", "-o", "net.c"),
    "loops": ("compile", *UNET, "--emit", "loops"),
    "bench": ("bench", *UNET, "--rounds", "1000"),
    "search": ("bench", *UNET, "--target", "cpu:unlimited,balance=2", "--rounds", "1000"),
    "tune": ("compile", "../small.glenside", "--target", "cpu:unlimited,tune=yes", "-o", "net.c"),
    "run": ("run", "resnet-18", "--set", "resolution=448", "--input", "x=1", "--on", "plain"),
}
FILES = {"net.c", "net.h", "net.weights"}


def _stopped(name: str, after: float, folder: Path, which: int = signal.SIGINT, there: str = "") -> tuple[int, str]:
    """Returns the status of a command that was sent a signal some time after a file was there, and its errors; it left
    nothing half-written and no process.
    """
    environment = dict(os.environ, PYTHONPATH=os.pathsep.join(sys.path), GLENSIDE_CACHE=str(folder / "cache"))
    place = folder / f"{name} {after}"
    place.mkdir()
    _save_small(folder / "small.glenside")
    process = subprocess.Popen(
        [sys.executable, "-m", "glenside", *COMMANDS[name]],
        cwd=place,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    while there and not (place / there).exists() and process.poll() is None:
        time.sleep(0.01)
    time.sleep(after)
    process.send_signal(which)
    begin = time.monotonic()
    _, errors = process.communicate(timeout=60)
    assert time.monotonic() - begin < ANSWERED
    assert "Traceback" not in errors, errors
    left = {path.name for path in place.iterdir()}
    assert left in (set(), FILES)
    assert _children(str(place), str(process.pid)) == []
    if process.returncode != 0:  # it was faster
        assert process.returncode == 128 + which, errors
        assert ("no time for an answer" in errors) != ("then" in errors), errors
        assert not left or "net.c is what was found by then" in errors
    return process.returncode, errors


def _save_small(path: Path) -> None:
    b = gl.Builder("small")
    x = b.input("x", (1, 16, 14, 14))
    gl.save(b.finish(b.relu(b.conv(x, b.constant("w", (16, 16, 3, 3)), padding=1, name="conv"))), path)


def _children(*marks: str) -> list[str]:
    """What still runs, and works in a folder or has a parent."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            parent = entry.joinpath("stat").read_text().rsplit(")", 1)[1].split()[1]
            if os.readlink(entry / "cwd") in marks or parent in marks:
                found.append(entry.joinpath("cmdline").read_text())  # empty once its memory is gone: it ends
        except OSError:
            continue
    return [words for words in found if words]


@pytest.mark.parametrize("which", [signal.SIGINT, pytest.param(signal.SIGTERM, marks=pytest.mark.slow)])
def test_a_search_is_ended_with_a_status_of_its_own(tmp_path: Path, which: int) -> None:
    status, errors = _stopped("compile", 2.5, tmp_path, which)
    assert status == 128 + which
    assert "interrupted" in errors


@pytest.mark.needs_compiler
@pytest.mark.slow
@pytest.mark.parametrize("which", [signal.SIGINT, signal.SIGTERM])
def test_what_prices_tell_is_there_while_variants_are_timed(tmp_path: Path, which: int) -> None:
    status, errors = _stopped("tune", 0.3, tmp_path, which, there="net.weights")
    assert status == 128 + which, errors
    assert {path.name for path in (tmp_path / "tune 0.3").iterdir()} == FILES
    told = tmp_path / "told"
    told.mkdir()
    words = [word.replace(",tune=yes", "") for word in COMMANDS["tune"]]
    environment = dict(os.environ, PYTHONPATH=os.pathsep.join(sys.path), GLENSIDE_CACHE=str(tmp_path / "cache"))
    subprocess.run([sys.executable, "-m", "glenside", *words], cwd=told, env=environment, check=True)
    for name in FILES:
        assert (told / name).read_bytes() == (tmp_path / "tune 0.3" / name).read_bytes()


@pytest.mark.needs_compiler
@pytest.mark.slow
def test_c_that_runs_long_is_not_waited_for(tmp_path: Path) -> None:
    assert _stopped("run", 5.0, tmp_path)[0] == 130


@pytest.mark.needs_compiler
@pytest.mark.slow
@pytest.mark.parametrize("name", COMMANDS)
def test_ctrl_c_at_any_moment(name: str, tmp_path: Path, fuzzing: Fuzzing) -> None:
    for seed in fuzzing.seeds(10):
        _stopped(name, random.Random(f"{name} {seed}").uniform(0.2, 9.0), tmp_path)
