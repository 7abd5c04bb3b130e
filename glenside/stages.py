"""The stages before the check: prepare -> saturate -> extract, and an answer wherever one of them is ended."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

from glenside.egraph.rule import Parameters, Rule
from glenside.egraph.saturation import INTERRUPTED, SATURATED, Limits, Progress
from glenside.egraph.search import SearchResult, ahead, program_snapshot, search, search_here
from glenside.ir.interrupts import undisturbed
from glenside.ir.program import Program
from glenside.ir.term import Term
from glenside.passes.answer import Answer, Problem, TimeIsUp, Unfinished, extract
from glenside.passes.network import Search
from glenside.report.result import Result
from glenside.report.rows import report_of
from glenside.targets.base import Target, Way
from rewrites import of_families
from rewrites.layout.product_unit import UNIT_CYCLES

REPORTED = ("mapping", "recipe", UNIT_CYCLES)
"""Relations of rules that the snapshot keeps as facts."""
_AT_ONCE = Limits(seconds=1.0, iterations=8)
"""Of a search for the baseline, which takes five or so, when somebody waits."""
_SOON = Limits(seconds=10.0, iterations=8)
"""The same when a limit ended another search."""


@dataclass(frozen=True)
class Event:
    """What the driver is doing, for a progress display; `fraction` is None where the end cannot be foreseen."""

    stage: str
    detail: str
    fraction: float | None = None


Listener = Callable[[Event], None]


def _hurried(way: Way) -> Way:
    """Without the proofs of extraction: they take time that whoever pressed Ctrl-C does not give."""
    return replace(way, method="dag" if way.method in ("auto", "exact") else way.method, at_once=True)


@dataclass
class Stages:
    """prepare -> saturate -> extract, and how far they came: what an answer is made of when one of them is ended.

    on_draft  is given each answer that is going to be refined
    stopped   why a search ended before it had seen everything: the first reason, or saturation
    """

    program: Program
    target: Target
    way: Way
    search: Search
    listener: Listener
    clock: Clock
    seed: int
    on_draft: Callable[[Result], None] = lambda _: None
    stopped: str = SATURATED
    prepared: Program | None = None
    problem: Problem | None = None
    searched: SearchResult | None = None

    def run(self) -> Result:
        """The best answer, or the baseline mapping where the search stopped before it had mapped as much. Raises
        KeyboardInterrupt: then there is still one at once.
        """
        ahead(self.search.limits)
        self.prepared = self._prepare()
        self.clock.lap("fold")
        if self.stopped == INTERRUPTED:
            return self.at_once()
        problem = self.problem = Problem.of(self.prepared, self.target, self.way)
        self.searched = self._saturate(problem)
        self.clock.lap("saturate", self.searched.progress.seconds)
        if self.searched.stopped == INTERRUPTED:
            return self.at_once()
        return self._or_baseline(self._extracted(problem, self.searched, self.way), _SOON)

    def at_once(self) -> Result:
        """The best answer that takes no time to speak of. Raises Unfinished."""
        with undisturbed():
            self.stopped = INTERRUPTED
            result = None
            problem = self.problem or Problem.of(self.prepared or self.program, self.target, self.way)
            searched = self.searched or SearchResult(program_snapshot(problem.nodes), Progress())
            if searched.progress.iterations or "mapping" not in self.target.ways:
                result = self._extracted(problem, searched, _hurried(self.way))
            return self._or_baseline(result, _AT_ONCE)

    def _or_baseline(self, result: Result | None, limits: Limits) -> Result:
        """The result, or where layers of it are not mapped, what a short search for the baseline gives."""
        if result is not None and (result.stopped == SATURATED or result.report.mapped == len(result.report.layers)):
            return result
        way = _hurried(self._least())
        problem = Problem.of(self.prepared or self.program, self.target, way)
        searched = search_here(*self._problem(problem, way), limits, reported=REPORTED, trace=way.explain or way.trace)
        searched = replace(searched, progress=replace(searched.progress, stopped=self._why(searched)))
        least = self._extracted(problem, searched, way)
        if least is None or (result is not None and result.report.mapped >= least.report.mapped):
            least = result
        if least is None:
            raise Unfinished("the search stopped before there was an answer")
        return least

    def _least(self) -> Way:
        """The way that takes least time to the baseline."""
        return (
            replace(self.way, mapping="baseline", blocking="tile-loops") if "mapping" in self.target.ways else self.way
        )

    def _why(self, searched: SearchResult) -> str:
        if self.stopped != SATURATED or self.searched is None:
            return self.stopped
        return self.searched.stopped if self.searched.stopped != SATURATED else searched.stopped

    def _prepare(self) -> Program:
        """The program after the target's passes."""
        program, run = self.program, replace(self.search, on_progress=partial(_tell, self.listener, "fold"))
        for change in self.target.passes(self.way):
            program, why = change(program, run)
            self.stopped = why if self.stopped == SATURATED else self.stopped
        return program

    def _saturate(self, problem: Problem) -> SearchResult:
        """The e-graph of the problem."""
        self.listener(Event("saturate", "starting"))
        return search(
            *self._problem(problem, self.way),
            self.search.limits,
            reported=REPORTED,
            trace=self.way.explain or self.way.trace,
            worker=self.search.worker(),
            on_progress=partial(_tell, self.listener, "saturate"),
        )

    def _problem(self, problem: Problem, way: Way) -> tuple[Sequence[Term], Sequence[Rule], Parameters]:
        """What is searched: the nodes, by which rules, with which parameters."""
        rules = of_families(self.target.families(way, problem.nodes))
        return problem.nodes, rules, self.target.rule_parameters()

    def _extracted(self, problem: Problem, searched: SearchResult, way: Way) -> Result | None:
        """The best answer that the e-graph holds; None where it holds none."""
        self.listener(Event("extract", f"{searched.snapshot.e_nodes:,} e-nodes"))
        drafts: list[Result] = []

        def result(answer: Answer) -> Result:
            report = report_of(self.program, self.target, problem, searched, answer)
            report.stopped = self.stopped if searched.stopped == SATURATED else searched.stopped
            report.seconds = self.clock.seconds
            return Result(self.program, self.target, report, answer, self.seed)

        def on_draft(answer: Answer) -> None:
            drafts.append(result(answer))
            self.on_draft(drafts[-1])

        way = replace(way, on_step=self._steps(), on_draft=on_draft)
        try:
            answer = extract(problem, searched, self.target, way)
        except Unfinished:
            return None
        known = [draft for draft in drafts if draft.program is answer.program]
        found = known[-1] if known else result(answer)
        found.report.stopped = answer.stopped or found.report.stopped
        self.clock.lap("extract")
        return found

    def _steps(self) -> Callable[[str, float], None]:
        """Who is told of the steps of a refinement, as long as there is time for it."""
        most = self.search.limits.seconds
        end: float | None = None

        def step(what: str, part: float) -> None:
            nonlocal end
            now = time.monotonic()
            end = now + most if end is None and most is not None else end
            if end is not None and now > end:
                raise TimeIsUp
            self.listener(Event("extract", what, part))

        return step


def _tell(listener: Listener, stage: str, progress: Progress) -> None:
    listener(Event(stage, f"iteration {progress.iterations}, {progress.rows:,} e-nodes, {progress.seconds:.0f} s"))


class Clock:
    """Seconds by stage."""

    def __init__(self, load_seconds: float) -> None:
        self._started = self._last = time.perf_counter()
        self.seconds = {"load": load_seconds, "fold": 0.0, "start": 0.0, "saturate": 0.0, "extract": 0.0, "check": 0.0}

    def lap(self, stage: str, inside: float | None = None) -> None:
        """A stage is over; of its seconds those `inside` are its own, and the rest started its process."""
        now = time.perf_counter()
        taken, self._last = now - self._last, now
        self.seconds[stage] = taken if inside is None else inside
        if inside is not None:
            self.seconds["start"] = taken - inside

    def finish(self) -> None:
        self.seconds["total"] = self.seconds["load"] + time.perf_counter() - self._started
