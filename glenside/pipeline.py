"""The pipeline in named stages: program -> e-graph -> saturate -> extract -> checked program + report."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from extract import Extraction, Problem, extract
from glenside.check import CheckReport, check
from glenside.egraph.saturation import INTERRUPTED, Limits, Progress
from glenside.egraph.search import Worker, search
from glenside.egraph.snapshot import Snapshot
from glenside.ir.errors import BadInput
from glenside.ir.program import Program
from glenside.ir.term import Term, postorder
from glenside.report import Cone, LayerRow, Report, cones, layer_row
from glenside.target import Cost, Target
from rewrites import of_families

BLOCKING = ("slices",)


@dataclass(frozen=True)
class Event:
    """What the pipeline is doing, for a progress display; `fraction` is None where the end cannot be foreseen."""

    stage: str
    detail: str
    fraction: float | None = None


Listener = Callable[[Event], None]


@dataclass(repr=False)
class Result:
    """The answer: the optimized program, what it costs, and how it was found."""

    original: Program
    program: Program
    target: Target
    cost: Cost
    report: Report
    egraph: Snapshot
    choice: dict[int, int] = field(repr=False)
    seed: int = 0
    interrupted: bool = False
    """Whether Ctrl-C ended the check."""

    @property
    def stopped(self) -> str:
        """Why the search ended: saturated, node-limit, time-limit, iteration-limit, memory-limit or interrupted."""
        return self.report.stopped

    def check(self, *, progress: Callable[[int, int], None] | None = None) -> CheckReport:
        """Compare the two programs exactly, layer by layer and as a whole; the report then says so."""
        started = time.perf_counter()
        verdict = check(self.original, self.program, seed=self.seed, progress=progress)
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
        from glenside.display import report_html

        return report_html(self.report)


def optimize(
    program: Program,
    target: Target,
    *,
    limits: Limits | None = None,
    blocking: str = "slices",
    seed: int = 0,
    verify: bool = True,
    worker: Worker | None = None,
    listener: Listener = lambda _: None,
    load_seconds: float = 0.0,
) -> Result:
    """Find the equal program that uses the target best, and check that it is equal.

    Stopping early, by a limit or by Ctrl-C, still gives the best program found by then; `result.stopped` says why. With
    `verify=False` the check is left to `result.check()`. Raises BadInput.
    """
    if blocking not in BLOCKING:
        raise BadInput(f"blocking must be one of {', '.join(BLOCKING)}, got {blocking!r}")
    started = time.perf_counter()
    nodes = list(postorder(program.term, *program.layers.values()))
    listener(Event("saturate", "starting"))
    found = search(
        nodes,
        of_families(target.families),
        target.parameters,
        limits,
        worker=worker,
        on_progress=lambda p: listener(Event("saturate", _progress_words(p))),
    )
    saturated = time.perf_counter()
    listener(Event("extract", f"{found.snapshot.e_nodes:,} e-nodes"))
    result = _extracted(program, nodes, target, found.snapshot, found.progress, seed)
    extracted = time.perf_counter()
    seconds = {"load": load_seconds, "saturate": saturated - started, "extract": extracted - saturated, "check": 0.0}
    result.report.seconds.update(seconds)
    if verify and result.stopped != INTERRUPTED:  # whoever pressed Ctrl-C wants the answer now
        result.check(progress=lambda done, total: listener(Event("check", f"{done} of {total}", done / max(total, 1))))
    result.report.seconds["total"] = load_seconds + time.perf_counter() - started
    return result


def _progress_words(progress: Progress) -> str:
    return f"iteration {progress.iterations}, {progress.rows:,} e-nodes"


def _extracted(
    program: Program, nodes: Sequence[Term], target: Target, snapshot: Snapshot, progress: Progress, seed: int
) -> Result:
    index = {term: i for i, term in enumerate(nodes)}
    layers = {name: snapshot.program[index[term]] for name, term in program.layers.items()}
    root = snapshot.program[index[program.term]]
    constant = constant_classes(snapshot)
    problem, kept = extraction_problem(snapshot, target, constant, [root, *layers.values()], frozenset(layers.values()))
    # Proofs take time that whoever pressed Ctrl-C does not give.
    answer = extract(problem, "dag" if progress.stopped == INTERRUPTED else "auto")
    choice = {eclass: kept[node] for eclass, node in answer.choice.items()}
    terms = snapshot.terms(choice, [root, *layers.values()])
    optimized = Program(
        terms[root], program.name, {name: terms[c] for name, c in layers.items()}, program.labels, program.constants
    )
    found = cones(snapshot, choice, list(layers.values()), constant, target)
    rows = _rows(program, found, [constant[c] for c in layers.values()], target, snapshot, progress.stopped or "")
    cost = Cost(*answer.cost)
    report = Report(
        program=program.name,
        target=target.name,
        layers=rows,
        e_nodes=snapshot.e_nodes,
        e_classes=snapshot.e_classes,
        iterations=progress.iterations,
        stopped=progress.stopped or "",
        rules=progress.rules,
        seconds={},
        cost=cost._asdict(),
    )
    return Result(program, optimized, target, cost, report, snapshot, choice, seed)


def _rows(
    program: Program, found: Sequence[Cone], constant: Sequence[bool], target: Target, snapshot: Snapshot, stopped: str
) -> list[LayerRow]:
    rows = []
    for (name, product), cone, fixed in zip(program.layers.items(), found, constant, strict=True):
        rows.append(layer_row(name, program.labels.get(name, ""), product, cone, fixed, target, snapshot, stopped))
    return rows


def constant_classes(snapshot: Snapshot) -> list[bool]:
    """Which classes have a node that is made of constants alone: they are computed before run time."""
    waiting = [len(set(n.children)) for n in snapshot.nodes]
    parents: list[list[int]] = [[] for _ in snapshot.classes]
    for i, node in enumerate(snapshot.nodes):
        for child in set(node.children):
            parents[child].append(i)
    result = [False] * len(snapshot.classes)

    def is_input(i: int) -> bool:
        node = snapshot.nodes[i]
        return node.operator == "access-tensor" and not snapshot.tensors[node.attributes[0]].constant

    ready = [i for i, count in enumerate(waiting) if count == 0 and not is_input(i)]
    while ready:
        eclass = snapshot.owner[ready.pop()]
        if result[eclass]:
            continue
        result[eclass] = True
        for parent in parents[eclass]:
            waiting[parent] -= 1
            if waiting[parent] == 0:
                ready.append(parent)
    return result


def extraction_problem(
    snapshot: Snapshot, target: Target, constant: Sequence[bool], roots: Sequence[int], boundaries: frozenset[int]
) -> tuple[Problem, list[int]]:
    """The extractor's arrays, and for each of its nodes the e-node of the snapshot that it is."""
    kept: list[int] = []
    classes: list[tuple[int, ...]] = []
    for _, members in snapshot.usable():
        classes.append(tuple(range(len(kept), len(kept) + len(members))))
        kept += members
    costs = [tuple(_node_cost(snapshot, target, constant, n)) for n in kept]
    children = tuple(snapshot.nodes[n].children for n in kept)
    return Problem(tuple(classes), children, tuple(costs), tuple(roots), boundaries), kept


def _node_cost(snapshot: Snapshot, target: Target, constant: Sequence[bool], index: int) -> Cost:
    node = snapshot.nodes[index]
    own, children = snapshot.types[snapshot.owner[index]], [snapshot.types[c] for c in node.children]
    fixed = constant[snapshot.owner[index]] and all(constant[c] for c in node.children)
    if own is None or any(c is None for c in children):
        return Cost(nodes=1)  # tuples
    return target.cost(node.operator, node.attributes, [c for c in children if c is not None], own, fixed)


__all__ = ["BLOCKING", "Event", "Extraction", "Limits", "Listener", "Result", "optimize"]
