"""Sets how many random cases a test tries, and which: the committed seeds, or new ones for a given time."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass


@dataclass(frozen=True)
class Fuzzing:
    """The values of `--fuzz-seed` and `--fuzz-minutes`; None if they are not given."""

    seed: int | None = None
    minutes: float | None = None

    def first(self, committed: int = 0) -> int:
        """Returns the seed of the first case."""
        return committed if self.seed is None else self.seed

    def seconds(self, committed: float) -> float:
        """Returns the time limit in seconds, for a test that measures time itself."""
        return committed if self.minutes is None else 60 * self.minutes

    def seeds(self, count: int, first: int = 0, step: int = 1) -> Iterator[int]:
        """Yields the seed of each case: a fixed number of them, or all that begin within the time
        limit, at least one.
        """
        end = time.monotonic() + self.seconds(0)
        seed = number = self.first(first)
        while number < seed + count * step if self.minutes is None else number == seed or time.monotonic() < end:
            yield number
            number += step
