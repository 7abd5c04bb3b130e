"""Declares the report: a row of measures for each layer, totals, statistics of the search, and how the answer was
checked.

Tables, JSON, pages, plots and the cache derive from this one record.
"""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from glenside.algebra.search import Candidate
from glenside.check import is_equal
from glenside.egraph.saturation import RuleRun
from glenside.ir.names import one_line
from glenside.targets.base import Amounts, Measure

CHOSEN = "chosen"
FORWARD = "forward"
_GRADIENT = "-gradient"


def part_of(name: str, names: Container[str]) -> tuple[str, str]:
    """Splits a name into layer and part: `pw1.input-gradient` is a part of pw1 if there is a layer pw1."""
    layer, dot, part = name.rpartition(".")
    return (layer, part) if dot and part.endswith(_GRADIENT) and layer in names else (name, FORWARD)


@dataclass(frozen=True)
class Choice:
    """A variant of a layer in the report: its label and its measures."""

    label: str
    measures: Amounts


@dataclass(frozen=True)
class LayerRow:
    """One product of the program. groups, m, k, n are its own sizes, before any padding.

    part          forward, or in a training step input-gradient or weight-gradient of the layer that begins the name
    variants      name of a baseline, or "chosen" -> label and measures
    front         every variant that was found, if there are several
    lower_bound   proven lower bound of the first objective; gap is the distance of the answer to it
    utilization   share of busy multipliers, if the target counts cycles
    rules         with a trace: the rules that built the answer
    details       further data on the answer, for programs
    nearest_miss  why the product is not mapped, or ""
    """

    name: str
    operator: str
    groups: int
    m: int
    k: int
    n: int
    macs: int
    variants: Mapping[str, Choice]
    front: Sequence[Choice] = ()
    lower_bound: int | None = None
    gap: int | None = None
    utilization: float | None = None
    checked: str = "not checked"
    rules: tuple[str, ...] = ()
    details: Mapping[str, Any] = field(default_factory=dict)
    nearest_miss: str = ""
    part: str = FORWARD

    @property
    def chosen(self) -> Choice:
        return self.variants[CHOSEN]

    @property
    def label(self) -> str:
        """The variant that was chosen, in words."""
        return self.chosen.label

    @property
    def measures(self) -> Amounts:
        """Measures of the answer."""
        return self.chosen.measures

    @property
    def baseline(self) -> Amounts:
        """Measures of the first baseline."""
        return next(iter(self.variants.values())).measures

    @property
    def mapped(self) -> bool:
        """True if the product runs on the machine."""
        return not self.nearest_miss

    def front_of(self, axes: Sequence[str]) -> list[Choice]:
        """Returns the variants that no other dominates in these measures, least of the first measure first."""

        def amounts(choice: Choice, names: Sequence[str]) -> list[float]:
            return [float("inf") if (n := choice.measures[name]) is None else n for name in names]

        front: list[Choice] = []
        for choice in sorted(
            self.front, key=lambda c: (*amounts(c, axes), *amounts(c, list(c.measures)), c != self.chosen)
        ):
            own = amounts(choice, axes)
            if not any(all(a <= b for a, b in zip(amounts(c, axes), own, strict=True)) for c in front):
                front.append(choice)
        return front


