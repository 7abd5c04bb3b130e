"""Runs programs and runtimes in processes of their own in turn, with all others stopped meanwhile."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from threading import Timer
from typing import Any

from glenside.ir.child_processes import how_ended, start
from glenside.ir.interrupts import undisturbed
from glenside.ir.operand import Array

RUNS = 5
"""Consecutive runs of each entrant in a round: the first finds others' data in the caches."""
PAUSE = 0.01
"""Seconds between two entrants, in which a runtime's remaining work ends."""
PATIENCE = 600.0
"""The time limit for loading a model, in seconds."""
_COUNTING = "import os, sys\nwhile os.getppid() == int(sys.argv[1]): pass"
"""A program that keeps a processor busy until its parent ends."""


class CannotRun(Exception):
    """A runtime's reason for not running a model."""


@dataclass(frozen=True)
class Entrant:
    """A program or runtime, named as in `glenside.execution.peers`, and the file that it loads.

    most  the maximum rounds in which it takes part
    runs  consecutive runs in each of them
    """

    name: str
    model: Path
    title: str
    most: int = 1 << 30
    runs: int = RUNS


@dataclass
class Runner:
    """An entrant in its process: the least seconds of its runs in each round, those of the first run, and its peak
    growth.

    Growth counts resident pages, from before the model is loaded: its weights, the arrays of a run and compiled code,
    but not the runtime's own code, nor the inputs.
    """

    entrant: Entrant
    process: subprocess.Popen[bytes]
    errors: Any
    before: int | None = None
    grown: int | None = None
    seconds: list[float] = field(default_factory=list)
    firsts: list[float] = field(default_factory=list)

    def load(self) -> None:
        """Waits until it has loaded the model and run once. Raises CannotRun."""
        late = False

        def kill() -> None:
            nonlocal late
            late = True
            self.process.kill()

        timer = Timer(PATIENCE, kill)
        timer.start()
        try:
            answer = self._answer("it loaded")
        except CannotRun:
            if late:
                raise CannotRun(f"it took more than {PATIENCE:g} s to load {self.entrant.model.name}") from None
            raise
        finally:
            timer.cancel()
        self.before = answer["before"].get("now")
        self._stop()

    def run(self) -> None:
        """Runs one more round. Raises CannotRun."""
        self._send(signal.SIGCONT)
        time.sleep(PAUSE)
        assert self.process.stdin is not None, "it has a pipe"
        with suppress(OSError):  # it has ended, as the answer will say
            self.process.stdin.write(f"{self.entrant.runs}\n".encode())
            self.process.stdin.flush()
        answer = self._answer("it ran")
        self._stop()
        self.seconds.append(min(answer["seconds"]))
        self.firsts.append(answer["seconds"][0])
        if self.before is not None:
            self.grown = answer["bytes"]["peak"] - self.before

    def end(self) -> None:
        """Ends it, and the processes that it started."""
        with suppress(OSError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.kill()
        self.process.wait()
        for stream in (self.process.stdin, self.process.stdout, self.errors):
            if stream is not None:
                with suppress(OSError):
                    stream.close()

    def _stop(self) -> None:
        self._send(signal.SIGSTOP)

    def _send(self, which: int) -> None:
        with suppress(OSError):
            os.killpg(self.process.pid, which)

    def _answer(self, when: str) -> dict[str, Any]:
        assert self.process.stdout is not None, "it has a pipe"
        line = self.process.stdout.readline()
        if not line:
            how = how_ended(self.process.wait())
            raise CannotRun(f"its process ended {how} when {when} {self.entrant.model.name}{self._last_words()}")
        answer: dict[str, Any] = json.loads(line)
        if "failed" in answer:
            raise CannotRun(answer["failed"])
        return answer

    def _last_words(self) -> str:
        self.errors.seek(0)
        lines = [line.strip() for line in self.errors.read().decode(errors="replace").splitlines() if line.strip()]
        return f": {lines[-1][:200]}" if lines else ""


@contextmanager
def started(
    entrants: Sequence[Entrant], threads: int, folder: Path, fails: Callable[[Entrant, CannotRun], None]
) -> Iterator[list[Runner]]:
    """Starts the entrants and yields those that load their model; `folder` has the inputs."""
    with ExitStack() as open_:
        found = []
        for entrant in entrants:
            with undisturbed(then=True):  # start none without recording it
                runner = _begin(entrant, threads, folder)
                open_.callback(runner.end)
            try:
                runner.load()
                found.append(runner)
            except CannotRun as error:
                fails(entrant, error)
        yield found


def _begin(entrant: Entrant, threads: int, folder: Path) -> Runner:
    errors = tempfile.TemporaryFile()
    words = [entrant.name, str(entrant.model), str(threads), str(folder)]
    process = start("glenside.execution.peers.serve", *words, errors=errors, OMP_NUM_THREADS=str(threads))
    return Runner(entrant, process, errors)


def run_in_turn(
    runners: list[Runner], rounds: int, fails: Callable[[Entrant, CannotRun], None], show: Callable[[int], None]
) -> None:
    """Runs all in turn, starting with another one in each round, after two rounds of warm-up."""
    for number in range(rounds + 2):
        show(number)
        first = number % max(1, len(runners))
        for runner in [*runners[first:], *runners[:first]]:
            try:
                if number < runner.entrant.most:
                    runner.run()
            except CannotRun as error:
                runners.remove(runner)
                fails(runner.entrant, error)
        if number == 1:
            for runner in runners:
                if runner.entrant.most > 2:
                    runner.seconds.clear()
                    runner.firsts.clear()


@contextmanager
def busy(count: int) -> Iterator[None]:
    """Runs `count` other processes, each on a processor of its own, that only count."""
    with ExitStack() as open_:
        mine = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []
        for number in range(count):
            with undisturbed(then=True):
                words = [sys.executable, "-c", _COUNTING, str(os.getpid())]
                process = subprocess.Popen(words, start_new_session=True)
                open_.callback(process.wait)
                open_.callback(process.kill)
            if mine:
                os.sched_setaffinity(process.pid, {mine[number % len(mine)]})
        yield


def results(folder: Path, entrant: Entrant) -> Mapping[str, Array]:
    """Returns the results of an entrant, by position."""
    from glenside.ir.files import read_arrays

    return read_arrays(folder / f"{entrant.name}.npz")
