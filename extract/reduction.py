"""Makes a problem smaller without losing its optimum, and splits the rest into independent blocks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from glenside.extract.dag import derive
from glenside.extract.graph import Live, arrange
from glenside.extract.lower_bound import exclusive_cost, exclusive_costs, landmarks, scopes

ROUNDS = 6
PAIRWISE_LIMIT = 200
"""Number of e-nodes of a class above which they are not compared in pairs."""


@dataclass
class Reduced:
    """A live graph with the same optimum as the original one."""

    live: Live
    forced: frozenset[int]
    """Classes that every answer contains."""
    pick: list[int]
    """class -> an e-node; a good initial answer."""
    exclusive: list[int]
    """class -> a lower bound on the weight that only this class needs; the bounds of forced classes add up."""


def reduce(live: Live) -> Reduced:
    """Removes e-nodes that are not needed for an optimum, until nothing changes."""
    rounds = 0
    while True:
        forced = frozenset(landmarks(live))
        scope = scopes(live, forced)
        pick, total = derive(live, scope, forced)
        exclusive = exclusive_costs(live, scope)
        reduced = Reduced(live, forced, pick, exclusive)
        if rounds == ROUNDS or not live.open_nodes:
            return reduced
        nodes = _without_hopeless(live, scope, exclusive, pick, total)
        nodes = [_without_dominated(live, forced, c, own) if len(own) > 1 else own for c, own in enumerate(nodes)]
        smaller = arrange(live.problem, nodes, live.kids)
        if smaller.open_nodes == live.open_nodes and smaller.order == live.order:
            return reduced
        live, rounds = smaller, rounds + 1


def _without_hopeless(
    live: Live, scope: Sequence[int], exclusive: Sequence[int], pick: Sequence[int], total: Sequence[int]
) -> list[list[int]]:
    """Drops e-node a of class c if the exclusive cost of a is at least the total cost of the picked e-node b.

    Sound because any answer with a can be changed to one with b that costs no more: c takes b, and the picks are taken
    for all classes that c dominates and for classes not chosen yet. This saves the classes that c dominates and b does
    not need, which cost at least the exclusive cost of a. The classes of b add at most its total, in which forced
    classes are free, since every answer pays for them. No cycle appears if c is on none. Picks are never dropped, so
    the argument can be repeated.
    """
    nodes = list(live.nodes)
    for group in live.order:
        c = group[0]
        if len(group) == 1 and len(nodes[c]) > 1:
            nodes[c] = [n for n in nodes[c] if n == pick[c] or exclusive_cost(live, scope, exclusive, c, n) < total[c]]
    return nodes


def _without_dominated(live: Live, forced: frozenset[int], c: int, nodes: list[int]) -> list[int]:
    """Drops an e-node if another one costs no more and needs no other class.

    A forced class is needed in any case. This does not hold within the component of c, where using it could close a
    cycle.
    """
    if len(nodes) > PAIRWISE_LIMIT:
        return nodes
    own, component, weights = live.component[c], live.component, live.problem.weights
    kept: list[tuple[int, frozenset[int]]] = []
    for n in sorted(nodes, key=lambda n: (weights[n], len(live.kids[n]), n)):
        needs = frozenset(d for d in live.kids[n] if d not in forced or component[d] == own)
        if not any(less <= needs for _, less in kept):
            kept.append((n, needs))
    return sorted(n for n, _ in kept)


def blocks(reduced: Reduced) -> list[list[int]]:
    """Groups the undecided classes: no cost or cycle depends on classes of two groups.

    A forced class is paid for in any case, so it connects no groups; a component with cycles is in one group. The
    optimum of the whole is the sum of the optima of the groups. They are returned smallest first.
    """
    live, forced = reduced.live, reduced.forced
    join = _Union(len(live.nodes))
    for group in live.order:
        for c in group:
            join.union(group[0], c)
            for n in live.nodes[c]:
                for d in live.kids[n]:
                    if d not in forced:
                        join.union(c, d)
    groups: dict[int, list[int]] = {}
    undecided: set[int] = set()
    for c in live.members():
        head = join.find(c)
        groups.setdefault(head, []).append(c)
        if len(live.nodes[c]) > 1:
            undecided.add(head)
    return sorted((groups[head] for head in groups if head in undecided), key=len)


class _Union:
    def __init__(self, count: int) -> None:
        self.parent = list(range(count))

    def find(self, a: int) -> int:
        while self.parent[a] != a:
            self.parent[a] = self.parent[self.parent[a]]
            a = self.parent[a]
        return a

    def union(self, a: int, b: int) -> None:
        self.parent[self.find(b)] = self.find(a)
