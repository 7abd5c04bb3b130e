"""Dominators: which classes can be reached only through another class.

When every way from the roots to e leads through d, whatever needs e from outside needs d, and d's answer is one: so a
set of classes that holds d need not also name e. Sets of needed classes stay as small as the sharing really is.
"""

from __future__ import annotations

from collections.abc import Collection

from extract.graph import Live


def scopes(live: Live, forced: Collection[int] = ()) -> list[int]:
    """class -> the nearest class that dominates it and lies on no cycle, or -1 when only the roots do.

    `forced` classes count as roots: nothing dominates what one of them may need.
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
