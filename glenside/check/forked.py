"""Runs a check in a forked process, while this process does other long work, such as emitting instructions.

The report of the forked process counts only if everything is equal. Otherwise this process repeats the check.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from typing import Any

from glenside.check.comparison import Progress
from glenside.check.exact import CheckReport
from glenside.ir import forked_work

Verdict = Callable[[], CheckReport | None]
"""Waits for the report; returns None where this process has to repeat the check."""


@contextmanager
def forked_check(check: Callable[[Progress], CheckReport]) -> Iterator[Verdict]:
    """Runs the check in a forked process for as long as the block lasts."""
    with forked_work.forked(lambda look: _answer(check, look)) as answer:
        yield lambda: _believed(answer())


_NICE = 5


def _answer(check: Callable[[Progress], CheckReport], look: Callable[[], None]) -> Any:
    os.nice(_NICE)  # the work of this process comes first, and mostly lasts longer
    return asdict(check(lambda _, __: look()))


def _believed(answer: Any) -> CheckReport | None:
    found = None if answer is None else CheckReport(**answer)
    return found if found is not None and found.ok and not found.stopped else None
