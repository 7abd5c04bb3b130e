"""The driver: prepare -> saturate -> extract -> check -> report, for every target."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial

from extract import METHODS
from glenside.cache import Cache, CacheFull, answers
from glenside.egraph.saturation import INTERRUPTED, ITERATION_LIMIT, NODE_LIMIT, SATURATED, Limits, Progress
from glenside.egraph.search import SearchResult, Worker, search
from glenside.ir.errors import BadInput, renamed
from glenside.ir.program import Program
from glenside.passes.answer import Problem, extract
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
    load_seconds: float = 0.0,
) -> Result:
    """Find the equal program that uses the target best, and check that it is equal.

    limits    of each search
    blocking, mapping, method, extract_seconds, explain
              how to search, where the target leaves a choice: see `glenside.targets.base.Way`
    cache     where answers are kept: one that is there is not searched for again
    worker    starts a search process; `listener` is told what is being done

    Stopping early, by a limit or by Ctrl-C, still gives the best program found by then; `result.stopped` says why. With
    `verify=False` the check is left to `result.check()`. Raises BadInput.
    """
    program = program.as_written()
    way = way_of(target, blocking, mapping, method, extract_seconds, explain)
    limits = limits or Limits()
    key = answers.key(program, target, limits, way, seed, verify) if cache is not None and target.repeatable else ""
    if cache is not None and key and (text := cache.get(key)) is not None:
        again = partial(optimize, program, target, limits=limits, verify=False, listener=listener, **vars(way))
        return answers.remembered(text, program, target, seed, again)
    clock = _Clock(load_seconds)
    run = Search(limits, worker)
    prepared, stopped = _prepare(program, target, way, run, listener)
    problem = Problem.of(prepared, target, way)
    clock.lap("fold")
    searched = _saturate(problem, target, way, run, stopped, listener)
    clock.lap("saturate", searched.progress.seconds)
    listener(Event("extract", f"{searched.snapshot.e_nodes:,} e-nodes"))
    answer = extract(problem, searched, target, _hurried(way) if searched.stopped == INTERRUPTED else way)
    report = report_of(program, target, problem, searched, answer)
    clock.lap("extract")
    report.stopped = stopped if searched.stopped == SATURATED else searched.stopped
    report.seconds = clock.seconds
    result = Result(program, target, report, answer, seed)
    if verify and result.stopped != INTERRUPTED:  # whoever pressed Ctrl-C wants the answer now
        result.check(progress=lambda done, total: listener(Event("check", f"{done} of {total}", done / max(total, 1))))
    clock.finish()
    if cache is not None and key and {result.stopped, stopped} <= {*REPEATABLE} and not result.interrupted:
        try:
            cache.put(key, answers.text(report, result.program))
        except CacheFull as error:  # the answer itself is whole: the caller says so after it is safe
            result.not_kept = error
    return result


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


def _prepare(program: Program, target: Target, way: Way, run: Search, listener: Listener) -> tuple[Program, str]:
    """The program after the target's passes, and why their searches ended: the first reason that is not saturation."""
    stopped = SATURATED
    run = replace(run, on_progress=partial(_tell, listener, "fold"))
    for change in target.passes(way):
        program, why = change(program, run)
        stopped = why if stopped == SATURATED else stopped
    return program, stopped


def _saturate(
    problem: Problem, target: Target, way: Way, run: Search, stopped: str, listener: Listener
) -> SearchResult:
    """The e-graph of the problem; of the program alone where Ctrl-C ended what came before."""
    listener(Event("saturate", "starting"))
    searched = search(
        problem.nodes,
        of_families(target.families(way, problem.nodes)),
        target.rule_parameters(),
        run.limits if stopped != INTERRUPTED else Limits(seconds=0.0),
        reported=REPORTED,
        trace=way.explain,
        worker=run.worker(),
        on_progress=partial(_tell, listener, "saturate"),
    )
    if stopped != INTERRUPTED:
        return searched
    return replace(searched, progress=replace(searched.progress, stopped=INTERRUPTED))


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
