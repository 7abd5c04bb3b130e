"""What a command begins before it reads its command line: a search process, where there will be a search."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest
from command_line import run

import glenside as gl
from glenside import cli
from glenside.egraph import process
from glenside.egraph.saturation import Limits
from glenside.egraph.search import start_workers_early
from glenside.passes.network import fold_batch_norms, folding_ahead


@pytest.mark.parametrize(
    ("words", "begun"),
    [
        (("tensorize", "mobilenet-v1", "--no-cache"), [None]),
        (("tensorize", "mobilenet-v1", "--no-cache", "--quantize=random", "-o", "a.bin"), [cli._FOLDING]),
        (("tensorize", "mobilenet-v1"), []),
        (("tensorize", "--no-cache", "--help"), []),
        (("sweep", "mobilenet-v1", "--quantize", "random"), []),
        ((), []),
    ],
)
def test_a_search_process_begins_where_there_will_be_a_search(
    words: tuple[str, ...], begun: list[str | None], monkeypatch: pytest.MonkeyPatch
) -> None:
    found: list[str | None] = []
    monkeypatch.setattr(cli, "begin", found.append)
    cli._begin_search(words)
    assert found == begun


def test_it_compiles_what_the_first_search_declares_before_it_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    process.end_idle()
    process.begin(cli._FOLDING)
    (worker,) = process.IDLE
    sent = list[object]()
    send = worker._send
    monkeypatch.setattr(worker, "_send", lambda what: (sent.append(what), send(what)))
    start_workers_early(Limits(), folding_ahead, lambda: "(sort Other)")
    assert sent == ["(sort Other)"], "it knows of the first one"
    assert fold_batch_norms(gl.models.mobilenet_v1().as_written())[1] == "saturated"
    assert (process.IDLE, worker.is_new) == ([worker], False)
    process.end_idle()


def test_what_says_so_are_options(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("tensorize", "--help") == 0
    said = capsys.readouterr().out
    assert all(re.search(rf"{option}\b", said) for option in cli._SEARCHES)


def test_a_command_that_is_refused_then_says_nothing_else() -> None:
    words = [sys.executable, "-m", "glenside", "tensorize", "nothing", "--no-cache", "--target", "npu:0x0"]
    done = subprocess.run(words, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
