"""Reports the findings of a run of the fuzzer."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from glenside.fuzzing.cases import Failure, Outcome, Verdict

_REASONS = 3
"""Reasons of refusals that are listed per door."""


@dataclass
class DoorReport:
    """The numbers of cases that passed, were refused and failed at one door, and their seconds."""

    passed: int = 0
    refused: int = 0
    failed: int = 0
    seconds: float = 0.0

    def add(self, outcome: Outcome) -> None:
        """Counts an outcome."""
        self.passed += outcome.verdict is Verdict.PASSED
        self.refused += outcome.verdict is Verdict.REFUSED
        self.failed += outcome.failed
        self.seconds += outcome.seconds

    @property
    def cases(self) -> int:
        return self.passed + self.refused + self.failed


@dataclass
class FuzzReport:
    """The report of `gl.fuzz`.

    doors     name -> the numbers of cases that passed, were refused and failed
    failures  those that differ in door, kind and place, each shrunk
    refusals  (door, message without its numbers and names) -> how often
    reached   combinations of a door with an operator, dtype and shape, a rule that fired, or a loop nest
    added     cases added to the corpus
    """

    seed: int
    doors: Mapping[str, DoorReport]
    failures: list[Failure] = field(default_factory=list)
    refusals: Counter[tuple[str, str]] = field(default_factory=Counter)
    seconds: float = 0.0
    reached: int = 0
    added: int = 0
    interrupted: bool = False

    @property
    def cases(self) -> int:
        """The number of cases that were tried."""
        return sum(door.cases for door in self.doors.values())

    @property
    def ok(self) -> bool:
        """True if nothing failed."""
        return not self.failures

    def sentence(self) -> str:
        """Returns one sentence: cases, time, failures."""
        ended = ", interrupted" if self.interrupted else ""
        found = (
            f"{len(self.failures)} failure{'' if len(self.failures) == 1 else 's'}" if self.failures else "no failure"
        )
        return f"{self.cases:,} cases in {self.seconds:.0f} s{ended}, seed {self.seed}: {found}"

    def refused(self) -> list[str]:
        """For each door that refused cases, how many, and the most frequent reasons."""
        lines = []
        for name, door in self.doors.items():
            why = Counter({said: count for (own, said), count in self.refusals.items() if own == name})
            if door.refused:
                often = "; ".join(f"{count} {said}" for said, count in why.most_common(_REASONS))
                alone = ", all of them" if door.refused == door.cases else ""
                lines.append(f"{name} refused {door.refused:,} of {door.cases:,} cases{alone}: {often}")
        return lines

    def __str__(self) -> str:
        lines = [self.sentence(), *self.refused()]
        for failure in self.failures:
            again = f" ({failure.count} cases)" if failure.count > 1 else ""
            lines += ["", f"{failure}{again}", failure.case.text.rstrip()]
            lines += [f"a test of it: {failure.test}"] if failure.test else []
        return "\n".join(lines)

    def as_dict(self) -> dict[str, Any]:
        """Returns the report for JSON."""
        return {
            "seed": self.seed,
            "cases": self.cases,
            "seconds": round(self.seconds, 3),
            "interrupted": self.interrupted,
            "reached": self.reached,
            "added": self.added,
            "doors": {
                name: {"passed": d.passed, "refused": d.refused, "failed": d.failed, "seconds": round(d.seconds, 3)}
                for name, d in self.doors.items()
            },
            "failures": [
                {
                    "door": f.outcome.door,
                    "kind": f.outcome.verdict.value,
                    "place": f.outcome.place,
                    "detail": f.outcome.detail,
                    "seed": f.case.seed,
                    "case": f.case.text,
                    "count": f.count,
                    "test": f.test,
                    "after_seconds": round(f.seconds, 3),
                }
                for f in self.failures
            ],
            "refusals": [
                {"door": door, "sentence": sentence, "count": count}
                for (door, sentence), count in self.refusals.most_common()
            ],
        }
