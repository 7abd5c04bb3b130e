"""The interface of a search: anytime, and bounded by its limits for any rules."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

from glenside.egraph.encode import WRITTEN
from glenside.egraph.faults import fault
from glenside.egraph.part import joined, unshared
from glenside.egraph.process import IDLE, SearchFailed, Worker, begin, end_idle, messages
from glenside.egraph.rule import Parameters, Rule
from glenside.egraph.saturation import FAILED, INTERRUPTED, SATURATED, TIME_LIMIT, Limits, Progress, Request, Saturation
from glenside.egraph.snapshot import ENode, Fact, Snapshot, closed
from glenside.ir.interrupts import answered
from glenside.ir.term import Term, tensors
from glenside.ir.threads import processors
from glenside.ir.types import AccessType, Tensor

_GRACE = 0.5  # seconds beyond its time limit after which a search process is ended


@dataclass(frozen=True)
class Search:
    """The settings that all searches of one optimization share.

    worker       returns a search process, or None
    on_progress  callback for progress
    meanwhile    work to do before waiting for the search process
    on_end       callback for the final progress
    """

    limits: Limits = field(default_factory=Limits)
    worker: Callable[[], Worker | None] = lambda: None
    on_progress: Callable[[Progress], None] = lambda progress: None
    meanwhile: Callable[[], object] = lambda: None
    on_end: Callable[[Progress], None] = lambda progress: None


@dataclass(frozen=True)
class SearchResult:
    """The e-graph when the search stopped, and the reason."""

    snapshot: Snapshot
    progress: Progress

    @property
    def stopped(self) -> str:
        return self.progress.stopped or INTERRUPTED


def program_snapshot(nodes: Sequence[Term]) -> Snapshot:
    """Returns the e-graph before any rule: the program, with one class for each node."""
    index = {term: i for i, term in enumerate(nodes)}
    rows: list[tuple[ENode, int]] = []
    for i, term in enumerate(nodes):
        attributes = tuple(a.name if isinstance(a, Tensor) else a for a in term.attributes)
        rows.append((ENode(term.operator.name, attributes, tuple(index[c] for c in term.children)), i))
    types = {i: term.type for i, term in enumerate(nodes) if isinstance(term.type, AccessType)}
    return closed(rows, len(nodes), types, range(len(nodes)), _tensors(nodes))


def as_written(snapshot: Snapshot, nodes: Sequence[Term]) -> tuple[Fact, ...]:
    """Returns the distinct e-nodes of the program as written: (class, operator, attributes, children..)."""
    place = dict(zip(nodes, snapshot.program, strict=True))
    rows: dict[Fact, None] = {}
    for term, own in place.items():
        attributes = tuple(a.name if isinstance(a, Tensor) else a for a in term.attributes)
        rows[own, term.operator.name, attributes, *(place[c] for c in term.children)] = None
    return tuple(rows)


def with_program(snapshot: Snapshot, nodes: Sequence[Term], trace: bool) -> Snapshot:
    """Adds the program's tensors to a snapshot, and with a trace its e-nodes as written."""
    facts = {**snapshot.facts, WRITTEN: as_written(snapshot, nodes)} if trace else snapshot.facts
    return replace(snapshot, tensors=_tensors(nodes), facts=facts)


def _tensors(nodes: Sequence[Term]) -> dict[str, Tensor]:
    return {t.attributes[0].name: t.attributes[0] for t in tensors(*nodes) if isinstance(t.attributes[0], Tensor)}


