"""Ctrl-C and SIGTERM: raised until somebody answers them, since Python loses what is raised in a callback of a weak
reference or of the garbage collector.
"""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

STOPS = (signal.SIGINT, signal.SIGTERM)
INTERRUPTED = 128 + signal.SIGINT
"""The exit status of a command that Ctrl-C ended."""
_AGAIN = 0.25  # seconds
_TIMED = hasattr(signal, "setitimer")  # not on Windows
_received: list[int] = []
_unanswered = False


def raise_until_answered() -> None:
    """Let signals that stop raise KeyboardInterrupt, and again until `answered` is called."""
    for which in STOPS:
        signal.signal(which, _receive)
    if _TIMED:
        signal.signal(signal.SIGALRM, _raise)
        _tell_nothing_of_lost_ones()


def _tell_nothing_of_lost_ones() -> None:
    """What a callback loses comes again, so Python need not say that it was lost."""
    before = sys.unraisablehook

    def say(lost: Any) -> None:
        if not (_received and lost.exc_type is KeyboardInterrupt):
            before(lost)

    sys.unraisablehook = say


def _receive(which: int, frame: object) -> None:
    global _unanswered
    _received.append(which)
    _unanswered = True
    if _TIMED:
        signal.setitimer(signal.ITIMER_REAL, _AGAIN, _AGAIN)
    _raise(which, frame)


def _raise(which: int, frame: object) -> None:
    if _unanswered:
        raise KeyboardInterrupt


def answered() -> None:
    """Whoever catches KeyboardInterrupt and goes on says so."""
    global _unanswered
    if _unanswered:
        _unanswered = False
        if _TIMED:
            signal.setitimer(signal.ITIMER_REAL, 0)


def unanswered() -> bool:
    """Whether a signal came that nobody has answered."""
    return _unanswered


def first() -> int:
    """The first signal that was received, or SIGINT."""
    return _received[0] if _received else signal.SIGINT


def ignore() -> None:
    """What is left to do is to leave."""
    for which in STOPS:
        signal.signal(which, signal.SIG_IGN)
    answered()


@contextmanager
def undisturbed(then: bool = False) -> Iterator[None]:
    """Let both do nothing: what is done is what whoever sent them waits for. What came is raised `then`, or lost."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    came: list[int] = []
    handlers = {which: signal.signal(which, lambda which, _: came.append(which)) for which in STOPS}
    answered()
    try:
        yield
    finally:
        for which, handler in handlers.items():
            signal.signal(which, signal.SIG_DFL if handler is None else handler)  # None is not Python's own
        _received.extend(came)
    if came and then:
        raise KeyboardInterrupt
