"""Answers as text under keys, and results that are read back from it."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, is_dataclass, replace
from functools import cached_property
from types import NoneType, UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

from glenside.cache.store import Cache, key_of
from glenside.check import EXACT, check, is_equal
from glenside.egraph.saturation import Limits
from glenside.egraph.snapshot import Snapshot
from glenside.ir.errors import GlensideError
from glenside.ir.program import Program
from glenside.ir.text import parse
from glenside.passes.variants import Extracted
from glenside.report.report import Report
from glenside.report.result import Result
from glenside.targets.base import Target, Way


def key(program: Program, target: Target, limits: Limits, way: Way, seed: int, verify: bool) -> str:
    """The cache key of an answer: of everything that it depends on. Values of constants are not among that."""
    return key_of(
        program=f"{program.name} {program!s}",
        names=json.dumps([list(program.layers), dict(program.labels), list(program.signature.remarks)]),
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
        return replace(self.original, term=found.term, layers=layers, names={})

    @property
    def compared(self) -> Program:
        """The program with the layers that have the original's types: a text says no more of the others."""
        own = self.original.layers
        layers = {name: layer for name, layer in self.program.layers.items() if layer.type == own[name].type}
        return replace(self.program, layers=layers)

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
    def roots(self) -> Mapping[str, int]:
        return self._searched.answer.roots

    @property
    def stands_for(self) -> Mapping[int, int]:
        return self._searched.answer.stands_for

    @property
    def programs(self) -> Mapping[str, Program]:
        return self._searched.answer.programs

    @property
    def layers(self) -> Mapping[str, Extracted]:
        return self._searched.answer.layers


def recall(
    cache: Cache, key: str, program: Program, target: Target, seed: int, verify: bool, again: Callable[[], Result]
) -> Result | None:
    """The result that was kept as `text` under a key; None where there is none, or what is there is no answer to this:
    damaged, or, with `verify`, another program than the one asked about.
    """
    kept = cache.get(key)
    if kept is None:
        return None
    try:
        content = _typed(_Kept, json.loads(kept))
        result = Result(program, target, content.report, Remembered(program, content.program, again), seed)
        content.report.cached = True
        found = check(program, result.program, layers=False, seed=seed).result if verify else EXACT
    except (ValueError, TypeError, LookupError, RecursionError, GlensideError) as error:
        found = f"it is no answer: {error!r}"
    if is_equal(found) or found.startswith("not checked"):
        return result
    cache.distrust(found)
    return None


@dataclass
class _Kept:
    report: Report
    program: str


def _typed(kind: Any, value: Any) -> Any:
    """JSON as a value of a type: dataclasses, containers and what they hold. Raises TypeError and ValueError."""
    origin, arguments = get_origin(kind), get_args(kind)
    if kind is Any:
        return value
    if origin in (Union, UnionType):
        if value is None and NoneType in arguments:
            return None
        return _typed(next(a for a in arguments if a is not NoneType), value)
    outer: Any = _JSON.get(origin or kind, dict)
    if not isinstance(value, outer) or (isinstance(value, bool) and kind is not bool):
        raise TypeError(f"{kind} is not {value!r}")
    if is_dataclass(kind) and isinstance(kind, type):
        hints = get_type_hints(kind)
        if value.keys() != {f.name for f in fields(kind)}:
            raise ValueError(f"a {kind.__name__} has other keys")
        return kind(**{name: _typed(hints[name], value[name]) for name in value})
    if outer is list:
        read = [_typed(arguments[0], item) for item in value]
        return read if origin is list else tuple(read)
    return {name: _typed(arguments[1], item) for name, item in value.items()} if outer is dict else value


_JSON: Mapping[Any, Any] = {
    list: list,
    tuple: list,
    Sequence: list,
    int: int,
    float: (int, float),
    str: str,
    bool: bool,
}
"""What JSON has for a type; an object for others."""
