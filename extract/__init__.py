"""Extracts from an e-graph with costs: one e-node for each class that is needed, at the least total cost.

Problem and answer are declared in `problem.py`. The method `greedy` is optimal for trees, `dag` sees sharing and
is fast, `exact` proves the optimum, and `auto` (see `extract`) joins the last two.
"""

from __future__ import annotations

from glenside.extract.dag import extract_dag
from glenside.extract.exact import extract_exact
from glenside.extract.graph import NoExtraction
from glenside.extract.greedy import extract_greedy, tree_cost
from glenside.extract.problem import Cost, Extraction, ExtractionError, Limits, Problem, children_first, total_cost

if __name__ == "extract":  # a second copy of every module, whose classes nothing would use
    raise ImportError("the package is glenside.extract: import it by that name")

__all__ = [
    "AUTO_SECONDS",
    "METHODS",
    "Cost",
    "Extraction",
    "ExtractionError",
    "Limits",
    "NoExtraction",
    "Problem",
    "children_first",
    "extract",
    "extract_dag",
    "extract_exact",
    "extract_greedy",
    "total_cost",
    "tree_cost",
]

METHODS = ("auto", "greedy", "dag", "exact")
AUTO_SECONDS = 10.0
"""Time of `auto` for exact search, if no other is given; most problems take a fraction of a second."""
EXACT_BRANCHES = 1_000
"""Branch-and-bound nodes per block under `auto` with a limit of e-nodes: the answer is then the same everywhere."""


def extract(
    problem: Problem,
    method: str = "auto",
    *,
    node_limit_for_exact: int | None = None,
    time_limit: float | None = None,
) -> Extraction:
    """Returns the cheapest answer that `method` finds.

    "auto" takes the dag answer and then solves exactly whatever the reduction leaves in blocks, smallest first, in
    `time_limit` seconds, or AUTO_SECONDS. After saturation most classes have one sensible e-node, so a program of
    50,000 e-nodes often shrinks to some dozen small blocks, or to nothing: the proof is then nearly free. A block that
    takes longer than its share of the time has the best answer so far, and the answer has a bound. With
    `node_limit_for_exact`, larger blocks keep their heuristic answer. `time_limit` also bounds "exact", which has no
    limit without it.
    """
    if method not in METHODS:
        raise ExtractionError(f"extract requires a method of {', '.join(METHODS)}, got {method!r}")
    if method == "greedy":
        return extract_greedy(problem)
    if method == "dag":
        return extract_dag(problem)
    if method == "exact":
        return extract_exact(problem, Limits.after(time_limit))
    seconds = AUTO_SECONDS if time_limit is None else time_limit
    size, branches = node_limit_for_exact, None if node_limit_for_exact is None else EXACT_BRANCHES
    return extract_exact(problem, Limits.after(seconds, branches=branches, block_size=size))
