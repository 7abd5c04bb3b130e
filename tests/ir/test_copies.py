"""Jobs that are shared out to copies of this process: what they find is the same whoever does them."""

from __future__ import annotations

import os
from functools import partial

import pytest

from glenside.ir import copies
from glenside.ir.copies import shared_out


@pytest.fixture(autouse=True)
def _copied(monkeypatch: pytest.MonkeyPatch) -> None:
    """Copies are made wherever tests run."""
    monkeypatch.setattr(copies, "may_be_copied", lambda: True)
    monkeypatch.setattr(copies, "cores", lambda: 3)


def test_all_find_what_one_would() -> None:
    """Also of more numbers than are written at once."""
    sizes = [*range(40), 5_000, 20_000]
    jobs = [partial(lambda size: [size / 3, -size, *[0.5] * size], size) for size in sizes]
    assert shared_out(jobs) == [job() for job in jobs]


def test_copies_take_jobs_while_this_process_does_something_else() -> None:
    hear, tell = os.pipe()

    def job() -> list[float]:
        os.write(tell, b"x")
        return [os.getpid()]

    found = shared_out([job] * 8, lambda: [*map(os.read, [hear] * 8, [1] * 8)].clear())
    assert len(found) == 8
    assert os.getpid() not in {pid for (pid,) in found}
    os.close(hear)
    os.close(tell)


def test_what_a_copy_does_not_tell_is_found_here() -> None:
    parent = os.getpid()

    def job() -> list[float]:
        if os.getpid() != parent:
            os._exit(1)
        return [2.0]

    assert shared_out([job] * 9) == [[2.0]] * 9


def test_what_a_job_raises_is_raised_and_no_copy_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    made, fork = list[int](), os.fork

    def kept() -> int:
        made.append(fork())
        return made[-1]

    def bad() -> list[float]:
        raise ValueError("no number")

    monkeypatch.setattr(os, "fork", kept)
    with pytest.raises(ValueError, match="no number"):
        shared_out([bad, *[lambda: [1.0]] * 9])
    assert len(made) == 2
    for pid in made:
        with pytest.raises(ChildProcessError):
            os.waitpid(pid, os.WNOHANG)


def test_few_jobs_are_done_here() -> None:
    own = os.getpid()
    assert shared_out([lambda: [os.getpid()]] * 2) == [[own], [own]]


def test_no_copy_can_be_made(monkeypatch: pytest.MonkeyPatch) -> None:
    def fork() -> int:
        raise BlockingIOError("no process is left")

    monkeypatch.setattr(os, "fork", fork)
    times = list[int]()
    assert shared_out([lambda: [1.0]] * 9, lambda: times.append(1)) == [[1.0]] * 9
    assert times == [1]
