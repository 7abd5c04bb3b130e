"""Restricts a problem to its usable e-nodes, in an order in which children come before their parents."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from glenside.extract.problem import ExtractionError, Problem

NAMED_IN_ERROR = 8


class NoExtraction(ExtractionError):
    """A root has no finite derivation: each of its derivations needs the root itself or a class without e-nodes."""

    def __init__(self, message: str, classes: Sequence[int] = ()) -> None:
        super().__init__(message)
        self.classes = tuple(classes)

    def __reduce__(self) -> tuple[type[NoExtraction], tuple[str, tuple[int, ...]]]:
        return type(self), (str(self), self.classes)


@dataclass
class Live:
    """The usable e-nodes of the classes reachable from the roots.

    Usable: derivable from leaves, without its own class as a child, and not beaten by an e-node of the same class with
    the same children.
    """

    problem: Problem
    nodes: list[list[int]]
    """class -> its usable e-nodes; empty when no root can reach it."""
    kids: list[tuple[int, ...]]
    """e-node -> its distinct child classes."""
    order: list[list[int]]
    """Strongly connected components of classes, children first; cycles lie within one component."""
    component: list[int]
    """class -> its position in `order`, or -1."""

    @property
    def roots(self) -> tuple[int, ...]:
        """The distinct root classes."""
        return tuple(dict.fromkeys(self.problem.roots))

    @property
    def open_nodes(self) -> int:
        """Number of e-nodes in classes with a choice: the size of the open decision."""
        return sum(len(nodes) for nodes in self.nodes if len(nodes) > 1)

    def members(self) -> Iterable[int]:
        """Returns every reachable class, children before parents except within a component."""
        return (c for group in self.order for c in group)


def prepare(problem: Problem) -> Live:
    """Returns the usable part of a problem; raises NoExtraction if a root has no finite derivation."""
    kids = [tuple(dict.fromkeys(own)) if len(own) > 1 else own for own in problem.children]
    derivable = _derivable(problem, kids)
    if not all(derivable[root] for root in problem.roots):
        raise _underivable(problem, derivable)
    nodes = [_usable(problem, c, own, kids, derivable) for c, own in enumerate(problem.classes)]
    return arrange(problem, nodes, kids)


def arrange(problem: Problem, nodes: Sequence[Sequence[int]], kids: list[tuple[int, ...]]) -> Live:
    """Builds the live graph of these e-nodes: unreachable classes are emptied, the others ordered."""
    successors: list[Sequence[int]] = [
        kids[own[0]] if len(own) == 1 else tuple(dict.fromkeys(d for n in own for d in kids[n])) for own in nodes
    ]
    order, component = _components(successors, problem.roots)
    return Live(problem, [list(o) if component[c] >= 0 else [] for c, o in enumerate(nodes)], kids, order, component)


def _derivable(problem: Problem, kids: list[tuple[int, ...]]) -> list[bool]:
    parents: list[list[int]] = [[] for _ in problem.classes]
    owner = {n: c for c, nodes in enumerate(problem.classes) for n in nodes}
    waiting = [len(own) for own in kids]
    derivable = [False] * len(problem.classes)
    ready: list[int] = []
    for n, own in enumerate(kids):
        for d in own:
            parents[d].append(n)
        if not own:
            ready.append(n)
    while ready:
        c = owner[ready.pop()]
        if not derivable[c]:
            derivable[c] = True
            for n in parents[c]:
                waiting[n] -= 1
                if not waiting[n]:
                    ready.append(n)
    return derivable


def _underivable(problem: Problem, derivable: list[bool]) -> NoExtraction:
    """Names the classes that prevent a derivation: those that an underivable root needs, without derivable ones."""
    seen = dict.fromkeys(root for root in problem.roots if not derivable[root])
    stack = list(seen)
    while stack:
        for n in problem.classes[stack.pop()]:
            for d in problem.children[n]:
                if not derivable[d] and d not in seen:
                    seen[d] = None
                    stack.append(d)
    classes = sorted(seen)
    names = ", ".join(map(str, classes[:NAMED_IN_ERROR])) + (", ..." if len(classes) > NAMED_IN_ERROR else "")
    text = f"extraction requires a finite derivation of each root, got none for {len(classes)} classes: {names}"
    return NoExtraction(text, classes=classes)


def _usable(
    problem: Problem, c: int, nodes: tuple[int, ...], kids: list[tuple[int, ...]], derivable: list[bool]
) -> list[int]:
    usable = [n for n in nodes if c not in kids[n] and all(map(derivable.__getitem__, kids[n]))]
    if len(usable) < 2:
        return usable
    # E-nodes with equal children, repeats included (a tree counts each), differ in their own cost only.
    best: dict[tuple[int, ...], int] = {}
    for n in usable:
        key = tuple(sorted(problem.children[n]))
        other = best.setdefault(key, n)
        if problem.weights[n] < problem.weights[other]:
            best[key] = n
    return sorted(best.values())


def _components(successors: list[Sequence[int]], roots: Sequence[int]) -> tuple[list[list[int]], list[int]]:
    """Tarjan's algorithm with an explicit stack: returns components, children first, and each class's component."""
    count = len(successors)
    index, low, component = [0] * count, [0] * count, [-1] * count
    order: list[list[int]] = []
    held: list[int] = []
    clock = 0
    for root in roots:
        if index[root]:
            continue
        clock += 1
        index[root] = low[root] = clock
        held.append(root)
        path = [(root, iter(successors[root]))]
        while path:
            c, rest = path[-1]
            for d in rest:
                if not index[d]:
                    clock += 1
                    index[d] = low[d] = clock
                    held.append(d)
                    path.append((d, iter(successors[d])))
                    break
                if component[d] < 0 and index[d] < low[c]:
                    low[c] = index[d]
            else:
                path.pop()
                if path and low[c] < low[path[-1][0]]:
                    low[path[-1][0]] = low[c]
                if low[c] == index[c]:
                    order.append(_close(held, c, component, len(order)))
    return order, component


def _close(held: list[int], head: int, component: list[int], number: int) -> list[int]:
    group = [held.pop()]
    while group[-1] != head:
        group.append(held.pop())
    for c in group:
        component[c] = number
    return sorted(group)


def settle(live: Live, price: Callable[[int], Any], commit: Callable[[int, int, Any], None]) -> list[int]:
    """Chooses the cheapest e-node of every class, children before parents; class -> e-node, or -1 if unreachable.

    `price` is called once for each e-node, when all of its children are settled; no price may be less than that of a
    child in the same component. A component is settled as by Dijkstra (Knuth 1977): the cheapest e-node first. Every
    choice uses classes settled before it, so the choices have no cycle, whatever the prices are; ties go to the lower
    class and e-node.
    """
    pick = [-1] * len(live.nodes)
    for group in live.order:
        if len(group) > 1:
            _settle_cycle(live, group, pick, price, commit)
            continue
        c = group[0]
        own = live.nodes[c]
        if len(own) == 1:
            node, cost = own[0], price(own[0])
        else:
            cost, node = min((price(n), n) for n in own)
        pick[c] = node
        commit(c, node, cost)
    return pick


def _settle_cycle(
    live: Live,
    group: list[int],
    pick: list[int],
    price: Callable[[int], Any],
    commit: Callable[[int, int, Any], None],
) -> None:
    inside = set(group)
    consumers: dict[int, list[tuple[int, int]]] = {c: [] for c in group}
    waiting: dict[int, int] = {}
    heap: list[tuple[Any, int, int]] = []
    for c in group:
        for n in live.nodes[c]:
            within = [d for d in live.kids[n] if d in inside]
            waiting[n] = len(within)
            for d in within:
                consumers[d].append((c, n))
            if not within:
                heap.append((price(n), c, n))
    heapq.heapify(heap)
    while heap:
        cost, c, n = heapq.heappop(heap)
        if pick[c] >= 0:
            continue
        pick[c] = n
        commit(c, n, cost)
        for parent, consumer in consumers[c]:
            waiting[consumer] -= 1
            if not waiting[consumer] and pick[parent] < 0:
                heapq.heappush(heap, (price(consumer), parent, consumer))
