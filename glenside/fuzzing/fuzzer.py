"""Runs the fuzzer: draws cases, puts them through doors in worker processes, and shrinks failures."""

from __future__ import annotations

import random
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from itertools import count
from pathlib import Path

from glenside.fuzzing.cases import Case, Failure, Outcome, Verdict
from glenside.fuzzing.child import Child, Stopped
from glenside.fuzzing.corpus import Corpus
from glenside.fuzzing.doors import DOORS, Door
from glenside.fuzzing.drawing import drawn_case
from glenside.fuzzing.report import DoorReport, FuzzReport
from glenside.fuzzing.shrinking import shrunk
from glenside.fuzzing.turns import Turn
from glenside.ir.interrupts import answered
from glenside.ir.term import postorder
from glenside.ir.text import parse

_SHRINK_SECONDS = 60.0
_SHRUNK_PER_KEY = 4
"""Failures of one key that are shrunk: wrong answers that differ may have several causes."""
_MEMORY = 3 << 30
Listener = Callable[[FuzzReport], None]


class Fuzzer:
    """One run.

    doors    names of doors
    seed     of all cases: case n of a door and a seed is the same in every run that begins with the same corpus
    minutes  after which no new case begins
    cases    after which no new case begins; then what this run adds to the corpus is not mutated
    jobs     worker processes
    stops    True to end at the first failure
    """

    def __init__(
        self,
        doors: Sequence[Door],
        seed: int,
        minutes: float,
        cases: int | None,
        jobs: int,
        corpus: Corpus,
        seconds: float,
        stops: bool = False,
        listener: Listener = lambda _: None,
    ) -> None:
        self.doors, self.seed, self.cases, self.corpus = list(doors), seed, cases, corpus
        self.began = time.monotonic()
        self.until = self.began + 60 * minutes
        self.jobs, self.seconds, self.stops, self.listener = jobs, seconds, stops, listener
        self.known = len(corpus.cases)
        self.numbers = count()
        self.lock = threading.Lock()
        self.stopping = False
        self.drawn: Counter[str] = Counter()
        self.waiting: dict[str, float] = {door.name: 0.0 for door in doors}
        self.reached: set[str] = set()
        self.shrunk_of: Counter[tuple[str, str, str]] = Counter()
        self.found: dict[tuple[str, ...], Failure] = {}
        self.broken: list[BaseException] = []
        self.report = FuzzReport(seed, {door.name: DoorReport() for door in doors})

    def run(self) -> FuzzReport:
        """Fuzzes until the time is up. Ctrl-C ends it early, and keeps the findings."""
        with tempfile.TemporaryDirectory(prefix="glenside-fuzz-", ignore_cleanup_errors=True) as folder:
            children = [Child(self.seconds, _MEMORY, Path(folder) / str(job)) for job in range(self.jobs)]
            threads = [threading.Thread(target=self._serve, args=(child,), daemon=True) for child in children]
            for thread in threads:
                thread.start()
            try:
                while any(thread.is_alive() for thread in threads):
                    time.sleep(0.1)
                    self._report_progress()
                    if self.stopping:
                        break
            except KeyboardInterrupt:
                answered()
                self.report.interrupted = True
            self.stopping = True
            for child in children:
                child.stopping = True
            for thread in threads:
                thread.join(timeout=3)
        if self.broken:
            raise self.broken[0]
        self._report_progress()
        return self.report

    def _report_progress(self) -> None:
        with self.lock:
            self.report.seconds = time.monotonic() - self.began
            self.report.reached, self.report.added = len(self.reached), self.corpus.added
            self.listener(self.report)

    def _serve(self, child: Child) -> None:
        try:
            while not self.stopping and time.monotonic() < self.until:
                with self.lock:
                    number = next(self.numbers)
                if self.cases is not None and number >= self.cases:
                    break
                self._one(child, number)
        except Stopped:
            pass
        except BaseException as error:  # an error of the fuzzer itself is raised by `run`
            self.broken.append(error)
            self.stopping = True
        finally:
            child.end()

    def _one(self, child: Child, number: int) -> None:
        """Draws a case, and puts it through a door."""
        with self.lock:
            door = self._next_door(number)
            self.drawn[door.name] += 1
            self.waiting[door.name] += 1.0  # so that other workers choose other doors meanwhile
            turn = Turn(self.seed, self.drawn[door.name])
            pick = random.Random(f"{self.seed}/{door.name}/{turn.number}")
            kept = self.corpus.cases[: self.known] if self.cases is not None else list(self.corpus.cases)
        case = drawn_case(pick, door, kept, turn)
        outcome = child.visit(case, door)
        with self.lock:
            self.waiting[door.name] -= 1.0
            self._count(case, outcome)
        if outcome.failed:
            self._failed(child, case, outcome)

    def _next_door(self, number: int) -> Door:
        """Returns the door furthest behind its share of the time, so that slow doors do not starve others.

        In runs with a number of cases, the case's number alone draws it.
        """
        if self.cases is not None:
            pick = random.Random(f"{self.seed}/{number}")
            return pick.choices(self.doors, [door.weight for door in self.doors])[0]
        busy = {door.name: self.report.doors[door.name].seconds + self.waiting[door.name] for door in self.doors}
        return min(self.doors, key=lambda door: busy[door.name] / door.weight)

    def _count(self, case: Case, outcome: Outcome) -> None:
        own = self.report.doors[outcome.door]
        own.add(outcome)
        if outcome.verdict in (Verdict.REFUSED, Verdict.REFUSAL):
            self.report.refusals[outcome.door, outcome.place] += 1
        new = [note for note in outcome.notes if f"{outcome.door} {note}" not in self.reached]
        self.reached.update(f"{outcome.door} {note}" for note in new)
        if new and not outcome.failed:
            self.corpus.add(case, outcome.door, new[0])

    def _failed(self, child: Child, case: Case, outcome: Outcome) -> None:
        with self.lock:
            alike = next((f for f in self.found.values() if f.outcome.key == outcome.key), None)
            if alike is not None and (
                self.shrunk_of[outcome.key] >= _SHRUNK_PER_KEY or outcome.verdict is not Verdict.WRONG
            ):
                alike.count += 1
                return
            self.shrunk_of[outcome.key] += 1
            failure = Failure(case, outcome, case, seconds=time.monotonic() - self.began)
            self.found[(*outcome.key, str(self.shrunk_of[outcome.key]))] = failure
            self.report.failures = list(self.found.values())
        if self.stops:
            self.stopping = True
        else:
            self._shrink(child, failure)
        with self.lock:
            self._merge(failure)
            if failure in self.found.values():
                self.corpus.add_failure(failure)

    def _shrink(self, child: Child, failure: Failure) -> None:
        """Shrinks the case; it stays unchanged if the run ends first."""
        last = [failure.outcome]

        def fails(case: Case) -> bool:
            outcome = child.visit(case, DOORS[failure.outcome.door])
            same = outcome.verdict is failure.outcome.verdict and (
                outcome.verdict is Verdict.WRONG or outcome.place == failure.outcome.place
            )
            if same:
                last[0] = outcome
            return same

        with suppress(Stopped):
            failure.case = shrunk(failure.case, fails, _SHRINK_SECONDS)
            failure.outcome = last[0]

    def _merge(self, failure: Failure) -> None:
        """Merges a failure with one of the same operators at the same door."""
        own = next((key for key, other in self.found.items() if other is failure), None)
        for key, other in self.found.items():
            if other is not failure and _signature(other) == _signature(failure) and own is not None:
                self.found[key].count += 1
                del self.found[own]
                break
        self.report.failures = list(self.found.values())


def _signature(failure: Failure) -> tuple[str, ...]:
    """Returns the key of shrunk failures: the door, the verdict, and the operators of the case."""
    names: set[str] = set()
    if failure.case.form == "program":
        for term in postorder(parse(failure.case.text).term):
            names.add(
                str(term.attributes[0]).strip("()").split(" ")[0]
                if term.operator.name == "compute"
                else term.operator.name
            )
    return failure.outcome.door, failure.outcome.verdict.value, *sorted(names), *([] if names else [failure.case.text])


__all__ = ["DOORS", "Fuzzer"]
