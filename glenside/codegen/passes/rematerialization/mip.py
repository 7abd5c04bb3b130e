"""Rematerialization as an integer program: the least work within a budget, and a lower bound on the work.

The program is Checkmate's (Jain et al., MLSys 2020) with fewer stages. The order of first runs is cut at some steps.
Variable y_vk is 1 if value v is kept through cut k; r_ik is 1 if step i runs again between cuts k and k + 1:

    least      sum of cost_i r_ik
    where      y_vk + r_ik >= 1               if a first run between the cuts reads v, made by i before cut k
               y_uk + r_jk >= r_ik            if step i, which runs again, reads u, made by j
               y_v,k+1 <= y_vk + r_ik         only a live value can be kept
               sum of size_v y_vk + operands and results of the step at cut k <= budget

Any schedule with that order of first runs satisfies these constraints for any cuts, so the minimum is a lower bound. A
solution is unfolded to a schedule; where the schedule exceeds the budget, a cut is added.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import highspy
import numpy as np

from glenside.codegen.passes.rematerialization.live_sets import Run
from glenside.codegen.passes.rematerialization.steps import Steps

_SOLVER: Callable[[], highspy.Highs] = highspy.Highs
_HALF = 0.5
_INFINITE = highspy.kHighsInf


@dataclass(frozen=True)
class Retained:
    """The values dropped at each cut (None if no solution was found), and a lower bound on the cost of any choice."""

    dropped: dict[int, set[int]] | None
    bound: float


@dataclass
class Retention:
    """The integer program for some cuts: positions in the order of first runs; values of `kept` are always kept."""

    steps: Steps
    order: Sequence[int]
    most: int
    kept: frozenset[int]
    costs: list[float] = field(default_factory=list)
    tops: list[float] = field(default_factory=list)
    rows: list[tuple[float, float, list[tuple[int, float]]]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.first: dict[int, int] = {}
        self.last: dict[int, int] = {}
        self.reads: dict[int, list[int]] = {}
        for place, number in enumerate(self.order):
            for value in self.steps.steps[number].writes:
                self.first.setdefault(value, place)
                self.last[value] = place
            for value in self.steps.steps[number].reads:
                self.reads.setdefault(value, []).append(place)
                self.last[value] = place

    def solved(
        self, cuts: Sequence[int], spare: dict[int, int], seconds: float, gap: float, hint: Run | None = None
    ) -> Retained:
        """Returns the optimal choice for `cuts`, or the best found in time; `spare`: lines to leave free at a cut."""
        self.costs, self.tops, self.rows = [], [], []
        keep, again = self._columns(cuts)
        for k, cut in enumerate(cuts):
            self._segment(k, cut, [*cuts, len(self.order) - 1][k + 1], keep, again)
            self._memory(cut, keep[k], self.most - spare.get(cut, 0))
            for value, column in keep[k + 1].items() if k + 1 < len(cuts) else ():
                if self.first[value] <= cut:
                    have = self._live_variables(value, k, keep, again)
                    self.rows.append((-_INFINITE, 0.0, [(column, 1.0), *((c, -1.0) for c in have)]))
        solver = self._solver(seconds, gap)
        if hint is not None:
            solver.setSolution(_solution(self._as_solution(hint, cuts, keep, again)))
        solver.run()
        info = solver.getInfo()
        infeasible = solver.getModelStatus() == highspy.HighsModelStatus.kInfeasible
        bound = float("inf") if infeasible else max(0.0, info.mip_dual_bound)
        if infeasible or info.primal_solution_status != highspy.SolutionStatus.kSolutionStatusFeasible:
            return Retained(None, bound)
        found = np.array(solver.getSolution().col_value)
        every = {cut: {v for v, c in keep[k].items() if found[c] < _HALF} for k, cut in enumerate(cuts)}
        return Retained(every, bound)

    def _columns(self, cuts: Sequence[int]) -> tuple[list[dict[int, int]], list[dict[int, int]]]:
        """Adds the variables; returns for each cut value -> y, and step -> r."""
        keep: list[dict[int, int]] = []
        again: list[dict[int, int]] = []
        for cut in cuts:
            own = self._wanted(cut)
            keep.append({value: self._column(0.0) for value in own})
            makers = [self.steps.makers[v][0] for v in own if self.steps.repeats(v)]
            again.append({m: self._column(self.steps.steps[m].cost) for m in dict.fromkeys(makers)})
        return keep, again

    def _wanted(self, cut: int) -> list[int]:
        """Returns the values live through a cut, and the values from which these can be recomputed."""
        stack = [v for v, last in self.last.items() if self.first[v] <= cut < last and v not in self.kept]
        found = dict.fromkeys(stack)
        while stack:
            value = stack.pop()
            if not self.steps.repeats(value):
                continue
            for read in self.steps.steps[self.steps.makers[value][0]].reads:
                if read not in found and read not in self.kept:
                    found[read] = None
                    stack.append(read)
        return sorted(found)

    def _column(self, cost: float) -> int:
        self.costs.append(cost)
        self.tops.append(1.0)
        return len(self.costs) - 1

    def _live_variables(self, value: int, k: int, keep: list[dict[int, int]], again: list[dict[int, int]]) -> list[int]:
        """Returns the variables one of which must be 1 if a value is live after cut `k`: y of the value, and r of its
        maker.
        """
        maker = self.steps.makers[value][0]
        return [keep[k][value], *([again[k][maker]] if maker in again[k] and self.steps.repeats(value) else [])]

    def _segment(self, k: int, cut: int, end: int, keep: list[dict[int, int]], again: list[dict[int, int]]) -> None:
        """Adds the constraints that every value read between a cut and the next one is kept or recomputed."""
        for value in keep[k]:
            if any(cut < place <= end for place in self.reads.get(value, ())):
                self.rows.append((1.0, _INFINITE, [(c, 1.0) for c in self._live_variables(value, k, keep, again)]))
        for maker, column in again[k].items():
            for value in self.steps.steps[maker].reads:
                if value in keep[k]:
                    have = self._live_variables(value, k, keep, again)
                    self.rows.append((0.0, _INFINITE, [(column, -1.0), *((c, 1.0) for c in have)]))

    def _memory(self, cut: int, keep: dict[int, int], most: int) -> None:
        """Adds the memory constraint at a cut; a result may be stored in place over an operand that ends there."""
        step, sizes = self.steps.steps[self.order[cut]], self.steps.sizes
        used = {*step.reads, *step.writes}
        fixed = sum(sizes[v] for v in used)
        fixed += sum(sizes[v] for v in self.kept - used if self.first.get(v, cut + 1) <= cut < self.last[v])
        terms = [(column, float(sizes[v])) for v, column in keep.items() if v not in used]
        for value in step.writes:
            below = [u for u in step.over[value] if u in keep or self.last[u] <= cut]
            chosen = [(self._column(0.0), u) for u in below]
            terms += [(column, -float(sizes[value])) for column, _ in chosen]
            if chosen:
                self.rows.append((-_INFINITE, 1.0, [(column, 1.0) for column, _ in chosen]))
            for column, u in chosen:
                if u in keep:
                    self.rows.append((-_INFINITE, 1.0, [(column, 1.0), (keep[u], 1.0)]))
        self.rows.append((-_INFINITE, float(most - fixed), terms))

    def _solver(self, seconds: float, gap: float) -> highspy.Highs:
        solver = _SOLVER()
        count = len(self.costs)
        options = {"output_flag": False, "threads": 1, "random_seed": 0, "time_limit": seconds, "mip_rel_gap": gap}
        for name, value in options.items():
            solver.setOptionValue(name, value)
        solver.addVars(count, np.zeros(count), np.array(self.tops))
        every = np.arange(count, dtype=np.int32)
        solver.changeColsCost(count, every, np.array(self.costs))
        kinds = np.full(count, highspy.HighsVarType.kInteger.value, np.uint8)
        solver.changeColsIntegrality(count, every, kinds)
        starts = np.cumsum([0, *(len(terms) for _, _, terms in self.rows)])
        solver.addRows(
            len(self.rows),
            np.array([low for low, _, _ in self.rows]),
            np.array([high for _, high, _ in self.rows]),
            int(starts[-1]),
            starts[:-1].astype(np.int32),
            np.array([column for _, _, terms in self.rows for column, _ in terms], np.int32),
            np.array([factor for _, _, terms in self.rows for _, factor in terms]),
        )
        return solver

    def _as_solution(
        self, run: Run, cuts: Sequence[int], keep: list[dict[int, int]], again: list[dict[int, int]]
    ) -> list[float]:
        """Returns a run as values of the variables."""
        found = [0.0] * len(self.costs)
        times = [time for time, again_ in enumerate(run.again) if not again_]
        for k, cut in enumerate(cuts):
            begin, end = times[cut], times[cuts[k + 1]] if k + 1 < len(cuts) else len(run.order)
            for version in run.versions:
                if version.first <= begin < version.last and version.value in keep[k]:
                    found[keep[k][version.value]] = 1.0
            for time in range(begin + 1, end):
                if run.again[time] and run.order[time] in again[k]:
                    found[again[k][run.order[time]]] = 1.0
        return found


def _solution(values: list[float]) -> highspy.HighsSolution:
    found = highspy.HighsSolution()
    found.col_value = values
    return found
