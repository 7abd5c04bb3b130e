"""Builds mixed-integer linear programs column by column and row by row, and solves them with HiGHS."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any

import highspy
import numpy as np

from glenside.ir.operand import Array

WORK = 100
"""Number of times that the solver may poll once it has a solution; it polls after each of its linear programs. A time
limit would stop it at another point each time, and give several programs for one network. Solutions near the first
linear program are as good as those after ten times as many.
"""
_POLLS_WITHOUT_SOLUTION = 80
"""Factor on the polls allowed while the solver has no solution."""
_MAX_COST_GROWTH = 0.05
"""Maximum relative growth of the cost of an early-stopped solution before the solver searches again."""


@dataclass(frozen=True)
class Solution:
    """Column values, their cost, a lower bound on any cost, and whether the solver was stopped before the gap was
    closed.
    """

    values: Array
    cost: float
    bound: float
    stopped: bool


class How(Enum):
    """The solve mode: relaxed, integer, or the last solutions with present costs."""

    PARTS, WHOLE, AGAIN = range(3)


class WholeNumbers:
    """A minimization over columns from 0 on, with linear rows."""

    def __init__(self) -> None:
        self.solver = highspy.Highs()  # type: ignore[no-untyped-call]
        settings = {"output_flag": False, "threads": 1, "random_seed": 0, "mip_allow_restart": False}
        settings["mip_heuristic_run_rens"] = False  # half of the time; RINS finds equally good solutions
        for name, value in settings.items():
            self.solver.setOptionValue(name, value)
        self.columns: list[tuple[float, float, bool]] = []
        self.rows: list[tuple[float, float, Sequence[tuple[int, float]]]] = []

    def column(self, cost: float = 0.0, whole: bool = False, most: float = 1.0) -> int:
        """Adds a column; returns its number."""
        self.columns.append((cost, most, whole))
        return len(self.columns) - 1

    def set_cost(self, column: int, cost: float) -> None:
        """Sets the cost of a column."""
        self.columns[column] = (cost, *self.columns[column][1:])

    def row(self, least: float, most: float, terms: Sequence[tuple[int, float]]) -> None:
        """Adds a constraint: least <= sum of terms <= most."""
        self.rows.append((least, most, terms))

    def _give(self, relaxed: bool = False) -> None:
        """Passes all columns and rows to the solver."""
        solver, count = self.solver, len(self.columns)
        if not self.rows:
            return
        costs, most, whole = (np.array(own) for own in zip(*self.columns, strict=True))
        none = np.zeros(0, np.int32), np.zeros(0, np.int32), np.zeros(0)
        solver.addCols(count, costs, np.zeros(count), most, 0, *none)
        kinds = np.where(
            whole & (not relaxed), int(highspy.HighsVarType.kInteger), int(highspy.HighsVarType.kContinuous)
        )
        solver.changeColsIntegrality(count, np.arange(count, dtype=np.int32), kinds.astype(np.uint8))
        sizes = [len(terms) for _, _, terms in self.rows]
        least, most = (np.array(own) for own in zip(*((low, high) for low, high, _ in self.rows), strict=True))
        places, values = zip(*(term for _, _, terms in self.rows for term in terms), strict=True)
        starts = np.cumsum([0, *sizes[:-1]]).astype(np.int32)
        own = np.array(places, np.int32), np.array(values, float)
        status = solver.addRows(len(sizes), least, most, sum(sizes), starts, *own)
        assert status == highspy.HighsStatus.kOk, "no row names a column twice"

    def solution(self, gap: float, work: int, before: Solution | None = None, how: How = How.WHOLE) -> Solution | None:
        """Returns a solution within a relative gap, or the best one found after `work` polls; None if there is none.

        The solver starts from `before`, the solution of such a program with no greater costs and rows. `before` itself
        is returned if it is still within the gap, or costs about as much as when the solver was stopped.
        """
        self._give(how is How.PARTS)
        if how is How.PARTS:
            self.solver.run()
            found = self._found()
            return None if found is None else replace(found, bound=found.cost)
        self.solver.setOptionValue("mip_rel_gap", gap)
        if before is not None and len(before.values) == len(self.columns):
            again = self._fixed(before.values)
            if how is How.AGAIN:
                return None if again is None else replace(again, bound=before.bound, stopped=before.stopped)
            enough = (1 + _MAX_COST_GROWTH) * before.cost if before.stopped else (1 + gap) * before.bound
            if again is not None and again.cost <= enough:
                return replace(again, bound=before.bound, stopped=before.stopped)
        if how is How.AGAIN:
            return None
        self._limit(work)
        self.solver.run()
        found = self._found()
        return None if found is None else replace(found, bound=self.solver.getInfo().mip_dual_bound)

    def _fixed(self, values: Array) -> Solution | None:
        """Returns the best solution with these integer values, from which the solver then starts; None if there is
        none.
        """
        whole = np.array([number for number, (*_, own) in enumerate(self.columns) if own], np.int32)
        exact = np.round(values[whole]).astype(np.float64)
        most = np.array([most for _, most, own in self.columns if own], np.float64)
        self.solver.changeColsBounds(len(whole), whole, exact, exact)
        self.solver.run()
        found = self._found()
        self.solver.changeColsBounds(len(whole), whole, np.zeros(len(whole)), most)
        if found is not None:
            start = highspy.HighsSolution()
            start.col_value = found.values.tolist()
            self.solver.setSolution(start)
        return found

    def _found(self) -> Solution | None:
        found = self.solver.getInfo()
        if found.primal_solution_status != highspy.SolutionStatus.kSolutionStatusFeasible:
            return None
        stopped = self.solver.getModelStatus() == highspy.HighsModelStatus.kInterrupt
        return Solution(np.array(self.solver.getSolution().col_value), found.objective_function_value, 0.0, stopped)

    def _limit(self, work: int) -> None:
        """Stops the solver after `work` polls."""
        looked = 0

        def look(_: object, __: str, now: highspy.cb.HighsCallbackOutput, answer: Any, ___: object) -> None:
            nonlocal looked
            looked += 1
            has_choice = now.mip_primal_bound < highspy.kHighsInf
            answer.user_interrupt = looked >= work * (1 if has_choice else _POLLS_WITHOUT_SOLUTION)

        self.solver.setCallback(look, None)
        self.solver.startCallback(highspy.cb.HighsCallbackType.kCallbackMipInterrupt)
