"""Converts results of searches to text for the cache, and back."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, is_dataclass, replace
from functools import cached_property
from types import NoneType, UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

from glenside.cache.store import Cache, key_of
from glenside.check import CheckReport, check
from glenside.check.comparison import Progress
from glenside.egraph.saturation import Limits
from glenside.egraph.snapshot import Snapshot
from glenside.ir.errors import GlensideError
from glenside.ir.program import Program
from glenside.ir.term import Term, build
from glenside.ir.text import parse
from glenside.report.report import Report
from glenside.report.result import Result
from glenside.targets.base import EmitsInstructions, Extracted, Target, Variant, Way


def key(program: Program, target: Target, limits: Limits, way: Way, seed: int, verify: bool) -> str:
    """Returns the cache key of a result, computed from everything that it depends on; values of constants are not part
    of it.
    """
    return key_of(
        program=f"{program.name} {program!s}",
        names=json.dumps([list(program.layers), dict(program.labels), list(program.signature.remarks)]),
        target=f"{target.name} {target.description} {target.objectives}",
        limits=repr(limits),
        how=f"{way} {seed} {verify}",
    )


def text(result: Result) -> str:
    """Returns a result as JSON: its report and program, and all variants of its layers if code is made from them."""
    fronts = (
        _fronts(result) if isinstance(result.target, EmitsInstructions) and result.prepared is result.original else None
    )
    program = {"program": str(result.program), "layers": list(result.program.layers)}
    kept = {"report": asdict(result.report), **program}
    return json.dumps({**kept, "fronts": None if fronts is None else asdict(fronts)})


@dataclass
class _Variant:
    """A variant of a layer, with the number of its term."""

    number: int
    label: str
    measures: Mapping[str, int | None]
    recipe: str
    off: str
    remarks: Sequence[str]
    details: Mapping[str, Any]


@dataclass
class _Fronts:
    """Returns variants by layer, and the text of a program with all of their terms."""

    terms: str
    layers: Mapping[str, Sequence[_Variant]]

    def parsed(self) -> dict[str, list[Variant]]:
        terms = parse(self.terms).term.children
        return {
            name: [
                Variant(v.label, terms[v.number], v.measures, v.recipe, v.off, tuple(v.remarks), v.details)
                for v in variants
            ]
            for name, variants in self.layers.items()
        }


def _fronts(result: Result) -> _Fronts | None:
    """None if a variant has no term, or no variant is there."""
    numbers, layers = dict[Term, int](), dict[str, list[_Variant]]()
    for name, variants in result.answer.fronts.items():
        layers[name] = []
        for v in variants:
            if v.term is None:
                return None
            number, rest = numbers.setdefault(v.term, len(numbers)), (v.recipe, v.off, v.remarks, v.details)
            layers[name].append(_Variant(number, v.label, v.measures, *rest))
    return _Fronts(str(Program(build("construct-tuple", *numbers))), layers) if numbers else None


@dataclass
class Remembered:
    """A result from the cache, whose program is parsed on demand. Its search runs again if something is needed that the
    cache does not keep.

      names        the names of its layers: the original's, unless the algebra between layers changed
      kept_fronts  the variants of layers, if they are kept; the search was then of the original
    """

    original: Program
    content: str
    names: Sequence[str]
    again: Callable[[], Result]
    kept_fronts: _Fronts | None = None

    @cached_property
    def program(self) -> Program:
        found = parse(self.content)
        named = {**found.names, **found.layers}
        layers = {name: named[name] for name in self.names}
        return replace(self.original, term=found.term, layers=layers, names={})

    @property
    def compared(self) -> Program:
        """Returns the program with the types of the original's layers, since a text does not contain those of
        others.
        """
        own = self.original.layers
        layers = {
            name: layer for name, layer in self.program.layers.items() if name in own and layer.type == own[name].type
        }
        return replace(self.program, layers=layers)

    @cached_property
    def _searched(self) -> Result:
        return self.again()

    @property
    def prepared(self) -> Program:
        return self._searched.prepared if self.kept_fronts is None else self.original

    @cached_property
    def fronts(self) -> Mapping[str, Sequence[Variant]]:
        return self._searched.answer.fronts if self.kept_fronts is None else self.kept_fronts.parsed()

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
    cache: Cache, key: str, program: Program, target: Target, seed: int, again: Callable[[], Result]
) -> Result | None:
    """Returns the result that was kept as `text` under a key; None if there is none, or it is damaged.

    `compared` decides whether it answers the query.
    """
    kept = cache.get(key)
    if kept is None:
        return None
    try:
        content = _typed(_Kept, json.loads(kept))
        answer = Remembered(program, content.program, content.layers, again, content.fronts)
        _ = answer.program, content.fronts is None or answer.fronts
    except DAMAGED as error:
        cache.distrust(f"it is no answer: {error!r}")
        return None
    content.report.cached = True
    return Result(program, target, content.report, answer, seed)


DAMAGED = (ValueError, TypeError, LookupError, RecursionError, GlensideError)
"""The exceptions that damaged text raises, on reading or in later comparisons."""


def compared(result: Result, progress: Progress) -> CheckReport:
    """Checks a result from the cache, layer by layer if the original was searched. Raises GlensideError if it is not a
    result of this query.
    """
    by_layers = isinstance(result.answer, Remembered) and result.answer.kept_fronts is not None
    return check(result.original, result.answer.compared, layers=by_layers, seed=result.seed, progress=progress)


@dataclass
class _Kept:
    report: Report
    program: str
    layers: Sequence[str]
    fronts: _Fronts | None


def _typed(kind: Any, value: Any) -> Any:
    """Converts JSON to a type: dataclasses, containers and their elements. Raises TypeError and ValueError."""
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
"""The JSON types of Python types; all others are objects."""
