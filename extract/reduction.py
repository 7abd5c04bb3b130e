"""Making a problem smaller without losing its optimum, and splitting what is left into independent blocks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from glenside.extract.dag import derive
from glenside.extract.graph import Live, arrange
from glenside.extract.lower_bound import exclusive_cost, exclusive_costs, landmarks, scopes

ROUNDS = 6
PAIRWISE_LIMIT = 200
"""E-nodes of one class above which they are not compared pair by pair."""


@dataclass
class Reduced:
    """A live graph with the same optimum as the one it came from."""

    live: Live
    forced: frozenset[int]
    """Classes that every answer contains."""
    pick: list[int]
    """class -> an e-node; a good answer to start from."""
    exclusive: list[int]
    """class -> a lower bound on the weight that hangs on it alone; these add up over the forced classes."""


def reduce(live: Live) -> Reduced:
    """Remove e-nodes that some optimum does without, until nothing changes."""
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
    """Drop an e-node a of class c when what it alone needs costs as much as all that the picked one, b, may need.

    Sound because: take an answer with a; give c the e-node b, and picks to all that c dominates and to all classes not
    chosen yet. What c dominates and b does not need is gone, at least `exclusive` of a; b adds at most its total, in
    which forced classes are free as every answer pays for them. No cycle appears when c lies on none. Picks are never
    dropped, so the argument can be repeated.
    """
    nodes = list(live.nodes)
    for group in live.order:
        c = group[0]
        if len(group) == 1 and len(nodes[c]) > 1:
            nodes[c] = [n for n in nodes[c] if n == pick[c] or exclusive_cost(live, scope, exclusive, c, n) < total[c]]
    return nodes


def _without_dominated(live: Live, forced: frozenset[int], c: int, nodes: list[int]) -> list[int]:
    """Drop an e-node when another costs no more and needs nothing more.

    A forced class is needed anyway; not so within c's own component, where to use it could close a cycle.
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
    """The undecided classes, in groups that share no class whose cost or acyclicity depends on another group.

    A forced class is paid for whoever uses it, so it joins nothing; a component with cycles joins all of its classes.
    The optimum of the whole is the sum of the optima of the groups, here with the smallest first.
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
