"""What an order of steps, some of them again, holds at each time; and the order that choices of what to drop make."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate

from glenside.codegen.passes.rematerialization.steps import Steps

Dropped = Mapping[int, set[int]]
"""Place in the order of first runs -> values that are not kept beyond it."""


@dataclass(frozen=True)
class Version:
    """A value from when it is computed to when it is read last, and whether something is stored over it then."""

    value: int
    first: int
    last: int
    over: bool


@dataclass(frozen=True)
class Run:
    """Steps in an order; one that comes twice is computed again."""

    steps: Steps
    order: tuple[int, ...]

    @cached_property
    def versions(self) -> list[Version]:
        """As the arena has them: what may be stored over an operand that ends there is."""
        firsts, lasts, values = list[int](), list[int](), list[int]()
        now: dict[int, int] = {}
        below: list[list[int]] = []
        for time, number in enumerate(self.order):
            step = self.steps.steps[number]
            for value in step.reads:
                lasts[now[value]] = time
            may = {v: [now[u] for u in step.over[v]] for v in step.writes}
            for value in step.writes:
                if value in now and not step.repeats:  # one of several that fill it
                    lasts[now[value]] = time
                    continue
                now[value] = len(values)
                firsts.append(time)
                lasts.append(time)
                values.append(value)
                below.append(may[value])
        over: set[int] = set()
        for version, first in enumerate(firsts):
            own = next((b for b in below[version] if lasts[b] == first and b not in over), None)
            over |= set() if own is None else {own}
        return [Version(v, firsts[i], lasts[i], i in over) for i, v in enumerate(values)]

    @cached_property
    def needed(self) -> list[int]:
        """Lines at each time."""
        change = [0] * (len(self.order) + 1)
        for version in self.versions:
            change[version.first] += self.steps.sizes[version.value]
            change[version.last + (not version.over)] -= self.steps.sizes[version.value]
        return list(accumulate(change))[:-1]

    @cached_property
    def peak(self) -> int:
        return max(self.needed, default=0)

    @cached_property
    def kept(self) -> list[int]:
        """Lines at each time of what was there before and is read after."""
        change = [0] * (len(self.order) + 1)
        for version in self.versions:
            if version.last > version.first + 1:
                change[version.first + 1] += self.steps.sizes[version.value]
                change[version.last] -= self.steps.sizes[version.value]
        return list(accumulate(change))[:-1]

    @cached_property
    def again(self) -> list[bool]:
        """Whether each time is one of a step that has run."""
        seen: set[int] = set()
        found = []
        for number in self.order:
            found.append(number in seen)
            seen.add(number)
        return found

    @cached_property
    def work(self) -> int:
        """Operations of all steps, as often as they run."""
        return sum(self.steps.steps[number].work for number in self.order)

    @cached_property
    def cost(self) -> float:
        """Of what runs again."""
        return sum(self.steps.steps[n].cost for n, again in zip(self.order, self.again, strict=True) if again)

    def place(self, time: int) -> int:
        """The place in the order of first runs of the step at a time, or of the first one after it."""
        return sum(not again for again in self.again[:time])


def unfolded(steps: Steps, order: Sequence[int], dropped: Dropped) -> Run:
    """Steps in the order in which each runs first; what was dropped is computed again just before it is read."""
    there: set[int] = set()
    made: list[int] = []
    for place, first in enumerate(order):
        stack = [(first, iter(steps.steps[first].reads))]
        while stack:
            number, reads = stack[-1]
            missing = next((v for v in reads if v not in there), None)
            if missing is None:
                stack.pop()
                made.append(number)
                there.update(steps.steps[number].writes)
            else:
                maker = steps.makers[missing][0]
                stack.append((maker, iter(steps.steps[maker].reads)))
        there -= dropped.get(place, set())
    return Run(steps, tuple(made))
