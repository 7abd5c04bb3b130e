"""A check that a second process makes while this one goes on with something long, as instructions of the answer are.

The second one is a copy of this one, and makes the same check. It is believed where everything is equal; whatever else
it meets, this one meets by itself.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from typing import Any

from glenside.check.comparison import Progress
from glenside.check.exact import CheckReport
from glenside.ir import copies

Verdict = Callable[[], CheckReport | None]
"""Waits for it; None where this process has to check by itself."""


@contextmanager
def beside(check: Callable[[Progress], CheckReport]) -> Iterator[Verdict]:
    """Let a copy of this process check as long as the block lasts."""
    with copies.beside(lambda look: _told(check, look)) as told:
        yield lambda: _believed(told())


_NICE = 5


def _told(check: Callable[[Progress], CheckReport], look: Callable[[], None]) -> Any:
    os.nice(_NICE)  # it is mostly done before what it is beside, which comes first
    return asdict(check(lambda _, __: look()))


def _believed(told: Any) -> CheckReport | None:
    found = None if told is None else CheckReport(**told)
    return found if found is not None and found.ok and not found.stopped else None
