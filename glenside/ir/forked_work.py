"""Runs work in a forked copy of this process, because threads would share Python's interpreter lock.

A copy has all of this process's state at the fork, and returns its result as JSON or bytes. A copy is never required:
without an answer, this process does the work itself.
"""

from __future__ import annotations

import gc
import json
import math
import multiprocessing
import os
import select
import signal
import struct
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, NoReturn

from glenside.ir.interrupts import STOPS
from glenside.ir.threads import processors

_POLL = 0.05  # seconds
_NICE = 5
"""The niceness of a copy whose answer is needed only at the end, when other processes want a processor."""
_TURN = struct.Struct("<q")

Work = Callable[[int, Callable[[], None]], Any]
"""(round, a callback to call regularly) -> the answer, as JSON; None for no answer."""
Serve = Callable[[int, int, Callable[[], None]], None]
"""(file of questions, file of answers, a callback to call regularly): runs in the copy until it has no more work."""


def may_fork() -> bool:
    """True if a processor is free for a second process, and no thread of this process computes.

    A fork must not copy computing threads. Threads that only display progress are daemons; JAX, once imported, has
    threads that Python does not list.
    """
    others = (thread for thread in threading.enumerate() if thread is not threading.current_thread())
    alone = multiprocessing.parent_process() is None and all(thread.daemon for thread in others)
    if sys.platform != "linux" or processors() < 2 or not alone or "jaxlib" in sys.modules:
        return False
    return threading.current_thread() is threading.main_thread()


class ForkedProcess:
    """A forked copy of this process, made by `start`, that serves until it is ended or its parent is gone.

    to_it, from_it  file descriptors for questions to it, and for answers from it
    """

    def __init__(self, serve: Serve) -> None:
        self._serve = serve
        self._process = 0
        self.to_it = self.from_it = -1
        self._ends: list[int] = []

    def start(self) -> None:
        """Forks the copy. Raises OSError."""
        self._ends += os.pipe()
        self._ends += os.pipe()
        questions, self.to_it, self.from_it, answers = self._ends
        before = signal.pthread_sigmask(signal.SIG_BLOCK, STOPS)  # until this process knows its child
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", DeprecationWarning)  # about threads: they only display progress
                parent, self._process = os.getpid(), os.fork()
            if not self._process:
                _serve(self._serve, questions, answers, (self.to_it, self.from_it), parent)
            self._ends = [self.to_it, self.from_it]
            os.close(questions)
            os.close(answers)
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)

    def end(self) -> None:
        """Kills the copy."""
        process, self._process = self._process, 0
        if process:
            os.kill(process, signal.SIGKILL)
            os.waitpid(process, 0)
        while self._ends:
            os.close(self._ends.pop())


def _serve(serve: Serve, questions: int, answers: int, others: tuple[int, ...], parent: int) -> NoReturn:
    """Runs in the copy until it is ended."""

    def look() -> None:
        if os.getppid() != parent:
            os._exit(1)

    try:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the parent, which then ends this process
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, STOPS)
        gc.freeze()  # a collection would touch all shared memory
        for other in others:
            os.close(other)
        serve(questions, answers, look)
    finally:
        os._exit(1)  # skip the exit handlers inherited from the parent


class RoundWorker(ForkedProcess):
    """A copy of this process that does `work` for requested rounds, one at a time."""

    def __init__(self, work: Work) -> None:
        super().__init__(self._answered)
        self._work = work
        self.turn: int | None = None
        """The round that was requested last and is not answered yet."""

    def _answered(self, questions: int, answers: int, look: Callable[[], None]) -> None:
        while turn := os.read(questions, _TURN.size):
            reply = json.dumps(self._work(_TURN.unpack(turn)[0], look)).encode()
            with open(answers, "wb", closefd=False) as stream:
                stream.write(_TURN.pack(len(reply)) + reply)

    def ask(self, turn: int) -> None:
        """Requests a round, unless an earlier request is unanswered."""
        if self.turn is None:
            with suppress(BrokenPipeError):
                os.write(self.to_it, _TURN.pack(turn))
                self.turn = turn

    def answer(self, look: Callable[[], None], seconds: float) -> Any:
        """Returns the answer to the request, calling `look` regularly until then; None for no answer or after
        `seconds`.
        """
        self.turn, data, until = None, bytearray(), time.monotonic() + seconds
        while len(data) < _TURN.size or len(data) < _TURN.size + _TURN.unpack_from(data)[0]:
            look()
            if time.monotonic() > until:
                return None
            if select.select([self.from_it], [], [], _POLL)[0]:
                part = os.read(self.from_it, 1 << 20)
                if not part:
                    return None
                data += part
        return json.loads(data[_TURN.size :])


@contextmanager
def forked(find: Callable[[Callable[[], None]], Any], worth: bool = True) -> Iterator[Callable[[], Any]]:
    """Runs `find` in a copy of this process for the duration of the block, and yields a function that awaits its
    result.

    The function may be called once; it returns JSON, or None where this process must compute the result itself, or
    where it is not `worth` a copy. `find` takes a callback to call regularly.
    """

    def found(_: int, look: Callable[[], None]) -> Any:
        os.nice(_NICE)
        return find(look)

    other, started = RoundWorker(found), False
    try:
        if worth and may_fork():
            with suppress(OSError):
                other.start()
                started = True
                other.ask(0)
        yield lambda: other.answer(lambda: None, math.inf) if started else None
    finally:
        other.end()
