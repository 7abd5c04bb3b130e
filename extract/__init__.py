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
    "EXACT_SIZE",
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
EXACT_SIZE = 1_000
"""Size in e-nodes up to which `auto` proves a block optimal; one of 850 without any structure took 3 s."""
EXACT_TOTAL = 5
"""Total size that `auto` proves optimal, in multiples of the block size."""
EXACT_BRANCHES = 1_000
"""Branch-and-bound nodes per block under `auto`; a count, because answers under a time limit would
differ by machine.
"""


def extract(
    problem: Problem,
    method: str = "auto",
    *,
    node_limit_for_exact: int = EXACT_SIZE,
    time_limit: float | None = None,
) -> Extraction:
    """Returns the cheapest answer that `method` finds.

    "auto" takes the dag answer and then solves exactly whatever the reduction leaves in blocks of at most
    `node_limit_for_exact` e-nodes. After saturation most classes have one sensible e-node, so a program of 50,000
    e-nodes often shrinks to some dozen small blocks, or to nothing: the proof is then nearly free. A block above the
    limit keeps its heuristic answer, so that no program waits for a search that may not end. `time_limit`, in seconds,
    bounds the integer programs of "auto" and "exact".
    """
    if method not in METHODS:
        raise ExtractionError(f"extract requires a method of {', '.join(METHODS)}, got {method!r}")
    if method == "greedy":
        return extract_greedy(problem)
    if method == "dag":
        return extract_dag(problem)
    if method == "exact":
        return extract_exact(problem, Limits.after(time_limit))
    size = node_limit_for_exact
    limits = Limits.after(time_limit, branches=EXACT_BRANCHES, block_size=size, total_size=EXACT_TOTAL * size)
    return extract_exact(problem, limits)
