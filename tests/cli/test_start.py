"""What a command begins before it reads its command line: a search process, where there will be a search."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest
from command_line import run

from glenside.cli import _SEARCHES, _will_search


@pytest.mark.parametrize(
    ("words", "searches"),
    [
        (("tensorize", "mobilenet-v1", "--no-cache"), True),
        (("tensorize", "mobilenet-v1", "--quantize=random", "-o", "a.bin"), True),
        (("tensorize", "mobilenet-v1"), False),
        (("tensorize", "--no-cache", "--help"), False),
        (("sweep", "mobilenet-v1", "--no-cache"), False),
        ((), False),
    ],
)
def test_a_search_process_begins_where_there_will_be_a_search(words: tuple[str, ...], searches: bool) -> None:
    assert _will_search(words) == searches


def test_what_says_so_are_options(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("tensorize", "--help") == 0
    said = capsys.readouterr().out
    assert all(re.search(rf"{option}\b", said) for option in _SEARCHES)


def test_a_command_that_is_refused_then_says_nothing_else() -> None:
    words = [sys.executable, "-m", "glenside", "tensorize", "nothing", "--no-cache", "--target", "npu:0x0"]
    done = subprocess.run(words, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
