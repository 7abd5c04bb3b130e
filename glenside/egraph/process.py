"""The search process, from its parent's side. Loads little but Python's own, so that it can begin before all else."""

from __future__ import annotations

import atexit
import os
import pickle
import selectors
import time
from collections.abc import Iterator, Sequence
from struct import Struct
from typing import TYPE_CHECKING, Any

from glenside.ir.child_processes import end, how_ended, start

if TYPE_CHECKING:
    from glenside.egraph.saturation import Request

HEADER = Struct("<Q")
"""Before each message of the process: its size in bytes."""
_POLL = 0.1
_SHOWN = 1.0  # seconds without news after which the caller is told the time
_PIPE = 1 << 20  # bytes of a pipe, where the system lets one say so: what is asked for while a process starts


class SearchFailed(RuntimeError):
    """The search process is not there any more."""


class Worker:
    """A search process. Starting it takes some tenths of a second, so start it before there is work for it.

    first   module:function, which says what the first search declares: it compiles that as soon as it has started
    is_new  whether it has not searched yet
    coming  declarations of searches that are to come, which it has not been told of
    knows   declarations that it has been told of
    """

    def __init__(self, first: str | None = None) -> None:
        self.first, self._parent = first, os.getpid()
        # No products are computed there, and threads of BLAS spin while they wait for some.
        words = [] if first is None else [first]
        self._process = start("glenside.egraph.worker", *words, pipe_bytes=_PIPE, OPENBLAS_NUM_THREADS="1")
        self._buffer = bytearray()
        self.is_new, self.to_compile, self.knows = True, list[str](), set[str]()

    @property
    def serves(self) -> bool:
        """Whether it lives, and is ours: a forked process must not talk to its parent's."""
        return self._parent == os.getpid() and self._process.poll() is None

    def send(self, request: Request) -> None:
        """Let it search."""
        self.is_new = False
        self.knows.add(request.declarations)
        self._send(request)

    def compile_ahead(self) -> None:
        """Let it compile what searches declare that are to come."""
        for declared in self.to_compile:
            self.knows.add(declared)
            self._send(declared)
        self.to_compile.clear()

    def _send(self, what: Request | str) -> None:
        assert self._process.stdin is not None
        try:
            pickle.dump(what, self._process.stdin, protocol=5)
            self._process.stdin.flush()
        except BrokenPipeError as error:
            raise SearchFailed(f"the search process ended {how_ended(self._process.wait())}") from error

    def fileno(self) -> int:
        """Where its messages come."""
        assert self._process.stdout is not None
        return self._process.stdout.fileno()

    def messages(self) -> Iterator[tuple[Any, ...]]:
        """Those that have come since it was asked last, ("ended",) where it has closed its end; waits for some."""
        data = os.read(self.fileno(), 1 << 20)
        if not data:
            yield ("ended",)
        self._buffer += data
        while len(self._buffer) >= HEADER.size:
            (size,) = HEADER.unpack_from(self._buffer)
            if len(self._buffer) < HEADER.size + size:
                return
            data = bytes(self._buffer[HEADER.size : HEADER.size + size])
            del self._buffer[: HEADER.size + size]
            yield pickle.loads(data)  # from our own child, through a pipe

    def end(self) -> None:
        end(self._process)


def messages(workers: Sequence[Worker], until: float | None) -> Iterator[tuple[Worker | None, tuple[Any, ...]]]:
    """Messages of some processes as they come, until all have closed their ends or `time.perf_counter()` reaches
    `until`: ("ended",) of one that has closed it, and ("waiting",) of nobody for each second without any, as an
    iteration may take long.
    """
    with selectors.DefaultSelector() as selector:
        for worker in workers:
            selector.register(worker, selectors.EVENT_READ, worker)
        last = time.perf_counter()
        while selector.get_map() and (until is None or time.perf_counter() < until):
            ready = selector.select(_POLL)
            if not ready and time.perf_counter() - last >= _SHOWN:
                last = time.perf_counter()
                yield None, ("waiting",)
            for key, _ in ready:
                last = time.perf_counter()
                for message in (worker := key.data).messages():
                    if message == ("ended",):
                        selector.unregister(worker)
                    yield worker, message


IDLE: list[Worker] = []
"""Processes that have rules of past searches compiled: the next search need not wait for that."""


def begin(first: str | None = None, count: int = 1) -> None:
    """Start the processes of the next search, unless they wait for it: `first` of our own, module:function, says what
    that declares.
    """
    while len(IDLE) < count:
        IDLE.append(Worker(first))


@atexit.register
def end_idle() -> None:
    """End the processes that wait for another search; then what they took counts for this one."""
    while IDLE:
        if (worker := IDLE.pop()).serves:
            worker.end()
