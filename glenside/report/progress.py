"""Shows progress: the current stage, the size of the e-graph, the best answer so far and its lower bound.

On a terminal it is one line on standard error that disappears at the end; in a notebook the same as HTML, updated in
place; in pipes and files nothing.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from html import escape
from importlib import import_module
from typing import TYPE_CHECKING, Any

from glenside.ir.names import one_line

if TYPE_CHECKING:
    from rich.text import Text

STAGES = ("load", "fold", "saturate", "extract", "check")
_SEEN = 0.1  # seconds between two frames
_BAR = 24  # width of the bar in characters
_NARROW = 44


@dataclass(frozen=True)
class Event:
    """One report of progress; None is unknown, or unchanged since the event before.

    stage     one of STAGES, or another name
    fraction  completed fraction of the stage, if the end can be predicted
    e_nodes   number of e-nodes of the e-graph
    best      first objective of the best answer so far, in `unit`
    bound     lower bound of the first objective
    """

    stage: str
    detail: str = ""
    fraction: float | None = None
    e_nodes: int | None = None
    best: int | None = None
    bound: int | None = None
    unit: str = ""

    def after(self, before: Event | None) -> Event:
        """Fills unknown values with those of the event before, if they still hold."""
        if before is None:
            return self
        known = {name: getattr(before, name) for name in ("e_nodes", "best", "bound") if getattr(self, name) is None}
        same = self.stage == before.stage and not self.detail
        detail, fraction = (before.detail, before.fraction) if same else (self.detail, self.fraction)
        return replace(self, **known, unit=self.unit or before.unit, detail=detail, fraction=fraction)


Listener = Callable[[Event], None]


def silent(event: Event) -> None:
    """Ignores an event."""


@contextmanager
def shown(first: str = "load", *, quiet: bool = False) -> Iterator[Listener]:
    """Yields a listener that shows events in a notebook or on a terminal; elsewhere it ignores them."""
    if quiet:
        yield silent
    elif _in_notebook():
        with _in_cell(Event(first)) as cell:
            yield cell
    elif sys.stderr is not None and sys.stderr.isatty() and os.environ.get("TERM") != "dumb":
        with _on_terminal(Event(first)) as line:
            yield line
    else:
        yield silent


def facts(event: Event) -> list[str]:
    """Returns the known facts, most informative first."""
    known = [
        "" if event.best is None else f"best {event.best:,} {event.unit}".rstrip(),
        "" if event.bound is None else f"bound {event.bound:,}",
        "" if event.e_nodes is None else f"{event.e_nodes:,} e-nodes",
        event.detail,
    ]
    return [fact for fact in known if fact]


def _trail(stage: str) -> list[tuple[str, str]]:
    """Returns (stage, "done", "now" or "to come") for each stage; a stage outside STAGES alone."""
    if stage not in STAGES:
        return [(stage, "now")]
    at = STAGES.index(stage)
    return [(name, "done" if i < at else "now" if i == at else "to come") for i, name in enumerate(STAGES)]


def line(event: Event, width: int, seconds: float = 0.0) -> Text:
    """Returns one line of at most `width` characters: the stages, a bar, and the facts that fit."""
    from rich.text import Text

    text, look = Text(no_wrap=True, overflow="ellipsis"), {"done": "green", "now": "bold", "to come": "dim"}
    trail = _trail(event.stage) if width >= 2 * _NARROW else [(event.stage, "now")]
    for i, (name, when) in enumerate(trail):
        text.append(" " if i else "")
        text.append(name, look[when])
    if width >= _NARROW:
        text.append(" ")
        text.append_text(_bar(event.fraction, _BAR if width >= 3 * _NARROW else _BAR // 2, seconds))
    if event.fraction is not None:
        text.append(f" {100 * event.fraction:.0f} %")
    for fact in facts(event):
        said = f"  {one_line(fact)}"
        if text.cell_len + len(said) <= width:
            text.append(said)
    text.truncate(width, overflow="ellipsis")
    return text


def _bar(fraction: float | None, size: int, seconds: float) -> Text:
    """Returns a progress bar, or a moving one if the fraction is unknown."""
    from rich.text import Text

    bar = Text()
    if fraction is not None:
        done = round(size * min(max(fraction, 0.0), 1.0))
        return bar.append("━" * done, "cyan").append("─" * (size - done), "dim")
    long = max(size // 4, 1)
    at = int(seconds * 12) % (2 * (size - long))
    at = min(at, 2 * (size - long) - at)
    return bar.append("─" * at, "dim").append("━" * long, "cyan").append("─" * (size - long - at), "dim")


@contextmanager
def _on_terminal(first: Event) -> Iterator[Listener]:
    """Yields a listener that redraws one line with rich, and removes it at the end in every case."""
    from rich.console import Console, ConsoleOptions, RenderResult
    from rich.live import Live

    latest, since = first, time.monotonic()
    console = Console(stderr=True)

    class _Line:
        def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
            seen, seconds = latest, time.monotonic() - since
            drawn = line(seen, max(options.max_width - 1, 1), seconds)
            if not _drawable(console.encoding):
                drawn = drawn.__class__(drawn.plain.replace("━", "#").replace("─", "-").replace("…", "."))
            yield drawn

    def tell(event: Event) -> None:
        nonlocal latest
        latest = event.after(latest)

    with Live(_Line(), console=console, transient=True, refresh_per_second=1 / _SEEN, redirect_stdout=False):
        yield tell


def _drawable(encoding: str) -> bool:
    try:
        "━─…".encode(encoding)
    except (UnicodeEncodeError, LookupError):
        return False
    return True


def _in_notebook() -> bool:
    """True if an IPython kernel, which can display HTML, runs this code."""
    shell = sys.modules.get("IPython")
    found = shell.get_ipython() if shell is not None else None
    return found is not None and "IPKernelApp" in found.config


@contextmanager
def _in_cell(first: Event) -> Iterator[Listener]:
    """Yields a listener that updates an output of the running cell, and empties it at the end: a notebook saves its
    outputs.
    """
    shows: Any = import_module("IPython.display")
    handle = shows.display(shows.HTML(html(first)), display_id=True)
    latest, last = first, time.monotonic()

    def tell(event: Event) -> None:
        nonlocal latest, last
        stage, latest = latest.stage, event.after(latest)
        if time.monotonic() >= last + _SEEN or stage != event.stage:
            last = time.monotonic()
            handle.update(shows.HTML(html(latest)))

    try:
        yield tell
    finally:
        with suppress(KeyboardInterrupt):
            handle.update(shows.HTML(""))


def html(event: Event) -> str:
    """Returns the same line as HTML: stages, a bar and facts, all text escaped."""
    look = {"done": "opacity:.6", "now": "font-weight:bold", "to come": "opacity:.35"}
    trail = " ".join(f'<span style="{look[when]}">{escape(name)}</span>' for name, when in _trail(event.stage))
    share = "" if event.fraction is None else f' value="{min(max(event.fraction, 0.0), 1.0):.3f}"'
    said = " · ".join(escape(one_line(fact)) for fact in facts(event))
    return (
        f'<div role="status" style="font-family:monospace">{trail} '
        f'<progress max="1"{share} style="vertical-align:middle"></progress> {said}</div>'
    )
