"""The observer of passes: a function that is called with the name of each pass and the loops after it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from glenside.codegen.loop_ir.ir import Loops

OBSERVER: ContextVar[Callable[[str, Loops], None] | None] = ContextVar("observer", default=None)
"""The function that is called while a program is lowered."""


def observe(name: str, loops: Callable[[], Loops]) -> None:
    """Calls the observer, if there is one, with a pass and the loops after it."""
    observer = OBSERVER.get()
    if observer is not None:
        observer(name, loops())


@contextmanager
def observed(observer: Callable[[str, Loops], None]) -> Iterator[None]:
    """Calls an observer after each pass of what is lowered inside the block, in this thread."""
    token = OBSERVER.set(observer)
    try:
        yield
    finally:
        OBSERVER.reset(token)
