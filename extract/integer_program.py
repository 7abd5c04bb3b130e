"""Solves the integer program of one block with HiGHS, one level of the lexicographic cost after another.

Each e-node has a 0/1 variable; a class is chosen if one of its e-nodes is. A forced class has exactly one chosen
e-node, another class at most one, and an e-node needs its children's classes. Only classes on cycles have a position p:
p(class) >= p(child) + 1 for the children of the chosen e-node.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from threading import Lock

import highspy
import numpy as np

from glenside.extract.problem import Limits, postorder
from glenside.extract.reduction import Reduced

TOLERANCE = 1e-9
"""Distance within which HiGHS takes x as integral and a row as satisfied; 1e-6, the default, is too coarse for costs
above 1e5.
"""
PRECISION = 1e-12
"""Relative error allowed in the solver's dual bound: costs above 4e11 in one block are not called proven."""
COST_BITS = 53
"""Bits of a level's sum in the solver: 53 are exact in a double, and HiGHS takes 1e20 as infinite."""
TIES = 8
"""Answers equal to the best in double precision that are compared as ints before a proof is given up."""
MERGE_LIMIT = 1 << 24
"""Limit of packed coefficients below which levels are solved together. The tolerance then moves the objective by less
than 0.02. Above it doubles still hold the numbers (2^53), but not a proof, so levels are solved one by one.
"""

# One thread and one seed: with a node limit, the same problem gives the same answer.
_OPTIONS: dict[str, bool | int | float | str] = {
    "output_flag": False,
    "threads": 1,
    "parallel": "off",
    "random_seed": 0,
    # No strong branching: with it, 854 e-nodes without structure took 9.3 s; without, 2.8 s.
    "mip_pscost_minreliable": 0,
    "mip_rel_gap": 0.0,
    "mip_abs_gap": 0.5,
    "mip_feasibility_tolerance": TOLERANCE,
    "primal_feasibility_tolerance": TOLERANCE,
    "dual_feasibility_tolerance": TOLERANCE,
}


@dataclass
class Outcome:
    """The result of the search in one block."""

    choice: dict[int, int]
    bound: int
    """Packed weight that no choice for the block is below."""
    stopped: str


@dataclass
class _Level:
    """Consecutive cost components as one integer objective."""

    coefficients: list[int]
    unit: int
    shift: int
    """Bits of the packed weight below this level."""


@dataclass
class _Rows:
    lower: list[float] = field(default_factory=list)
    upper: list[float] = field(default_factory=list)
    starts: list[int] = field(default_factory=lambda: [0])
    columns: list[int] = field(default_factory=list)
    values: list[float] = field(default_factory=list)

    def add(self, lower: float, upper: float, terms: Mapping[int, float]) -> None:
        self.lower.append(lower)
        self.upper.append(upper)
        self.columns += terms.keys()
        self.values += terms.values()
        self.starts.append(len(self.columns))


