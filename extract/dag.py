"""Extracts by DAG cost: each class by the e-node whose set of needed classes costs least.

A class keeps the set of classes that its best derivation uses; an e-node costs its own weight plus the union of its
children's sets. Three things keep the sets small: classes without cost are left out, a class represents all classes
that it dominates (exact, see `scopes`), and boundaries are leaves for their consumers. A set of more than SET_LIMIT
classes is replaced by its total cost. Consumers may then count a shared part twice: their choice may cost more, but it
stays valid.
"""

from __future__ import annotations

from collections.abc import Sequence
from collections.abc import Set as AbstractSet

from glenside.extract.graph import Live, prepare, settle
from glenside.extract.greedy import tree_picks
from glenside.extract.improve import improve
from glenside.extract.lower_bound import exclusive_costs, lower_bound, scopes
from glenside.extract.problem import Extraction, Problem, follow

SET_LIMIT = 512
_NOTHING: frozenset[int] = frozenset()


def extract_dag(problem: Problem) -> Extraction:
    """Returns a good answer by DAG cost in near-linear time; never worse than the greedy one."""
    return dag_of(prepare(problem))


def dag_of(live: Live) -> Extraction:
    """Extracts by DAG cost from a live graph that the caller has prepared."""
    problem = live.problem
    scope = scopes(live)
    candidates = [derive(live, scope, problem.boundaries)[0], tree_picks(live)]
    weights = [sum(problem.weights[n] for n in follow(problem, pick).values()) for pick in candidates]
    pick = candidates[weights.index(min(weights))]
    improve(live, pick)
    choice = follow(problem, pick)
    weight = sum(problem.weights[n] for n in choice.values())
    bound = lower_bound(live.roots, exclusive_costs(live, scope))
    proven = weight == bound
    return Extraction(
        choice, problem.unpack(weight), proven, problem.unpack(bound), "optimal" if proven else "heuristic"
    )


def derive(live: Live, scope: Sequence[int], free: AbstractSet[int]) -> tuple[list[int], list[int]]:
    """Returns for each class its best e-node, and an upper bound on the packed weight of all classes that it needs.

    A class in `free` costs its consumers nothing, unless both are in one component of mutually dependent classes: there
    a free class could hide the cost of a cycle, and `settle` requires that no e-node costs less than a child.
    """
    sharing = _Sharing(live, scope, free)
    return settle(live, sharing.price, sharing.commit), sharing.total


class _Sharing:
    def __init__(self, live: Live, scope: Sequence[int], free: AbstractSet[int]) -> None:
        count, component = len(live.nodes), live.component
        self.live = live
        self.total = [0] * count
        self.value = [0] * count
        """class -> the weight that it adds to a set: its own, and that of the needed classes that it dominates."""
        self.sets: list[frozenset[int]] = [_NOTHING] * count
        self.inside: dict[int, set[int]] = {}
        self.paid = list(live.kids)
        self.uses = [0] * count
        for c in live.members():
            if scope[c] >= 0:
                self.inside.setdefault(scope[c], set()).add(c)
            for n in live.nodes[c]:
                if free and not free.isdisjoint(live.kids[n]):
                    self.paid[n] = tuple(d for d in live.kids[n] if d not in free or component[d] == component[c])
                for d in self.paid[n]:
                    self.uses[d] += 1

    def price(self, n: int) -> int:
        paid, weight = self.paid[n], self.live.problem.weights[n]
        if not paid:
            return weight
        if len(paid) == 1:
            return weight + self.total[paid[0]]
        # Adds the most expensive child whole, then of each further child only the classes that are not yet in the
        # union.
        first, *rest = sorted(paid, key=self.total.__getitem__, reverse=True)
        seen = self.sets[first]
        weight += self.total[first]
        for i, d in enumerate(rest):
            extra = self.sets[d] - seen
            if extra:
                weight += sum(map(self.value.__getitem__, extra))
                if i + 1 < len(rest):
                    seen = seen | extra
        return weight

    def commit(self, c: int, n: int, price: int) -> None:
        sets, value, own = self.sets, self.value, self.live.problem.weights[n]
        parts = [sets[d] for d in self.paid[n]]
        needed = parts[0] if len(parts) == 1 else _NOTHING.union(*parts)
        inner = self.inside.get(c)
        absorbed = needed & inner if inner else _NOTHING
        if absorbed:
            own += sum(map(value.__getitem__, absorbed))
            needed -= absorbed
        if len(needed) >= SET_LIMIT:
            needed, own = _NOTHING, price
        if own:
            value[c] = own
            needed |= {c}
        sets[c] = needed
        self.total[c] = price
        self._forget(c)

    def _forget(self, c: int) -> None:
        """Drops each set after its last consumer, so that memory holds only the sets of the current frontier."""
        for n in self.live.nodes[c]:
            for d in self.paid[n]:
                self.uses[d] -= 1
                if not self.uses[d]:
                    self.sets[d] = _NOTHING
