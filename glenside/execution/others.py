"""What others take of the processors while something is timed."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from pathlib import Path

MOST = 0.1
"""Processors that others may take: what they take more makes figures of several threads worthless."""
_STAT = Path("/proc/stat")


@dataclass(frozen=True)
class Reading:
    """Seconds by the clock, and those of processors that all but this process and its ended children took so far."""

    clock: float
    others: float

    def since(self, before: Reading) -> float:
        """How many processors others took in between, in the mean; 0 where the system does not tell."""
        return max(0.0, (self.others - before.others) / max(self.clock - before.clock, 1e-9))


def reading() -> Reading:
    """What was taken until now. Children count for others until they have ended and somebody waited for them."""
    try:
        words = _STAT.read_text(encoding="ascii", errors="replace").split("\n", 1)[0].split()[1:4]
        every = sum(int(word) for word in words) / os.sysconf("SC_CLK_TCK")  # user, nice, system
    except (OSError, ValueError):
        return Reading(time.monotonic(), 0)
    own = os.times()
    return Reading(time.monotonic(), every - own.user - own.system - own.children_user - own.children_system)
