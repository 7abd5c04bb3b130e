"""When an exact search stops. Sizes and branches give the same answer on every machine; a deadline does not."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass


@dataclass(frozen=True)
class Limits:
    """None is no limit."""

    deadline: float | None = None
    """On the clock of `time.monotonic`."""
    branches: int | None = None
    """Branch-and-bound nodes, for each level of each block."""
    block_size: int | None = None
    """E-nodes of a block that is searched at all."""
    total_size: int | None = None
    """E-nodes of all blocks that are searched, smallest first."""

    @classmethod
    def after(cls, seconds: float | None, **others: int | None) -> Limits:
        """Limits whose deadline is some seconds from now."""
        return cls(None if seconds is None else time.monotonic() + seconds, **others)

    @property
    def remaining(self) -> float:
        """Seconds left."""
        return math.inf if self.deadline is None else self.deadline - time.monotonic()

    def admits(self, size: int, searched: int) -> bool:
        """Whether a block of this size is searched after blocks of `searched` e-nodes."""
        small = self.block_size is None or size <= self.block_size
        return small and (self.total_size is None or searched + size <= self.total_size)
