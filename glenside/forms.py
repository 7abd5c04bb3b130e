"""The form of each layer, chosen: plain, Winograd's, phases, tiles, whichever the machine does best.

program -> scales folded -> distinct layers -> one e-graph -> forms of each -> the best of each -> checked program
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from typing import Any

from glenside.check import EXACT, CheckReport, check
from glenside.egraph.saturation import INTERRUPTED, SATURATED, Limits, Progress
from glenside.egraph.search import Worker, search
from glenside.egraph.snapshot import Snapshot
from glenside.form_target import Candidate, FormTarget
from glenside.ir.program import Program
from glenside.ir.term import Term, postorder
from glenside.passes.distinct_layers import Layers, distinct_layers, put_together
from glenside.passes.network import folded
from glenside.report.mapping import product_sizes
from rewrites import of_families

REPORTED = ("form",)
CHOSEN = "chosen"


@dataclass(frozen=True)
class Choice:
    """A form, and what it takes: measure -> amount, infinite where nothing bounds it."""

    form: str
    measures: Mapping[str, float]


@dataclass(frozen=True)
class FormRow:
    """One layer. groups, m, k, n are the sizes of its product; `choices` are what each policy takes, and the answer."""

    name: str
    operator: str
    groups: int
    m: int
    k: int
    n: int
    macs: int
    choices: Mapping[str, Choice]
    front: Sequence[Choice]
    """Every form that was found."""
    checked: str = "not checked"

    @property
    def chosen(self) -> Choice:
        return self.choices[CHOSEN]

    def front_of(self, axes: Sequence[str]) -> list[Choice]:
        """The forms that no other beats in all of these measures, least of the first measure first."""
        ordered = sorted(
            self.front, key=lambda c: (*(c.measures[a] for a in axes), *c.measures.values(), c != self.chosen)
        )
        found: list[Choice] = []
        for choice in ordered:
            mine = [choice.measures[a] for a in axes]
            if not any(all(c.measures[a] <= m for a, m in zip(axes, mine, strict=True)) for c in found):
                found.append(choice)
        return found


@dataclass
class FormReport:
    """`as_dict` is the content of report.json; keys are added over time, never renamed."""

    program: str
    target: str
    layers: list[FormRow]
    totals: Mapping[str, Mapping[str, float]]
    """policy, or "chosen" -> measures of the whole program"""
    rest: Mapping[str, Mapping[str, float]]
    """The same of what is between the layers, of the measures that add up."""
    units: Mapping[str, str]
    axes: Sequence[str]
    """The two measures that are traded for each other."""
    compared: Sequence[str]
    """The measures that tables show for every policy."""
    e_nodes: int
    e_classes: int
    iterations: int
    distinct: int
    stopped: str
    seconds: dict[str, float]
    checked: str = "not checked"
    how_checked: str = ""
    notes: Sequence[str] = ()
    """What is wrong with the answer, such as a budget that a layer exceeds."""
    remarks: Sequence[str] = ()
    """What else must be said of the figures."""
    rules: Mapping[str, int] = field(default_factory=dict)
    """rule -> matches"""

    @property
    def ok(self) -> bool:
        """Everything is checked exact."""
        return self.checked == EXACT and all(row.checked == EXACT for row in self.layers)

    def as_dict(self) -> dict[str, Any]:
        return {
            "program": self.program,
            "target": self.target,
            "units": dict(self.units),
            "front": list(self.axes),
            "layers": [_finite(asdict(row)) for row in self.layers],
            "totals": {name: _finite(m) for name, m in self.totals.items()},
            "between_layers": {name: dict(m) for name, m in self.rest.items()},
            "search": {
                "e_nodes": self.e_nodes,
                "e_classes": self.e_classes,
                "iterations": self.iterations,
                "distinct_layers": self.distinct,
                "stopped": self.stopped,
                "rules": dict(self.rules),
            },
            "seconds": {name: round(value, 6) for name, value in self.seconds.items()},
            "checked": self.checked,
            "how_checked": self.how_checked,
            "notes": list(self.notes),
            "remarks": list(self.remarks),
        }


def _finite(value: Any) -> Any:
    """As JSON has it: null for what is infinite."""
    if isinstance(value, Mapping):
        return {key: _finite(v) for key, v in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(v) for v in value]
    return None if value == math.inf else value


@dataclass(repr=False)
class FormResult:
    """The answer: the program in the forms that were chosen, what it takes, and how it was found."""

    original: Program
    target: FormTarget
    program: Program
    report: FormReport
    prepared: Program
    """The program whose layers were searched: the original, with what is constant folded."""
    egraph: Snapshot
    policies: Mapping[str, Program]
    """The program with every layer in the form of a policy."""
    seed: int = 0
    interrupted: bool = False

    @property
    def stopped(self) -> str:
        """Why the search ended: saturated, node-limit, time-limit, iteration-limit, memory-limit or interrupted."""
        return self.report.stopped

    @cached_property
    def cost(self) -> Mapping[str, float]:
        """Measures of the whole program."""
        return self.report.totals[CHOSEN]

    def check(self, *, progress: Callable[[int, int], None] | None = None) -> CheckReport:
        """Compare the two programs exactly, layer by layer and as a whole; the report then says so."""
        started = time.perf_counter()
        verdict = check(self.prepared, self.program, seed=self.seed, progress=progress)
        if self.prepared is not self.original and verdict.result == EXACT:
            whole = check(self.original, self.prepared, layers=False, seed=self.seed)
            verdict = replace(verdict, result=whole.result, stopped=verdict.stopped or whole.stopped)
        rows = [replace(row, checked=verdict.layers.get(row.name, "not checked")) for row in self.report.layers]
        self.report.layers[:] = rows
        self.report.checked, self.report.how_checked = verdict.result, verdict.how
        self.interrupted = verdict.stopped == INTERRUPTED
        self.report.seconds["check"] = time.perf_counter() - started
        return verdict

    def __repr__(self) -> str:
        taken = ", ".join(f"{amount:,} {name}" for name, amount in self.cost.items())
        return f"<{self.original.name} on {self.target.name}: {taken}, {self.stopped}>"

    def _repr_html_(self) -> str:
        from glenside.report.display import forms_html

        return forms_html(self.report)


Announce = Callable[[str, str], None]
"""Called with a stage and what it is doing."""


def choose_forms(
    program: Program,
    target: FormTarget,
    *,
    limits: Limits | None = None,
    seed: int = 0,
    verify: bool = True,
    worker: Callable[[], Worker] = Worker,
    announce: Announce = lambda stage, detail: None,
    load_seconds: float = 0.0,
) -> FormResult:
    """Find the form of each layer that the target does best, and check that the program is equal.

    Stopping early, by a limit or by Ctrl-C, still gives the best forms found by then. Raises BadInput.
    """

    def show(stage: str) -> Callable[[Progress], None]:
        return lambda p: announce(stage, f"iteration {p.iterations}, {p.rows:,} e-nodes")

    started = time.perf_counter()
    program = program.as_written()
    prepared, fold_stopped = folded(program, limits=limits, worker=worker, on_progress=show("fold"))
    prepared = target.prepare(prepared)
    folding = time.perf_counter()
    layers = distinct_layers(prepared, target.leaf_kind(prepared))
    roots = [target.root(product) for product in layers.products]
    nodes = list(postorder(*roots))
    answer = search(
        nodes,
        of_families(target.families_for(nodes)),
        target.rule_parameters(),
        limits if fold_stopped != INTERRUPTED else Limits(seconds=0.0),
        reported=REPORTED,
        worker=worker(),
        on_progress=show("saturate"),
    )
    saturated = time.perf_counter()
    announce("extract", f"{answer.snapshot.e_nodes:,} e-nodes")
    index = {term: i for i, term in enumerate(nodes)}
    found = [target.candidates(answer.snapshot, answer.snapshot.program[index[root]], root) for root in roots]
    chosen = _Chosen.of(prepared, target, layers, found)
    stopped = answer.stopped if answer.stopped != SATURATED else fold_stopped
    extracted = time.perf_counter()
    seconds = {"load": load_seconds, "fold": folding - started, "saturate": saturated - folding}
    seconds |= {"extract": extracted - saturated, "check": 0.0}
    report = FormReport(
        program=program.name,
        target=target.name,
        layers=chosen.rows,
        totals=chosen.totals,
        rest=chosen.rest(),
        units={m.name: m.unit for m in target.measures},
        axes=target.axes,
        compared=target.compared,
        e_nodes=answer.snapshot.e_nodes,
        e_classes=answer.snapshot.e_classes,
        iterations=answer.progress.iterations,
        distinct=len(roots),
        stopped=stopped,
        seconds=seconds,
        notes=[*filter(None, [target.note(chosen.totals[CHOSEN])])],
        remarks=[*target.remarks(chosen.programs[CHOSEN]), *chosen.remarks],
        rules={name: run.matches for name, run in answer.progress.rules.items()},
    )
    programs = dict(chosen.programs)
    best = programs.pop(CHOSEN)
    result = FormResult(program, target, best, report, prepared, answer.snapshot, programs, seed)
    if verify and stopped != INTERRUPTED:
        result.check(progress=lambda done, total: announce("check", f"{done} of {total}"))
    report.seconds["total"] = load_seconds + time.perf_counter() - started
    return result


@dataclass(frozen=True)
class _Chosen:
    """Programs and what they take, for each policy and for the answer."""

    program: Program
    target: FormTarget
    rows: list[FormRow]
    programs: Mapping[str, Program]
    totals: Mapping[str, Mapping[str, float]]
    remarks: Sequence[str]
    """Of the forms that were chosen."""

    @staticmethod
    def of(program: Program, target: FormTarget, layers: Layers, found: Sequence[Sequence[Candidate]]) -> _Chosen:
        policies = [dict(target.policies(forms)) for forms in found]
        for policy, form in zip(policies, _best(program, target, layers, found), strict=True):
            policy[CHOSEN] = form
        names = list(policies[0]) if policies else [CHOSEN]
        programs = {name: _assembled(program, layers, [p[name].term for p in policies]) for name in names}
        largest = [m.name for m in target.measures if not m.adds]
        totals = {}
        for name, made in programs.items():
            worst = {m: max((p[name].measures[m] for p in policies), default=0) for m in largest}
            totals[name] = {**worst, **target.whole(made)}
            totals[name] = {m.name: totals[name][m.name] for m in target.measures}
        rows = []
        for name, (number, _) in layers.places.items():
            sizes = product_sizes(program.layers[name])
            rows.append(
                FormRow(
                    name=name,
                    operator=program.labels.get(name, "") or "matmul",
                    groups=sizes.groups,
                    m=sizes.m,
                    k=sizes.k,
                    n=sizes.n,
                    macs=sizes.macs,
                    choices={which: _choice(c) for which, c in policies[number].items()},
                    front=[_choice(c) for c in found[number]],
                )
            )
        remarks = dict.fromkeys(remark for policy in policies for remark in policy[CHOSEN].remarks)
        return _Chosen(program, target, rows, programs, totals, [*remarks])

    def rest(self) -> dict[str, dict[str, float]]:
        """What is between the layers: the whole less its layers."""
        additive = [m.name for m in self.target.measures if m.adds]
        once = {id(self.program.layers[row.name]): row for row in self.rows}.values()
        result: dict[str, dict[str, float]] = {}
        for policy, total in self.totals.items():
            own = {m: sum(row.choices[policy].measures[m] for row in once) for m in additive}
            result[policy] = {m: total[m] - own[m] for m in additive}
        return result


def _best(
    program: Program, target: FormTarget, layers: Layers, found: Sequence[Sequence[Candidate]]
) -> list[Candidate]:
    """The best form of each layer; where the whole then exceeds a limit, that of the layer which presses most is given
    up for its next smaller one, until the whole fits or nothing is smaller.
    """
    best = [min(forms, key=target.aim) for forms in found]
    held: dict[int, int] = {}
    while target.note(target.whole(_assembled(program, layers, [form.term for form in best]))):
        if not held:
            beside = target.held(program)
            for name, (number, _) in layers.places.items():
                held[number] = max(held.get(number, 0), beside.get(name, 0))
        smaller = {number: target.smaller(found[number], form) for number, form in enumerate(best)}
        open_ = [number for number, form in smaller.items() if form is not None]
        if not open_:
            break
        pressing = max(open_, key=lambda number: target.pressure(best[number], held[number]))
        best[pressing] = smaller[pressing] or best[pressing]
    return best


def _choice(candidate: Candidate) -> Choice:
    return Choice(candidate.form, dict(candidate.measures))


def _assembled(program: Program, layers: Layers, terms: Sequence[Term]) -> Program:
    return put_together(program, layers, terms, layers.body)
