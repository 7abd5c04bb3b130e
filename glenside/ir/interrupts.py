"""Handles Ctrl-C and SIGTERM: raises again until someone answers, since Python loses an exception raised in some
callbacks.

Those are the callbacks of weak references and of the garbage collector.
"""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from math import inf
from time import monotonic
from typing import Any, TypeVar

_T = TypeVar("_T")

STOPS = (signal.SIGINT, signal.SIGTERM)
INTERRUPTED = 128 + signal.SIGINT
"""The exit status of a command that Ctrl-C ended."""
GRACE = 1.25
"""Seconds after the first signal in which current work may finish: users wait two at most, including clean-up."""
_AGAIN = 0.25  # seconds
_TIMED = hasattr(signal, "setitimer")  # not on Windows
_received: list[int] = []
_records = False
"""True in a command: signals are recorded for its end. Elsewhere each call answers its own."""
_began = 0.0
"""The time of the first signal."""
_unanswered = False
_written = ""
"""The file that holds the answer so far."""
_is_over: Callable[[], bool] | None = None
"""True once the time limit of the running block is over; None without a limit."""
_disturbs = True
"""True if signals have any effect now."""


def raise_until_answered() -> None:
    """Lets stop signals raise KeyboardInterrupt, repeatedly until `answered` is called."""
    global _records
    _records = True
    for which in STOPS:
        signal.signal(which, _receive)
    if _TIMED:
        signal.signal(signal.SIGALRM, _raise)
        _silence_lost_exceptions()


def _silence_lost_exceptions() -> None:
    """Silences Python's report of exceptions that a callback lost, since they are raised again."""
    before = sys.unraisablehook

    def say(lost: Any) -> None:
        if not (_received and lost.exc_type is KeyboardInterrupt):
            before(lost)

    sys.unraisablehook = say


def _receive(which: int, frame: object) -> None:
    _note(which)
    _repeat()
    _raise(which, frame)


def _repeat() -> None:
    global _unanswered
    _unanswered = True
    if _TIMED:
        signal.setitimer(signal.ITIMER_REAL, _AGAIN, _AGAIN)


def _note(which: int) -> None:
    global _began
    if not _records:
        return
    _began = _began if _received else monotonic()
    _received.append(which)


def _raise(which: int, frame: object) -> None:
    global _unanswered
    if not _received and _is_over is not None and not _unanswered:
        _unanswered = _is_over()
    if _unanswered:
        raise KeyboardInterrupt


@contextmanager
def ended_after(seconds: Callable[[], float]) -> Iterator[Callable[[], bool]]:
    """Raises KeyboardInterrupt, repeatedly until `answered` is called, once a block has run for `seconds()`.

    The limit may change while the block runs. Yields a predicate that is true once the time is over, for code where no
    timer can be set: outside the main thread, or where another timer is set.
    """
    global _is_over
    began, ended = monotonic(), False

    def is_over() -> bool:
        nonlocal ended
        left = began + seconds() - monotonic()
        ended = ended or left <= 0
        if not ended and _is_over is is_over:
            signal.setitimer(signal.ITIMER_REAL, left, _AGAIN)
        return ended

    if seconds() == inf:
        yield lambda: False
        return
    with _alarm() as is_timed:
        if is_timed:
            signal.setitimer(signal.ITIMER_REAL, max(1e-3, seconds()), _AGAIN)
            _is_over = is_over
        try:
            yield lambda: (ended if is_timed else is_over()) and not stopped()
        finally:
            if is_timed:
                _is_over = None
                if not stopped():
                    answered()
                    signal.setitimer(signal.ITIMER_REAL, 0)


@contextmanager
def _alarm() -> Iterator[bool]:
    """Lets SIGALRM raise KeyboardInterrupt, unless it is in use elsewhere; yields whether it does."""
    if not _TIMED or threading.current_thread() is not threading.main_thread():
        yield False
        return
    before = signal.getsignal(signal.SIGALRM)
    if before is not _raise and (before is not signal.SIG_DFL or signal.getitimer(signal.ITIMER_REAL)[0]):
        yield False
        return
    signal.signal(signal.SIGALRM, _raise)
    try:
        yield True
    finally:
        if before is not _raise:  # by default an alarm would end the process
            signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def answered() -> None:
    """Ends the repeated raising: call it after catching KeyboardInterrupt and continuing."""
    global _unanswered
    if _unanswered:
        _unanswered = False
        if _TIMED:
            signal.setitimer(signal.ITIMER_REAL, 0)


