"""Streams that are closed or full, other locales, and Python without assertions and docstrings."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from slow_cases import quick

TENSORIZE = "tensorize {} --array 4x4"
PROGRAM = """(input a (shape 5 9)) (constant b (shape 7 9))
(compute dot-product (access-cartesian-product (access (access-tensor a) 1) (access (access-tensor b) 1)))"""
ASCII = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}


def _run(redirected: str, command: str, folder: Path, **more: str) -> subprocess.CompletedProcess[bytes]:
    program = folder / "my.glenside"
    program.write_text(PROGRAM)
    line = f'"$PYTHON" -m glenside {command.format(program)} {redirected}'
    known = dict(os.environ, PYTHON=sys.executable, PYTHONPATH=os.pathsep.join(sys.path), **more)
    return subprocess.run(["bash", "-c", line], capture_output=True, env=known, check=False, timeout=120)


@pytest.mark.parametrize("redirected", quick([">&-", "<&- >&- 2>&-"], 1))
def test_a_closed_stream_is_no_error(redirected: str, tmp_path: Path) -> None:
    done = _run(redirected, TENSORIZE, tmp_path)
    assert (done.returncode, done.stderr) == (0, b"")


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="there is no device that is full")
def test_a_full_output_is_a_sentence(tmp_path: Path) -> None:
    done = _run(">/dev/full", "models", tmp_path)
    assert done.returncode == 2
    assert done.stderr == b"glenside: error: cannot write standard output: No space left on device\n"


@pytest.mark.parametrize("more", [ASCII, {"PYTHONOPTIMIZE": "2"}], ids=["ascii", "no docstrings"])
def test_other_pythons(more: dict[str, str], tmp_path: Path) -> None:
    done = _run("", TENSORIZE, tmp_path, **more)
    assert (done.returncode, done.stderr) == (0, b"")
    assert b"product-1" in done.stdout


def test_a_name_that_is_no_utf_8(tmp_path: Path) -> None:
    program = tmp_path / os.fsdecode(b"my\xff.glenside")
    program.write_text(PROGRAM)
    out = tmp_path / os.fsdecode(b"out\xff.glenside")
    command = [sys.executable, "-m", "glenside", "tensorize", program, "--array", "4x4", "-o", out]
    done = subprocess.run(command, capture_output=True, check=False, timeout=120)
    assert (done.returncode, done.stderr) == (0, b"")
    assert out.read_text().startswith("(input a")
