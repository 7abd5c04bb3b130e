"""Whatever ends a run leaves the best answer so far, or the sentence that there was no time for one."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
import weakref
from collections.abc import Iterator
from pathlib import Path

import pytest
from command_line import run
from fuzzing import Fuzzing

import glenside as gl
from glenside.ir import interrupts

COMMANDS = {
    "array": ("tensorize", "mobilenet-v1", "--array", "64x64", "--set", "resolution=64"),
    "cpu": ("tensorize", "unet-small", "--target", "cpu:64MB", "--set", "resolution=64"),
    "mpc": ("tensorize", "resnet-18", "--target", "mpc:semi2k", "--set", "resolution=32"),
    "layout": ("layout", "resnet-18", "--set", "resolution=64"),
    "compare": ("compare", "resnet-18", "--array", "32x32", "--set", "resolution=64"),
    "sweep": ("sweep", "resnet-18", "--set", "resolution=32", "--arrays", "16x16,32x32"),
}
ANSWERED = 5.0  # seconds: two where a machine does nothing else
SENTENCE = "no time for an answer"


def _stopped(words: tuple[str, ...], which: int, after: float, out: Path) -> tuple[int, float, str]:
    """Returns the status of a command that was sent a signal, the seconds that it took, and what
    it printed as errors.
    """
    environment = dict(os.environ, PYTHONPATH=os.pathsep.join(sys.path))
    output = () if words[0] == "compare" else ("-o", str(out))
    command = [sys.executable, "-m", "glenside", *words, *output, *(() if words[0] == "sweep" else ("--no-cache",))]
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment, start_new_session=True
    )
    time.sleep(after)
    if process.poll() is not None:
        return process.returncode, 0.0, process.communicate()[1].decode()
    process.send_signal(which)
    started = time.monotonic()
    errors = process.communicate(timeout=60)[1].decode()
    return process.returncode, time.monotonic() - started, errors


def _hold(name: str, which: int, after: float, out: Path) -> None:
    out.unlink(missing_ok=True)
    status, seconds, errors = _stopped(COMMANDS[name], which, after, out)
    assert "Traceback" not in errors, errors
    assert seconds < ANSWERED
    if status != 0:  # it was faster
        assert status == 128 + which, errors
    if name not in ("compare", "sweep"):
        assert out.exists() != (SENTENCE in errors)
        if out.exists():
            assert gl.load(out).term.access.size


@pytest.mark.parametrize("name", ["array", pytest.param("mpc", marks=pytest.mark.slow)])
def test_sigterm_leaves_an_answer(name: str, tmp_path: Path) -> None:
    _hold(name, signal.SIGTERM, 3.0, tmp_path / "best.glenside")


@pytest.mark.slow
@pytest.mark.parametrize("name", COMMANDS)
def test_ctrl_c_at_any_moment(name: str, tmp_path: Path, fuzzing: Fuzzing) -> None:
    out = tmp_path / ("best.jsonl" if name == "sweep" else "best.glenside")
    for seed in fuzzing.seeds(10):
        _hold(
            name, signal.SIGINT, random.Random(f"{name} {seed}").uniform(0.2, 7.0), out
        )  # before that Python itself is starting


TARGETS = ["systolic-array:16x16", "mpc:semi2k", "cpu:1MB", "convolution-unit:nhwc"]


LIMITS = ["--time-limit 0", "--iter-limit 0", "--node-limit 0", "--memory-limit 1MB"]


@pytest.mark.parametrize(
    ("target", "limit"),
    [  # each limit with one target, and each target with one limit
        pytest.param(target, limit, marks=pytest.mark.slow if (i - j) % 4 else ())
        for i, target in enumerate(TARGETS)
        for j, limit in enumerate(LIMITS)
    ],
)
def test_no_limit_is_too_small_for_an_answer(target: str, limit: str, tmp_path: Path) -> None:
    source, out = tmp_path / "p.glenside", tmp_path / "best.glenside"
    b = gl.Builder("p")
    x = b.conv(b.input("x", (1, 4, 9, 7)), b.constant("w", (5, 4, 3, 3)), padding=1, name="conv")
    gl.save(b.finish(b.relu(x)), source)
    assert run("tensorize", source, "--target", target, *limit.split(), "-o", out) == 0
    assert gl.load(out).term.access.dims == (1, 5, 9, 7)


class _Watched:
    pass


@pytest.fixture
def answering(monkeypatch: pytest.MonkeyPatch, undisturbed_interrupt: None) -> Iterator[None]:
    """Signals are handled as the command line does it."""
    monkeypatch.setattr(sys, "unraisablehook", sys.__unraisablehook__)
    monkeypatch.setattr(interrupts, "_records", False)
    monkeypatch.setattr(interrupts, "_received", [])
    handlers = {which: signal.getsignal(which) for which in (*interrupts.STOPS, signal.SIGALRM)}
    interrupts.raise_until_answered()
    yield
    interrupts.answered()
    for which, handler in handlers.items():
        signal.signal(which, handler)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.usefixtures("answering")
def test_a_signal_whose_exception_is_lost_comes_again(capfd: pytest.CaptureFixture[str]) -> None:
    """Python drops what is raised in the callback of a weak reference, and need not say so."""
    thing = _Watched()
    reference = weakref.ref(thing, lambda _: signal.raise_signal(signal.SIGINT))
    del thing
    with pytest.raises(KeyboardInterrupt):
        time.sleep(5)
    assert interrupts.unanswered()
    interrupts.answered()
    time.sleep(0.6)
    assert reference() is None
    assert "KeyboardInterrupt" not in capfd.readouterr().err


@pytest.mark.usefixtures("answering")
def test_a_signal_that_was_kept_waiting_is_to_be_answered() -> None:
    """Else who makes a status of the exception, as typer does, would leave nobody to say that it was interrupted."""
    with pytest.raises(KeyboardInterrupt), interrupts.undisturbed(then=True):
        signal.raise_signal(signal.SIGINT)
    assert interrupts.unanswered()


_MADE_ANOTHER = """
import signal
from glenside import cli
from glenside.cli import application

def run():
    try:
        signal.raise_signal(signal.SIGTERM)
    except KeyboardInterrupt:
        raise TypeError("arrays are not compared") from None

application.run = run
cli.main()
"""


def test_a_signal_of_which_another_exception_was_made_is_a_sentence() -> None:
    """As numpy does where one comes while records are compared; Python would end by SIGALRM, too."""
    environment = dict(os.environ, PYTHONPATH=os.pathsep.join(sys.path))
    found = subprocess.run(
        [sys.executable, "-c", _MADE_ANOTHER], capture_output=True, text=True, timeout=60, env=environment, check=False
    )
    assert found.returncode == 128 + signal.SIGTERM
    assert SENTENCE in found.stderr
    assert "Traceback" not in found.stderr


@pytest.mark.parametrize("written", ["", "best.glenside"])
def test_who_interrupts_the_last_moment_is_told_of_the_answer(written: str) -> None:
    script = (
        "import os, signal, sys, glenside.cli as cli, glenside.cli.application as application\n"
        "from glenside.ir import interrupts\n"
        "def run():\n"
        f"    interrupts.write_down({written!r})\n"
        "    os.kill(os.getpid(), signal.SIGTERM)\n"
        "application.run = run\n"
        "cli.main()\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60)
    assert done.returncode == 128 + signal.SIGTERM
    said = f"{written} holds the answer" if written else f"there was {SENTENCE}"
    assert done.stderr == f"glenside: interrupted: {said}\n"