def unanswered() -> bool:
    """True if a signal came that was not answered."""
    return _unanswered


def write_down(path: str) -> None:
    """Records that an answer is in a file, for users who interrupt from now on."""
    global _written
    _written = path


def written() -> str:
    """Returns the file that holds the answer so far, or ""."""
    return _written


def stopped() -> bool:
    """True if a signal came in this command, answered or not."""
    return bool(_received)


def unless_stopped() -> None:
    """Raises KeyboardInterrupt if a signal came that was answered without an answer for the user."""
    global _unanswered
    if stopped():
        _unanswered = True
        raise KeyboardInterrupt


def first() -> int:
    """Returns the first signal that was received, or SIGINT."""
    return _received[0] if _received else signal.SIGINT


def ignore() -> None:
    """Ignores stop signals: the process only has to exit."""
    for which in STOPS:
        signal.signal(which, signal.SIG_IGN)
    answered()


@contextmanager
def undisturbed(then: bool = False) -> Iterator[None]:
    """Suppresses stop signals during work that the user waits for.

    Signals that came are raised at the end if `then` is set, otherwise lost; an enclosing block of this kind decides.
    """
    global _disturbs
    if not _disturbs or threading.current_thread() is not threading.main_thread():
        yield
        return
    came: list[int] = []

    def keep(which: int, _: object) -> None:
        came.append(which)
        _note(which)

    handlers = {which: signal.signal(which, keep) for which in STOPS}
    _disturbs = False
    answered()
    try:
        yield
    finally:
        _disturbs = True
        _restore(handlers)
    if came and then:
        if signal.getsignal(came[0]) is _receive:
            _repeat()
        raise KeyboardInterrupt


@contextmanager
def raised_once() -> Iterator[None]:
    """Lets each signal raise KeyboardInterrupt once, for a callee that catches it and returns its best answer."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def interrupt(which: int, _: object) -> None:
        _note(which)
        raise KeyboardInterrupt

    handlers = {which: signal.signal(which, interrupt) for which in STOPS}
    try:
        yield
    finally:
        _restore(handlers)


@contextmanager
def finishing(seconds: float = GRACE) -> Iterator[None]:
    """Lets current work finish: a signal is raised once `seconds` have passed since the first one.

    A further signal is raised at once. `stopped` tells whether one came.
    """
    if not _TIMED or signal.getsignal(signal.SIGALRM) is not _raise:
        yield
        return

    def wait(which: int, frame: object) -> None:
        if stopped():
            _receive(which, frame)
        _note(which)
        expect()

    def expect() -> None:
        global _unanswered
        _unanswered = True
        signal.setitimer(signal.ITIMER_REAL, max(1e-3, _began + seconds - monotonic()), _AGAIN)

    handlers = {which: signal.signal(which, wait) for which in STOPS}
    if stopped():
        expect()
    try:
        yield
    except BaseException:
        _restore(handlers)
        raise
    _restore(handlers)
    answered()


def _restore(handlers: dict[signal.Signals, Any]) -> None:
    for which, handler in handlers.items():
        # None: the handler was not set from Python
        signal.signal(which, signal.SIG_DFL if handler is None else handler)


def waited_for(run: Callable[[], _T]) -> _T:
    """Returns the result of a function that Python cannot interrupt, such as C code, without delaying Ctrl-C.

    After Ctrl-C the function continues in a thread that ends with the process.
    """
    found: list[_T] = []
    failed: list[BaseException] = []

    def work() -> None:
        try:
            found.append(run())
        except BaseException as error:
            failed.append(error)

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    thread.join()
    if failed:
        raise failed[0]
    return found[0]
