"""Fills the rows of tables during a search: reads the demands of rules, computes their rows and adds them.

An egglog command costs some tenths of a millisecond, and a search demands tens of thousands of rows. So rows are input
as a file of numbers, which egglog reads at once. The few distinct vectors and texts are numbered by commands; a rule
replaces the numbers by their values.
"""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import IO, Any

from glenside.egraph.sexpr import literal, row_said
from glenside.egraph.sorts import INT, Column, Sort
from glenside.egraph.tables import ANSWERED, NUMBERED, ROWS, Table
from glenside.ir.types import Dims

_VALUE = re.compile(r'\(vec-[a-z]+([^()]*)\)|("(?:[^"\\]|\\.)*")|(-?\d+)')
_FEW = 8  # up to this number of rows, commands are as fast as a file
_EVERY = 1 << 40  # limit of rows to print: all


class TableRows:
    """The rows of `tables` in an e-graph; `run` executes egglog commands and returns their outputs."""

    def __init__(self, run: Callable[[str], Sequence[Any]], tables: Sequence[Table]) -> None:
        self._run = run
        self._asked: dict[Table, set[str]] = {table: set() for table in tables}
        """The arguments demanded of each table so far, as egglog prints them."""
        self._numbers: dict[tuple[Sort, Any], int] = {}

    def fill(self) -> bool:
        """Adds the demanded rows that are missing; True if there were any."""
        (printed,) = self._run("(print-size)")
        sizes = dict(printed.sizes)
        wanted = [table for table in self._asked if sizes[f"want-{table.name}"]]
        computed = {table: list(self._computed(table, self._asked[table])) for table in wanted}
        if computed:
            self._run(f"(run-schedule (run {ANSWERED}))")
        commands: list[str] = []
        for table, rows in computed.items():
            if len(rows) < _FEW or not self._read_from_file(table, rows):
                commands += [row_said(f"({table.row} {' '.join(map(literal, row))})") for row in rows]
        self._run_all(commands)
        return any(computed.values())

    def _computed(self, table: Table, asked: set[str]) -> Iterator[tuple[Any, ...]]:
        """Yields (arguments.., results..) for new demands that have results."""
        (printed,) = self._run(f"(print-function want-{table.name} {_EVERY})")
        for line in str(printed).splitlines():
            wanted, arrow, _ = line.partition(" -> ")
            if arrow and line not in asked:
                asked.add(line)
                arguments = values_of(wanted.partition(" ")[2])
                results = table.function(*arguments)
                if results is not None:
                    yield *arguments, *results

    def _read_from_file(self, table: Table, rows: Sequence[tuple[Any, ...]]) -> bool:
        """Inputs the rows by a file; False if the system does not support it."""
        with suppress(OSError), _nameless_file() as file:
            path = f"/dev/fd/{file.fileno()}"
            if not os.path.exists(path):
                return False
            for row in rows:
                file.write("\t".join(map(str, self._numbered(table.row_columns, row))).encode("ascii") + b"\n")
            file.flush()
            file.seek(0)
            self._run(f'(input {table.numbered} "{path}") (run-schedule (run {ROWS}))')
            return True
        return False

    def _numbered(self, columns: Sequence[Column], row: Sequence[Any]) -> list[int]:
        """Returns the row with numbers for its vectors and texts; numbers new ones."""
        numbers: list[int] = []
        for column, value in zip(columns, row, strict=True):
            if column.sort is INT:
                numbers.append(value)
                continue
            key = (column.sort, value)
            if key not in self._numbers:
                self._numbers[key] = len(self._numbers)
                self._run(f"(set ({NUMBERED[column.sort]} {self._numbers[key]}) {literal(value)})")
            numbers.append(self._numbers[key])
        return numbers

    def _run_all(self, commands: Sequence[str]) -> None:
        for start in range(0, len(commands), _FEW):  # egglog's parser takes time quadratic in the length of a text
            self._run("\n".join(commands[start : start + _FEW]))


@contextmanager
def _nameless_file() -> Iterator[IO[bytes]]:
    """Yields a file that vanishes with this process, in memory if the system supports it."""
    if hasattr(os, "memfd_create"):
        with open(os.memfd_create("rows"), "w+b") as file:
            yield file
    else:
        with tempfile.TemporaryFile() as file:
            yield file


def values_of(printed: str) -> list[Any]:
    """Parses vectors, texts and numbers as egglog prints them."""
    values: list[Any] = []
    for match in _VALUE.finditer(printed):
        vector, text, number = match.groups()
        if text is not None:
            values.append(text[1:-1])
        elif number is not None:
            values.append(int(number))
        else:
            values.append(Dims(map(int, vector.split())))
    return values
