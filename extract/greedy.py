"""Extracts by tree cost: the cheapest tree of each class, in which a shared class is counted at every use."""

from __future__ import annotations

from operator import add

from glenside.extract.graph import Live, prepare, settle
from glenside.extract.problem import Cost, Extraction, Problem, children_first, follow, total_cost

CEILING = 1 << 1024
"""Upper limit of a tree cost: n classes can cost 2^n. At this limit costs tie, and the e-node
derived first is chosen.
"""


def extract_greedy(problem: Problem) -> Extraction:
    """Selects for each class the e-node of least tree cost; acyclic, and found whenever the problem has an answer."""
    choice = follow(problem, tree_picks(prepare(problem)))
    return Extraction(choice, total_cost(problem, choice))


def tree_picks(live: Live) -> list[int]:
    """Returns for each class the e-node of its cheapest tree, or -1 if no root reaches the class."""
    trees: list[Cost] = [()] * len(live.nodes)
    costs, children = live.problem.costs, live.problem.children

    def price(n: int) -> Cost:
        return _sum(costs[n], [trees[c] for c in children[n]])

    def commit(c: int, n: int, cost: Cost) -> None:
        trees[c] = cost

    return settle(live, price, commit)


def tree_cost(problem: Problem, choice: dict[int, int]) -> Cost:
    """Returns the tree cost of a choice: each use of a class is counted; several roots are added."""
    trees: dict[int, Cost] = {}
    for c in children_first(problem, choice):
        node = choice[c]
        trees[c] = _sum(problem.costs[node], [trees[d] for d in problem.children[node]])
    return _sum((0,) * problem.dimension, [trees[root] for root in problem.roots])


def _sum(own: Cost, parts: list[Cost]) -> Cost:
    for part in parts:
        own = tuple(map(add, own, part))
    return own if not own or max(own) < CEILING else tuple(min(part, CEILING) for part in own)
