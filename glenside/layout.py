"""The layouts of a network: the copies that it makes on a unit of one layout, as written and as found."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from glenside.analysis.copies import Movement, movements, total
from glenside.check import check
from glenside.egraph.saturation import Limits, Progress
from glenside.ir.program import Program
from glenside.passes.network import arranged
from glenside.targets.base import Target

PLACES = ("input", "inside", "output")


@dataclass(frozen=True)
class LayoutReport:
    """Every copy before and after, in bytes, what the search did, and the program that was found."""

    name: str
    target: str
    program: Program
    before: Sequence[Movement]
    after: Sequence[Movement]
    e_nodes: int
    e_classes: int
    iterations: int
    stopped: str
    seconds: float
    checked: str
    how_checked: str
    kept: bool
    """Whether the program is the one that was given, because what was found moves more."""

    @property
    def totals(self) -> Mapping[str, Mapping[str, int]]:
        """before and after -> place -> bytes"""
        found = {"before": self.before, "after": self.after}
        return {when: {place: total(of, place) for place in PLACES} for when, of in found.items()}

    def as_dict(self) -> dict[str, Any]:
        """As JSON."""
        return {
            "program": self.name,
            "target": self.target,
            "before": [m.as_dict() for m in self.before],
            "after": [m.as_dict() for m in self.after],
            "bytes": self.totals,
            "e_nodes": self.e_nodes,
            "e_classes": self.e_classes,
            "iterations": self.iterations,
            "stopped": self.stopped,
            "seconds": self.seconds,
            "checked": self.checked,
            "how_checked": self.how_checked,
            "kept": self.kept,
        }


def arrange_layout(
    program: Program,
    target: Target,
    *,
    limits: Limits | None = None,
    seed: int = 0,
    verify: bool = True,
    on_progress: Callable[[Progress], None] | None = None,
) -> LayoutReport:
    """The layouts in which the program moves the fewest bytes on a `ConvolutionUnit`, checked to be equal.

    A product that the unit cannot read in any order stays as it is written. An answer that moves more than the program
    itself is not taken.
    """
    found = arranged(program, target, limits=limits, on_progress=on_progress)
    before, after = movements(program, target), movements(found.program, target)
    kept = total(after) > total(before)
    result = program if kept else found.program
    checked, how = "not checked", ""
    if kept:
        checked, how = "exact", "it is the program itself"
    elif verify and found.stopped != "interrupted":
        verdict = check(program, result, layers=False, seed=seed)
        checked, how = verdict.result, verdict.how
    return LayoutReport(
        name=program.name,
        target=target.name,
        program=result,
        before=before,
        after=before if kept else after,
        e_nodes=found.egraph.e_nodes,
        e_classes=found.egraph.e_classes,
        iterations=found.progress.iterations,
        stopped=found.stopped,
        seconds=found.seconds,
        checked=checked,
        how_checked=how,
        kept=kept,
    )
