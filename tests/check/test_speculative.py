"""Tests that a check whose rounds are shared by two processes gives the same report as one process."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from equal_rewrites import equals
from mutations import mutants, network

from glenside.builder import Builder
from glenside.builder.layout import broadcast
from glenside.builder.pointwise import cast, multiply, relu
from glenside.check import check, rounds, speculative
from glenside.check.comparison import OutOfTime
from glenside.ir import forked_work
from glenside.ir.forked_work import RoundWorker
from glenside.ir.program import Program
from glenside.ir.term import Term

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="there is no second process elsewhere")


class Watched(RoundWorker):
    """Records each process and its report."""

    processes: list[int]
    told: list[bool]

    def start(self) -> None:
        super().start()
        self.processes.append(self._process)

    def answer(self, look: Callable[[], None], seconds: float) -> Any:
        answer = super().answer(look, seconds + 1)  # other tests run beside
        self.told.append(answer is not None)
        return answer


@pytest.fixture
def shared(monkeypatch: pytest.MonkeyPatch) -> type[Watched]:
    """Every check is shared, however short its turns are."""
    monkeypatch.setattr(rounds, "LEAST_SECONDS", -1.0)
    monkeypatch.setattr(rounds, "possible", lambda *_: True)
    monkeypatch.setattr(rounds, "RoundWorker", Watched)
    monkeypatch.setattr(Watched, "processes", [], raising=False)
    monkeypatch.setattr(Watched, "told", [], raising=False)
    return Watched


def pairs(seed: int) -> list[tuple[Term, Term]]:
    pick = random.Random(seed)
    term = network(pick)
    return [
        (term, other) for other in (*islice(mutants(term, pick), 3), *(t for _, t in islice(equals(term, pick), 2)))
    ]


def said(term: Term, other: Term, **how: Any) -> tuple[object, ...]:
    report = check(Program(term), Program(other), **how)
    return report.layers, report.result, report.how, report.stopped


def exists(process: int) -> bool:
    try:
        return (Path("/proc") / str(process) / "stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, *(pytest.param(n, marks=pytest.mark.slow) for n in (1, 2))])
def test_verdicts_are_those_of_one_process(seed: int, shared: type[Watched], monkeypatch: pytest.MonkeyPatch) -> None:
    two = [said(*pair) for pair in pairs(seed)]
    assert any(shared.told)
    assert not any(map(exists, shared.processes))
    monkeypatch.setattr(rounds, "possible", lambda *_: False)
    assert two == [said(*pair) for pair in pairs(seed)]


def in_bytes(twice: bool = False) -> Program:
    """x cut to bytes by a scale that has a value."""
    b = Builder("p")
    scale = broadcast(b.constant("scale", (), value=np.float32(1 / 16)), (3, 5))
    y = cast(cast(multiply(b.input("x", (3, 5)), scale), "int8"), "float32")
    return b.finish(relu(relu(y)) if twice else relu(y))


def test_constants_have_their_own_values_in_the_last_turn(
    shared: type[Watched], monkeypatch: pytest.MonkeyPatch
) -> None:
    two = check(in_bytes(), in_bytes(twice=True))
    assert shared.told[0]
    monkeypatch.setattr(rounds, "possible", lambda *_: False)
    one = check(in_bytes(), in_bytes(twice=True))
    assert (two.result, two.how) == (one.result, one.how)
    assert one.ok


def test_a_process_that_ends_is_done_without(shared: type[Watched], monkeypatch: pytest.MonkeyPatch) -> None:
    term, other = pairs(0)[-1]
    alone = said(term, other)

    def ask(self: Watched, turn: int) -> None:
        RoundWorker.ask(self, turn)
        os.kill(self._process, signal.SIGKILL)

    monkeypatch.setattr(shared, "ask", ask, raising=False)
    assert said(term, other) == alone
    assert shared.told[-1] is False


def test_no_process_may_be_had(shared: type[Watched], monkeypatch: pytest.MonkeyPatch) -> None:
    term, other = pairs(0)[-1]
    alone = said(term, other)
    before = len(os.listdir("/proc/self/fd"))

    def fork() -> int:
        raise BlockingIOError

    monkeypatch.setattr(os, "fork", fork)
    assert said(term, other) == alone
    assert len(os.listdir("/proc/self/fd")) == before


def test_ctrl_c_leaves_no_process(shared: type[Watched]) -> None:
    term, other = pairs(0)[-1]

    def interrupt(done: int, total: int) -> None:
        if shared.processes:
            raise KeyboardInterrupt

    assert said(term, other, progress=interrupt)[-1] == "interrupted"
    assert len(shared.processes) == 1
    assert not exists(shared.processes[0])


def test_what_is_waited_for_is_not_waited_for_beyond_a_limit() -> None:
    def out_of_time() -> None:
        raise OutOfTime

    slow = RoundWorker(lambda turn, look: time.sleep(60))
    started = time.monotonic()
    try:
        slow.start()
        slow.ask(0)
        with pytest.raises(OutOfTime):
            slow.answer(out_of_time, 60)
    finally:
        slow.end()
    assert time.monotonic() < started + 2


def test_what_takes_too_long_is_nothing() -> None:
    slow = RoundWorker(lambda turn, look: time.sleep(60))
    try:
        slow.start()
        slow.ask(0)
        assert slow.answer(lambda: None, 0.1) is None
    finally:
        slow.end()


def test_what_it_fails_at_is_nothing() -> None:
    failing = RoundWorker(lambda turn, look: 1 // turn)
    try:
        failing.start()
        failing.ask(1)
        assert failing.answer(lambda: None, 60) == 1
        failing.ask(0)
        assert failing.answer(lambda: None, 60) is None
        failing.ask(1)
        assert failing.answer(lambda: None, 60) is None
    finally:
        failing.end()


_KILLED = """
import os, signal, time
from glenside.ir.forked_work import RoundWorker

def work(turn, look):
    while True:
        time.sleep(0.01)
        look()

ahead = RoundWorker(work)
ahead.start()
ahead.ask(0)
print(ahead._process, flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_it_ends_with_the_process_that_it_is_a_copy_of() -> None:
    found = subprocess.run([sys.executable, "-c", _KILLED], stdout=subprocess.PIPE, text=True, timeout=60, check=False)
    until = time.monotonic() + 2
    while exists(int(found.stdout)) and time.monotonic() < until:
        time.sleep(0.02)
    assert not exists(int(found.stdout))


def test_large_arrays_are_left_to_all_processors(monkeypatch: pytest.MonkeyPatch) -> None:
    term, _ = pairs(0)[0]
    monkeypatch.setattr(forked_work, "processors", lambda: 2)
    monkeypatch.setattr(forked_work.threading, "enumerate", lambda: [forked_work.threading.current_thread()])
    assert speculative.possible(term)
    monkeypatch.setattr(speculative, "_LARGEST", 1)
    assert not speculative.possible(term)
    monkeypatch.undo()
    monkeypatch.setattr(forked_work, "processors", lambda: 1)
    assert not speculative.possible(term)
