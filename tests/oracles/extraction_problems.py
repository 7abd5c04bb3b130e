"""Makes extraction problems, small enough for brute force or hard enough to take time, and all answers of the small
ones.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence

from glenside.extract import Cost, Problem

Node = tuple[tuple[int, ...], Cost]


def problem(
    *classes: Sequence[Node], roots: tuple[int, ...] = (0,), boundaries: frozenset[int] = frozenset()
) -> Problem:
    nodes = [node for own in classes for node in own]
    counter = iter(range(len(nodes)))
    numbered = tuple(tuple(next(counter) for _ in own) for own in classes)
    return Problem(numbered, tuple(kids for kids, _ in nodes), tuple(cost for _, cost in nodes), roots, boundaries)


def random_problem(seed: int, most: int = 8) -> Problem:
    """Draws a small problem with cycles, self-loops, repeated children, zero costs, several roots and random
    boundaries.
    """
    r = random.Random(seed)
    count, dimension = r.randint(1, most), r.randint(1, 3)
    classes: list[list[Node]] = []
    for c in range(count):
        classes.append([])
        for _ in range(r.choice([1, 1, 2, 2, 3, 4])):
            pool = range(count) if r.random() < 0.5 else range(c + 1, count)
            kids = tuple(r.choice(pool) for _ in range(r.choice([0, 1, 1, 2, 2, 3]))) if pool else ()
            classes[c].append((kids, tuple(r.choice([0, 0, 1, r.randint(0, 6)]) for _ in range(dimension))))
    roots = tuple(r.randrange(count) for _ in range(r.randint(1, 2)))
    boundaries = frozenset(c for c in range(count) if r.random() < r.choice([0.0, 0.3]))
    return problem(*classes, roots=roots, boundaries=boundaries)


def answers(p: Problem) -> Iterator[dict[int, int]]:
    """Enumerates every choice that is closed and acyclic."""
    stack: list[tuple[dict[int, int], tuple[int, ...]]] = [({}, p.roots)]
    while stack:
        choice, wanted = stack.pop()
        missing = [c for c in wanted if c not in choice]
        if missing:
            stack += [({**choice, missing[0]: n}, (*missing[1:], *p.children[n])) for n in p.classes[missing[0]]]
        elif is_acyclic(p, choice):
            yield choice


def is_acyclic(p: Problem, choice: dict[int, int]) -> bool:
    """True if removing leaves repeatedly removes all: another algorithm than the code under test."""
    left = dict(choice)
    while left:
        leaves = [c for c, n in left.items() if not any(d in left for d in p.children[n])]
        if not leaves:
            return False
        for c in leaves:
            del left[c]
    return True


def vector_sum(p: Problem, choice: dict[int, int]) -> Cost:
    return tuple(map(sum, zip(*(p.costs[n] for n in choice.values()), strict=True)))


def hard(size: int, seed: int = 0) -> Problem:
    """Draws unstructured sharing, which the reduction hardly shrinks."""
    r = random.Random(seed)
    count = size * 2 // 3
    classes: list[list[Node]] = [[] for _ in range(count)]
    for i in range(size):
        c = i if i < count else r.randrange(count)
        pool = range(max(0, c - 200), c)
        kids = tuple(r.choice(pool) for _ in range(r.choice((1, 2, 2, 3)))) if pool else ()
        classes[c].append((kids, (0, r.randrange(1, 20))))
    return problem(*classes, roots=(count - 1,))
