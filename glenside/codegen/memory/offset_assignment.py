"""Intervals of time with sizes, on top of each other in as little height as can be: storage in one piece of memory.

What is needed at a time is a bound. Where orders of placing do not reach it, an exact search looks for less. Any plan
can be pushed down until each interval lies on the highest one below it, or on the ground; so plans are made from below,
in the order of their places, each interval on what lies under it (as in MiniMalloc: Moffitt, ASPLOS 2023). Steps are
counted, not seconds: the same intervals have the same plan everywhere.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from glenside.ir.operand import Array

STEPS, CELLS = 20_000, 100_000_000
"""Partial plans that the exact search looks at, at most, and intervals by times in all of them: about a second."""
_ROUNDS, _FEW_ROUNDS, _PLACED = 100, 10, 20_000
"""How often an order is improved: of many intervals less often, so that so many are placed, but some times at least."""


@dataclass(frozen=True)
class Interval:
    """Something of a size that is needed from one time to another one, both included."""

    size: int
    first: int
    last: int

    def meets(self, other: Interval) -> bool:
        """Whether both are needed at some time."""
        return self.first <= other.last and other.first <= self.last


@dataclass(frozen=True)
class Plan:
    """Where each interval begins, where the highest one ends, and what no plan is under."""

    places: tuple[int, ...]
    height: int
    bound: int


def placed(intervals: tuple[Interval, ...], steps: int = STEPS) -> Plan:
    """A plan that is as low as can be, or as orders and so many steps of search find."""
    return (_planned if len(intervals) <= _FEW else _known)(intervals, steps)


def _planned(intervals: tuple[Interval, ...], steps: int) -> Plan:
    bound = needed(intervals)
    found = _improved(intervals, bound)
    best, low = found, bound
    if _height(intervals, found) > bound:
        best, low = _Exact(intervals, steps).least(found, bound)
    return Plan(best, _height(intervals, best), low)


_known = lru_cache(maxsize=256)(_planned)
_FEW = 8
"""Intervals that are planned anew each time: of these there are thousands in a program, of more a few."""


def needed(intervals: Sequence[Interval]) -> int:
    """The most that is needed at a time."""
    times, sizes, live = _table(intervals)
    return int((live * sizes[:, None]).sum(0).max(initial=0)) if len(times) else 0


def _table(intervals: Sequence[Interval]) -> tuple[Array, Array, Array]:
    """The times at which some interval begins, sizes, and whether each interval (rows) is needed at each time."""
    times = np.array(sorted({i.first for i in intervals}), np.int64)
    sizes = np.array([i.size for i in intervals], np.int64)
    first, last = (np.array([getattr(i, name) for i in intervals], np.int64)[:, None] for name in ("first", "last"))
    return times, sizes, (first <= times) & (times <= last)


def _height(intervals: Sequence[Interval], places: Sequence[int]) -> int:
    return max((place + i.size for i, place in zip(intervals, places, strict=True)), default=0)


def _meeting(intervals: Sequence[Interval]) -> list[bytes]:
    """Of each, whether it meets each."""
    first, last = (np.array([getattr(i, name) for i in intervals], np.int64) for name in ("first", "last"))
    return [row.tobytes() for row in (first[:, None] <= last) & (first <= last[:, None])]


def _stacked(intervals: Sequence[Interval], meeting: Sequence[bytes], order: Sequence[int]) -> tuple[int, ...]:
    """Each at the lowest place that is free as long as it is needed, one after the other."""
    places = [0] * len(intervals)
    below: list[tuple[int, int, int]] = []  # where those that are placed begin and end
    for own in order:
        size, place, meets = intervals[own].size, 0, meeting[own]
        for begin, end, number in below:
            if meets[number]:
                if place + size <= begin:
                    break
                if end > place:
                    place = end
        places[own] = place
        insort(below, (place, place + size, own))
    return tuple(places)


def _improved(intervals: Sequence[Interval], bound: int) -> tuple[int, ...]:
    """The best of some orders: what lies highest in the plan of one comes earlier in the next."""
    if not intervals:
        return ()
    meeting = _meeting(intervals)
    orders = list(_orders(intervals))
    plans: list[tuple[int, tuple[int, ...]]] = []  # heights first

    def plan(order: Sequence[int]) -> tuple[int, ...]:
        places = _stacked(intervals, meeting, order)
        plans.append((_height(intervals, places), places))
        return places

    for order in orders:
        plan(order)
        if plans[-1][0] <= bound:
            return plans[-1][1]
    rounds = min(_ROUNDS, max(_FEW_ROUNDS, _PLACED // len(intervals)))
    for order, (_, first) in zip(orders, list(plans), strict=True):
        places = first
        for _ in range(rounds):
            top = max(order, key=lambda i: (places[i] + intervals[i].size, intervals[i].size))
            at = order.index(top)
            if not at:
                break
            order.insert(at // 2, order.pop(at))
            places = plan(order)
            if plans[-1][0] <= bound:
                return places
    return min(plans, key=lambda one: one[0])[1]


def _orders(intervals: Sequence[Interval]) -> Iterator[list[int]]:
    """What is needed when most is, the last to end first, then when less is; the largest first, those that are needed
    longest, both, and as they come.
    """
    span = [i.last - i.first + 1 for i in intervals]
    numbers = range(len(intervals))
    times, sizes, live = _table(intervals)
    full = np.lexsort((times, -(live * sizes[:, None]).sum(0)))
    late = sorted(numbers, key=lambda i: (-intervals[i].last, i))
    rank = live[late][:, full].argmax(1)  # the first of those times at which each is needed
    yield [late[i] for i in np.argsort(rank, kind="stable")]
    yield sorted(numbers, key=lambda i: (-intervals[i].size, intervals[i].first))
    yield sorted(numbers, key=lambda i: (-intervals[i].size * span[i], intervals[i].first))
    yield sorted(numbers, key=lambda i: (-span[i], -intervals[i].size))
    yield sorted(numbers, key=lambda i: (intervals[i].first, -intervals[i].size))


class _Exact:
    """Plans from below. Rows are intervals, columns are times at which one begins: between those nothing is added.

    height  the end of the highest interval that is placed, at each time
    rest    the sizes of those that are still to be placed, at each time
    """

    def __init__(self, intervals: Sequence[Interval], steps: int) -> None:
        _, self.sizes, self.live = _table(intervals)
        self.steps = min(steps, CELLS // self.live.size)
        self.same = [next(j for j, other in enumerate(intervals) if other == own) for own in intervals]

    def least(self, found: tuple[int, ...], bound: int) -> tuple[tuple[int, ...], int]:
        """The best plan, at least as low as one that was found, and what no plan is under."""
        unit = int(np.gcd.reduce(self.sizes))
        tried = self._within(bound, self.steps // 2)  # a search that allows no more is the fastest to find it
        if tried:
            return tried, bound
        bound += 0 if tried is None else unit
        while (height := int((np.array(found) + self.sizes).max())) > bound:
            tried = self._within(height - unit, self.steps)
            if tried is None:
                return found, bound
            if not tried:
                return found, height
            found = tried
        return found, bound

    def _within(self, capacity: int, steps: int) -> tuple[int, ...] | None:
        """A plan within a capacity; () where there is none, None where that is not known after so many steps."""
        count, times = self.live.shape
        places = np.full(count, -1, np.int64)
        height, rest = np.zeros(times, np.int64), (self.live * self.sizes[:, None]).sum(0)
        trail: list[tuple[int, Array, Iterator[int]]] = []
        choices = self._choices(places, height, rest, capacity, -1)
        while True:
            own = next(choices, None)
            if own is None:
                if not trail:
                    return ()
                own, height, choices = trail.pop()
                rest = rest + self.live[own] * self.sizes[own]
                places[own] = -1
                continue
            if not steps or not self.steps:
                return None
            steps, self.steps = steps - 1, self.steps - 1
            trail.append((own, height, choices))
            live = self.live[own]
            places[own] = height[live].max(initial=0)
            height = np.where(live, places[own] + self.sizes[own], height)
            rest = rest - live * self.sizes[own]
            if len(trail) == count:
                return tuple(map(int, places))
            choices = self._choices(places, height, rest, capacity, own)

    def _choices(self, places: Array, height: Array, rest: Array, capacity: int, last: int) -> Iterator[int]:
        """What may come next, the lowest first. Nothing that comes later lies below it."""
        left = np.flatnonzero(places < 0)
        live = self.live[left]
        floors = np.where(live, height, 0).max(1)
        at = places[last] if last >= 0 else 0
        # At each time all that is left lies above the lowest place that is left.
        lowest = np.where(live, np.maximum(floors, at)[:, None], capacity + 1).min(0)
        if (np.where(rest > 0, np.maximum(height, lowest), 0) + rest > capacity).any():
            return
        # What would fit below another one may as well lie there, so that the other one is not next.
        ends = floors + self.sizes[left]
        first, *others = np.argsort(ends)
        below = np.full(left.size, ends[first])
        below[first] = ends[others[0]] if others else capacity + 1
        seen: set[int] = set()
        for number in np.lexsort((-self.sizes[left] * live.sum(1), floors)):
            own, floor = int(left[number]), floors[number]
            if at <= floor < below[number] and self.same[own] not in seen and not (floor == at and own < last):
                seen.add(self.same[own])
                yield own
