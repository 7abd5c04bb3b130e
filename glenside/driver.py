"""The driver: prepare -> saturate -> extract -> check -> report, for every target."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from extract import METHODS
from glenside.cache import Cache, CacheFull, answers
from glenside.egraph.rule import Parameters, Rule
from glenside.egraph.saturation import INTERRUPTED, ITERATION_LIMIT, NODE_LIMIT, SATURATED, Limits, Progress
from glenside.egraph.search import SearchResult, Worker, program_snapshot, search, search_here
from glenside.ir.errors import BadInput, renamed
from glenside.ir.interrupts import answered, undisturbed
from glenside.ir.program import Program
from glenside.ir.term import Term
from glenside.passes.answer import Problem, Unfinished, extract
from glenside.passes.network import Search
from glenside.report.result import Result
from glenside.report.rows import report_of
from glenside.targets.base import Target, Way
from rewrites import of_families
from rewrites.layout.product_unit import UNIT_CYCLES

REPEATABLE = (SATURATED, NODE_LIMIT, ITERATION_LIMIT)
"""Why a search stopped when every machine stops it at the same place: such an answer may be kept."""
REPORTED = ("mapping", "recipe", UNIT_CYCLES)
"""Relations of rules that the snapshot keeps as facts."""


@dataclass(frozen=True)
class Event:
    """What the driver is doing, for a progress display; `fraction` is None where the end cannot be foreseen."""

    stage: str
    detail: str
    fraction: float | None = None


Listener = Callable[[Event], None]


def optimize(
    program: Program,
    target: Target,
    *,
    limits: Limits | None = None,
    blocking: str = "tile-loops",
    mapping: str = "best",
    method: str = "auto",
    extract_seconds: float = 60.0,
    explain: bool = False,
    seed: int = 0,
    verify: bool = True,
    cache: Cache | None = None,
    worker: Callable[[], Worker | None] = lambda: None,
    listener: Listener = lambda _: None,
    on_answer: Callable[[Result], None] = lambda _: None,
    load_seconds: float = 0.0,
) -> Result:
    """Find the equal program that uses the target best, and check that it is equal.

    limits    of each search
    blocking, mapping, method, extract_seconds, explain
              how to search, where the target leaves a choice: see `glenside.targets.base.Way`
    cache     where answers are kept: one that is there is not searched for again
    worker    starts a search process; `listener` is told what is being done
    on_answer  is given the result before it is checked, so that it can be kept whatever comes

    Stopping early, by a limit or by Ctrl-C, still gives the best program found by then, the baseline mapping where none
    was; `result.stopped` says why. With `verify=False` the check is left to `result.check()`. Raises BadInput, and
    Unfinished where there was no time for any answer.
    """
    program = program.as_written()
    way = way_of(target, blocking, mapping, method, extract_seconds, explain)
    limits = limits or Limits()
    key = answers.key(program, target, limits, way, seed, verify) if cache is not None and target.repeatable else ""
    if cache is not None and key and (text := cache.get(key)) is not None:
        again = partial(optimize, program, target, limits=limits, verify=False, listener=listener, **vars(way))
        result = answers.remembered(text, program, target, seed, again)
        on_answer(result)
        return result
    clock = _Clock(load_seconds)
    stages = _Stages(program, target, way, Search(limits, worker), listener, clock, seed)
    try:
        result = stages.run()
    except KeyboardInterrupt:
        result = stages.at_once()
    try:
        on_answer(result)
        if verify and result.stopped != INTERRUPTED:  # whoever pressed Ctrl-C wants the answer now
            result.check(lambda done, total: listener(Event("check", f"{done} of {total}", done / max(total, 1))))
    except KeyboardInterrupt:
        answered()
        result.interrupted = True
    clock.finish()
    if cache is not None and key and {result.stopped, stages.stopped} <= {*REPEATABLE} and not result.interrupted:
        try:
            cache.put(key, answers.text(result.report, result.program))
        except CacheFull as error:  # the answer itself is whole: the caller says so after it is safe
            result.not_kept = error
    return result


_AT_ONCE = 1.0  # seconds of a search for the baseline, when somebody waits
_SOON = 10.0  # and when a limit ended another one
_FEW = 8


def way_of(
    target: Target,
    blocking: str = "tile-loops",
    mapping: str = "best",
    method: str = "auto",
    extract_seconds: float = 60.0,
    explain: bool = False,
) -> Way:
    """How the target is to be searched for. Raises BadInput for a way that it does not have."""
    blocking = _renamed("blocking", blocking, {"loops": "tile-loops", "slices": "unrolled-tiles"})
    mapping = _renamed("mapping", mapping, {"usual": "baseline"})
    if method not in METHODS:
        raise BadInput(f"a method of extraction is one of {', '.join(METHODS)}, got {method!r}")
    way = Way(blocking, mapping, method, extract_seconds if method == "exact" else Way.extract_seconds, explain)
    target.accept(way)
    return way


def _renamed(what: str, given: str, names: Mapping[str, str]) -> str:
    """The new name of a way, with a warning for one of the last version."""
    if given in names:
        renamed(f"the {what} {given}", names[given], depth=4)
    return names.get(given, given)


def _hurried(way: Way) -> Way:
    """Without the proofs of extraction: they take time that whoever pressed Ctrl-C does not give."""
    return replace(way, method="dag" if way.method in ("auto", "exact") else way.method)


@dataclass
class _Stages:
    """prepare -> saturate -> extract, and how far they came: what an answer is made of when one of them is ended.

    stopped   why a search ended before it had seen everything: the first reason, or saturation
    """

    program: Program
    target: Target
    way: Way
    search: Search
    listener: Listener
    clock: _Clock
    seed: int
    stopped: str = SATURATED
    prepared: Program | None = None
    searched: SearchResult | None = None

    def run(self) -> Result:
        """The best answer, or the baseline mapping where the search stopped before it had mapped as much. Raises
        KeyboardInterrupt: then there is still one at once.
        """
        self.prepared = self._prepare()
        self.clock.lap("fold")
        if self.stopped == INTERRUPTED:
            return self.at_once()
        problem = Problem.of(self.prepared, self.target, self.way)
        self.searched = self._saturate(problem, self.way, self.search.limits)
        self.clock.lap("saturate", self.searched.progress.seconds)
        if self.searched.stopped == INTERRUPTED:
            return self.at_once()
        return self._or_baseline(self._extracted(problem, self.searched, self.way), _SOON)

    def at_once(self) -> Result:
        """The best answer that takes no time to speak of. Raises Unfinished."""
        with undisturbed():
            self.stopped = INTERRUPTED
            result = None
            problem = Problem.of(self.prepared or self.program, self.target, self.way)
            searched = self.searched or SearchResult(program_snapshot(problem.nodes), Progress())
            if searched.progress.iterations or "mapping" not in self.target.ways:
                result = self._extracted(problem, searched, _hurried(self.way))
            return self._or_baseline(result, _AT_ONCE)

    def _or_baseline(self, result: Result | None, seconds: float) -> Result:
        """The result, or where layers of it are not mapped, what a short search for the baseline gives."""
        if result is not None and (result.stopped == SATURATED or result.report.mapped == len(result.report.layers)):
            return result
        way = _hurried(self._least())
        problem = Problem.of(self.prepared or self.program, self.target, way)
        searched = search_here(
            *self._problem(problem, way), Limits(seconds=seconds, iterations=_FEW), reported=REPORTED, trace=way.explain
        )
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

    def _saturate(self, problem: Problem, way: Way, limits: Limits) -> SearchResult:
        """The e-graph of the problem."""
        self.listener(Event("saturate", "starting"))
        return search(
            *self._problem(problem, way),
            limits,
            reported=REPORTED,
            trace=way.explain,
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
        try:
            answer = extract(problem, searched, self.target, way)
        except Unfinished:
            return None
        report = report_of(self.program, self.target, problem, searched, answer)
        self.clock.lap("extract")
        report.stopped = self.stopped if searched.stopped == SATURATED else searched.stopped
        report.seconds = self.clock.seconds
        return Result(self.program, self.target, report, answer, self.seed)


def _tell(listener: Listener, stage: str, progress: Progress) -> None:
    listener(Event(stage, f"iteration {progress.iterations}, {progress.rows:,} e-nodes"))


class _Clock:
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
