"""A second process that is one turn ahead: while this one compares programs on some numbers, it does so on the next.

The numbers of a turn are its own, so no verdict shows which process took it. The second one is a copy of this one, and
tells of a turn only where everything was equal, and which sides were taken. Whatever else it meets, this one meets by
itself.
"""

from __future__ import annotations

import gc
import json
import multiprocessing
import os
import select
import signal
import struct
import sys
import threading
import time
import warnings
from collections.abc import Callable
from contextlib import suppress
from typing import Any, NoReturn

from glenside.check.memory import shortage
from glenside.ir.interrupts import STOPS
from glenside.ir.term import Term, postorder
from glenside.ir.threads import cores
from glenside.ir.types import AccessType

LEAST_SECONDS = 0.2
"""Of a turn: of a shorter one, a process would not be paid for."""
_LARGEST = 1 << 17  # elements of an array: larger ones are computed by all processors as it is
_MOST = 1 << 25  # elements of all arrays
_BYTES = 16  # of a number that knows its order
_POLL = 0.05  # seconds
_TURN = struct.Struct("<q")

Work = Callable[[int, Callable[[], None]], Any]
"""(turn, what is to be called now and then) -> what is told of it, as JSON has it; None where that is nothing."""


def may_be_copied() -> bool:
    """Whether there is a processor for a second process, and nothing in this one that a copy must not have: threads
    that compute. Those that only show something are daemons.
    """
    others = (thread for thread in threading.enumerate() if thread is not threading.current_thread())
    alone = multiprocessing.parent_process() is None and all(thread.daemon for thread in others)
    if sys.platform != "linux" or cores() < 2 or not alone:
        return False
    return threading.current_thread() is threading.main_thread()


def possible(*roots: Term) -> bool:
    """Whether there is a processor and memory for a second process that takes turns."""
    if not may_be_copied():
        return False
    computed = [t for t in postorder(*roots) if not t.operator.moves and isinstance(t.type, AccessType)]
    total = sum(term.access.size for term in computed)
    largest = max((term.access.size for term in computed), default=0)
    return largest <= _LARGEST and total <= _MOST and not shortage(_BYTES * total)


class Ahead:
    """A copy of this process as it is at `start`, that does `work` for turns that it is asked for, one at a time."""

    def __init__(self, work: Work) -> None:
        self._work = work
        self._process = 0
        self._ends: list[int] = []
        self.turn: int | None = None
        """What it was asked for last, and has not told."""

    def start(self) -> None:
        """Make the copy. Raises OSError."""
        self._ends += os.pipe()
        self._ends += os.pipe()
        questions, self._ask, self._hear, answers = self._ends
        before = signal.pthread_sigmask(signal.SIG_BLOCK, STOPS)  # until this process knows whom to end
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", DeprecationWarning)  # of threads: they only show something
                parent, self._process = os.getpid(), os.fork()
            if not self._process:
                _serve(self._work, questions, answers, (self._ask, self._hear), parent)
            self._ends = [self._ask, self._hear]
            os.close(questions)
            os.close(answers)
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)

    def ask(self, turn: int) -> None:
        """Let it begin with a turn, where it has told what it was asked for."""
        if self.turn is None:
            with suppress(BrokenPipeError):
                os.write(self._ask, _TURN.pack(turn))
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
            if select.select([self._hear], [], [], _POLL)[0]:
                part = os.read(self._hear, 1 << 20)
                if not part:
                    return None
                data += part
        return json.loads(data[_TURN.size :])

    def end(self) -> None:
        """End it, whatever it does."""
        process, self._process = self._process, 0
        if process:
            os.kill(process, signal.SIGKILL)
            os.waitpid(process, 0)
        while self._ends:
            os.close(self._ends.pop())


def _serve(work: Work, questions: int, answers: int, others: tuple[int, ...], parent: int) -> NoReturn:
    """What the copy does until it is ended, or has nobody to tell."""

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
        while turn := os.read(questions, _TURN.size):
            told = json.dumps(work(_TURN.unpack(turn)[0], look)).encode()
            with open(answers, "wb", closefd=False) as stream:
                stream.write(_TURN.pack(len(told)) + told)
    finally:
        os._exit(1)  # nothing that this process is a copy of is to be left as on its end
