"""Running a program and looking at some of its terms on the way."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from glenside.ir.operand import Array
from glenside.ir.term import Term, postorder
from glenside.semantics import Arithmetic
from glenside.semantics.interpreter import evaluate

Progress = Callable[[int, int], None]


class OutOfTime(Exception):
    """The deadline has passed."""


@dataclass(frozen=True)
class Trial:
    """One set of numbers: the arithmetic and the values of the tensors."""

    arithmetic: Arithmetic
    values: Mapping[str, Array]


class Clock:
    """Counts evaluated terms, reports them, and stops at the deadline."""

    def __init__(self, total: int, deadline: float | None, progress: Progress | None) -> None:
        self.done, self.total, self.deadline, self.progress = 0, total, deadline, progress

    def tick(self) -> None:
        """One more term is evaluated. Raises OutOfTime."""
        self.done += 1
        if self.progress is not None:
            self.progress(min(self.done, self.total), self.total)
        self.look()

    def look(self) -> None:
        """Raises OutOfTime when the deadline has passed."""
        if self.deadline is not None and time.monotonic() > self.deadline:
            raise OutOfTime


def steps(*roots: Term) -> list[Term]:
    """The terms between which a run may stop: those that compute."""
    return [term for term in postorder(*roots) if not term.operator.moves]


def observe(roots: Sequence[Term], trial: Trial, clock: Clock, look: Callable[[Term, Any], None]) -> None:
    """Evaluate the roots, and let `look` see each of them as soon as it is computed. Raises OutOfTime."""
    wanted = set(roots)

    def watch(term: Term, value: Any) -> None:
        clock.tick()
        if term in wanted:
            look(term, value)

    clock.look()
    evaluate([*steps(*roots), *roots], trial.values, trial.arithmetic, watch=watch)