@dataclass(repr=False)
class Report:
    """The report of an optimization. `as_dict` is the content of report.json; keys are added over time.

    totals          name of a baseline, or "chosen" -> measures of the whole program
    between_layers  the same for the terms between layers, of the measures that add up, if they are counted
    front           measures that variants trade off, if any
    compared        measures that tables show for every baseline
    cost            cost of the whole program by the cost model of e-nodes, if it adds up
    notes           faults of the answer, such as the excess over a budget
    faults          why searches failed, such as an unsound rule; the answer is then the baseline
    remarks         other remarks on the measures
    black_boxes     name of an operator without known semantics -> its number; they are neither mapped nor counted
    algebra         other forms of sums and products between layers, chosen or rejected
    sections        reports of this target only, such as the copies of a network
    uncounted       what the first measure leaves out, in words
    of_program      first measure of the compiled program, everything included; None if none was compiled
    """

    program: str
    target: str
    layers: list[LayerRow]
    measures: Sequence[Measure]
    objectives: Sequence[str]
    totals: Mapping[str, Amounts]
    between_layers: Mapping[str, Amounts] = field(default_factory=dict)
    front: Sequence[str] = ()
    compared: Sequence[str] = ()
    e_nodes: int = 0
    e_classes: int = 0
    iterations: int = 0
    distinct: int = 0
    """Distinct layers, each searched once."""
    stopped: str = ""
    rules: Mapping[str, RuleRun] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)
    checked: str = "not checked"
    how_checked: str = ""
    cached: bool = False
    cost: Mapping[str, int] = field(default_factory=dict)
    notes: Sequence[str] = ()
    faults: Sequence[str] = ()
    remarks: Sequence[str] = ()
    black_boxes: Mapping[str, int] = field(default_factory=dict)
    algebra: Sequence[Candidate] = ()
    sections: Mapping[str, Any] = field(default_factory=dict)
    uncounted: str = ""
    of_program: int | None = None
    peak: int | None = None
    """Multiply-accumulates a cycle of a machine that counts cycles."""

    def __repr__(self) -> str:
        how = self.stopped or "not searched"
        return f"<report of {self.program} on {self.target}: {len(self.layers)} layers, {how}>"

    def forget_checks(self) -> None:
        """Marks everything as not checked: cached verdicts are of an earlier run."""
        self.layers[:] = [replace(row, checked="not checked") for row in self.layers]
        self.checked, self.how_checked = "not checked", ""

    @property
    def units(self) -> Mapping[str, str]:
        """measure -> its unit"""
        return {m.name: m.unit for m in self.measures}

    @property
    def total(self) -> Amounts:
        """Measures of the whole answer."""
        return self.totals[CHOSEN]

    @property
    def baseline(self) -> Amounts:
        """Measures of the whole first baseline."""
        return next(iter(self.totals.values()))

    @property
    def parts(self) -> list[str]:
        """Parts of a training step that the layers belong to: forward and gradients; only forward in other programs."""
        return [*dict.fromkeys(row.part for row in self.layers)]

    @property
    def mapped(self) -> int:
        """Number of layers that run on the machine."""
        return sum(row.mapped for row in self.layers)

    @property
    def macs(self) -> int:
        return sum(row.macs for row in self.layers)

    @property
    def lower_bound(self) -> int | None:
        """Sum of the bounds of the layers; None if one is unknown."""
        bounds = [row.lower_bound for row in self.layers]
        return None if any(b is None for b in bounds) else sum(b for b in bounds if b is not None)

    @property
    def gap(self) -> int | None:
        gaps = [row.gap for row in self.layers]
        return None if any(g is None for g in gaps) else sum(g for g in gaps if g is not None)

    @property
    def ok(self) -> bool:
        """True if everything is mapped, checked equal, and within its budget."""
        rows = all(row.mapped and is_equal(row.checked) for row in self.layers)
        return rows and is_equal(self.checked) and not self.notes and not self.faults

    def as_dict(self) -> dict[str, Any]:
        """Returns the content of report.json."""
        return {
            "program": self.program,
            "target": self.target,
            "objectives": list(self.objectives),
            "measures": {m.name: asdict(m) for m in self.measures},
            "layers": [{**asdict(row), "mapped": row.mapped, "label": row.label, **row.details} for row in self.layers],
            "totals": {name: dict(amounts) for name, amounts in self.totals.items()},
            **({"uncounted": self.uncounted} if self.uncounted else {}),
            **({} if self.of_program is None else {"of_program": {self.measures[0].name: self.of_program}}),
            "between_layers": {name: dict(amounts) for name, amounts in self.between_layers.items()},
            "mapped": self.mapped,
            "macs": self.macs,
            "lower_bound": self.lower_bound,
            "gap": self.gap,
            "front": list(self.front),
            "search": {
                "e_nodes": self.e_nodes,
                "e_classes": self.e_classes,
                "iterations": self.iterations,
                "distinct_layers": self.distinct,
                "cached": self.cached,
                "stopped": self.stopped,
                "rules": {
                    name: {"matches": run.matches, "seconds": round(run.seconds, 6)}
                    for name, run in sorted(self.rules.items())
                },
            },
            "seconds": {name: round(value, 6) for name, value in self.seconds.items()},
            "cost": dict(self.cost),
            "checked": self.checked,
            "how_checked": self.how_checked,
            "notes": list(self.notes),
            "faults": list(self.faults),
            "remarks": list(self.remarks),
            "algebra": [asdict(candidate) for candidate in self.algebra],
            "black_boxes": dict(self.black_boxes),
            **self.sections,
        }

    @property
    def mapped_words(self) -> str:
        """Counts of mapped layers and of black boxes, in words."""
        words, boxes = f"{self.mapped} of {len(self.layers)} mapped", sum(self.black_boxes.values())
        return f"{words}, {boxes} black box{'es' * (boxes > 1)} not counted" if boxes else words

    def unmapped_sentence(self) -> str:
        """Names the products that are not mapped, and why the first one is not."""
        left = [row for row in self.layers if not row.mapped]
        known = " whose meaning is known" if self.black_boxes else ""
        if not self.layers:
            return f"The program contains no product{known}, so there is nothing to map."
        if not left:
            return f"Every product{known} is mapped onto the machine."
        names = ", ".join(one_line(row.name) for row in left[:8])
        more = f" and {len(left) - 8} more" if len(left) > 8 else ""
        why = f"{one_line(left[0].name)}: {left[0].nearest_miss}"
        return f"{len(left)} of {len(self.layers)} products{known} stayed off the machine: {names}{more}; {why}."

    def black_boxes_sentence(self) -> str:
        """Names the operators that no measure counts, or returns ""."""
        count = sum(self.black_boxes.values())
        if not count:
            return ""
        each = [one_line(name) + (f" ({n})" if n > 1 else "") for name, n in self.black_boxes.items()]
        names = ", ".join(each[:8]) + (f" and {len(each) - 8} more" if len(each) > 8 else "")
        what = f"{count} black box{'es are' if count > 1 else ' is'}"
        return f"{what} neither mapped nor counted, as nobody here knows the meaning: {names}."
