"""The search process, seen from its parent. Imports little beyond the standard library, so that it can start first."""

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
"""The header of each message of the process: its size in bytes."""
_POLL = 0.1
_SHOWN = 1.0  # seconds without a message after which ("waiting",) is yielded
_PIPE = 1 << 20  # bytes of the pipe for requests sent while a process starts, if the system allows this size


class SearchFailed(RuntimeError):
    """The search process has ended."""


class Worker:
    """A search process. Starting it takes some tenths of a second, so start it before there is work for it.

    first       module:function that returns the declarations of the first search; compiled right after the start
    is_new      True if it has not searched yet
    to_compile  declarations of expected searches that were not sent yet
    knows       declarations that were sent
    """

    def __init__(self, first: str | None = None) -> None:
        self.first, self._parent = first, os.getpid()
        # The process computes no products, and idle BLAS threads would spin.
        words = [] if first is None else [first]
        self._process = start("glenside.egraph.worker", *words, pipe_bytes=_PIPE, OPENBLAS_NUM_THREADS="1")
        self._buffer = bytearray()
        self.is_new, self.to_compile, self.knows = True, list[str](), set[str]()

    @property
    def serves(self) -> bool:
        """True if it is running and was started by this process: a forked copy must not use its parent's."""
        return self._parent == os.getpid() and self._process.poll() is None

    def send(self, request: Request) -> None:
        """Sends a request to search."""
        self.is_new = False
        self.knows.add(request.declarations)
        self._send(request)

    def compile_ahead(self) -> None:
        """Sends the declarations of expected searches, which the process compiles."""
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
        """Returns the descriptor of its messages."""
        assert self._process.stdout is not None
        return self._process.stdout.fileno()

    def messages(self) -> Iterator[tuple[Any, ...]]:
        """Yields the messages received since the last call, ("ended",) at the end of the stream. Blocks for data."""
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
    """Yields (process, message) as messages arrive, until all processes end or `time.perf_counter()` reaches `until`.

    A process that ends yields ("ended",). Each second without a message, as an iteration may take long, yields
    (None, ("waiting",)).
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
"""Idle processes, with the compiled rules of past searches, for the next searches."""


def begin(first: str | None = None, count: int = 1) -> None:
    """Starts processes for the next search until `count` are idle; `first`: module:function in this package that
    returns its declarations.
    """
    while len(IDLE) < count:
        IDLE.append(Worker(first))


@atexit.register
def end_idle() -> None:
    """Ends the idle processes; their processor time then counts for this process."""
    while IDLE:
        if (worker := IDLE.pop()).serves:
            worker.end()
