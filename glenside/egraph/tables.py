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
from glenside.egraph.schema import relation_text
from glenside.egraph.sexpr import Sexpr, row_said, write
from glenside.egraph.sorts import INT, INTS, TEXT, Column, columns
from glenside.ir.types import Dims

ANSWERED = "answered"
"""The ruleset that takes away what was asked of tables: to read all of it again each time takes long."""
ROWS = "rows-of-tables"
"""The ruleset that writes rows with their vectors and texts."""
NUMBERED = {INTS: "numbered-ints", TEXT: "numbered-text"}
"""The functions that say which vector or text a number stands for."""
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
        """One relation for what is wanted, which is emptied when it was read, and one of arguments and results."""
        sorts = " ".join(column.sort.value for column in self.columns)
        wanted = f"(want-{self.name} {' '.join(f'?{column.name}' for column in self.columns)})"
        lines = [f"(relation want-{self.name} ({sorts}))"]
        lines += [f'(rule ({wanted}) ((delete {wanted})) :ruleset {ANSWERED} :name "{self.name} was read")']
        both = self.row_columns
        lines += [relation_text(self.row, [column.sort.value for column in both])]
        lines += [f"(relation {self.numbered} ({' '.join(INT.value for _ in both)}))"]
        numbers = [f"n{i}" for i in range(len(both))]
        values = [n if column.sort is INT else f"of-{n}" for n, column in zip(numbers, both, strict=True)]
        given, row = f"({self.numbered} {' '.join(numbers)})", f"({self.row} {' '.join(values)})"
        triples = zip(values, numbers, both, strict=True)
        facts = " ".join(f"(= {v} ({NUMBERED[c.sort]} {n}))" for v, n, c in triples if c.sort is not INT)
        lines += [f'(rule ({given} {facts}) ({row_said(row)} (delete {given})) :ruleset {ROWS} :name "{self.row}")']
        return "\n".join(lines)

    @property
    def row(self) -> str:
        """The relation that holds arguments and results in one row: to set each result apart takes as much again."""
        return f"{self.name}-row"

    @property
    def numbered(self) -> str:
        """The relation of the same rows with numbers for vectors and texts, as a file can give them."""
        return f"{self.row}-numbered"

    @property
    def row_columns(self) -> tuple[Column, ...]:
        """The arguments, and then the results."""
        return (*self.columns, *(Column(name, f.result) for name, f in self.results.items()))


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


def rows(facts: list[Sexpr]) -> list[Sexpr]:
    """The facts with those of one table and the same arguments, `(= x (NAME-RESULT ..))`, as one row of it."""
    merged: list[Sexpr] = []
    of_call: dict[str, list[Sexpr]] = {}
    for fact in facts:
        match fact:
            case ["=", value, [str(name), *arguments]] if name in RESULTS:
                table = RESULTS[name]
                place = len(arguments) + 1 + [f.name for f in table.results.values()].index(name)
                call = write([table.name, *arguments])
                if call not in of_call or not str(of_call[call][place]).startswith(_ANY):
                    free: list[Sexpr] = [f"{_ANY}{len(merged)}-{i}" for i in range(len(table.results))]
                    of_call[call] = [table.row, *arguments, *free]
                    merged.append(of_call[call])
                of_call[call][place] = value
            case _:
                merged.append(fact)
    return merged


_ANY = "any-result-"  # begins the name of a variable that nothing else reads


def used(text: str) -> list[Table]:
    """The tables that rules in this text read."""
    return [t for t in TABLES.values() if f"({t.row} " in text]
