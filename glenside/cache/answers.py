"""Answers as text under keys, and results that are read back from it."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, fields
from functools import cached_property
from typing import Any

from glenside.cache.store import key_of
from glenside.egraph.saturation import Limits, RuleRun
from glenside.egraph.snapshot import Snapshot
from glenside.ir.program import Program
from glenside.ir.text import parse
from glenside.report.report import Choice, LayerRow, Report
from glenside.report.result import Result
from glenside.targets.base import Measure, Target, Way


def key(program: Program, target: Target, limits: Limits, way: Way, seed: int, verify: bool) -> str:
    """The cache key of an answer: of everything that it depends on. Values of constants are not among that."""
    return key_of(
        program=f"{program.name} {program!s}",
        names=json.dumps([list(program.layers), dict(program.labels)]),
        target=f"{target.name} {target.description} {target.objectives}",
        limits=repr(limits),
        how=f"{way} {seed} {verify}",
    )


def text(report: Report, program: Program) -> str:
    """An answer as JSON."""
    return json.dumps({"report": asdict(report), "program": str(program)})


@dataclass
class Remembered:
    """An answer from the cache: its program is parsed, and its search done again, when they are asked for."""

    original: Program
    content: str
    again: Callable[[], Result]

    @cached_property
    def program(self) -> Program:
        found = parse(self.content)
        named = {**found.names, **found.layers}
        layers = {name: named[name] for name in self.original.layers}
        return Program(found.term, self.original.name, layers, self.original.labels, self.original.constants)

    @cached_property
    def _searched(self) -> Result:
        return self.again()

    @property
    def prepared(self) -> Program:
        return self._searched.prepared

    @property
    def egraph(self) -> Snapshot:
        return self._searched.egraph

    @property
    def choice(self) -> Mapping[int, int]:
        return self._searched.choice

    @property
    def programs(self) -> Mapping[str, Program]:
        return self._searched.answer.programs


def remembered(kept: str, program: Program, target: Target, seed: int, again: Callable[[], Result]) -> Result:
    """The result that was kept as `text` for a program and a target."""
    content = json.loads(kept)
    report = _report(content["report"])
    return Result(program, target, report, Remembered(program, content["program"], again), seed)


def _report(content: dict[str, Any]) -> Report:
    assert content.keys() == {f.name for f in fields(Report)}
    content["layers"] = [_row(row) for row in content["layers"]]
    content["measures"] = [Measure(**measure) for measure in content["measures"]]
    content["rules"] = {name: RuleRun(**run) for name, run in content["rules"].items()}
    return Report(**{**content, "objectives": tuple(content["objectives"]), "cached": True})


def _row(content: dict[str, Any]) -> LayerRow:
    variants = {name: Choice(**choice) for name, choice in content["variants"].items()}
    front = tuple(Choice(**choice) for choice in content["front"])
    return LayerRow(**{**content, "variants": variants, "front": front, "rules": tuple(content["rules"])})
