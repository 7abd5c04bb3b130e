"""Computes lower bounds: landmark classes, dominators, and costs that only one class causes."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from glenside.extract.graph import Live

LANDMARK_LIMIT = 20_000
"""Number of classes above which only direct landmarks are found: exact ones take a bit for each pair of classes."""
SWEEP_LIMIT = 50


def scopes(live: Live, forced: Collection[int] = ()) -> list[int]:
    """Returns for each class its nearest dominator that is on no cycle, or -1 if only the roots dominate it.

    If every path from the roots to e contains d, then whatever needs e from outside needs d, and d has one answer: a
    set of classes that contains d need not contain e. Sets of needed classes then hold only classes that are shared.
    `forced` classes count as roots: nothing dominates the classes that a forced class may need.
    """
    tree = _Tree(len(live.order))
    top = len(live.order)
    above = [-1] * len(live.order)
    for root in (*live.roots, *forced):
        above[live.component[root]] = top
    scope = [-1] * len(live.nodes)
    only = [-1] * (top + 1)
    for number in range(top - 1, -1, -1):
        group = live.order[number]
        parent = above[number]
        tree.add(number, parent)
        outer = parent if parent == top or len(live.order[parent]) == 1 else -1
        only[number] = parent if outer >= 0 else only[parent]
        enclosing = only[number]
        for c in group:
            scope[c] = live.order[enclosing][0] if 0 <= enclosing < top else -1
            for n in live.nodes[c]:
                for d in live.kids[n]:
                    below = live.component[d]
                    known = above[below]
                    if below != number and known != number:
                        above[below] = number if known < 0 else tree.meet(known, number)
    return scope


class _Tree:
    """A tree that grows by leaves, with jump pointers: the lowest common ancestor of two nodes in O(log n)."""

    def __init__(self, top: int) -> None:
        self.parent = [top] * (top + 1)
        self.jump = [top] * (top + 1)
        self.depth = [0] * (top + 1)

    def add(self, node: int, parent: int) -> None:
        far = self.jump[parent]
        even = self.depth[parent] - self.depth[far] == self.depth[far] - self.depth[self.jump[far]]
        self.parent[node] = parent
        self.depth[node] = self.depth[parent] + 1
        self.jump[node] = self.jump[far] if even else parent

    def meet(self, a: int, b: int) -> int:
        parent, jump, depth = self.parent, self.jump, self.depth
        if depth[a] < depth[b]:
            a, b = b, a
        while depth[a] > depth[b]:
            a = jump[a] if depth[jump[a]] >= depth[b] else parent[a]
        while a != b:
            a, b = (jump[a], jump[b]) if jump[a] != jump[b] else (parent[a], parent[b])
        return a


def exclusive_costs(live: Live, scope: Sequence[int]) -> list[int]:
    """Returns for each class a lower bound on the weight saved when the class is no longer needed.

    Children that c dominates are reached only through c, and the dominator subtrees of two children do not overlap, so
    their bounds add up.
    """
    exclusive = [0] * len(live.nodes)
    for c in live.members():
        exclusive[c] = min(exclusive_cost(live, scope, exclusive, c, n) for n in live.nodes[c])
    return exclusive


def exclusive_cost(live: Live, scope: Sequence[int], exclusive: Sequence[int], c: int, n: int) -> int:
    """Returns the exclusive cost of class c if its e-node n is chosen."""
    return live.problem.weights[n] + sum(exclusive[d] for d in live.kids[n] if scope[d] == c)


def lower_bound(forced: Iterable[int], exclusive: Sequence[int]) -> int:
    """Returns a packed weight that no answer is below; `forced` must be the roots given to `scopes`."""
    return sum(exclusive[c] for c in forced)


def landmarks(live: Live) -> list[int]:
    """Returns the classes that every answer contains, roots included.

    The greatest solution of: a class needs itself, and the classes that all of its e-nodes need (fact landmarks in
    planning).
    """
    members = list(live.members())
    if len(members) > LANDMARK_LIMIT:
        return _direct(live)
    bit = {c: 1 << i for i, c in enumerate(members)}
    needs = [0] * len(live.nodes)
    for group in live.order:
        if len(group) == 1:
            needs[group[0]] = bit[group[0]] | _common(live, needs, group[0])
        else:
            _sweep(live, needs, bit, group)
    wanted = 0
    for root in live.roots:
        wanted |= needs[root]
    text = bin(wanted)[:1:-1]
    return [c for c, digit in zip(members, text, strict=False) if digit == "1"]


def _common(live: Live, needs: list[int], c: int) -> int:
    common = -1
    for n in live.nodes[c]:
        any_kid = 0
        for d in live.kids[n]:
            any_kid |= needs[d]
        common &= any_kid
    return common


def _sweep(live: Live, needs: list[int], bit: dict[int, int], group: list[int]) -> None:
    everything = (bit[group[-1]] << 1) - 1
    for c in group:
        needs[c] = everything
    for _ in range(SWEEP_LIMIT):
        changed = False
        for c in group:
            new = bit[c] | _common(live, needs, c)
            if new != needs[c]:
                needs[c], changed = new, True
        if not changed:
            return
    for c in group:  # Above the fixed point, which is not sound; that a class needs itself always is.
        needs[c] = bit[c]


def _direct(live: Live) -> list[int]:
    forced = dict.fromkeys(live.roots)
    stack = list(forced)
    while stack:
        first, *others = live.nodes[stack.pop()]
        for d in live.kids[first]:
            if d not in forced and all(d in live.kids[n] for n in others):
                forced[d] = None
                stack.append(d)
    return list(forced)
