"""The search process: reads a request, saturates, and hands over a snapshot after each block of work.

One egglog call cannot be interrupted and its memory cannot be bounded from inside, so it runs in a process of its
own, which its parent can end at any moment while keeping the last snapshot. Run as `python -m glenside.egraph.worker`.
"""

from __future__ import annotations

import os
import pickle
import struct
import sys
import threading
import time
from typing import Any, BinaryIO

from glenside.egraph.saturation import MEMORY_LIMIT, Saturation

HEADER = struct.Struct("<Q")
_WATCH_SECONDS = 0.05
_HAND_OVER_SECONDS = 1.0  # how old the parent's snapshot may become
_HAND_OVER_SHARE = 0.1  # how much of the time may go into snapshots


class _Channel:
    """Messages to the parent; the watching thread and the search share it."""

    def __init__(self, stream: BinaryIO) -> None:
        self._stream, self._lock = stream, threading.Lock()

    def send(self, kind: str, *content: Any) -> None:
        data = pickle.dumps((kind, *content), protocol=5)
        with self._lock:
            self._stream.write(HEADER.pack(len(data)) + data)
            self._stream.flush()


def resident_bytes() -> int:
    """Memory of this process, in bytes; its peak where the system does not tell the present size."""
    try:
        with open("/proc/self/statm", encoding="ascii") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        import resource

        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return peak if sys.platform == "darwin" else peak * 1024


def _watch(channel: _Channel, memory: int | None, parent: int) -> None:
    """End this process when memory runs out or the parent is gone, also while one egglog call is running."""
    while True:
        time.sleep(_WATCH_SECONDS)
        if os.getppid() != parent:
            os._exit(1)
        if memory is not None and resident_bytes() > memory:
            channel.send("stopped", MEMORY_LIMIT)
            os._exit(0)


def main() -> None:
    """Serve one request from standard input."""
    channel = _Channel(sys.stdout.buffer)
    parent = os.getppid()
    channel.send("ready")
    request = pickle.load(sys.stdin.buffer)  # from our own parent, through a pipe
    threading.Thread(target=_watch, args=(channel, request.limits.memory, parent), daemon=True).start()
    last = time.perf_counter()
    cost = 0.0

    def hand_over(search: Saturation) -> None:
        nonlocal last, cost
        now = time.perf_counter()
        channel.send("progress", search.progress)
        if now - last > max(_HAND_OVER_SECONDS, cost / _HAND_OVER_SHARE):
            channel.send("snapshot", search.snapshot(), search.progress)
            last, cost = time.perf_counter(), time.perf_counter() - now

    try:
        search = Saturation(request)
        search.run(hand_over)
        channel.send("done", search.snapshot(), search.progress)
    except BaseException as error:  # egglog's panics are not Exceptions
        channel.send("failed", f"{type(error).__name__}: {error}")


if __name__ == "__main__":
    main()
