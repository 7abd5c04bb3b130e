"""Estimates costs lazily: a lower bound is known at once, the exact value takes a while.

A minimum over sums of such costs needs few exact values: if all costs of the least sum are exact, no other sum is less.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from glenside.ir.stopwatch import stage
from glenside.ir.threads import in_parallel


@dataclass(eq=False)
class Estimate:
    """A lower bound of a number, and the function that computes it exactly; `find` is None once it is exact. Estimates
    with the same `of` share intermediate results, so they are computed in sequence.
    """

    value: float
    find: Callable[[], float] | None = None
    of: object = None

    @property
    def is_open(self) -> bool:
        return self.find is not None

    def close(self) -> float:
        """Returns the exact number."""
        if self.find is not None:
            self.value, self.find = float(self.find()), None
        return self.value


@stage("price")
def close_all(estimates: Iterable[Estimate]) -> None:
    """Computes estimates on all processors; those with the same `of` in sequence."""
    groups = defaultdict[object, list[Estimate]](list)
    for estimate in estimates:
        if estimate.is_open:
            groups[estimate.of].append(estimate)

    def work(own: list[Estimate], _: None) -> None:
        for estimate in own:
            estimate.close()

    in_parallel(work, groups.values(), lambda _: None)
