"""Improves an answer by local search: changes the e-node of one class; classes in use elsewhere cost nothing."""

from __future__ import annotations

from glenside.extract.graph import Live
from glenside.extract.problem import follow

ROUNDS = 4
STEPS_PER_NODE = 8
"""Limit of reference counts touched, per e-node of the graph: keeps the work linear and independent of a clock."""


def improve(live: Live, pick: list[int]) -> None:
    """Changes `pick`, an acyclic choice for every class, while the change of one class makes the answer cheaper."""
    search = _Search(live, pick)
    for _ in range(ROUNDS):
        # Children first, so that a class is final before the classes that could share it are tried again.
        movable = [c for c in live.members() if len(live.nodes[c]) > 1 and search.count[c]]
        changed = [c for c in movable if search.count[c] and search.settle(c)]
        if not changed or search.steps <= 0:
            return


class _Search:
    def __init__(self, live: Live, pick: list[int]) -> None:
        self.live, self.pick = live, pick
        self.steps = STEPS_PER_NODE * (len(live.kids) + 64)
        self.count = [0] * len(live.nodes)
        for root in live.roots:
            self.count[root] += 1
        for n in follow(live.problem, pick).values():
            for d in live.kids[n]:
                self.count[d] += 1

    def settle(self, c: int) -> bool:
        changed = False
        for n in self.live.nodes[c]:
            if self.steps > 0 and n != self.pick[c] and not self._closes_cycle(c, n):
                changed |= self._try(c, n)
        return changed

    def _try(self, c: int, n: int) -> bool:
        # Counts the new e-node's uses before the old ones are dropped: classes that both need then stay in use.
        weights, old = self.live.problem.weights, self.pick[c]
        change = weights[n] - weights[old] + self._use(n, 1) - self._use(old, -1)
        if change < 0:
            self.pick[c] = n
            return True
        self._use(old, 1)
        self._use(n, -1)
        return False

    def _use(self, n: int, by: int) -> int:
        """Adds (1) or removes (-1) one use of the classes under an e-node; returns the weight of the classes added or
        removed.
        """
        count, weights, weight, stack = self.count, self.live.problem.weights, 0, [n]
        turning = 1 if by > 0 else 0
        while stack:
            kids = self.live.kids[stack.pop()]
            self.steps -= len(kids)
            for d in kids:
                count[d] += by
                if count[d] == turning:
                    weight += weights[self.pick[d]]
                    stack.append(self.pick[d])
        return weight

    def _closes_cycle(self, c: int, n: int) -> bool:
        """True if c is below its e-node n; only classes of c's own component can lead back to c."""
        component = self.live.component
        home = component[c]
        if len(self.live.order[home]) == 1:
            return False
        seen: set[int] = set()
        stack = [n]
        while stack:
            for d in self.live.kids[stack.pop()]:
                if d == c:
                    return True
                if component[d] == home and d not in seen:
                    seen.add(d)
                    stack.append(self.pick[d])
        self.steps -= len(seen)
        return False