@dataclass
class _Part:
    """A part of a program with the state of its search.

    places    indices of its nodes in the program
    progress  the progress of `snapshot`
    latest    the latest progress, possibly after `snapshot`
    stopped   why the search ended; None while it runs
    stays     True if its process may serve another search
    fault     (reason, wrong rule or "") of a failure
    """

    places: Sequence[int]
    request: Request
    snapshot: Snapshot
    progress: Progress
    latest: Progress
    stopped: str | None = None
    stays: bool = False
    fault: tuple[str, str] | None = None

    @staticmethod
    def of(nodes: Sequence[Term], places: Sequence[int], request: Request) -> _Part:
        """Builds a part with its share of the node limit of the whole request."""
        own, limits = [nodes[place] for place in places], request.limits
        if limits.nodes is not None and len(own) < len(nodes):
            limits = replace(limits, nodes=limits.nodes * len(own) // len(nodes))
        return _Part(places, request.of_part(own, limits), program_snapshot(own), Progress(), Progress())

    def receive(self, kind: str, *content: Any) -> None:
        """Handles a message of its process."""
        if kind == "fault":
            self.fault = content[0], content[1]
        if kind in ("snapshot", "done"):
            self.snapshot, self.progress = content[:2]
            self.latest = self.progress
        elif kind == "progress":
            self.latest = content[0]
        if kind == "done":
            self.stays, self.stopped = content[2], self.progress.stopped
        elif kind == "stopped":
            self.stopped = content[0]
        elif kind == "ended" and self.stopped is None:
            self.fault = self.fault or ("the search process ended without an answer: it was killed, or crashed", "")
            self.stopped = FAILED

    def search(self, worker: Worker, seconds: float | None, share: int) -> None:
        """Starts the search in a process, with a time limit and 1 / `share` of the memory limit."""
        limits = self.request.limits
        memory = None if limits.memory is None else limits.memory // share
        worker.send(replace(self.request, limits=replace(limits, seconds=seconds, memory=memory)))
        worker.compile_ahead()


def search(
    nodes: Sequence[Term],
    rules: Iterable[Rule],
    parameters: Parameters,
    limits: Limits | None = None,
    *,
    reported: Sequence[str] = (),
    trace: bool = False,
    parts: int = 1,
    worker: Worker | None = None,
    on_progress: Callable[[Progress], None] | None = None,
    on_snapshot: Callable[[SearchResult], None] | None = None,
    meanwhile: Callable[[], object] = lambda: None,
) -> SearchResult:
    """Saturates the program `nodes` (children first) under limits. Ctrl-C stops the search and keeps its e-graph.

    reported     relations that become facts of the snapshot
    trace        True: record which rule made each e-node
    parts        number of parts to search separately, if many nodes are not shared, as in layers. Each part has its
                 share of the node limit, and the result is the union. The parts run in parallel if there are processors
                 and memory and no `worker` is given, otherwise in turn; the result is the same
    worker       the process to use first
    on_snapshot  callback for the e-graph so far
    meanwhile    work to do before waiting for the processes

    If a rule contradicts a type, or a process dies, that part stays as written: `progress.fault` is the reason.
    """
    limits = limits or Limits()
    whole = Request.of(nodes, rules, parameters, limits, reported=reported, trace=trace)
    apart = [_Part.of(nodes, places, whole) for places in unshared(nodes, parts)]
    together = worker is None and may_share(limits, len(apart))
    started = time.perf_counter()

    def found() -> SearchResult:
        stopped = [part.stopped for part in apart]
        fault, wrong = next((part.fault for part in apart if part.fault), ("", ""))
        why = FAILED if fault else next((why for why in stopped if why != SATURATED), SATURATED)
        written = {i: program_snapshot([nodes[place] for place in p.places]) for i, p in enumerate(apart) if p.fault}
        snapshot = joined([(written.get(i, part.snapshot), part.places) for i, part in enumerate(apart)])
        joint = Progress.joint([part.progress for part in apart], together)
        progress = replace(joint, stopped=why, fault=fault, wrong=wrong)
        return SearchResult(with_program(snapshot, nodes, trace), progress)

    def tell(kind: str) -> None:
        if kind == "snapshot" and on_snapshot is not None:
            on_snapshot(found())
        elif kind in ("progress", "waiting") and on_progress is not None:
            latest = Progress.joint([part.latest for part in apart], together)
            on_progress(replace(latest, seconds=time.perf_counter() - started))

    try:
        turns = [apart] if together else [[part] for part in apart]
        for number, some in enumerate(turns):
            left = None if limits.seconds is None else started + limits.seconds - time.perf_counter()
            _search_together(some, worker, None if left is None else left / (len(turns) - number), tell, meanwhile)
            worker, meanwhile = None, lambda: None
    except KeyboardInterrupt:
        answered()
        for part in apart:
            part.stopped = part.stopped or INTERRUPTED
    return found()


def _search_together(
    parts: Sequence[_Part],
    worker: Worker | None,
    seconds: float | None,
    tell: Callable[[str], None],
    meanwhile: Callable[[], object],
) -> None:
    """Searches parts in parallel, each in a process; `worker` is used for the first."""
    until = None if seconds is None else time.perf_counter() + seconds + _GRACE
    of = dict[Worker, _Part]()
    try:
        for part in parts:
            own = worker or _worker(part.request)
            of[own] = part
            try:
                part.search(own, seconds, len(parts))
            except SearchFailed as error:
                part.receive("fault", str(error), "")
                part.receive("stopped", FAILED)
        meanwhile()
        for sender, (kind, *content) in messages([*of], until):
            if sender is not None:
                of[sender].receive(kind, *content)
            tell(kind)
            if all(part.stopped is not None for part in parts):
                return
        for part in parts:
            part.stopped = part.stopped or (FAILED if part.fault else TIME_LIMIT)
    finally:
        for own, part in of.items():
            _leave(own, part.request) if part.stays else own.end()


def search_here(
    nodes: Sequence[Term],
    rules: Iterable[Rule],
    parameters: Parameters,
    limits: Limits,
    *,
    reported: Sequence[str] = (),
    trace: bool = False,
) -> SearchResult:
    """Saturates in this process, for a small urgent search: no limit stops it within an iteration."""
    request = Request.of(nodes, rules, parameters, limits, reported=reported, trace=trace)
    saturation = None
    try:
        saturation = Saturation(request)
        progress = saturation.run()
    except BaseException as error:  # egglog's panics are not Exceptions
        if isinstance(error, Exception | KeyboardInterrupt | SystemExit) and type(error).__name__ != "EggSmolError":
            raise
        why, wrong = fault(request, saturation.progress.iterations if saturation is not None else 0, error)
        return SearchResult(program_snapshot(nodes), Progress(stopped=FAILED, fault=why, wrong=wrong))
    return SearchResult(with_program(saturation.snapshot(), nodes, trace), progress)


_LEFT = 2  # maximum idle processes
_LARGE = 1 << 30  # bytes: far more than an idle process holds of past searches


def _again(request: Request) -> bool:
    """True if a process may serve several requests: the rule tables are ours, and the memory limit is large."""
    ours = all(module.split(".")[0] == "glenside" for module, _ in request.tables)
    return ours and _spares(request.limits)


def _spares(limits: Limits) -> bool:
    return limits.memory is None or limits.memory >= _LARGE


def may_share(limits: Limits, parts: int) -> bool:
    """True if there are processors and memory for `parts` parallel searches."""
    return processors() >= parts and (limits.memory is None or limits.memory >= parts * _LARGE)


def start_workers_early(limits: Limits, *precompile: Callable[[], str], behind: bool = False, parts: int = 1) -> None:
    """Starts the processes of the next search, so that they start during other work.

    `precompile` functions return declarations of expected searches. New processes compile them in this order at once.
    With `behind` only the first process does, after its next search.
    """
    if not _spares(limits):
        end_idle()
        return
    begin(count=parts if may_share(limits, parts) else 1)
    for number, worker in enumerate(IDLE):
        if not (worker.is_new and worker.serves):
            continue
        worker.to_compile += [declared() for declared in precompile if _name(declared) != worker.first]
        if number or not behind:
            with suppress(SearchFailed):  # the search itself will report it
                worker.compile_ahead()


def _name(function: Callable[[], str]) -> str:
    """Returns module:function, as `begin` takes it."""
    return f"{function.__module__}:{getattr(function, '__qualname__', '')}"


def _worker(request: Request) -> Worker:
    """Returns an idle process, preferably one with these declarations compiled, or a new one."""
    with suppress(IndexError):  # none is idle, or another thread took it
        while _again(request):
            knowing = (i for i, worker in enumerate(IDLE) if request.declarations in worker.knows)
            if (worker := IDLE.pop(next(knowing, 0))).serves:
                return worker
    return Worker()


def _leave(worker: Worker, request: Request) -> None:
    if len(IDLE) < _LEFT and _again(request):
        IDLE.append(worker)
    else:
        worker.end()
