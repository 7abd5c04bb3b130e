"""From a snapshot to an answer: what each e-node costs on a target, and the cheapest e-node for each class needed."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass

from extract import Extraction, Problem, extract
from glenside.egraph.snapshot import Snapshot
from glenside.ir.operator import OPERATORS
from glenside.target import Cost, Target


@dataclass(frozen=True)
class Choice:
    """`nodes[c]` is the e-node of class c, for the classes that the roots need."""

    nodes: Mapping[int, int]
    cost: Cost
    bound: Cost | None
    """No answer in the e-graph costs less, compared in the order of the target's objectives; None when not known."""
    proven: bool


def choose(
    snapshot: Snapshot,
    target: Target,
    constant: Sequence[bool],
    roots: Sequence[int],
    *,
    boundaries: frozenset[int] = frozenset(),
    method: str = "auto",
    deadline: float | None = None,
    avoided: Set[int] = frozenset(),
) -> Choice:
    """The cheapest answer for some roots that `method` finds (see `extract`), by a deadline of `time.monotonic`.

    E-nodes that are `avoided` count as if their elements were computed twice: among equals, others are taken. Then
    nothing is said of a bound.
    """
    problem, classes, kept = _problem(snapshot, target, constant, roots, boundaries, avoided)
    left = None if deadline is None else max(0.0, deadline - time.monotonic())
    answer: Extraction = extract(problem, method, time_limit=left)
    nodes = {classes[c]: kept[n] for c, n in answer.choice.items()}
    if avoided:
        cost = Cost()
        for n in nodes.values():
            cost = cost.plus(node_cost(snapshot, target, constant, n))
        return Choice(nodes, cost, None, False)
    bound = None if answer.bound is None else Cost.of_ordered(answer.bound, target.objectives)
    return Choice(nodes, Cost.of_ordered(answer.cost, target.objectives), bound, answer.proven)


def _problem(
    snapshot: Snapshot,
    target: Target,
    constant: Sequence[bool],
    roots: Sequence[int],
    boundaries: frozenset[int],
    avoided: Set[int],
) -> tuple[Problem, list[int], list[int]]:
    """The extractor's arrays, and what its classes and nodes are in the snapshot: those that the roots can reach."""
    usable = dict(snapshot.usable())
    number = {c: i for i, c in enumerate(dict.fromkeys(roots))}
    classes = list(number)
    members: list[tuple[int, ...]] = []
    kept: list[int] = []
    for eclass in classes:  # it grows while it is read
        own = usable[eclass]
        members.append(tuple(range(len(kept), len(kept) + len(own))))
        kept += own
        for n in own:
            for child in snapshot.nodes[n].children:
                if child not in number:
                    number[child] = len(classes)
                    classes.append(child)
    children = tuple(tuple(number[c] for c in snapshot.nodes[n].children) for n in kept)

    def cost(n: int) -> Cost:
        own = node_cost(snapshot, target, constant, n)
        return own.plus(Cost(scalar=own.scalar)) if n in avoided else own

    costs = tuple(cost(n).ordered(target.objectives) for n in kept)
    inside = frozenset(number[c] for c in boundaries if c in number)
    return Problem(tuple(members), children, costs, tuple(number[r] for r in roots), inside), classes, kept


def node_cost(snapshot: Snapshot, target: Target, constant: Sequence[bool], index: int) -> Cost:
    """What one e-node costs by itself."""
    node = snapshot.nodes[index]
    own, children = snapshot.types[snapshot.owner[index]], [snapshot.types[c] for c in node.children]
    fixed = constant[snapshot.owner[index]] and all(constant[c] for c in node.children)
    if own is None or any(c is None for c in children):
        return Cost(nodes=1)  # tuples
    return target.cost(node.operator, node.attributes, [c for c in children if c is not None], own, fixed)


def constant_classes(snapshot: Snapshot) -> list[bool]:
    """Which classes have a node that is made of constants alone: they are computed before run time."""
    waiting = [len(set(n.children)) for n in snapshot.nodes]
    parents: list[list[int]] = [[] for _ in snapshot.classes]
    for i, node in enumerate(snapshot.nodes):
        for child in set(node.children):
            parents[child].append(i)
    result = [False] * len(snapshot.classes)

    def unknown(i: int) -> bool:
        node = snapshot.nodes[i]
        if OPERATORS[node.operator].opaque:
            return True
        return node.operator == "access-tensor" and not snapshot.tensors[node.attributes[0]].constant

    ready = [i for i, count in enumerate(waiting) if count == 0 and not unknown(i)]
    while ready:
        eclass = snapshot.owner[ready.pop()]
        if result[eclass]:
            continue
        result[eclass] = True
        for parent in parents[eclass]:
            waiting[parent] -= 1
            if waiting[parent] == 0 and not unknown(parent):
                ready.append(parent)
    return result
