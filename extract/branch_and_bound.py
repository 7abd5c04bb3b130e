"""Solves a small block by depth-first branch and bound, where a call of the integer program takes longer than this."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from glenside.extract.reduction import Reduced

MAX_CLASSES = 150
"""Maximum classes of a block that is tried: the search is recursive."""
MAX_STEPS = 2_000
"""Maximum partial choices that are visited; a block of 57 e-nodes, for twelve products or one, took 19."""


def solve_small(reduced: Reduced, classes: Sequence[int], pick: Mapping[int, int]) -> dict[int, int] | None:
    """Returns the optimal choice for a block, `pick` if nothing is cheaper; None if it takes too many steps."""
    if len(classes) > MAX_CLASSES:
        return None
    search = _Search(reduced, classes, pick)
    try:
        search.run()
    except _TooLong:
        return None
    return search.best


class _TooLong(Exception):
    """The search visits more partial choices than it may."""


class _Search:
    """Chooses an e-node for one needed class after another.

    The weight of the chosen e-nodes and the least weight of each class that is needed and not chosen is a lower bound.
    """

    def __init__(self, reduced: Reduced, classes: Sequence[int], pick: Mapping[int, int]) -> None:
        self.live, self.weights = reduced.live, reduced.live.problem.weights
        self.inside = {*classes}
        self.kids = {n: [d for d in self.live.kids[n] if d in self.inside] for c in classes for n in self.live.nodes[c]}
        self.cheapest = {c: min(self.weights[n] for n in self.live.nodes[c]) for c in classes}
        self.forced = [c for c in classes if c in reduced.forced]
        self.best: dict[int, int] = {}
        waiting = list(self.forced)
        while waiting:
            c = waiting.pop()
            self.best[c] = pick[c]
            waiting += [d for d in self.kids[pick[c]] if d not in self.best]
        self.least = sum(self.weights[n] for n in self.best.values())
        self.steps = 0

    def run(self) -> None:
        """Searches all choices that may cost less than the best one so far."""
        self._visit({}, frozenset(self.forced), sum(self.cheapest[c] for c in self.forced))

    def _visit(self, choice: dict[int, int], needed: frozenset[int], bound: int) -> None:
        self.steps += 1
        if self.steps > MAX_STEPS:
            raise _TooLong
        if not needed:
            self.best, self.least = choice, bound
            return
        c, options = self._next(choice, needed, bound)
        for more, n in options:
            if bound + more >= self.least:
                break
            if not self._closes_cycle(choice, c, n):
                new = (d for d in self.kids[n] if d not in choice)
                self._visit({**choice, c: n}, needed.union(new) - {c}, bound + more)

    def _next(self, choice: Mapping[int, int], needed: frozenset[int], bound: int) -> tuple[int, list[tuple[int, int]]]:
        """Returns the needed class with the fewest e-nodes that may pay, and what each of them adds to the bound."""
        found: tuple[int, list[tuple[int, int]]] | None = None
        for c in sorted(needed):
            options = sorted((self._added(choice, needed, c, n), n) for n in self.live.nodes[c])
            options = [one for one in options if bound + one[0] < self.least]
            if found is None or len(options) < len(found[1]):
                found = c, options
            if len(found[1]) <= 1:
                break
        assert found is not None
        return found

    def _added(self, choice: Mapping[int, int], needed: frozenset[int], c: int, n: int) -> int:
        new = (d for d in self.kids[n] if d not in choice and d not in needed)
        return self.weights[n] - self.cheapest[c] + sum(self.cheapest[d] for d in new)

    def _closes_cycle(self, choice: Mapping[int, int], c: int, n: int) -> bool:
        """True if the chosen e-nodes below n lead back to its class."""
        if len(self.live.order[self.live.component[c]]) == 1:
            return False
        stack, seen = [*self.kids[n]], set[int]()
        while stack:
            d = stack.pop()
            if d == c:
                return True
            if d in choice and d not in seen:
                seen.add(d)
                stack += self.kids[choice[d]]
        return False
