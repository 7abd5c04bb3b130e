"""The stages before the check, prepare -> saturate -> extract, with an answer wherever one of them is stopped."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial

from glenside.algebra.search import Algebra, cheapest_algebra
from glenside.analysis.layers import product_sizes
from glenside.egraph.egglog_text import egglog_text
from glenside.egraph.part import MANY
from glenside.egraph.rule import Parameters, Rule
from glenside.egraph.saturation import INTERRUPTED, SATURATED, Limits, Progress, declared
from glenside.egraph.search import Search, SearchResult, program_snapshot, search, search_here, start_workers_early
from glenside.ir.errors import Failed
from glenside.ir.interrupts import undisturbed
from glenside.ir.program import Program
from glenside.ir.term import Term
from glenside.passes.answer import Answer, Problem, TimeIsUp, Unfinished, extract
from glenside.passes.loop_bodies import with_bodies
from glenside.passes.recurrences import with_loops
from glenside.passes.scalar_simplification import with_simpler_elements
from glenside.report.progress import Event, Listener, silent
from glenside.report.report import Report
from glenside.report.result import Result
from glenside.report.rows import report_of
from glenside.rewrites import of_families
from glenside.rewrites.layout.product_unit import UNIT_CYCLES
from glenside.targets.base import BoundsProducts, Compiles, EmitsInstructions, Pass, PricesAlgebra, Target, Way

REPORTED = ("mapping", "recipe", UNIT_CYCLES)
"""Relations that the snapshot keeps as facts."""
_INTERRUPT_LIMITS = Limits(seconds=1.0, iterations=8)
"""Limits of a search for the baseline after an interrupt; it takes about five iterations."""
_FALLBACK_LIMITS = Limits(seconds=10.0, iterations=8)
"""Limits of a search for the baseline after a limit stopped the main search."""
_REPORT_INTERVAL_RATIO = 20
"""Minimum time between two reports of the best answer so far, as a multiple of the time to extract one."""
_REPORT_MAX_E_NODES = 100_000
"""Maximum e-nodes of an e-graph from which partial answers are reported."""


def _without_proofs(way: Way) -> Way:
    """Returns the way without proofs of optimal extraction, which take too long after an interrupt."""
    return replace(way, method="dag" if way.method in ("auto", "exact") else way.method, at_once=True)


@dataclass
class Stages:
    """The stages prepare -> saturate -> extract, with their state: an interrupt makes its answer of it.

    on_draft  callback for each answer that will still be refined
    rules     rules and families beside those of the target
    stopped   the first reason why a search stopped early, or saturation
    faults    why searches failed
    wrong     the rules at fault; later searches leave them out
    algebra   the candidates between layers; None if there are none
    """

    program: Program
    target: Target
    way: Way
    search: Search
    listener: Listener
    clock: Clock
    seed: int
    on_draft: Callable[[Result], None] = lambda _: None
    rules: Sequence[str | Rule] = ()
    stopped: str = SATURATED
    prepared: Program | None = None
    problem: Problem | None = None
    searched: SearchResult | None = None
    faults: list[str] = field(default_factory=list)
    wrong: set[str] = field(default_factory=set)
    algebra: Algebra | None = None

    def run(self) -> Result:
        """Returns the best answer, or the baseline mapping if the search stopped before it had mapped as many layers.

        Raises KeyboardInterrupt; `at_once` then still returns an answer.
        """
        passes = self.target.passes(self.way)
        parts = search_parts(self.program, self.target)
        own = partial(rules_to_precompile, self.program, self.target, self.way, self.rules)
        start_workers_early(self.search.limits, own, behind=bool(passes), parts=parts)
        self.prepared = self._with_cheapest_algebra(self._prepare(passes))
        self.clock.lap("fold")
        if self.stopped == INTERRUPTED:
            return self.at_once()
        problem = self.problem = Problem.of(self.prepared, self.target, self.way)
        self.searched = self._saturate(problem)
        self.clock.lap("saturate", self.searched.progress.seconds)
        if self.searched.stopped == INTERRUPTED:
            return self.at_once()
        return self._or_baseline(self._extracted(problem, self.searched, self.way), _FALLBACK_LIMITS)

    def egglog(self) -> str:
        """Returns the search as egglog text, after it ran in this process. Raises KeyboardInterrupt."""
        self.prepared = self._prepare(self.target.passes(self.way))
        problem = self.problem = Problem.of(self.prepared, self.target, self.way)
        return egglog_text(*self._problem(problem, self.way), self.search.limits)

    def at_once(self) -> Result:
        """Returns the best answer that is available quickly, after an interrupt. Raises Unfinished."""
        with undisturbed():
            self.stopped = INTERRUPTED
            result = None
            problem = self.problem or Problem.of(self.prepared or self.program, self.target, self.way)
            searched = self.searched or SearchResult(program_snapshot(problem.nodes), Progress())
            if searched.progress.iterations or "mapping" not in self.target.ways:
                result = self._extracted(problem, searched, _without_proofs(self.way))
            return self._or_baseline(result, _INTERRUPT_LIMITS)

    def _or_baseline(self, result: Result | None, limits: Limits) -> Result:
        """Returns the result; if it leaves layers unmapped, the result of a short search for the baseline."""
        if result is not None and (result.stopped == SATURATED or result.report.mapped == len(result.report.layers)):
            return result
        way = _without_proofs(self._least())
        problem = Problem.of(self.prepared or self.program, self.target, way)
        searched = search_here(*self._problem(problem, way), limits, reported=REPORTED, trace=way.explain or way.trace)
        self._heard(searched.progress)
        searched = replace(searched, progress=replace(searched.progress, stopped=self._why(searched)))
        least = self._extracted(problem, searched, way)
        if least is None or (result is not None and result.report.mapped >= least.report.mapped):
            least = result
        if least is None and self.faults:
            raise Failed(f"the search failed before there was an answer: {self.faults[0]}")
        if least is None:
            raise Unfinished("the search stopped before there was an answer")
        return least

    def _least(self) -> Way:
        """Returns the options of the fastest search for the baseline."""
        return (
            replace(self.way, mapping="baseline", blocking="tile-loops") if "mapping" in self.target.ways else self.way
        )

    def _why(self, searched: SearchResult) -> str:
        if self.stopped != SATURATED or self.searched is None:
            return self.stopped
        return self.searched.stopped if self.searched.stopped != SATURATED else searched.stopped

    def _prepare(self, passes: Sequence[Pass]) -> Program:
        """Returns the program after the target's passes."""
        program = self.program
        run = replace(self.search, on_progress=partial(_tell, self.listener, "fold"), on_end=self._heard)
        for change in passes:
            program, why = change(program, run)
            self.stopped = why if self.stopped == SATURATED else self.stopped
        return program

    def _with_cheapest_algebra(self, program: Program) -> Program:
        """Returns the program with its sums and products between layers in the cheapest form."""
        if self.stopped == INTERRUPTED or not changes_algebra(self.target, self.way):
            return program
        assert isinstance(self.target, PricesAlgebra)
        if (prices := self.target.product_prices()) is None:
            return program
        simpler, of_elements = with_simpler_elements(program, prices)
        found = cheapest_algebra(simpler, prices, self.target.predicted, self.target.admits)
        found = replace(found, candidates=(*of_elements, *found.candidates))
        self.algebra = found if found.candidates else None
        return found.program

    def _saturate(self, problem: Problem) -> SearchResult:
        """Saturates the e-graph of the problem."""
        known = {"e_nodes": len(problem.nodes), "bound": self._static_lower_bound()}
        self.listener(Event("saturate", "starting", unit=self._unit(), **known))
        found = search(
            *self._problem(problem, self.way),
            self.search.limits,
            reported=REPORTED,
            trace=self.way.explain or self.way.trace,
            parts=self.target.search_parts,
            worker=self.search.worker(),
            on_progress=partial(_tell, self.listener, "saturate"),
            on_snapshot=None if self.listener is silent else self._report_partial(problem),
            meanwhile=self.target.load_back_end if isinstance(self.target, EmitsInstructions) else lambda: None,
        )
        self._heard(found.progress)
        return found

    def _heard(self, progress: Progress) -> None:
        """Stores the fault of a failed search and its rule."""
        if progress.fault and progress.fault not in self.faults:
            self.faults.append(progress.fault)
            self.wrong |= {progress.wrong} - {""}

    def _report_partial(self, problem: Problem) -> Callable[[SearchResult], None]:
        """Returns a callback that reports the best answer so far, rarely enough not to delay the search."""
        soon = time.monotonic()

        def show(searched: SearchResult) -> None:
            nonlocal soon
            began = time.monotonic()
            if began < soon or searched.snapshot.e_nodes > _REPORT_MAX_E_NODES:
                return
            with suppress(Unfinished):
                answer = extract(problem, searched, self.target, _without_proofs(replace(self.way, explain=False)))
                self._tell_of("saturate", report_of(self.program, self.target, problem, searched, answer))
            ended = time.monotonic()
            soon = ended + _REPORT_INTERVAL_RATIO * (ended - began)

        return show

    def _tell_of(self, stage: str, report: Report) -> None:
        """Reports to the listener; the cost of the answer only if it maps all layers."""
        first = report.objectives[0] if report.objectives else ""
        best = report.total.get(first) if report.mapped == len(report.layers) else None
        measure = next((m for m in report.measures if m.name == first), None)
        proven = report.stopped == SATURATED and measure is not None and measure.adds
        bound = report.lower_bound if proven else None
        self.listener(Event(stage, "", e_nodes=report.e_nodes, best=best, bound=bound, unit=self._unit()))

    def _static_lower_bound(self) -> int | None:
        """Returns a lower bound of the first objective over all answers, known before the search; None if unknown."""
        first = next((m for m in self.target.measures if m.name in self.target.objectives[:1]), None)
        if first is None or not first.adds or not isinstance(self.target, BoundsProducts):
            return None
        program = self.prepared or self.program
        return sum(self.target.bound(product_sizes(product).macs) for product in program.layers.values()) or None

    def _unit(self) -> str:
        """Returns the unit of the first objective."""
        return next((m.unit for m in self.target.measures if m.name in self.target.objectives[:1]), "")

    def _problem(self, problem: Problem, way: Way) -> tuple[Sequence[Term], Sequence[Rule], Parameters]:
        """Returns the nodes, rules and parameters of a search."""
        families = (*self.target.families(way, problem.nodes), *self.rules)
        rules = [r for r in of_families(families) if r.name not in self.wrong]
        return problem.nodes, rules, self.target.rule_parameters()

    def _extracted(self, problem: Problem, searched: SearchResult, way: Way) -> Result | None:
        """The best answer that the e-graph holds; None where it holds none."""
        self.listener(Event("extract", e_nodes=searched.snapshot.e_nodes))
        drafts: list[Result] = []

        def result(answer: Answer) -> Result:
            report = report_of(self.program, self.target, problem, searched, answer)
            report.stopped = self.stopped if searched.stopped == SATURATED else searched.stopped
            report.seconds = self.clock.seconds
            report.faults = tuple(self.faults)
            if self.algebra is not None:
                report.algebra = self.algebra.candidates
            return Result(self.program, self.target, report, answer, self.seed)

        def on_draft(answer: Answer) -> None:
            drafts.append(result(answer))
            self._tell_of("extract", drafts[-1].report)
            self.on_draft(drafts[-1])

        way = replace(way, on_step=self._steps())
        try:
            answer = extract(problem, searched, self.target, way, on_draft)
        except Unfinished:
            return None
        known = [draft for draft in drafts if draft.program is answer.program]
        found = known[-1] if known else result(answer)
        found.report.stopped = answer.stopped or found.report.stopped
        self._tell_of("extract", found.report)
        self.clock.lap("extract")
        return found

    def _steps(self) -> Callable[[str, float], None]:
        """Returns the callback for the steps of a refinement; it also enforces the time limit."""
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


