"""Shape functions written in Python, computed between iterations, once for each distinct arguments.

Some shape computations are hard to express with egglog's vectors, such as moving a permutation through a window. A
table is a Python function of ints, vectors and texts. A rule reads its results by facts `v == table.result(a, b)`; they
demand a row for these arguments, which the search adds after the iteration. If the function returns None, there is no
row and the rule does not fire, so that a table can also be a guard. Rules never call Python, and distinct arguments
cost one call, however many e-nodes have them.
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
"""The ruleset that deletes answered demands, so that they are not read again each time."""
ROWS = "rows-of-tables"
"""The ruleset that replaces the numbers in rows by their vectors and texts."""
NUMBERED = {INTS: "numbered-ints", TEXT: "numbered-text"}
"""The functions number -> vector and number -> text."""
_SORTS = {int: INT, Dims: INTS, str: TEXT}


@dataclass(frozen=True, eq=False)
class Table:
    """A table: `function(*arguments)` returns a value for each of `results`, or None. Patterns call results."""

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
        """Returns one fact for each named result: `scatter.facts(gap, begin, first=first, count=count)`."""
        return tuple(value == getattr(self, result)(*arguments) for result, value in values.items())

    @property
    def module(self) -> str:
        """The module of its declaration, which a search process imports."""
        return self.function.__module__

    def declarations(self) -> str:
        """Returns the declarations: a relation of demands, emptied after reading, and one of arguments and results."""
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
        """The relation of arguments and results in one row: setting each result separately takes twice the time."""
        return f"{self.name}-row"

    @property
    def numbered(self) -> str:
        """The relation of the rows with numbers for vectors and texts, as a file can input them."""
        return f"{self.row}-numbered"

    @property
    def row_columns(self) -> tuple[Column, ...]:
        """The columns of the arguments, then of the results."""
        return (*self.columns, *(Column(name, f.result) for name, f in self.results.items()))


TABLES: dict[str, Table] = {}
RESULTS: dict[str, Table] = {}
"""`NAME-RESULT` -> the table."""


def table(**results: type) -> Callable[[Callable[..., tuple[Any, ...] | None]], Table]:
    """Declares a function as a table with its name; annotations int, Dims and str determine the sorts.

    Underscores in names become hyphens. Raises ValueError for a duplicate name.
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
    """Merges facts `(= x (NAME-RESULT ..))` of one table with the same arguments into one row."""
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


_ANY = "any-result-"  # prefix of variables that nothing reads


def used(text: str) -> list[Table]:
    """Returns the tables that the rules in a text read."""
    return [t for t in TABLES.values() if f"({t.row} " in text]
