"""The search process: reads requests, saturates, and sends a snapshot from time to time.

An egglog call cannot be interrupted, and its memory cannot be bounded from inside. So it runs in a separate process,
which the parent can end at any time while keeping the last snapshot. Run as `python -m glenside.egraph.worker
[MODULE:FUNCTION]`; the function returns the declarations of the first search.
"""

from __future__ import annotations

import gc
import os
import pickle
import sys
import threading
import time
from contextlib import suppress
from importlib import import_module
from typing import Any, BinaryIO

from glenside.egraph.faults import fault, raw_fault
from glenside.egraph.process import HEADER
from glenside.egraph.saturation import FAILED, MEMORY_LIMIT, Compiled, Request, Saturation

_WATCH_SECONDS = 0.05
_ALLOCATIONS = 100_000  # allocations between two runs of Python's cycle collector: rows of an e-graph have no cycles
_SMALL = 256 << 20  # maximum resident bytes of a process that serves another search
_HAND_OVER_SECONDS = 2.0  # minimum age of the parent's snapshot before a new one: most searches are over by then
_HAND_OVER_SHARE = 0.1  # maximum fraction of the time that goes into snapshots


class _Channel:
    """The message channel to the parent, shared by the watching thread and the search."""

    def __init__(self, stream: BinaryIO) -> None:
        self._stream, self._lock = stream, threading.Lock()

    def send(self, kind: str, *content: Any) -> None:
        data = pickle.dumps((kind, *content), protocol=5)
        with self._lock:
            self._stream.write(HEADER.pack(len(data)) + data)
            self._stream.flush()


def resident_bytes() -> int:
    """Returns the resident memory of this process in bytes; its peak if the system does not report the current size."""
    try:
        with open("/proc/self/statm", encoding="ascii") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        import resource

        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return peak if sys.platform == "darwin" else peak * 1024


class _Watch(threading.Thread):
    """Ends this process when memory runs out or the parent is gone, also while one egglog call is running."""

    memory: int | None = None

    def __init__(self, channel: _Channel) -> None:
        super().__init__(daemon=True)
        self._channel, self._parent = channel, os.getppid()

    def run(self) -> None:
        while True:
            time.sleep(_WATCH_SECONDS)
            if os.getppid() != self._parent:
                os._exit(1)
            if self.memory is not None and resident_bytes() > self.memory:
                self._channel.send("stopped", MEMORY_LIMIT)
                os._exit(0)


def main() -> None:
    """Serves the requests on standard input while this process is small; a text is declarations to compile ahead."""
    gc.set_threshold(_ALLOCATIONS)
    # With PYTHONUNBUFFERED the stream below `sys.stdout` is unbuffered and may write partially.
    channel = _Channel(open(sys.stdout.fileno(), "wb", closefd=False))
    watch, compiled = _Watch(channel), Compiled()
    watch.start()
    for first in sys.argv[1:]:  # of our own parent
        module, function = first.split(":")
        with suppress(BaseException):  # the search that uses it fails again and reports it
            compiled.egraph(getattr(import_module(module), function)())
    stays = True
    while stays:
        channel.send("ready")
        try:
            request = pickle.load(sys.stdin.buffer)  # from our own parent, through a pipe
        except EOFError:
            return
        if isinstance(request, str):
            with suppress(BaseException):  # the search that uses it fails again and reports it
                compiled.egraph(request)
            continue
        watch.memory = request.limits.memory
        stays = _serve(request, compiled, channel)


def _serve(request: Request, compiled: Compiled, channel: _Channel) -> bool:
    """Serves a request; True if another may follow: after a large search the process still holds much memory."""
    last = time.perf_counter()
    cost = 0.0

    def hand_over(search: Saturation) -> None:
        nonlocal last, cost
        now = time.perf_counter()
        channel.send("progress", search.progress)
        if now - last > max(_HAND_OVER_SECONDS, cost / _HAND_OVER_SHARE):
            channel.send("snapshot", search.snapshot(), search.progress)
            last, cost = time.perf_counter(), time.perf_counter() - now

    search = None
    try:
        search = Saturation(request, compiled)
        search.run(hand_over)
        snapshot, stays = search.snapshot(), resident_bytes() < _SMALL
        channel.send("done", snapshot, search.progress, stays)
    except BaseException as error:  # egglog's panics are not Exceptions
        channel.send("fault", raw_fault(error), "")
        channel.send("fault", *fault(request, search.progress.iterations if search is not None else 0, error))
        channel.send("stopped", FAILED)
        return False
    return stays


if __name__ == "__main__":
    main()
