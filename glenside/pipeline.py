"""The pipeline in named stages: program -> e-graph -> saturate -> extract -> checked program + report."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import NamedTuple

from extract import METHODS
from glenside.cache import Cache, CacheFull, answers
from glenside.check import EXACT, CheckReport, check
from glenside.egraph.saturation import INTERRUPTED, ITERATION_LIMIT, NODE_LIMIT, SATURATED, Limits, Progress
from glenside.egraph.search import Worker, search
from glenside.egraph.snapshot import Snapshot
from glenside.ir.errors import BadInput
from glenside.ir.program import Program
from glenside.ir.term import Term, postorder
from glenside.passes.distinct_layers import Layers, distinct_layers, put_together
from glenside.passes.extraction import Choice, choose, constant_classes
from glenside.passes.network import folded
from glenside.report.report import Cone, Report, cones, layer_row
from glenside.targets.base import Cost, Target
from rewrites import of_families

BLOCKING = ("loops", "slices")
MAPPINGS = ("best", "usual")
REPEATABLE = (SATURATED, NODE_LIMIT, ITERATION_LIMIT)
"""Why a search stopped when every machine stops it at the same place: such an answer may be kept."""
REPORTED = ("mapping",)


@dataclass(frozen=True)
class Event:
    """What the pipeline is doing, for a progress display; `fraction` is None where the end cannot be foreseen."""

    stage: str
    detail: str
    fraction: float | None = None


Listener = Callable[[Event], None]


@dataclass(frozen=True)
class Found:
    """The optimized program, and the e-graph that it was chosen from: `choice` is class -> e-node."""

    program: Program
    egraph: Snapshot
    choice: Mapping[int, int]


@dataclass(repr=False)
class Result:
    """The answer: the optimized program, what it costs, and how it was found."""

    original: Program
    target: Target
    cost: Cost
    report: Report
    read: Callable[[], Program]
    """The optimized program; of an answer from the cache, read when it is asked for."""
    search: Callable[[], Found]
    """The e-graph too; of an answer from the cache, searched again when it is asked for."""
    prepare: Callable[[], Program]
    """The program whose layers were mapped: the original, with what is constant folded."""
    seed: int = 0
    interrupted: bool = False
    """Whether Ctrl-C ended the check."""
    not_kept: CacheFull | None = None
    """Why the answer is not in the cache, although it was to be kept there."""

    @cached_property
    def program(self) -> Program:
        return self.read()

    @cached_property
    def prepared(self) -> Program:
        return self.prepare()

    @cached_property
    def _found(self) -> Found:
        return self.search()

    @property
    def egraph(self) -> Snapshot:
        return self._found.egraph

    @property
    def choice(self) -> Mapping[int, int]:
        """class -> e-node"""
        return self._found.choice

    @property
    def stopped(self) -> str:
        """Why the search ended: saturated, node-limit, time-limit, iteration-limit, memory-limit or interrupted."""
        return self.report.stopped

    def check(self, *, progress: Callable[[int, int], None] | None = None) -> CheckReport:
        """Compare the two programs exactly, layer by layer and as a whole; the report then says so.

        A layer is what it was when it was mapped: its weights may hold the scale that followed it. The result is
        compared with that of the original.
        """
        started = time.perf_counter()
        verdict = check(self.prepared, self.program, seed=self.seed, progress=progress)
        if self.prepared is not self.original and verdict.result == EXACT:
            whole = check(self.original, self.prepared, layers=False, seed=self.seed)
            verdict = replace(verdict, result=whole.result, stopped=verdict.stopped or whole.stopped)
        rows = [replace(row, checked=verdict.layers.get(row.name, "not checked")) for row in self.report.layers]
        self.report.layers[:] = rows
        self.report.checked, self.report.how_checked = verdict.result, verdict.how
        self.interrupted = verdict.stopped == "interrupted"
        self.report.seconds["check"] = time.perf_counter() - started
        return verdict

    def __repr__(self) -> str:
        totals = self.report.totals
        mapped = f"{totals['mapped']} of {totals['layers']} layers mapped"
        return f"<{self.original.name} on {self.target.name}: {mapped}, {totals['cycles']:,} cycles, {self.stopped}>"

    def _repr_html_(self) -> str:
        from glenside.report.display import report_html

        return report_html(self.report)


def optimize(
    program: Program,
    target: Target,
    *,
    limits: Limits | None = None,
    blocking: str = "loops",
    mapping: str = "best",
    method: str = "auto",
    extract_seconds: float = 60.0,
    explain: bool = False,
    seed: int = 0,
    verify: bool = True,
    cache: Cache | None = None,
    worker: Callable[[], Worker] = Worker,
    listener: Listener = lambda _: None,
    load_seconds: float = 0.0,
) -> Result:
    """Find the equal program that uses the target best, and check that it is equal.

    blocking  "loops": counts of tiles are axes, each distinct layer is searched once; "slices": every tile is a term
    mapping   "best", or "usual": each product cut into tiles as it stands
    method    of extraction: "auto", "greedy", "dag" or "exact"; extract_seconds bounds "exact" for the whole program
    explain   whether rows of the report trace which rules made what was chosen
    cache     where answers are kept: one that is there is not searched for again

    Stopping early, by a limit or by Ctrl-C, still gives the best program found by then; `result.stopped` says why. With
    `verify=False` the check is left to `result.check()`. Raises BadInput.
    """
    program = program.as_written()
    families_of(target, blocking, mapping)
    if method not in METHODS:
        raise BadInput(f"a method of extraction is one of {', '.join(METHODS)}, got {method!r}")
    how = {"blocking": blocking, "mapping": mapping, "method": method, "explain": explain, "seed": seed}
    how |= {"extract_seconds": extract_seconds} if method == "exact" else {}
    question = "" if cache is None else answers.question(program, target, limits or Limits(), verify=verify, **how)
    if cache is not None and (known := cache.get(question)) is not None:

        def again() -> Found:
            same = optimize(program, target, limits=limits, verify=False, listener=listener, **how)  # type: ignore[arg-type]
            return Found(same.program, same.egraph, same.choice)

        remembered = answers.read(known, program, target)
        prepare = partial(_prepared, program, blocking, limits, worker, listener)
        return Result(
            program, target, remembered.cost, remembered.report, remembered.program, again, lambda: prepare()[0], seed
        )
    started = time.perf_counter()
    original = program
    program, fold_stopped = _prepared(program, blocking, limits, worker, listener)
    families = _needed(families_of(target, blocking, mapping), blocking, program)
    folding = time.perf_counter() - started
    layers = None if blocking == "slices" else distinct_layers(program)
    roots = (
        (program.term, *program.layers.values())
        if layers is None
        else (*layers.body[1:], *layers.products, *layers.body[:1])
    )
    nodes = list(postorder(*roots))
    listener(Event("saturate", "starting"))
    answer = search(
        nodes,
        of_families(families),
        target.rule_parameters(),
        limits if fold_stopped != INTERRUPTED else Limits(seconds=0.0),
        reported=REPORTED,
        trace=explain,
        worker=worker(),
        on_progress=lambda p: listener(Event("saturate", _progress_words(p))),
    )
    if fold_stopped == INTERRUPTED:
        answer = replace(answer, progress=replace(answer.progress, stopped=INTERRUPTED))
    saturated = time.perf_counter()
    listener(Event("extract", f"{answer.snapshot.e_nodes:,} e-nodes"))
    # Proofs take time that whoever pressed Ctrl-C does not give.
    if answer.stopped == INTERRUPTED and method in ("auto", "exact"):
        method = "dag"
    chooser = partial(choose, deadline=time.monotonic() + extract_seconds) if method == "exact" else choose
    found = _Searched(nodes, layers, answer.snapshot, answer.progress)
    result = _extracted(original, program, target, found, partial(chooser, method=method), seed)
    if result.stopped == SATURATED:  # of both searches, the one that did not end by itself
        result.report.stopped = fold_stopped
    extracted = time.perf_counter()
    searched = answer.progress.seconds
    seconds = {"load": load_seconds, "fold": folding, "start": saturated - started - folding - searched}
    seconds |= {"saturate": searched}
    seconds |= {"extract": extracted - saturated, "check": 0.0}
    result.report.seconds.update(seconds)
    if verify and result.stopped != INTERRUPTED:  # whoever pressed Ctrl-C wants the answer now
        result.check(progress=lambda done, total: listener(Event("check", f"{done} of {total}", done / max(total, 1))))
    result.report.seconds["total"] = load_seconds + time.perf_counter() - started
    repeatable = result.stopped in REPEATABLE and fold_stopped in REPEATABLE
    if cache is not None and repeatable and not result.interrupted:
        try:
            cache.put(question, answers.text(result.report, result.cost, result.program))
        except CacheFull as error:  # the answer itself is whole: the caller says so after it is safe
            result.not_kept = error
    return result


def _prepared(
    program: Program,
    blocking: str,
    limits: Limits | None,
    worker: Callable[[], Worker],
    listener: Listener,
) -> tuple[Program, str]:
    """The program with scales folded into weights, where its tiles are loops, and why the search for it ended."""
    if blocking == "slices":
        return program, SATURATED

    def show(progress: Progress) -> None:
        listener(Event("fold", _progress_words(progress)))

    return folded(program, limits=limits, worker=worker, on_progress=show)


def families_of(target: Target, blocking: str, mapping: str) -> tuple[str, ...]:
    """The families of rules for a way of blocking and mapping. Raises BadInput."""
    for what, got, known in (("blocking", blocking, BLOCKING), ("mapping", mapping, MAPPINGS)):
        if got not in known:
            raise BadInput(f"{what} must be one of {', '.join(known)}, got {got!r}")
    key = "usual" if blocking == "loops" and mapping == "usual" else blocking
    if key not in target.families:
        raise BadInput(f"{target.name} requires --blocking loops: tiles as slices know no other dataflow and no limits")
    return target.families[key]


def _needed(families: Sequence[str], blocking: str, program: Program) -> tuple[str, ...]:
    """Without the rules that move things between pairs and their sum, where nothing stands there: they cannot fire."""
    pairs = (product.children[0].operator.name for product in program.layers.values())
    plain = blocking == "loops" and all(name == "access-product" for name in pairs)
    return tuple(name for name in families if not (plain and name == "through-products"))


def _progress_words(progress: Progress) -> str:
    return f"iteration {progress.iterations}, {progress.rows:,} e-nodes"


@dataclass(frozen=True)
class _Searched:
    """What was put into the e-graph, and what came of it."""

    nodes: Sequence[Term]
    layers: Layers | None
    snapshot: Snapshot
    progress: Progress

    def classes(self, terms: Sequence[Term]) -> list[int]:
        index = {term: i for i, term in enumerate(self.nodes)}
        return [self.snapshot.program[index[term]] for term in terms]


class _Chosen(NamedTuple):
    """What was chosen for a layer."""

    cone: Cone
    constant: bool
    bound: Cost | None
    """What any answer for it costs at least, if known."""


@dataclass(frozen=True)
class _Answer:
    """The optimized program, and what was chosen for each layer."""

    program: Program
    cost: Cost
    choice: dict[int, int]
    layers: Mapping[str, _Chosen]


Chooser = Callable[..., Choice]


def _of_distinct_layers(program: Program, target: Target, found: _Searched, choose: Chooser) -> _Answer:
    """Each distinct layer extracted by itself, and put in every place where it occurs."""
    layers, snapshot = found.layers, found.snapshot
    assert layers is not None
    constant = constant_classes(snapshot)
    choice: dict[int, int] = {}
    terms: list[Term] = []
    chosen: list[_Chosen] = []
    costs: list[Cost] = []
    for root in found.classes(layers.products):
        answer = choose(snapshot, target, constant, [root])
        terms.append(snapshot.terms(answer.nodes, [root])[root])
        (cone,) = cones(snapshot, answer.nodes, [root], constant, target)
        chosen.append(_Chosen(cone, constant[root], answer.bound))
        costs.append(answer.cost)
        choice.update((c, n) for c, n in answer.nodes.items() if c not in choice)
    roots = found.classes(layers.body)
    body = choose(snapshot, target, constant, roots)
    choice.update((c, n) for c, n in body.nodes.items() if c not in choice)
    made = snapshot.terms(body.nodes, roots)
    optimized = put_together(program, layers, terms, [made[root] for root in roots])
    cost = body.cost
    for number, _ in {program.layers[name]: place for name, place in layers.places.items()}.values():
        cost = cost.plus(costs[number])
    of_layer = {name: chosen[number] for name, (number, _) in layers.places.items()}
    return _Answer(optimized, cost, choice, _counted_once(program, of_layer))


def _counted_once(program: Program, found: Mapping[str, _Chosen]) -> dict[str, _Chosen]:
    """Two names of one product: the second shares what the first spends."""
    seen: set[Term] = set()
    result = {}
    for name, chosen in found.items():
        again = program.layers[name] in seen
        seen.add(program.layers[name])
        result[name] = _Chosen(Cone((), ()), chosen.constant, None) if again else chosen
    return result


def _of_whole_program(program: Program, target: Target, found: _Searched, choose: Chooser) -> _Answer:
    """Everything extracted at once: what layers share is chosen, and counted, once."""
    snapshot = found.snapshot
    constant = constant_classes(snapshot)
    roots = found.classes(list(program.layers.values()))
    (root,) = found.classes([program.term])
    answer = choose(snapshot, target, constant, [root, *roots], boundaries=frozenset(roots))
    terms = snapshot.terms(answer.nodes, [root, *roots])
    layers = {name: terms[c] for name, c in zip(program.layers, roots, strict=True)}
    optimized = Program(terms[root], program.name, layers, program.labels, program.constants)
    found_cones = cones(snapshot, answer.nodes, roots, constant, target)
    of_layer = {
        name: _Chosen(cone, constant[c], None) for name, c, cone in zip(program.layers, roots, found_cones, strict=True)
    }
    return _Answer(optimized, answer.cost, dict(answer.nodes), of_layer)


def _extracted(
    original: Program, program: Program, target: Target, found: _Searched, choose: Chooser, seed: int
) -> Result:
    stopped = found.progress.stopped or ""
    answer = (_of_whole_program if found.layers is None else _of_distinct_layers)(program, target, found, choose)
    rows = [
        layer_row(name, program.labels.get(name, ""), product, *answer.layers[name], target, found.snapshot, stopped)
        for name, product in program.layers.items()
    ]
    report = Report(
        program=program.name,
        target=target.name,
        layers=rows,
        e_nodes=found.snapshot.e_nodes,
        e_classes=found.snapshot.e_classes,
        iterations=found.progress.iterations,
        stopped=stopped,
        rules=found.progress.rules,
        seconds={},
        cost=answer.cost._asdict(),
        objectives=target.objectives,
        distinct=len(found.layers.products) if found.layers else len(set(program.layers.values())),
    )
    made = Found(answer.program, found.snapshot, answer.choice)
    return Result(original, target, answer.cost, report, lambda: made.program, lambda: made, lambda: program, seed)


__all__ = ["BLOCKING", "MAPPINGS", "Event", "Limits", "Listener", "Result", "optimize"]
