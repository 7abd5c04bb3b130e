"""Orders the first runs of steps: steps that end large live ranges run as soon as they can."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from glenside.codegen.passes.rematerialization.live_sets import Run
from glenside.codegen.passes.rematerialization.steps import Steps

_SHRINK_FACTOR = 8
"""A step shrinks its operands if it reads at least this many times the lines that it writes."""


def ordered(steps: Steps) -> Run:
    """Returns each step once, in the candidate order with the lowest peak memory."""
    given = tuple(range(len(steps.steps)))
    runs = [Run(steps, given), *(Run(steps, _list_schedule(steps, is_soon)) for is_soon in (_frees, _shrinks))]
    return min(runs, key=lambda run: run.peak)


def _frees(steps: Steps, number: int, left: Sequence[int]) -> bool:
    """True if a step ends live ranges of at least as many lines as it writes."""
    step = steps.steps[number]
    ends = sum(steps.sizes[v] for v in step.reads if left[v] == 1)
    return ends >= sum(steps.sizes[v] for v in step.writes)


def _shrinks(steps: Steps, number: int, left: Sequence[int]) -> bool:
    """True if a step ends live ranges of at least as many lines as it writes, or shrinks its operands."""
    step = steps.steps[number]
    writes = sum(steps.sizes[v] for v in step.writes)
    return _frees(steps, number, left) or _SHRINK_FACTOR * writes <= sum(steps.sizes[v] for v in step.reads)


def _list_schedule(steps: Steps, is_soon: Callable[[Steps, int, Sequence[int]], bool]) -> tuple[int, ...]:
    """List-schedules steps: the first ready step for which `is_soon` holds, else the first ready step."""
    left = [0] * len(steps.values)  # remaining readers of each value
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
