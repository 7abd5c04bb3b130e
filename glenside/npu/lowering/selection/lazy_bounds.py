"""Numbers that take a while to find, of which is known at once what they are not less than.

A least sum of such numbers needs few of them: where those that it is made of are found, and the others are no less
than they are taken for, no other sum is less.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from glenside.ir.stopwatch import stage
from glenside.ir.threads import in_parallel


@dataclass(eq=False)
class Estimate:
    """A number that is at least so much, and how to find it; `find` is None where it is found. Those that are `of` one
    thing share what is found on the way.
    """

    value: float
    find: Callable[[], float] | None = None
    of: object = None

    @property
    def is_open(self) -> bool:
        return self.find is not None

    def close(self) -> float:
        """The number."""
        if self.find is not None:
            self.value, self.find = float(self.find()), None
        return self.value


@stage("price")
def close_all(estimates: Iterable[Estimate]) -> None:
    """Find them all, by all processors at a time: those of one thing one after the other."""
    groups = defaultdict[object, list[Estimate]](list)
    for estimate in estimates:
        if estimate.is_open:
            groups[estimate.of].append(estimate)

    def work(own: list[Estimate], _: None) -> None:
        for estimate in own:
            estimate.close()

    in_parallel(work, groups.values(), lambda _: None)
