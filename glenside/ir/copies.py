"""Copies of this process that do something while it goes on with something else: threads would wait for one lock of
Python's.

A copy has all that this process had when it was made, and what it finds comes back as JSON or bytes. It is never
needed: where it tells nothing, this process does the same by itself.
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
"""How much later the turns of a copy come whose answer is asked for at the end, where others want a processor."""
_TURN = struct.Struct("<q")

Work = Callable[[int, Callable[[], None]], Any]
"""(turn, what is to be called now and then) -> what is told of it, as JSON has it; None where that is nothing."""
Serve = Callable[[int, int, Callable[[], None]], None]
"""(file of questions, file of answers, what is to be called now and then): what a copy does until it has no more."""


def may_be_copied() -> bool:
    """Whether there is a processor for a second process, and nothing in this one that a copy must not have: threads
    that compute. Those that only show something are daemons.
    """
    others = (thread for thread in threading.enumerate() if thread is not threading.current_thread())
    alone = multiprocessing.parent_process() is None and all(thread.daemon for thread in others)
    if sys.platform != "linux" or processors() < 2 or not alone:
        return False
    return threading.current_thread() is threading.main_thread()


class Copy:
    """A copy of this process as it is at `start`, that serves until it is ended, or has nobody to tell.

    to_it, from_it  files to write questions to, and to read answers from
    """

    def __init__(self, serve: Serve) -> None:
        self._serve = serve
        self._process = 0
        self.to_it = self.from_it = -1
        self._ends: list[int] = []

    def start(self) -> None:
        """Make the copy. Raises OSError."""
        self._ends += os.pipe()
        self._ends += os.pipe()
        questions, self.to_it, self.from_it, answers = self._ends
        before = signal.pthread_sigmask(signal.SIG_BLOCK, STOPS)  # until this process knows whom to end
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", DeprecationWarning)  # of threads: they only show something
                parent, self._process = os.getpid(), os.fork()
            if not self._process:
                _serve(self._serve, questions, answers, (self.to_it, self.from_it), parent)
            self._ends = [self.to_it, self.from_it]
            os.close(questions)
            os.close(answers)
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)

    def end(self) -> None:
        """End it, whatever it does."""
        process, self._process = self._process, 0
        if process:
            os.kill(process, signal.SIGKILL)
            os.waitpid(process, 0)
        while self._ends:
            os.close(self._ends.pop())


def _serve(serve: Serve, questions: int, answers: int, others: tuple[int, ...], parent: int) -> NoReturn:
    """What the copy does until it is ended."""

    def look() -> None:
        if os.getppid() != parent:
            os._exit(1)

    try:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the parent, which then ends this process
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, STOPS)
        gc.freeze()  # it would touch all of the memory that is shared
        for other in others:
            os.close(other)
        serve(questions, answers, look)
    finally:
        os._exit(1)  # nothing that this process is a copy of is to be left as on its end


class Ahead(Copy):
    """A copy of this process that does `work` for turns that it is asked for, one at a time."""

    def __init__(self, work: Work) -> None:
        super().__init__(self._answered)
        self._work = work
        self.turn: int | None = None
        """What it was asked for last, and has not told."""

    def _answered(self, questions: int, answers: int, look: Callable[[], None]) -> None:
        while turn := os.read(questions, _TURN.size):
            told = json.dumps(self._work(_TURN.unpack(turn)[0], look)).encode()
            with open(answers, "wb", closefd=False) as stream:
                stream.write(_TURN.pack(len(told)) + told)

    def ask(self, turn: int) -> None:
        """Let it begin with a turn, where it has told what it was asked for."""
        if self.turn is None:
            with suppress(BrokenPipeError):
                os.write(self.to_it, _TURN.pack(turn))
                self.turn = turn

    def answer(self, look: Callable[[], None], seconds: float) -> Any:
        """What it tells of its turn, with `look` called now and then until it does; None where that is nothing, or
        takes longer.
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
def beside(find: Callable[[Callable[[], None]], Any], worth: bool = True) -> Iterator[Callable[[], Any]]:
    """Let a copy of this process find something, as JSON has it, as long as the block lasts. What is given waits for
    it, once: None where this process has to find it by itself, or where it is not `worth` a copy. `find` takes what is
    to be called now and then.
    """

    def found(_: int, look: Callable[[], None]) -> Any:
        os.nice(_NICE)
        return find(look)

    other, started = Ahead(found), False
    try:
        if worth and may_be_copied():
            with suppress(OSError):
                other.start()
                started = True
                other.ask(0)
        yield lambda: other.answer(lambda: None, math.inf) if started else None
    finally:
        other.end()
