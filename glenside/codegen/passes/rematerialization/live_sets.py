"""Live values at each time of an order of steps, some repeated; and the order that a choice of drops implies."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate

from glenside.codegen.passes.rematerialization.steps import Steps

Dropped = Mapping[int, set[int]]
"""Position in the order of first runs -> values dropped after it."""


@dataclass(frozen=True)
class Version:
    """A live range of a value, from its computation to its last read; `over`: the last reader may overwrite it."""

    value: int
    first: int
    last: int
    over: bool


@dataclass(frozen=True)
class Run:
    """Steps in an order; a step that occurs twice is recomputed."""

    steps: Steps
    order: tuple[int, ...]

    @cached_property
    def versions(self) -> list[Version]:
        """The live ranges as the arena has them: a value is stored in place over an operand that ends there."""
        firsts, lasts, values = list[int](), list[int](), list[int]()
        now: dict[int, int] = {}
        below: list[list[int]] = []
        for time, number in enumerate(self.order):
            step = self.steps.steps[number]
            for value in step.reads:
                lasts[now[value]] = time
            may = {v: [now[u] for u in step.over[v]] for v in step.writes}
            for value in step.writes:
                if value in now and not step.repeats:  # one of several steps that fill it
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
        """Live lines at each time."""
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
        """Lines at each time of the values computed before it and read after it."""
        change = [0] * (len(self.order) + 1)
        for version in self.versions:
            if version.last > version.first + 1:
                change[version.first + 1] += self.steps.sizes[version.value]
                change[version.last] -= self.steps.sizes[version.value]
        return list(accumulate(change))[:-1]

    @cached_property
    def again(self) -> list[bool]:
        """For each time, True if its step has run before."""
        seen: set[int] = set()
        found = []
        for number in self.order:
            found.append(number in seen)
            seen.add(number)
        return found

    @cached_property
    def work(self) -> int:
        """Operations of all steps, repetitions included."""
        return sum(self.steps.steps[number].work for number in self.order)

    @cached_property
    def cost(self) -> float:
        """The cost of the steps that run again."""
        return sum(self.steps.steps[n].cost for n, again in zip(self.order, self.again, strict=True) if again)

    def place(self, time: int) -> int:
        """Returns the position of the step at `time` in the order of first runs; for a step that runs again, that of
        the next first run.
        """
        return sum(not again for again in self.again[:time])


def unfolded(steps: Steps, order: Sequence[int], dropped: Dropped) -> Run:
    """Returns the run with first runs in `order`; dropped values are recomputed just before they are read."""
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
