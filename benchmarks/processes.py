"""Runs a measurement in a process of its own, so that memory of one does not count for another."""

from __future__ import annotations

import json
import resource
import subprocess
import sys
from typing import Any


def answer(module: str, *arguments: str, seconds: float) -> dict[str, Any] | None:
    """Runs `python -m benchmarks.MODULE ARGUMENTS` and returns its JSON output; None if it takes
    longer than the limit.
    """
    command = [sys.executable, "-m", f"benchmarks.{module}", *arguments]
    try:
        done = subprocess.run(command, check=True, stdout=subprocess.PIPE, timeout=seconds)
    except subprocess.TimeoutExpired:
        return None
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def peak_megabytes(*whose: int) -> int:
    """Returns the peak memory of this process, of its ended children, or of both. Linux counts for a process what its
    parent held when it was started, so a parent should be small.

    Linux counts for a process what its parent held when it was started, so a parent should be small.
    """
    whose = whose or (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    return round(max(resource.getrusage(of).ru_maxrss for of in whose) / 1e3)
