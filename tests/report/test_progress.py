"""Tests progress output: it fits any width, nothing reaches pipes, the terminal is restored."""

from __future__ import annotations

import io
import os
import subprocess
import sys
from pathlib import Path

import pytest

import glenside as gl
from glenside.report.progress import Event, facts, html, line, shown, silent

FULL = Event("saturate", "iteration 3, 2 s", None, 12_345, 541_003, 401_222, "cycles")


def test_a_line_is_never_wider_than_the_terminal_and_drops_the_least_telling() -> None:
    for event in (FULL, Event("check", "3 of 7", 0.43).after(FULL), Event("SPU: compiling a long sentence " * 9)):
        for width in range(1, 200):
            assert line(event, width, seconds=width / 7).cell_len <= width
    assert line(FULL, 200).plain.endswith("best 541,003 cycles  bound 401,222  12,345 e-nodes  iteration 3, 2 s")
    assert "best 541,003 cycles" in line(FULL, 60).plain
    assert line(FULL, 20).plain.strip() == "saturate"
    assert "43 %" in line(Event("check", "3 of 7", 0.43), 60).plain


def test_what_was_told_before_holds_until_something_else_is_told() -> None:
    after = Event("check", "1 of 2", 0.5).after(FULL)
    assert facts(after) == ["best 541,003 cycles", "bound 401,222", "12,345 e-nodes", "1 of 2"]
    assert facts(Event("saturate", best=7).after(FULL))[0] == "best 7 cycles"
    assert Event("saturate", best=7).after(FULL).detail == FULL.detail


def test_text_is_text_in_a_notebook_and_on_a_terminal() -> None:
    odd = Event("<b>", "<script>\x1b[2J")
    assert "<script>" not in html(odd)
    assert "<b>" not in html(odd)
    assert "\x1b" not in line(odd, 150).plain


def test_nobody_is_told_where_nobody_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    error = io.StringIO()
    monkeypatch.setattr(sys, "stderr", error)
    with shown() as listener:
        assert listener is silent
    with shown(quiet=True) as listener:
        assert listener is silent
    assert not error.getvalue()


def test_the_best_so_far_and_the_bound_meet_in_the_end() -> None:
    b = gl.Builder("told")
    x = b.conv(b.input("x", (1, 4, 9, 9)), b.constant("w", (6, 4, 3, 3)), name="conv")
    told: list[Event] = []
    result = gl.optimize(b.finish(x), gl.SystolicArray(8, 8), listener=told.append, progress=True)
    best = [event.best for event in told if event.best is not None]
    assert best[-1] == result.report.total["cycles"]
    assert best == sorted(best, reverse=True)
    bounds = [event.bound for event in told if event.bound is not None]
    assert bounds[-1] == result.report.lower_bound
    assert all(bound <= result.report.lower_bound for bound in bounds)  # type: ignore[operator]
    assert {event.unit for event in told if event.best is not None} == {"cycles"}


@pytest.mark.skipif(sys.platform == "win32", reason="there are no pseudo-terminals")
@pytest.mark.parametrize("quiet", [False, True])
def test_on_a_terminal_it_is_shown_and_taken_away(quiet: bool, tmp_path: Path) -> None:
    import pty

    source = tmp_path / "net.glenside"
    source.write_text(
        "(input a (shape 5 9)) (constant b (shape 7 9)) (compute dot-product (access-cartesian-product "
        "(access (access-tensor a) 1) (access (access-tensor b) 1)))"
    )
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "glenside", "tensorize", str(source), "--array", "4x4", "--no-cache"]
    environment = {**os.environ, "TERM": "xterm-256color", "COLUMNS": "120"}
    with open(tmp_path / "out", "wb") as out:
        process = subprocess.Popen(
            [*command, *(["--quiet"] if quiet else [])], stdout=out, stderr=theirs, env=environment
        )
        os.close(theirs)
        written = b""
        while True:
            try:
                some = os.read(ours, 1 << 16)
            except OSError:  # how Linux says that the other end is closed
                break
            if not some:
                break
            written += some
    assert process.wait() == 0
    os.close(ours)
    shows = written.decode()
    assert "\x1b" not in (tmp_path / "out").read_text()
    if quiet:
        assert shows == ""
        return
    assert "saturate" in shows
    assert "cycles" in shows
    assert shows.rfind("\x1b[?25h") > shows.rfind("\x1b[?25l") >= 0  # the cursor is back
    assert shows.rstrip().endswith("\x1b[2K")  # and the line is empty
