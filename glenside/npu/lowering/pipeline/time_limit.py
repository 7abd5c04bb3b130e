"""Lowers within a time limit: returns the best program so far, or one that is compiled quickly."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import inf
from time import monotonic
from typing import TYPE_CHECKING, Protocol

from glenside.ir.interrupts import answered, ended_after, unless_stopped
from glenside.ir.stopwatch import Stopwatch

if TYPE_CHECKING:
    from glenside.npu.program.program import NpuProgram

_EMIT = "emit"
_FIRST_PROGRAM_SHARE = 0.75
"""Share of the time limit until which emission of a first program must have begun."""
_GRACE_SECONDS = 3.0
"""Time beyond the limit in which a first program may still be emitted."""


class Find(Protocol):
    """Lowers a network; calls `show` with each step and the part that is done, and `keep` with each better program."""

    def __call__(self, *, show: Callable[[str, float], None], keep: Callable[[NpuProgram], None]) -> NpuProgram: ...


@dataclass
class InTime:
    """Lowers within `seconds`, and holds the best program so far.

    made      the best program so far; None while there is none
    is_best   True if nothing ended the comparison of choices
    is_over   True if the time ended it
    is_quick  True if the time was over before there was any program, so that layers were lowered one by one
    """

    seconds: float = inf
    made: NpuProgram | None = None
    is_best: bool = True
    is_over: bool = False
    is_quick: bool = False
    _part: float = 0.0
    _is_emitting: bool = False

    def make(
        self,
        find: Find,
        quick: Find | None,
        watch: Stopwatch,
        show: Callable[[str, float], None] = lambda *_: None,
    ) -> None:
        """Lowers with `find`; with `quick` if most of the time is over and no program is being emitted.

        Raises KeyboardInterrupt, after which `made` is the best program so far, and at once if Ctrl-C ended the search:
        there is no time for a program then. Raises BadInput.
        """
        unless_stopped()
        began = monotonic()

        def most() -> float:
            if self.made is None and watch.has_begun(_EMIT):
                return self.seconds + _GRACE_SECONDS
            return self.seconds * (1 if self.made is not None or quick is None else _FIRST_PROGRAM_SHARE)

        if self._lower(find, most, watch, show):
            return
        self.is_over, self.is_best = True, False
        if self.made is None and quick is not None and not watch.has_begun(_EMIT):
            left = self.seconds + _GRACE_SECONDS - (monotonic() - began)
            self.is_quick = self._lower(quick, lambda: left, watch, show)

    def _lower(
        self, how: Find, seconds: Callable[[], float], watch: Stopwatch, show: Callable[[str, float], None]
    ) -> bool:
        """Lowers; returns True if it ended before the time. Raises KeyboardInterrupt, and BadInput."""
        over = list[Callable[[], bool]]()

        def report(step: str, part: float) -> None:
            if over[-1]():  # if no timer interrupts
                raise KeyboardInterrupt
            self._part, self._is_emitting = part, watch.has_begun(_EMIT)
            show(step, part)

        def keep(program: NpuProgram) -> None:
            self.made, self.is_best = program, False

        try:
            with ended_after(seconds) as is_over:
                over.append(is_over)
                self.made, self.is_best = how(show=report, keep=keep), True
        except KeyboardInterrupt:
            if not (over and over[-1]()):
                raise
            answered()
            return False
        return True

    def said(self, limit: str) -> str:
        """Returns a sentence if the time was over; `limit` names the option."""
        if not self.is_over:
            return ""
        begin = f"Its {self.seconds:g} s ({limit}) were over before"
        if self.made is not None:
            layer_by_layer = "each layer has its quickest mapping, and all tensors pass DRAM"
            how = layer_by_layer if self.is_quick else "this is the best program so far"
            return f"{begin} all choices were compared: {how}."
        reached = f"{self._part:.0%} of the layers were emitted" if self._is_emitting else "none was being emitted"
        helps = "More time helps, and so do larger memories or a wider port, for which a program has fewer instructions"
        return f"{begin} there was a program: {reached}. {helps}."
