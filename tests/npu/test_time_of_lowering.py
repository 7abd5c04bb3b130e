"""Tests the time of lowering: bounded by --time-limit, reported by stage, with one total."""

from __future__ import annotations

import json
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from command_line import completed, run

import glenside as gl
from glenside.ir import interrupts
from glenside.ir.stopwatch import OTHERS, stage, watched
from glenside.npu.lowering.pipeline import time_limit
from glenside.npu.model.execute import run as simulate
from glenside.npu.model.reference_results import wrong
from glenside.npu.program.program import NpuProgram
from glenside.passes.answer import Unfinished
from glenside.stages import Stages


@pytest.fixture
def network(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    b = gl.Builder("two")
    y = b.relu(b.conv(b.input("x", (1, 3, 6, 6)), b.constant("a", (4, 3, 3, 3))))
    gl.save(b.finish(b.relu(b.conv(y, b.constant("c", (5, 4, 1, 1))))).seeded_constants(0), "n.glenside")
    return Path("n.glenside")


@pytest.fixture
def timed(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """As in a process that began with a command: signals raise KeyboardInterrupt until that is answered."""
    monkeypatch.setattr(interrupts, "_records", False)
    monkeypatch.setattr(interrupts, "_received", [])
    handlers = {which: signal.getsignal(which) for which in (*interrupts.STOPS, signal.SIGALRM)}
    interrupts.raise_until_answered()
    yield
    signal.setitimer(signal.ITIMER_REAL, 0)
    for which, handler in handlers.items():
        signal.signal(which, handler)


MADE = ("--target", "npu:4x4", "--quantize", "random", "-o", "n.bin", "--no-cache")


@pytest.mark.usefixtures("timed")
@pytest.mark.slow
def test_no_time_gives_the_program_that_takes_none_to_choose(network: Path, tmp_path: Path) -> None:
    done = completed("tensorize", network, *MADE, "--on", "simulator", "--time-limit", "1e-9", folder=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "Its 1e-09 s (--time-limit) were over before all choices were compared: each layer has its" in done.stdout
    assert "No other choice" not in done.stdout
    assert "in the simulator" in done.stdout


@pytest.mark.usefixtures("timed")
def test_no_program_in_time_is_said_with_what_would_help(
    network: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(time_limit, "_GRACE_SECONDS", -1.0)
    assert run("tensorize", network, *MADE, "--time-limit", "1e-9") == 1
    printed = " ".join(capsys.readouterr().out.split())
    assert "Its 1e-09 s (--time-limit) were over before there was a program" in printed
    assert "More time helps, and so do larger memories" in printed
    assert "n.bin is as it was" in printed
    assert not Path("n.bin").exists()


_SOON = gl.Limits(seconds=1e-9)


def _of(path: Path, **how: Any) -> NpuProgram:
    return gl.npu_program(gl.load(path), gl.NPU(4), quantize="random", **how)


def test_limits_bound_lowering_from_python(network: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = signal.getsignal(signal.SIGALRM)
    with pytest.warns(UserWarning, match=r"1e-09 s \(limits\.seconds\) were over before all choices were compared"):
        made = _of(network, limits=_SOON)
    assert not wrong(made, simulate(made).dram)
    assert made.choices is None
    assert _of(network, limits=gl.Limits(seconds=600.0)).choices is not None
    monkeypatch.setattr(time_limit, "_GRACE_SECONDS", -1.0)
    with pytest.raises(Unfinished, match="were over before there was a program"):
        _of(network, limits=_SOON)
    assert signal.getsignal(signal.SIGALRM) is before
    assert signal.getitimer(signal.ITIMER_REAL)[0] == 0


def test_no_timer_outlives_its_handler(monkeypatch: pytest.MonkeyPatch) -> None:
    """Even where a signal came before: an alarm that nothing handles ends the process."""
    monkeypatch.setattr(interrupts, "_received", [signal.SIGINT])
    before = signal.signal(signal.SIGALRM, signal.SIG_DFL)
    try:
        with interrupts.ended_after(lambda: 500.0):
            assert signal.getitimer(signal.ITIMER_REAL)[0] > 400
        assert signal.getitimer(signal.ITIMER_REAL)[0] == 0
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def test_limits_bound_lowering_beside_a_timer_and_in_a_thread(network: Path) -> None:
    found: list[NpuProgram] = []

    def make() -> None:
        with pytest.warns(UserWarning, match="were over before all choices were compared"):
            found.append(_of(network, limits=_SOON))

    thread = threading.Thread(target=make)
    thread.start()
    thread.join()
    before = signal.signal(signal.SIGALRM, lambda *_: None)
    signal.setitimer(signal.ITIMER_REAL, 500.0)
    try:
        make()
        assert signal.getitimer(signal.ITIMER_REAL)[0] > 400
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert len(found) == 2


def test_one_total_and_every_stage(network: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("tensorize", network, *MADE, "--json", "n.json") == 0
    printed, told = capsys.readouterr().out, json.loads(Path("n.json").read_text())
    cycles = told["instructions"]["predicted"]
    assert f"The program takes {cycles:,} cycles, memories and DMA included." in printed
    assert told["of_program"] == {"cycles": cycles}
    alone = told["totals"]["chosen"]["cycles"]
    assert alone != cycles
    assert f"{alone:,} cycles" not in printed
    assert "takes fewer cycles: the bound" not in printed
    assert "the gap 0" not in printed
    seconds = told["instructions"]["seconds"]
    assert {"map", "price", "select", "allocate", "emit", "infer synchronization", "predict", "write"} <= seconds.keys()
    assert seconds[OTHERS] <= 0.2 * sum(seconds.values()) + 0.1
    assert told["seconds"]["lower"] == pytest.approx(sum(seconds.values()), abs=1e-3)
    assert "Seconds of lowering: " in printed
    total = told["seconds"].pop("total")
    assert sum(told["seconds"].values()) == pytest.approx(total, rel=0.3, abs=0.5)  # nothing that takes long is unnamed


def test_cycles_by_mapping_alone_are_called_so(network: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("tensorize", network, "--target", "npu:4x4", "--no-cache") == 0
    printed = capsys.readouterr().out
    assert "cycles of the layers by mapping alone" in printed
    assert "memories and DMA are not counted" in printed
    assert "gap 0" not in printed


def test_stages_inside_others_are_told_apart() -> None:
    with watched() as watch:
        with stage("outer"):
            time.sleep(0.02)
            with stage("inner"):
                time.sleep(0.03)
        with stage("alone", alone=True), stage("hidden"):
            time.sleep(0.01)
    assert watch.seconds.keys() == {OTHERS, "outer", "inner", "alone"}
    assert watch.seconds["outer"] >= 0.02
    assert watch.seconds["inner"] >= 0.03
    assert watch.seconds["alone"] >= 0.01
    with stage("nobody times this"):
        pass
    assert not watch.has_begun("nobody times this")


@pytest.mark.usefixtures("timed")
def test_a_block_ends_after_its_seconds() -> None:
    with interrupts.ended_after(lambda: 0.05) as is_over:
        assert not is_over()
        with pytest.raises(KeyboardInterrupt):
            time.sleep(10)
        assert is_over()
        interrupts.answered()
    time.sleep(0.3)  # nothing comes again
    with interrupts.ended_after(lambda: 10.0) as is_over:
        time.sleep(0.01)
    assert not is_over()
    assert not interrupts.stopped()
    assert signal.getitimer(signal.ITIMER_REAL)[0] == 0


def test_nothing_is_lowered_once_ctrl_c_ended_the_search(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(interrupts, "_received", [signal.SIGINT])
    begun: list[str] = []

    def find(**_: Any) -> NpuProgram:
        begun.append("lowered")
        raise AssertionError

    try:
        with watched() as watch, pytest.raises(KeyboardInterrupt):
            time_limit.InTime().make(find, None, watch)
    finally:
        interrupts.answered()
    assert not begun


@pytest.mark.usefixtures("undisturbed_interrupt")
def test_ctrl_c_in_a_search_ends_the_call_and_no_later_one(network: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In Python, where several calls share a process."""
    saturate = Stages._saturate

    def press(*arguments: Any) -> Any:
        with interrupts.undisturbed(then=True):
            signal.raise_signal(signal.SIGINT)
        return saturate(*arguments)

    monkeypatch.setattr(Stages, "_saturate", press)
    with pytest.raises(KeyboardInterrupt):
        _of(network)
    monkeypatch.setattr(Stages, "_saturate", saturate)
    made = _of(network)
    assert not wrong(made, simulate(made).dram)
