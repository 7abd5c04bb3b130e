"""Functions of shapes written in Python: computed once for each arguments that a rule asks for, between iterations.

Some steps of shapes are far from what egglog's vectors can say, such as how a permutation of parts travels through a
window. A table is a Python function of ints and vectors. A rule reads its results in facts `(= v (NAME-RESULT a b))`;
that demands a row for these arguments, which the search fills in after the iteration. Where the function gives None
there is no row, and the rule does not fire: a table may be the guard of a rule too. There is no call back into Python
while rules run, and each distinct arguments cost one call, however many e-nodes have them.
"""

from __future__ import annotations

import inspect
import typing
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from glenside.egraph.sexpr import Sexpr
from glenside.ir.types import Dims

_SORTS = {int: "i64", Dims: "Ints", str: "String"}


@dataclass(frozen=True, eq=False)
class Table:
    """`function(*arguments)` gives one value for each of `results`, or None; sorts are those of egglog."""

    name: str
    arguments: tuple[str, ...]
    results: tuple[tuple[str, str], ...]
    function: Callable[..., tuple[Any, ...] | None]

    @property
    def module(self) -> str:
        """Where it is declared: a search process finds it there."""
        return self.function.__module__

    def declarations(self) -> str:
        """One relation for what is wanted, one function for each result."""
        sorts = " ".join(self.arguments)
        lines = [f"(relation want-{self.name} ({sorts}))"]
        lines += [f"(function {self.name}-{result} ({sorts}) {sort} :no-merge)" for result, sort in self.results]
        return "\n".join(lines)

    def rows(self, arguments: list[Sexpr]) -> list[str]:
        """The commands that give the results for these arguments, read as egglog prints them."""
        values = self.function(*map(_read, arguments))
        if values is None:
            return []
        key = " ".join(map(_written, map(_read, arguments)))
        return [
            f"(set ({self.name}-{result} {key}) {_written(value)})"
            for (result, _), value in zip(self.results, values, strict=True)
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
        arguments = tuple(_SORTS[hints[p]] for p in inspect.signature(function).parameters)
        made = Table(name, arguments, tuple((r.replace("_", "-"), _SORTS[t]) for r, t in results.items()), function)
        if name in TABLES:
            raise ValueError(f"the table {name} is declared twice")
        TABLES[name] = made
        RESULTS.update({f"{name}-{result}": made for result, _ in made.results})
        return made

    return declare


def used(text: str) -> list[Table]:
    """The tables that rules in this text read."""
    return [t for t in TABLES.values() if any(f"({t.name}-{result} " in text for result, _ in t.results)]


def _read(value: Sexpr) -> Any:
    if isinstance(value, list):
        return Dims(int(str(n)) for n in value[1:])
    return value[1:-1] if value.startswith('"') else int(value)


def _written(value: Any) -> str:
    if isinstance(value, str):
        return f'"{value}"'
    if isinstance(value, tuple):
        return f"(vec-of {' '.join(map(str, value))})" if value else "(vec-empty)"
    return str(value)
