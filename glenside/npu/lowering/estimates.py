"""Numbers that take a while to find, of which is known at once what they are not less than.

A least sum of such numbers needs few of them: where those that it is made of are found, and the others are no less
than they are taken for, no other sum is less.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(eq=False)
class Estimate:
    """A number that is at least so much, and how to find it; `find` is None where it is found."""

    value: float
    find: Callable[[], float] | None = None

    @property
    def is_open(self) -> bool:
        return self.find is not None

    def close(self) -> float:
        """The number."""
        if self.find is not None:
            self.value, self.find = float(self.find()), None
        return self.value
