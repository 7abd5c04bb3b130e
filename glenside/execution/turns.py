"""Programs and runtimes in processes of their own that run one model in turn, and stand still while others run."""

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
"""Runs of each in a round, one after the other: the first finds in the caches what others left there."""
PAUSE = 0.01
"""Seconds between two turns, in which what a runtime still does after one ends."""
PATIENCE = 600.0
"""Seconds in which a runtime loads a model."""
_COUNTING = "import os, sys\nwhile os.getppid() == int(sys.argv[1]): pass"
"""What keeps a processor busy until the process that it is told of ends."""


class CannotRun(Exception):
    """What a runtime says when it does not run a model."""


@dataclass(frozen=True)
class Entrant:
    """A program or runtime, called as in `glenside.execution.peers`, and the file that it loads.

    most  rounds in which it takes part, at most
    runs  in each of them, one after the other
    """

    name: str
    model: Path
    title: str
    most: int = 1 << 30
    runs: int = RUNS


@dataclass
class Runner:
    """An entrant in its process: the least seconds of its runs in each round, those of the first one, and the bytes by
    which the process has grown at most.

    Counted are resident pages, from before the model is loaded on: its weights, the arrays of a run and what is
    compiled for it, not the runtime's own code, nor the inputs.
    """

    entrant: Entrant
    process: subprocess.Popen[bytes]
    errors: Any
    before: int | None = None
    grown: int | None = None
    seconds: list[float] = field(default_factory=list)
    firsts: list[float] = field(default_factory=list)

    def load(self) -> None:
        """Wait until it has loaded the model and run once. Raises CannotRun."""
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
        self._stand()

    def run(self) -> None:
        """One more round. Raises CannotRun."""
        self._send(signal.SIGCONT)
        time.sleep(PAUSE)
        assert self.process.stdin is not None, "it has a pipe"
        with suppress(OSError):  # it has ended: the answer says so
            self.process.stdin.write(f"{self.entrant.runs}\n".encode())
            self.process.stdin.flush()
        answer = self._answer("it ran")
        self._stand()
        self.seconds.append(min(answer["seconds"]))
        self.firsts.append(answer["seconds"][0])
        if self.before is not None:
            self.grown = answer["bytes"]["peak"] - self.before

    def end(self) -> None:
        """End it, and what it started."""
        with suppress(OSError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.kill()
        self.process.wait()
        for stream in (self.process.stdin, self.process.stdout, self.errors):
            if stream is not None:
                with suppress(OSError):
                    stream.close()

    def _stand(self) -> None:
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
def begun(
    entrants: Sequence[Entrant], threads: int, folder: Path, fails: Callable[[Entrant, CannotRun], None]
) -> Iterator[list[Runner]]:
    """The entrants that load what they are given, one after the other; `folder` has the inputs."""
    with ExitStack() as open_:
        found = []
        for entrant in entrants:
            with undisturbed(then=True):  # none is begun that is not ended
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


def take_turns(
    runners: list[Runner], rounds: int, fails: Callable[[Entrant, CannotRun], None], show: Callable[[int], None]
) -> None:
    """Run all in turn, another one first in each round; two rounds more to warm up, which are not kept."""
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
    """So many processes beside, each on a processor of its own, that do nothing but count."""
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
    """What an entrant made of the inputs, by its place."""
    from glenside.ir.files import read_arrays

    return read_arrays(folder / f"{entrant.name}.npz")
