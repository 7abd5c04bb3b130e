"""Questions and answers as text, for the cache."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass, fields
from typing import Any

from glenside.cache import key_of
from glenside.egraph.saturation import Limits, RuleRun
from glenside.ir.program import Program
from glenside.report.report import LayerRow, Report
from glenside.targets.base import Cost, Target


@dataclass(frozen=True)
class Answer:
    """What was kept; the program is parsed when it is asked for."""

    report: Report
    cost: Cost
    program: Callable[[], Program]


def question(program: Program, target: Target, limits: Limits, **how: Any) -> str:
    """The key of an answer: of everything that it depends on. Values of constants are not among that."""
    return key_of(
        program=f"{program.name} {program!s}",
        names=json.dumps([list(program.layers), dict(program.labels)]),
        target=f"{target.name} {target.description} {target.objectives} {target.max_weight_growth}",
        limits=repr(limits),
        how=json.dumps(how, sort_keys=True),
    )


def text(report: Report, cost: Cost, program: Program) -> str:
    """An answer as JSON."""
    content = {f.name: getattr(report, f.name) for f in fields(report)}
    content["layers"] = [asdict(row) for row in report.layers]
    content["rules"] = {name: asdict(run) for name, run in report.rules.items()}
    return json.dumps({"report": content, "cost": cost._asdict(), "program": str(program)})


def read(kept: str, original: Program, target: Target) -> Answer:
    """The inverse of `text`, for the question that it was kept under."""
    from glenside.ir.text import parse

    content = json.loads(kept)
    known = dict(content["report"])
    known["layers"] = [LayerRow(**{**row, "rules": tuple(row["rules"])}) for row in known["layers"]]
    known["rules"] = {name: RuleRun(**run) for name, run in known["rules"].items()}
    known["objectives"] = tuple(known["objectives"])
    report = Report(**{**known, "cached": True})

    def program() -> Program:
        found = parse(content["program"])
        named = {**found.names, **found.layers}
        layers = {name: named[name] for name in original.layers}
        return Program(found.term, original.name, layers, original.labels, original.constants)

    return Answer(report, Cost(**content["cost"]), program)
