"""Drops values greedily until memory stays within a budget: at the peak, most bytes freed per recomputation first."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from glenside.codegen.passes.rematerialization.live_sets import Dropped, Run, Version, unfolded
from glenside.codegen.passes.rematerialization.steps import Steps

_NEGLIGIBLE_FACTOR = 1000
"""Values smaller than the budget by this factor are always kept."""
_MAX_STALE_ROUNDS = 32
"""Rounds without a lower peak after which the search stops."""
Dropping = dict[int, set[int]]


def small(steps: Steps, most: int) -> frozenset[int]:
    """Returns the values that are always kept: too small to matter, or not recomputable."""
    numbers = range(len(steps.values))
    return frozenset(v for v in numbers if not steps.repeats(v) or steps.sizes[v] * _NEGLIGIBLE_FACTOR < most)


def within(
    steps: Steps, order: Sequence[int], most: int, is_late: Callable[[], bool], given: Dropped | None = None
) -> tuple[Run, Dropping]:
    """Returns a run within `most` lines and its drops; else the run of the lowest peak found."""
    dropped: Dropping = {place: set(values) for place, values in (given or {}).items()}
    kept = small(steps, most)
    run = best = unfolded(steps, order, dropped)
    held, stale = dict(dropped), 0
    while run.peak > most and stale < _MAX_STALE_ROUNDS and not is_late():
        time = run.needed.index(run.peak)
        if not _drop_at_time(run, time, most, kept, dropped):
            break
        run = unfolded(steps, order, dropped)
        stale += 1
        if run.peak < best.peak:
            best, held, stale = run, {place: set(values) for place, values in dropped.items()}, 0
    if best.peak <= most:
        best = _without_useless_drops(best, order, most, held, is_late)
    return best, held


def _drop_at_time(run: Run, time: int, most: int, kept: frozenset[int], dropped: Dropping) -> bool:
    """Drops values that are live but idle at a time, until `most` lines suffice; True if any was dropped."""
    before = max(
        (t for t in range(time + 1) if not run.again[t]), default=0
    )  # the first run after whose end the values are dropped
    place = run.place(before)
    reads: dict[int, list[int]] = {}
    for at, number in enumerate(run.order):
        for value in run.steps.steps[number].reads:
            reads.setdefault(value, []).append(at)

    def is_idle(version: Version) -> bool:
        return not any(before < at <= time for at in reads.get(version.value, ()))

    live = {v.value: v for v in run.versions if v.first <= time <= v.last and not (v.over and v.first == time)}
    through = {n: v for n, v in live.items() if v.first <= before and v.last > time}
    through = {n: v for n, v in through.items() if n not in kept and is_idle(v)}
    excess, changed = run.needed[time] - most, False
    there = set(live)
    while excess > 0 and through:
        costs = {n: _recomputed_steps(run.steps, n, there - {n}, kept) for n in through}
        taken = max(
            through, key=lambda n: (run.steps.sizes[n] / (1 + sum(run.steps.steps[m].cost for m in costs[n])), n)
        )
        excess -= run.steps.sizes[taken]
        gone = {v for maker in costs[taken] for v in run.steps.steps[maker].writes}
        dropped.setdefault(place, set()).update({taken}, gone - there)
        del through[taken]
        there.discard(taken)
        changed = True
    return changed


def _recomputed_steps(steps: Steps, value: int, there: set[int], kept: frozenset[int]) -> set[int]:
    """Returns the steps that must run again to recompute a value."""
    stack, found = [value], set[int]()
    while stack:
        maker = steps.makers[stack.pop()][0]
        if maker not in found:
            found.add(maker)
            stack += [v for v in steps.steps[maker].reads if v not in there and v not in kept]
    return found


def _without_useless_drops(
    best: Run, order: Sequence[int], most: int, dropped: Dropping, is_late: Callable[[], bool]
) -> Run:
    """Keeps dropped values again where the budget allows it, the most expensive first; returns the best run."""
    steps = best.steps
    every = [(place, value) for place, values in dropped.items() for value in values]
    for place, value in sorted(every, key=lambda e: -steps.steps[steps.makers[e[1]][0]].cost):
        if is_late():
            break
        dropped[place].discard(value)
        run = unfolded(steps, order, dropped)
        if run.peak <= most and run.cost <= best.cost:
            best = run
        else:
            dropped[place].add(value)
    return best