class Block:
    """A group of classes (see `reduction.blocks`) and its integer program."""

    def __init__(self, reduced: Reduced, classes: Sequence[int]) -> None:
        self.reduced, self.classes = reduced, list(classes)
        self.live = reduced.live
        self.inside = set(classes)
        self.forced = [c for c in classes if c in reduced.forced]
        self.nodes = [n for c in classes for n in self.live.nodes[c]]
        self.column = {n: i for i, n in enumerate(self.nodes)}
        cyclic = [c for c in classes if len(self.live.order[self.live.component[c]]) > 1]
        self.position = {c: len(self.nodes) + i for i, c in enumerate(cyclic)}

    def follow(self, pick: Mapping[int, int]) -> dict[int, int] | None:
        """Returns the part of `pick` that this block needs, or None if it is incomplete or has a cycle."""
        choice: dict[int, int] = {}
        done: set[int] = set()
        stack = [(c, False) for c in self.forced]
        while stack:
            c, ready = stack.pop()
            if ready:
                done.add(c)
            elif c not in choice:
                if c not in pick:
                    return None
                choice[c] = pick[c]
                stack.append((c, True))
                stack += [(d, False) for d in self.live.kids[pick[c]] if d in self.inside and d not in done]
            elif c not in done:
                return None
        return choice

    def weight(self, choice: Mapping[int, int]) -> int:
        """Returns the packed cost of a choice."""
        return sum(self.live.problem.weights[n] for n in choice.values())

    def levels(self) -> list[_Level]:
        """Returns the objectives, most important first; components without cost are left out."""
        problem = self.live.problem
        merged: list[_Level] = []
        shift = sum(problem.digits)
        for i, bits in enumerate(problem.digits):
            shift -= bits
            own = [problem.costs[n][i] for n in self.nodes]
            if merged:
                last = merged[-1]
                both = [(a << (last.shift - shift)) + b for a, b in zip(last.coefficients, own, strict=True)]
                if sum(both) < MERGE_LIMIT:
                    merged[-1] = _Level(both, 1, shift)
                    continue
            merged.append(_Level(own, 1, shift))
        for level in merged:
            level.unit = math.gcd(*level.coefficients) or 1
        return [level for level in merged if any(level.coefficients)]

    def solve(self, start: dict[int, int], limits: Limits) -> Outcome:
        """Returns the best choice found from `start`; stops at the first level that cannot be finished."""
        solver = self._solver()
        best, bound, levels = start, 0, self.levels()
        for level in levels:
            if limits.remaining <= 0:
                return Outcome(best, bound, "time-limit")
            units = [a // level.unit for a in level.coefficients]
            cut = max(0, sum(units).bit_length() - COST_BITS)  # Rounded down, so that it stays a lower bound.
            units = [a >> cut for a in units]
            scaled = np.array(units, dtype=np.float64)
            columns = np.arange(len(self.nodes), dtype=np.int32)
            solver.changeColsCost(len(columns), columns, scaled)
            try:
                stopped = _run(solver, self._values(best), limits)
            except _Unresponsive as error:
                return Outcome(best, bound, error.why)
            best = self._better(best, solver)
            reached = sum(units[self.column[n]] for n in best.values())
            below = _below(solver, reached)
            if (below < reached or cut) and stopped == "optimal" and len(levels) == 1:
                return self._exclude_ties(solver, best, level, cut, below, limits)
            bound += ((below << cut) * level.unit) << level.shift
            if below < reached or cut:
                return Outcome(best, bound, "numerics" if stopped in ("optimal", "infeasible") else stopped)
            # Half a unit of slack is below the next integer, and above the rounding error.
            solver.addRow(-highspy.kHighsInf, reached + 0.5, len(columns), columns, scaled)
        return Outcome(best, bound, "optimal")

    def _exclude_ties(
        self, solver: highspy.Highs, best: dict[int, int], level: _Level, cut: int, below: int, limits: Limits
    ) -> Outcome:
        """Proves the only level where doubles are too coarse: excludes the answers found, and bounds the others.

        An answer that contains an excluded one costs no less, and so no less than the best; the solver's bound holds
        for all others. If this bound reaches the best, the best is optimal. `below` is a lower bound for all answers,
        without the last `cut` bits.
        """
        found, stopped = best, "optimal"
        for _ in range(TIES):
            columns = np.array([self.column[n] for n in found.values()], dtype=np.int32)
            solver.addRow(-highspy.kHighsInf, len(columns) - 1.0, len(columns), columns, np.ones(len(columns)))
            try:
                stopped = _run(solver, None, limits)
            except _Unresponsive as error:
                stopped = error.why
                break
            if stopped == "infeasible":
                return Outcome(best, self.weight(best), "optimal")
            following = self._found(solver)
            best = self._better(best, solver)
            units = self.weight(best) // (level.unit << level.shift)
            below = max(below, _below(solver, (units >> cut) + 1))
            if stopped != "optimal" or below << cut >= units or following is None:
                break
            found = following
        weight = self.weight(best)
        bound = min(weight, ((below << cut) * level.unit) << level.shift)
        unproven = "numerics" if stopped == "optimal" else stopped
        return Outcome(best, bound, "optimal" if bound == weight else unproven)

    def _found(self, solver: highspy.Highs) -> dict[int, int] | None:
        if solver.getInfo().primal_solution_status != highspy.SolutionStatus.kSolutionStatusFeasible:
            return None
        values = solver.getSolution().col_value
        owners = ((c, n) for c in self.classes for n in self.live.nodes[c])
        return self.follow({c: n for c, n in owners if values[self.column[n]] > 0.5})

    def _better(self, best: dict[int, int], solver: highspy.Highs) -> dict[int, int]:
        found = self._found(solver)
        return found if found is not None and self.weight(found) < self.weight(best) else best

    def _solver(self) -> highspy.Highs:
        rows = self._rows()
        count = len(self.nodes) + len(self.position)
        lp = highspy.HighsLp()
        lp.num_col_, lp.num_row_ = count, len(rows.lower)
        lp.col_cost_ = np.zeros(count)
        lp.col_lower_ = np.zeros(count)
        lp.col_upper_ = np.array([1.0] * len(self.nodes) + [float(self._height(c)) for c in self.position])
        kinds = highspy.HighsVarType
        lp.integrality_ = [kinds.kInteger] * len(self.nodes) + [kinds.kContinuous] * len(self.position)
        lp.row_lower_, lp.row_upper_ = np.array(rows.lower), np.array(rows.upper)
        lp.a_matrix_.format_ = highspy.MatrixFormat.kRowwise
        lp.a_matrix_.start_ = np.array(rows.starts, dtype=np.int32)
        lp.a_matrix_.index_ = np.array(rows.columns, dtype=np.int32)
        lp.a_matrix_.value_ = np.array(rows.values)
        solver = highspy.Highs()  # type: ignore[no-untyped-call]
        for name, value in _OPTIONS.items():
            solver.setOptionValue(name, value)
        solver.passModel(lp)
        return solver

    def _height(self, c: int) -> int:
        return len(self.live.order[self.live.component[c]]) - 1

    def _rows(self) -> _Rows:
        rows, kids, forced = _Rows(), self.live.kids, self.reduced.forced
        for c in self.classes:
            own = self.live.nodes[c]
            rows.add(1.0 if c in forced else 0.0, 1.0, {self.column[n]: 1.0 for n in own})
            # One row for a class and a child, not for each e-node: only one is chosen, and the relaxation is tighter.
            users: dict[int, list[int]] = {}
            for n in own:
                for d in kids[n]:
                    if d in self.inside:
                        users.setdefault(d, []).append(self.column[n])
            for d, columns in users.items():
                chosen = dict.fromkeys(columns, 1.0)
                if d not in forced:
                    rows.add(-highspy.kHighsInf, 0.0, chosen | {self.column[m]: -1.0 for m in self.live.nodes[d]})
                if c in self.position and self.live.component[c] == self.live.component[d]:
                    self._order(rows, c, d, chosen)
        return rows

    def _order(self, rows: _Rows, c: int, d: int, chosen: dict[int, float]) -> None:
        """Adds p(c) - p(d) >= 1 - size (1 - chosen), and that no two classes use each other."""
        size = self._height(c) + 1.0
        rows.add(
            1.0 - size,
            highspy.kHighsInf,
            {self.position[c]: 1.0, self.position[d]: -1.0} | {column: -size for column in chosen},
        )
        back = {self.column[m]: 1.0 for m in self.live.nodes[d] if c in self.live.kids[m]}
        if back and c < d:
            rows.add(-highspy.kHighsInf, 1.0, chosen | back)

    def _values(self, choice: Mapping[int, int]) -> list[float]:
        """Returns the values of all variables for a choice; positions count from the leaves of each component."""
        values = [0.0] * (len(self.nodes) + len(self.position))
        depth: dict[int, int] = {}
        component = self.live.component

        def within(c: int) -> list[int]:
            return [d for d in self.live.kids[choice[c]] if d in choice and component[d] == component[c]]

        for c in postorder(list(choice), within):
            depth[c] = 1 + max((depth[d] for d in within(c)), default=-1)
        for c, n in choice.items():
            values[self.column[n]] = 1.0
            if c in self.position:
                values[self.position[c]] = float(depth[c])
        return values


_STARTING = Lock()
_STOP_TIMEOUT_SECONDS = 1.0
"""Time for a solver to stop after a request: in some of its phases it does not poll."""


class _Unresponsive(Exception):
    """A solver did not stop in time. It still runs in its daemon thread, so its state must not be read."""

    def __init__(self, why: str) -> None:
        super().__init__(why)
        self.why = why


def _run(solver: highspy.Highs, values: list[float] | None, limits: Limits) -> str:
    """Solves in a thread of its own, so that a deadline or Ctrl-C ends it within about a second.

    Raises _Unresponsive if the solver does not stop by then.
    """
    if values is not None:
        start = highspy.HighsSolution()
        start.col_value = values
        solver.setSolution(start)
    if limits.branches is not None:
        solver.setOptionValue("mip_max_nodes", limits.branches)
    solver.HandleUserInterrupt = True
    _start(solver, limits)
    asked = _waited_for(solver, limits)
    solver.HandleUserInterrupt = False
    status = solver.getModelStatus()
    if status == highspy.HighsModelStatus.kOptimal:
        return "optimal"
    if status == highspy.HighsModelStatus.kInfeasible:
        return "infeasible"
    return asked or ("node-limit" if status == highspy.HighsModelStatus.kSolutionLimit else "numerics")


def _start(solver: highspy.Highs, limits: Limits) -> None:
    """Starts a solver when no other one runs: only one may in a process, and one that was asked to stop may not have.

    Raises _Unresponsive at the deadline.
    """
    while True:
        with _STARTING:
            if not solver.is_solver_running():
                solver.startSolve()
                return
        if limits.remaining <= 0:
            raise _Unresponsive("time-limit")
        time.sleep(0.01)


def _waited_for(solver: highspy.Highs, limits: Limits) -> str:
    """Waits for the solver; returns why it was asked to stop, or "" if it ended by itself. Raises _Unresponsive."""
    asked, end = "", math.inf
    while True:
        why = ""
        try:
            if solver.wait(min(0.1, max(0.001, limits.remaining)))[0]:
                return asked
            if time.monotonic() > end:
                raise _Unresponsive(asked)
            why = "time-limit" if not asked and limits.remaining <= 0 else ""
        except KeyboardInterrupt:
            why = "interrupted"
        if why:
            asked, end = why, min(end, time.monotonic() + _STOP_TIMEOUT_SECONDS)
            solver.cancelSolve()  # type: ignore[no-untyped-call]


def _below(solver: highspy.Highs, reached: int) -> int:
    """Returns a lower bound of the level as an integer: the solver's dual bound, rounded up.

    It is `reached` if the solver is done (its gap is half a unit), but only if its best answer could be read back and
    doubles can distinguish the two.
    """
    dual = solver.getInfo().mip_dual_bound
    if not math.isfinite(dual):
        return 0
    return max(0, min(reached, math.ceil(dual - max(1e-6, abs(dual) * PRECISION))))