def changes_algebra(target: Target, way: Way) -> bool:
    """True if sums and products between layers may be computed in another order."""
    return isinstance(target, PricesAlgebra) and not way.exact_order and way.mapping != "baseline"


def search_parts(program: Program, target: Target) -> int:
    """Returns the number of parts of a program for which separate search processes pay."""
    return target.search_parts if len(program.layers) >= MANY else 1


def rules_to_precompile(program: Program, target: Target, way: Way, more: Sequence[str | Rule] = ()) -> str:
    """Returns the declarations of a search for this program, as long as passes do not change the rules it needs."""
    rules = of_families((*target.families(way, program.info.order), *more))
    return declared(rules, target.rule_parameters(), way.explain or way.trace)[0]


def _tell(listener: Listener, stage: str, progress: Progress) -> None:
    said = f"iteration {progress.iterations}, {progress.seconds:.0f} s"
    listener(Event(stage, said, e_nodes=progress.rows or None))


class Clock:
    """The seconds of each stage."""

    def __init__(self, load_seconds: float) -> None:
        self._started = self._last = time.perf_counter()
        self.seconds = {"load": load_seconds, "fold": 0.0, "start": 0.0, "saturate": 0.0, "extract": 0.0, "check": 0.0}

    def lap(self, stage: str, inside: float | None = None) -> None:
        """Records the end of a stage. `inside` is the time in its process; the rest counts as starting that process."""
        now = time.perf_counter()
        taken, self._last = now - self._last, now
        self.seconds[stage] = taken if inside is None else inside
        if inside is not None:
            self.seconds["start"] = taken - inside

    def finish(self) -> None:
        self.seconds["total"] = self.seconds["load"] + time.perf_counter() - self._started


def with_step_loops(program: Program, target: Target | None, change: Callable[[Program], Program]) -> Program:
    """Returns a program to compile, with recurrences as loops whose bodies are changed by `change`.

    Targets that do not compile, and those with a memory budget, get the steps one after the other.
    """
    if target is not None and (target.most_bytes is not None or not isinstance(target, Compiles)):
        return program
    return with_bodies(with_loops(program), change)
