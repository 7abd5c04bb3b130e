"""Offset assignment: places live ranges with sizes in one block of memory of least height (dynamic storage allocation).

The most that is live at a time is a lower bound. If greedy orders do not reach it, an exact search follows. Any plan
can be pushed down until each interval rests on the highest one below it, or on offset 0. So plans are built bottom up,
in the order of offsets, each interval on those under it (as in MiniMalloc: Moffitt, ASPLOS 2023). The search is limited
in steps, not seconds: the same intervals have the same plan everywhere.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from glenside.ir.operand import Array

STEPS, CELLS = 20_000, 100_000_000
"""Limits of the exact search: partial plans, and (intervals x times) cells over all of them; about a second."""
_ROUNDS, _FEW_ROUNDS, _PLACED = 100, 10, 20_000
"""Rounds of improving an order: the most, the fewest, and the interval placements that limit rounds in between."""


@dataclass(frozen=True)
class Interval:
    """A live range with a size, from `first` to `last`, both included."""

    size: int
    first: int
    last: int

    def meets(self, other: Interval) -> bool:
        """True if the live ranges overlap."""
        return self.first <= other.last and other.first <= self.last


@dataclass(frozen=True)
class Plan:
    """An assignment: the offset of each interval, the height, and a lower bound of the height of any plan."""

    places: tuple[int, ...]
    height: int
    bound: int


def placed(intervals: tuple[Interval, ...], steps: int = STEPS) -> Plan:
    """Returns a plan of least height, or the best found by greedy orders and `steps` steps of exact search."""
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
"""The most intervals of a plan that is not memoized: a program has thousands of such small plans, and few larger."""


def needed(intervals: Sequence[Interval]) -> int:
    """Returns the most that is live at a time, a lower bound of the height."""
    times, sizes, live = _table(intervals)
    return int((live * sizes[:, None]).sum(0).max(initial=0)) if len(times) else 0


def _table(intervals: Sequence[Interval]) -> tuple[Array, Array, Array]:
    """Returns the times at which intervals begin, the sizes, and the mask (intervals)(times) of live intervals."""
    times = np.array(sorted({i.first for i in intervals}), np.int64)
    sizes = np.array([i.size for i in intervals], np.int64)
    first, last = (np.array([getattr(i, name) for i in intervals], np.int64)[:, None] for name in ("first", "last"))
    return times, sizes, (first <= times) & (times <= last)


def _height(intervals: Sequence[Interval], places: Sequence[int]) -> int:
    return max((place + i.size for i, place in zip(intervals, places, strict=True)), default=0)


def _meeting(intervals: Sequence[Interval]) -> list[bytes]:
    """Returns, for each interval, a byte per interval that is 1 if their live ranges overlap."""
    first, last = (np.array([getattr(i, name) for i in intervals], np.int64) for name in ("first", "last"))
    return [row.tobytes() for row in (first[:, None] <= last) & (first <= last[:, None])]


def _stacked(intervals: Sequence[Interval], meeting: Sequence[bytes], order: Sequence[int]) -> tuple[int, ...]:
    """Places intervals in order, each at the lowest offset that is free during its live range (first fit)."""
    places = [0] * len(intervals)
    below: list[tuple[int, int, int]] = []  # (begin, end, interval) of those placed
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
    """Returns the best plan of several orders, each improved by moving the highest interval earlier in the order."""
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
    """Yields candidate orders.

    Orders: live at the peak, latest end first; by size; by size x live range; by live range; by start.
    """
    span = [i.last - i.first + 1 for i in intervals]
    numbers = range(len(intervals))
    times, sizes, live = _table(intervals)
    full = np.lexsort((times, -(live * sizes[:, None]).sum(0)))
    late = sorted(numbers, key=lambda i: (-intervals[i].last, i))
    rank = live[late][:, full].argmax(1)  # the first of those times at which each is live
    yield [late[i] for i in np.argsort(rank, kind="stable")]
    yield sorted(numbers, key=lambda i: (-intervals[i].size, intervals[i].first))
    yield sorted(numbers, key=lambda i: (-intervals[i].size * span[i], intervals[i].first))
    yield sorted(numbers, key=lambda i: (-span[i], -intervals[i].size))
    yield sorted(numbers, key=lambda i: (intervals[i].first, -intervals[i].size))


class _Exact:
    """The exact search: builds plans bottom up. Arrays are (intervals)(times at which an interval begins).

    height  end of the highest placed interval, at each time
    rest    total size of the unplaced intervals, at each time
    """

    def __init__(self, intervals: Sequence[Interval], steps: int) -> None:
        _, self.sizes, self.live = _table(intervals)
        self.steps = min(steps, CELLS // self.live.size)
        self.same = [next(j for j, other in enumerate(intervals) if other == own) for own in intervals]

    def least(self, found: tuple[int, ...], bound: int) -> tuple[tuple[int, ...], int]:
        """Returns a plan at most as high as `found`, and a lower bound of any plan's height."""
        unit = int(np.gcd.reduce(self.sizes))
        tried = self._within(bound, self.steps // 2)  # the tightest limit prunes most
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
        """Returns a plan within a capacity, () if there is none, or None if `steps` steps do not decide."""
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
        """Yields the candidates for the next interval, lowest offset first; later intervals are never placed lower."""
        left = np.flatnonzero(places < 0)
        live = self.live[left]
        floors = np.where(live, height, 0).max(1)
        at = places[last] if last >= 0 else 0
        # At each time, all unplaced intervals are above the lowest offset that an unplaced interval can have.
        lowest = np.where(live, np.maximum(floors, at)[:, None], capacity + 1).min(0)
        if (np.where(rest > 0, np.maximum(height, lowest), 0) + rest > capacity).any():
            return
        # An interval that fits below another one may be placed there first, so the other one is not next.
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
