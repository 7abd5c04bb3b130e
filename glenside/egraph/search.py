"""A search from the caller's side: anytime, bounded, and never longer than its limits, whatever a rule does."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

from glenside.egraph.encode import WRITTEN
from glenside.egraph.process import IDLE, SearchFailed, Worker, begin, end_idle
from glenside.egraph.rule import Parameters, Rule
from glenside.egraph.saturation import INTERRUPTED, TIME_LIMIT, Limits, Progress, Request, Saturation
from glenside.egraph.snapshot import ENode, Fact, Snapshot, closed
from glenside.ir.interrupts import answered
from glenside.ir.term import Term, tensors
from glenside.ir.types import AccessType, Tensor

_GRACE = 0.5  # seconds that a search may take to notice its own time limit


@dataclass(frozen=True)
class SearchResult:
    """The e-graph when the search stopped, and why."""

    snapshot: Snapshot
    progress: Progress

    @property
    def stopped(self) -> str:
        return self.progress.stopped or INTERRUPTED


def program_snapshot(nodes: Sequence[Term]) -> Snapshot:
    """The e-graph before any rule: the program itself, each node a class."""
    index = {term: i for i, term in enumerate(nodes)}
    rows: list[tuple[ENode, int]] = []
    for i, term in enumerate(nodes):
        attributes = tuple(a.name if isinstance(a, Tensor) else a for a in term.attributes)
        rows.append((ENode(term.operator.name, attributes, tuple(index[c] for c in term.children)), i))
    types = {i: term.type for i, term in enumerate(nodes) if isinstance(term.type, AccessType)}
    return closed(rows, len(nodes), types, range(len(nodes)), _tensors(nodes))


def as_written(snapshot: Snapshot, nodes: Sequence[Term]) -> tuple[Fact, ...]:
    """The e-nodes of a snapshot that the program has itself: (class, operator, attributes, children..), each once."""
    place = dict(zip(nodes, snapshot.program, strict=True))
    rows: dict[Fact, None] = {}
    for term, own in place.items():
        attributes = tuple(a.name if isinstance(a, Tensor) else a for a in term.attributes)
        rows[own, term.operator.name, attributes, *(place[c] for c in term.children)] = None
    return tuple(rows)


def with_program(snapshot: Snapshot, nodes: Sequence[Term], trace: bool) -> Snapshot:
    """With the program's tensors, and where a trace is kept the e-nodes that are its own."""
    facts = {**snapshot.facts, WRITTEN: as_written(snapshot, nodes)} if trace else snapshot.facts
    return replace(snapshot, tensors=_tensors(nodes), facts=facts)


def _tensors(nodes: Sequence[Term]) -> dict[str, Tensor]:
    return {t.attributes[0].name: t.attributes[0] for t in tensors(*nodes) if isinstance(t.attributes[0], Tensor)}


def search(
    nodes: Sequence[Term],
    rules: Iterable[Rule],
    parameters: Parameters,
    limits: Limits | None = None,
    *,
    reported: Sequence[str] = (),
    trace: bool = False,
    worker: Worker | None = None,
    on_progress: Callable[[Progress], None] | None = None,
    on_snapshot: Callable[[SearchResult], None] | None = None,
    meanwhile: Callable[[], object] = lambda: None,
) -> SearchResult:
    """Saturate the program `nodes` (children first) under limits; `reported` relations become facts of the snapshot.
    Ctrl-C ends the search and keeps what it had found. `on_snapshot` is given what there is while the search goes on;
    `meanwhile` is done before it is waited for.
    """
    limits = limits or Limits()
    started = time.perf_counter()
    snapshot, progress = program_snapshot(nodes), Progress(rules={})
    latest = progress
    stopped: str | None = None
    stays = False
    request = Request.of(nodes, rules, parameters, limits, reported=reported, trace=trace)
    worker = worker or _worker(request)
    try:
        worker.send(request)
        worker.compile_ahead()
        meanwhile()
        until = None if limits.seconds is None else started + limits.seconds + _GRACE
        for kind, *content in worker.messages(until):
            if kind == "failed":
                raise SearchFailed(content[0])
            if kind in ("snapshot", "done"):
                snapshot, progress = content[0], content[1]
                stays = kind == "done" and content[2]
                if kind == "snapshot" and on_snapshot is not None:
                    on_snapshot(SearchResult(with_program(snapshot, nodes, trace), progress))
            elif kind in ("progress", "waiting") and on_progress is not None:
                latest = content[0] if kind == "progress" else latest
                on_progress(replace(latest, seconds=time.perf_counter() - started))
            elif kind == "stopped":
                stopped = content[0]
            if kind in ("done", "stopped"):
                stopped = stopped or progress.stopped
                break
        else:
            if until is None or time.perf_counter() < until:
                raise SearchFailed("the search process ended without an answer")
            stopped = TIME_LIMIT
    except KeyboardInterrupt:
        answered()
        stopped = INTERRUPTED
    finally:
        _leave(worker, request) if stays else worker.end()
    return SearchResult(with_program(snapshot, nodes, trace), replace(progress, stopped=stopped))


def search_here(
    nodes: Sequence[Term],
    rules: Iterable[Rule],
    parameters: Parameters,
    limits: Limits,
    *,
    reported: Sequence[str] = (),
    trace: bool = False,
) -> SearchResult:
    """The same in this process, for a small search that somebody waits for: nothing ends it within an iteration."""
    saturation = Saturation(Request.of(nodes, rules, parameters, limits, reported=reported, trace=trace))
    progress = saturation.run()
    return SearchResult(with_program(saturation.snapshot(), nodes, trace), progress)


_LARGE = 1 << 30  # bytes: a limit that what a process holds of past searches does not come near


def _again(request: Request) -> bool:
    """Whether a process may serve more than this request: its modules do not change, and its memory is not scarce."""
    ours = all(module.split(".")[0] in ("glenside", "rewrites") for module, _ in request.tables)
    return ours and _spares(request.limits)


def _spares(limits: Limits) -> bool:
    return limits.memory is None or limits.memory >= _LARGE


def ahead(limits: Limits, *coming: Callable[[], str], behind: bool = False) -> None:
    """Start the process of the next search, unless one waits for it: while it starts there is other work. What is told
    to be `coming`, declarations of searches, a new one compiles in this order, at once or `behind` the next search.
    """
    if not _spares(limits):
        end_idle()
        return
    begin()
    if (worker := IDLE[-1]).is_new and worker.serves:
        worker.coming += [declared() for declared in coming if _name(declared) != worker.first]
        if not behind:
            with suppress(SearchFailed):  # as the search itself then says
                worker.compile_ahead()


def _name(function: Callable[[], str]) -> str:
    """As `begin` takes it."""
    return f"{function.__module__}:{getattr(function, '__qualname__', '')}"


def _worker(request: Request) -> Worker:
    with suppress(IndexError):  # there is none, or another thread was faster
        while _again(request):
            if (worker := IDLE.pop()).serves:
                return worker
    return Worker()


def _leave(worker: Worker, request: Request) -> None:
    if IDLE or not _again(request):
        worker.end()
    else:
        IDLE.append(worker)
