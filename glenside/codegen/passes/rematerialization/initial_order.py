"""In which order steps run first: what makes little of much as soon as it can, so that much may end."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from glenside.codegen.passes.rematerialization.live_sets import Run
from glenside.codegen.passes.rematerialization.steps import Steps

_LITTLE = 8
"""A step makes little where it writes so many times less than it reads."""


def ordered(steps: Steps) -> Run:
    """Each step once, in the order of those that are tried that needs the least memory."""
    given = tuple(range(len(steps.steps)))
    runs = [Run(steps, given), *(Run(steps, _listed(steps, is_soon)) for is_soon in (_frees, _shrinks))]
    return min(runs, key=lambda run: run.peak)


def _frees(steps: Steps, number: int, left: Sequence[int]) -> bool:
    """Whether it ends at least as much as it begins."""
    step = steps.steps[number]
    ends = sum(steps.sizes[v] for v in step.reads if left[v] == 1)
    return ends >= sum(steps.sizes[v] for v in step.writes) > -1


def _shrinks(steps: Steps, number: int, left: Sequence[int]) -> bool:
    """Whether it ends at least as much as it begins, or makes little of much."""
    step = steps.steps[number]
    writes = sum(steps.sizes[v] for v in step.writes)
    return _frees(steps, number, left) or _LITTLE * writes <= sum(steps.sizes[v] for v in step.reads)


def _listed(steps: Steps, is_soon: Callable[[Steps, int, Sequence[int]], bool]) -> tuple[int, ...]:
    """The first step that can run of those that are to run soon, else of all, one after the other."""
    left = [0] * len(steps.values)  # steps that are still to read each value
    users: list[set[int]] = [set() for _ in steps.steps]
    for number, step in enumerate(steps.steps):
        for value in step.reads:
            left[value] += 1
        for before in step.after:
            users[before].add(number)
    waits = [len(step.after) for step in steps.steps]
    ready = {number for number, count in enumerate(waits) if not count}
    found: list[int] = []
    while ready:
        soon = [number for number in ready if is_soon(steps, number, left)]
        taken = min(soon or ready)
        ready.remove(taken)
        found.append(taken)
        for value in steps.steps[taken].reads:
            left[value] -= 1
        for user in users[taken]:
            waits[user] -= 1
            if not waits[user]:
                ready.add(user)
    return tuple(found)
