"""Times calls of several packages in one process, whose threads spin for some time after a call."""

from __future__ import annotations

import time
from collections.abc import Callable

PAUSE = 0.1
"""Seconds after which no thread spins: those of onnxruntime do for some 50 ms, those of llama.cpp for 10."""


def seconds(run: Callable[[], object], count: int = 1) -> float:
    """Returns the seconds of a call: the mean of `count`, after a pause and a call that is not timed."""
    time.sleep(PAUSE)
    run()
    begin = time.perf_counter()
    for _ in range(count):
        run()
    return (time.perf_counter() - begin) / count
