"""Functions of shapes written in Python: computed once for each arguments that a rule asks for, between iterations.

Some steps of shapes are far from what egglog's vectors can say, such as how a permutation of parts travels through a
window. A table is a Python function of ints and vectors. A rule reads its results in facts `v == table.result(a, b)`;
that demands a row for these arguments, which the search fills in after the iteration. Where the function gives None
there is no row, and the rule does not fire: a table may be the guard of a rule too. There is no call back into Python
while rules run, and each distinct arguments cost one call, however many e-nodes have them.
"""

from __future__ import annotations

import inspect
import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from glenside.egraph.pattern import Fact, Function, Pattern
from glenside.egraph.sexpr import Sexpr, literal
from glenside.egraph.sorts import INT, INTS, TEXT, Column, columns
from glenside.ir.types import Dims

ANSWERED = "answered"
"""The ruleset that takes away what was asked of tables: to read all of it again each time takes long."""
_SORTS = {int: INT, Dims: INTS, str: TEXT}


@dataclass(frozen=True, eq=False)
class Table:
    """`function(*arguments)` gives one value for each of `results`, or None; each result is a function of patterns."""

    name: str
    columns: tuple[Column, ...]
    results: Mapping[str, Function]
    function: Callable[..., tuple[Any, ...] | None]

    def __getattr__(self, result: str) -> Function:
        if result.startswith("__") or result.replace("_", "-") not in self.results:
            known = ", ".join(self.results)
            raise AttributeError(f"the table {self.name} has no result {result}, but {known}", name=result, obj=self)
        return self.results[result.replace("_", "-")]

    def facts(self, *arguments: Any, **values: Pattern) -> tuple[Fact, ...]:
        """One fact for each result named: `scatter.facts(gap, begin, first=first, count=count)`."""
        return tuple(value == getattr(self, result)(*arguments) for result, value in values.items())

    @property
    def module(self) -> str:
        """Where it is declared: a search process finds it there."""
        return self.function.__module__

    def declarations(self) -> str:
        """One relation for what is wanted, which is emptied when it was read, and one function for each result."""
        sorts = " ".join(column.sort.value for column in self.columns)
        wanted = f"(want-{self.name} {' '.join(f'?{column.name}' for column in self.columns)})"
        lines = [f"(relation want-{self.name} ({sorts}))"]
        lines += [f'(rule ({wanted}) ((delete {wanted})) :ruleset {ANSWERED} :name "{self.name} was read")']
        lines += [f"(function {f.name} ({sorts}) {f.result.value} :no-merge)" for f in self.results.values()]
        return "\n".join(lines)

    def commands(self, arguments: list[Sexpr]) -> list[str]:
        """The commands that give the results for these arguments, read as egglog prints them."""
        values = self.function(*map(_read, arguments))
        if values is None:
            return []
        key = " ".join(map(literal, map(_read, arguments)))
        return [
            f"(set ({result.name} {key}) {literal(value)})"
            for result, value in zip(self.results.values(), values, strict=True)
        ]


TABLES: dict[str, Table] = {}
RESULTS: dict[str, Table] = {}
"""`NAME-RESULT` -> the table."""


def table(**results: type) -> Callable[[Callable[..., tuple[Any, ...] | None]], Table]:
    """Declare the function as a table of its name, with hyphens; annotations of int, Dims and str give the sorts.

    Raises ValueError for a name taken before.
    """

    def declare(function: Callable[..., tuple[Any, ...] | None]) -> Table:
        name = function.__name__.replace("_", "-")
        hints = typing.get_type_hints(function)
        sorts = columns(**{p: _SORTS[hints[p]] for p in inspect.signature(function).parameters})
        named = {result.replace("_", "-"): _SORTS[kind] for result, kind in results.items()}
        functions = {r: Function(f"{name}-{r}", sorts, True, "", sort) for r, sort in named.items()}
        declared = Table(name, sorts, functions, function)
        if name in TABLES:
            raise ValueError(f"the table {name} is declared twice")
        TABLES[name] = declared
        RESULTS.update({result.name: declared for result in declared.results.values()})
        return declared

    return declare


def used(text: str) -> list[Table]:
    """The tables that rules in this text read."""
    return [t for t in TABLES.values() if any(f"({result.name} " in text for result in t.results.values())]


def _read(value: Sexpr) -> Any:
    if isinstance(value, list):
        return Dims(int(str(n)) for n in value[1:])
    return value[1:-1] if value.startswith('"') else int(value)
