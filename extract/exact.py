"""Extracts with a proof of optimality: reduces, splits into independent blocks, solves each as an integer program."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from glenside.extract.branch_and_bound import solve_small
from glenside.extract.dag import dag_of
from glenside.extract.graph import Live, prepare
from glenside.extract.improve import improve
from glenside.extract.lower_bound import lower_bound
from glenside.extract.problem import Extraction, Limits, Problem, follow
from glenside.extract.reduction import Reduced, blocks, reduce

_WORST_FIRST = ("interrupted", "time-limit", "node-limit", "numerics", "size-limit")


def extract_exact(problem: Problem, limits: Limits | None = None, start: Extraction | None = None) -> Extraction:
    """Returns the optimum of the DAG cost, or the best answer and a bound if a limit ends the search.

    `start` is the answer if nothing better is found; by default that of the DAG extractor. Ctrl-C returns the best
    answer, with stopped = "interrupted".
    """
    live = prepare(problem)
    start = start or dag_of(live)
    if start.proven:
        return start
    try:
        return _search(live, start, limits or Limits())
    except KeyboardInterrupt:
        return replace(start, stopped="interrupted")


def _search(live: Live, start: Extraction, limits: Limits) -> Extraction:
    problem, reduced = live.problem, reduce(live)
    improve(reduced.live, reduced.pick)
    pick = dict(enumerate(reduced.pick))
    decided, bound, stopped = _solve_blocks(reduced, pick, limits)
    choice = follow(problem, pick | decided)
    weight = sum(problem.weights[n] for n in choice.values())
    if problem.pack(start.cost) <= weight:
        choice, weight = dict(start.choice), problem.pack(start.cost)
    proven = not stopped or weight <= bound
    cost = problem.unpack(weight)
    return Extraction(
        choice, cost, proven, cost if proven else problem.unpack(bound), stopped if not proven else "optimal"
    )


def _solve_blocks(reduced: Reduced, pick: Mapping[int, int], limits: Limits) -> tuple[dict[int, int], int, str]:
    """Returns the chosen e-nodes of all blocks, a packed lower bound of the whole, and why the search ended early, or
    "".
    """
    groups = blocks(reduced)
    live, inside = reduced.live, {c for group in groups for c in group}
    # The forced classes outside all blocks have one e-node each.
    bound = sum(live.problem.weights[live.nodes[c][0]] for c in reduced.forced - inside)
    decided: dict[int, int] = {}
    reasons: set[str] = set()
    weights = live.problem.weights
    left = sum(len(live.nodes[c]) for group in groups for c in group)
    for group in groups:
        least = lower_bound((c for c in group if c in reduced.forced), reduced.exclusive)
        size = sum(len(live.nodes[c]) for c in group)
        share, left = limits.share(size, left), left - size
        why = "interrupted" if "interrupted" in reasons else limits.refuses(size)
        small = None if why else solve_small(reduced, group, pick)
        if small is not None:
            decided |= small
            bound += sum(weights[n] for n in small.values())
            continue
        if why or limits.remaining <= 0:
            reasons.add(why or "time-limit")
            bound += least
            continue
        # Imported late: HiGHS takes 50 ms to import, and most problems are decided without it.
        from glenside.extract.integer_program import Block

        block = Block(reduced, group)
        warm = block.follow(pick)
        assert warm is not None, "picks are acyclic"
        outcome = block.solve(warm, share)
        decided |= outcome.choice
        bound += max(least, outcome.bound)
        reasons |= {outcome.stopped} - {"optimal"}
    return decided, bound, next((reason for reason in _WORST_FIRST if reason in reasons), "")
