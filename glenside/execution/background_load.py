"""Measures the processor time of other processes during a measurement."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from pathlib import Path

MOST = 0.1
"""Processors that other processes may use: more makes figures of several threads worthless."""
_STAT = Path("/proc/stat")


@dataclass(frozen=True)
class Reading:
    """Wall-clock seconds, and processor seconds of all processes but this one and its ended children so far."""

    clock: float
    others: float

    def since(self, before: Reading) -> float:
        """Returns the mean number of processors that others used since an earlier reading; 0 if unknown."""
        return max(0.0, (self.others - before.others) / max(self.clock - before.clock, 1e-9))


def reading() -> Reading:
    """Returns a reading of now. Children count as others until they have ended and are waited for."""
    try:
        words = _STAT.read_text(encoding="ascii", errors="replace").split("\n", 1)[0].split()[1:4]
        every = sum(int(word) for word in words) / os.sysconf("SC_CLK_TCK")  # user, nice, system
    except (OSError, ValueError):
        return Reading(time.monotonic(), 0)
    own = os.times()
    return Reading(time.monotonic(), every - own.user - own.system - own.children_user - own.children_system)
