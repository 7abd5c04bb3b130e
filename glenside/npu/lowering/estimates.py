"""Numbers that take a while to find, of which is known at once what they are not less than.

A least sum of such numbers needs few of them: where those that it is made of are found, and the others are no less
than they are taken for, no other sum is less.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial

from glenside.ir.copies import Find, shared_out


@dataclass(eq=False)
class Estimate:
    """A number that is at least so much, and how to find it; `find` is None where it is found.

    of  what is found out more about in doing so, which serves its other numbers; None where more is learnt than that
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


def close_all(estimates: Iterable[Estimate]) -> None:
    """Find these numbers; by several processes, but for those by which more is learnt."""
    by_what, here = defaultdict[object, list[Estimate]](list), list[Estimate]()
    for own in dict.fromkeys(estimates):
        if own.is_open:
            (here if own.of is None else by_what[own.of]).append(own)
    jobs: list[Find] = [partial(_values, group) for group in by_what.values()]

    def first() -> None:
        for own in here:
            own.close()

    found = shared_out(jobs, first)
    for group, values in zip(by_what.values(), found, strict=True):
        for own, value in zip(group, values, strict=True):
            own.value, own.find = value, None


def _values(estimates: Sequence[Estimate]) -> Sequence[float]:
    return [own.close() for own in estimates]
