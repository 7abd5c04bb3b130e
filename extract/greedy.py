"""Extraction by tree cost: each class by its cheapest tree, where a shared class is paid for at every use."""

from __future__ import annotations

from operator import add

from glenside.extract.graph import Live, prepare, settle
from glenside.extract.problem import Cost, Extraction, Problem, children_first, follow, total_cost

CEILING = 1 << 1024
"""A tree can cost 2^n for n classes. Above this a component no longer grows; equal costs fall to the first derived."""


def extract_greedy(problem: Problem) -> Extraction:
    """The answer whose classes each have the least tree cost; it is acyclic, and exists whenever any answer does."""
    choice = follow(problem, tree_picks(prepare(problem)))
    return Extraction(choice, total_cost(problem, choice))


def tree_picks(live: Live) -> list[int]:
    """class -> the e-node of its cheapest tree, or -1 where no root reaches."""
    trees: list[Cost] = [()] * len(live.nodes)
    costs, children = live.problem.costs, live.problem.children

    def price(n: int) -> Cost:
        return _sum(costs[n], [trees[c] for c in children[n]])

    def commit(c: int, n: int, cost: Cost) -> None:
        trees[c] = cost

    return settle(live, price, commit)


def tree_cost(problem: Problem, choice: dict[int, int]) -> Cost:
    """What a choice costs when every use of a class is paid for; for several roots, the sum."""
    trees: dict[int, Cost] = {}
    for c in children_first(problem, choice):
        node = choice[c]
        trees[c] = _sum(problem.costs[node], [trees[d] for d in problem.children[node]])
    return _sum((0,) * problem.dimension, [trees[root] for root in problem.roots])


def _sum(own: Cost, parts: list[Cost]) -> Cost:
    for part in parts:
        own = tuple(map(add, own, part))
    return own if not own or max(own) < CEILING else tuple(min(part, CEILING) for part in own)
