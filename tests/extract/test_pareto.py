"""Tests the Pareto front of time and memory against brute force over every choice."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from itertools import product

import pytest

from glenside.extract.pareto import Entry, Step, pareto

Form = tuple[int, tuple["Form", ...]]
"""A node and the forms of its operands."""


def _problem(seed: int) -> tuple[list[list[int]], list[list[int]], list[tuple[int, int, int, bool]]]:
    """Returns a tree of classes, each with a few nodes over the classes below it: (time, result, scratch, whether a
    view).
    """
    draw = random.Random(seed)
    classes: list[list[int]] = []
    children: list[list[int]] = []
    costs: list[tuple[int, int, int, bool]] = []

    def grown(depth: int) -> int:
        below = [grown(depth - 1) for _ in range(draw.randint(1, 2))] if depth else []
        own = []
        for _ in range(draw.randint(1, 3)):
            own.append(len(children))
            used = draw.sample(below, draw.randint(1, len(below))) if below else []
            children.append(used)
            view = len(used) == 1 and draw.random() < 0.3
            costs.append((draw.randint(0, 9), 0 if view else draw.randint(1, 40), draw.choice([0, 0, 25]), view))
        classes.append(own)
        return len(classes) - 1

    grown(3)
    return classes, children, costs


def _forms(classes: Sequence[Sequence[int]], children: Sequence[Sequence[int]], root: int) -> Iterator[Form]:
    for node in classes[root]:
        for parts in product(*(list(_forms(classes, children, c)) for c in children[node])):
            yield node, parts


def _run(form: Form, costs: Sequence[tuple[int, int, int, bool]], live: int = 0) -> tuple[int, int, int]:
    """(time, the most bytes alive, bytes of the result), operands one after the other, freed when it is there."""
    node, parts = form
    time, result, scratch, view = costs[node]
    most, held = live, 0
    for part in parts:
        spent, peak, kept = _run(part, costs, live + held)
        time, most, held = time + spent, max(most, peak), held + kept
    return time, max(most, live + held + result + scratch), held if view else result


def _front(points: set[tuple[int, int]]) -> list[tuple[int, int]]:
    return sorted(p for p in points if not any(q != p and q[0] <= p[0] and q[1] <= p[1] for q in points))


@pytest.mark.parametrize("seed", range(40))
def test_the_front_is_that_of_all_forms(seed: int) -> None:
    classes, children, costs = _problem(seed)
    root = len(classes) - 1
    names = iter(range(10**6))

    def step(node: int, parts: Sequence[Entry]) -> Step:
        time, result, scratch, view = costs[node]
        held = dict(parts[0].held) if view else {next(names): result}
        return Step(time, 0, result + scratch, held, None)

    wanted = _front({_run(form, costs)[:2] for form in _forms(classes, children, root)})
    found = pareto(classes, children, root, step, limit=10**6)
    assert _front({(e.time, e.peak) for e in found}) == wanted
    few = pareto(classes, children, root, step, limit=3)
    assert {wanted[0][0], min(p for _, p in wanted)} >= {min(e.time for e in few)}
    assert all((e.time, e.peak) >= wanted[0] for e in few)


def test_what_two_operands_share_takes_time_once() -> None:
    """0: a result of time 7; 1: the sum of it with itself; 2: that, another way that takes 8."""
    classes, children = [[0], [1, 2]], [[], [0, 0], [0]]
    times = [7, 1, 2]
    held = [{0: 10}, {1: 10}, {2: 10}]
    (best,) = pareto(classes, children, 1, lambda n, _: Step(times[n], 0, 10, held[n], None))
    assert (best.time, best.peak, best.node) == (8, 20, 1)


def test_classes_that_need_each_other() -> None:
    """a = f(b), b = g(a), and b is also a leaf: no term goes round for ever."""
    classes, children = [[0], [1, 2]], [[1], [0], []]
    (best,) = pareto(classes, children, 0, lambda n, _: Step((3, 0, 5)[n], 0, 4, {n: 4}, None))
    assert (best.time, [p.node for p in best.parts]) == (8, [2])


def test_a_node_that_cannot_be_used() -> None:
    (best,) = pareto([[0, 1]], [[], []], 0, lambda n, _: None if n == 0 else Step(1, 0, 1, {}, "kept"))
    assert best.value == "kept"
