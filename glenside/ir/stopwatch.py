"""Times the stages of a computation: of lowering for an npu, and of the passes of code generation."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field

OTHERS = "others"


@dataclass
class Stopwatch:
    """Seconds per stage, without the stages nested in it; `others` is the time outside of all stages."""

    seconds: dict[str, float] = field(default_factory=dict)
    _stages: list[str] = field(default_factory=lambda: [OTHERS])
    _since: float = field(default_factory=time.perf_counter)

    def turn(self) -> None:
        """Adds the seconds since the last call to the running stage."""
        now = time.perf_counter()
        stage = self._stages[-1]
        self.seconds[stage] = self.seconds.get(stage, 0.0) + now - self._since
        self._since = now

    def enter(self, name: str) -> None:
        """Begins a stage nested in the running one."""
        self.turn()
        self._stages.append(name)

    def leave(self) -> None:
        """Ends the running stage."""
        self.turn()
        self._stages.pop()

    def has_begun(self, name: str) -> bool:
        """True if a stage has begun, whether it has ended or not."""
        return name in self._stages or name in self.seconds


_WATCH: ContextVar[Stopwatch | None] = ContextVar("watch", default=None)


@contextmanager
def watched(seconds: dict[str, float] | None = None) -> Iterator[Stopwatch]:
    """Times the stages of a block, in this thread, and adds to the given seconds of each stage, if any."""
    watch = Stopwatch() if seconds is None else Stopwatch(seconds)
    token = _WATCH.set(watch)
    try:
        yield watch
    finally:
        watch.turn()
        _WATCH.reset(token)


@contextmanager
def stage(name: str, alone: bool = False) -> Iterator[None]:
    """Times a block as a stage, if a stopwatch runs; with `alone`, nested stages count as part of it."""
    watch = _WATCH.get()
    if watch is None:
        yield
        return
    watch.enter(name)
    token = _WATCH.set(None) if alone else None
    try:
        yield
    finally:
        if token is not None:
            _WATCH.reset(token)
        watch.leave()
