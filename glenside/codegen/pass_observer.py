"""The observer of passes: a function that is called with the name of each pass and the loops after it."""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar

from glenside.codegen.loops import Loops

OBSERVER: ContextVar[Callable[[str, Loops], None] | None] = ContextVar("observer", default=None)
"""Who is given the name of each pass, and the loops after it, while a program is lowered."""


def observe(name: str, loops: Callable[[], Loops]) -> None:
    """Give the loops after a pass to who observes, where somebody does."""
    observer = OBSERVER.get()
    if observer is not None:
        observer(name, loops())
