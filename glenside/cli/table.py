"""Prints the tables of a report and the sentences under them, to a terminal or a pipe."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Literal

from rich import box
from rich.console import Console
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from glenside.ir.names import one_line
from glenside.report.report import Report
from glenside.report.text import ALWAYS, Column, amount, sentences, tables_of
from glenside.report.text import Table as Content

if TYPE_CHECKING:
    from glenside.npu.analysis.critical_path import Ledger

PIPED_WIDTH = 200
_WIDEST = 10_000  # characters: a console wide enough to measure any table
_NAME = 24  # characters: layer names are cut or folded to this width on a narrow terminal
_LABEL, _SHORTEST_LABEL = 24, 14  # minimum characters of labels: while columns can still be dropped, and after that


def console() -> Console:
    """Returns a console on standard output; a pipe is `PIPED_WIDTH` wide."""
    return Console(width=None if sys.stdout.isatty() else PIPED_WIDTH, highlight=False)


def print_report(report: Report, *, compare: bool = False, explain: bool = False, every: bool = False) -> None:
    """Prints the tables, with `explain` the trace of rules, and the sentences under them."""
    out = console()
    for table in report_tables(report, out.width, compare=compare, every=every):
        out.print(table)
    if explain:
        out.print("Trace of the rules that made what was chosen:")
        for row in report.layers:
            out.print(f"  {one_line(row.name)}: {', '.join(row.rules) or 'none: as it was written'}", markup=False)
    for line in sentences(report):
        out.print(line, markup=False)


def print_schedule(program: str, ledger: Ledger) -> None:
    """Prints the account of cycles and bytes of an npu program."""
    from glenside.report.schedule import schedule_sentences, schedule_table

    out = console()
    title = f"{one_line(program)} on {ledger.machine}, its cycles and bytes"
    out.print(_fitting(title, schedule_table(ledger), out.width))
    for line in schedule_sentences(ledger):
        out.print(line, markup=False)


def print_passes(program: str, seconds: Mapping[str, float], nests: Mapping[str, int]) -> None:
    """Prints the stages of lowering in order: milliseconds, the number of nests after each pass, and its purpose."""
    from glenside.codegen.pipeline import AFTER, BEFORE, PIPELINE

    stages = [*BEFORE, *((one.name, one.purpose) for one in PIPELINE), *AFTER]
    _print_stages(program, seconds, stages, lambda name: [("nests", str(nests.get(name, "")))])


def print_npu_passes(program: str, seconds: Mapping[str, float]) -> None:
    """Prints the stages of lowering for an npu in order: milliseconds, what holds after each, and its purpose."""
    from glenside.npu.pipeline import STAGES

    holds = {one.name: one.holds for one in STAGES}
    stages = [(one.name, one.purpose) for one in STAGES]
    _print_stages(program, seconds, stages, lambda name: [("holds after it", holds[name])])


def _print_stages(
    program: str,
    seconds: Mapping[str, float],
    stages: Sequence[tuple[str, str]],
    more: Callable[[str], Sequence[tuple[str, str]]],
) -> None:
    """Prints the stages that ran, name and purpose; `more`: the titles and cells of further columns of a stage."""
    ran = [(name, purpose) for name, purpose in stages if name in seconds]
    cells = [more(name) for name, _ in ran]
    columns = [
        Column("pass", [name for name, _ in ran], words=True),
        Column("ms", [f"{1000 * seconds[name]:.1f}" for name, _ in ran], f"{1000 * sum(seconds.values()):.1f}"),
        *(Column(column[0][0], [text for _, text in column]) for column in zip(*cells, strict=True)),
        Column("purpose", [purpose for _, purpose in ran], words=True, folds=True),
    ]
    out = console()
    out.print(_fitting(f"Passes over {one_line(program)}", Content(columns), out.width))


def report_tables(
    report: Report, width: int = PIPED_WIDTH, *, compare: bool = False, every: bool = False
) -> list[Table]:
    """Returns the tables: a row for each distinct layer (`every`: for each layer) and one for the operators between
    layers, or a row for each kind of copy; totals are in the footer.

    width  terminal width in characters. On a narrow terminal columns are dropped until the rest fits, in this order:
           operators, measures of the answer alone, baselines (the first one last), sizes. Then names lose their start
    """
    title = f"{one_line(report.program)} on {report.target}"
    return [_fitting(title, content, width) for content in tables_of(report, compare=compare, every=every)]


def _fitting(title: str, content: Content, width: int) -> Table:
    """Returns the table with as many columns as fit."""
    ranks = sorted({0, *(column.rank for column in content.columns)} - {ALWAYS})
    for rank in ranks:
        table = _fitted(title, content.without(rank), width)
        if table is not None:
            return table
    return _table(title, content.without(ranks[-1]), (_NAME, _SHORTEST_LABEL))


def _fitted(title: str, content: Content, width: int) -> Table | None:
    """Returns the table with words folded if necessary; None if it still does not fit."""
    whole = _table(title, content, (None, None))
    if _width(whole) <= width:
        return whole
    *_, labels = (column for column in content.columns if column.folds)
    wide = max(map(len, (labels.name, labels.total, *labels.cells)))
    room = wide - (_width(_table(title, content, (_NAME, wide))) - width)
    return _table(title, content, (_NAME, room)) if room >= min(wide, _LABEL) else None


def _width(table: Table) -> int:
    wide = Console(width=_WIDEST)
    return Measurement.get(wide, wide.options, table).maximum


def _table(title: str, content: Content, folded: tuple[int | None, int | None]) -> Table:
    """Returns a rich table; `folded`: maximum characters in the columns of names and of labels."""
    table = Table(title=Text(title, style="table.title"), title_justify="left", show_footer=True, box=box.SIMPLE)
    table.pad_edge = False
    most, short = iter(folded), folded[0] is not None
    for column in content.columns:
        justify: Literal["left", "right"] = "left" if column.words else "right"
        room = next(most, None) if column.folds else None
        whole = not column.folds or bool(column.short and short)
        table.add_column(column.name, column.total, justify=justify, no_wrap=whole, overflow="fold", max_width=room)
    shown = [replace(c, cells=[*map(_end, c.short)]) if c.short and short else c for c in content.columns]
    for number, line in enumerate(replace(content, columns=shown).rows()):
        cells = (Text(one_line(cell)) for cell in line)  # a Text is not parsed as markup
        table.add_row(*cells, style="yellow" if number in content.wrong else None)
    return table


def _end(name: str) -> str:
    """Returns the end of a name, the part that distinguishes layers."""
    name = one_line(name)
    return name if len(name) <= _NAME else f"..{name[2 - _NAME :]}"


def print_front(report: Report) -> None:
    """Prints the Pareto front of each distinct layer, the chosen variant in bold."""
    out = console()
    shown: set[tuple[str, ...]] = set()
    for row in report.layers:
        front = row.front_of(report.front)
        key = (row.operator, *map(str, front))
        if key in shown:
            continue
        shown.add(key)
        title = Text(f"{one_line(row.name)}, {row.operator}: {' against '.join(report.front)}", style="table.title")
        table = Table(title=title, title_justify="left", box=box.SIMPLE)
        table.pad_edge = False
        table.add_column("variant", overflow="fold")
        for name in row.measures:
            table.add_column(name, justify="right", no_wrap=True)
        for choice in front:
            chosen = choice == row.chosen
            cells = (f"{choice.label}{' (chosen)' if chosen else ''}", *map(amount, choice.measures.values()))
            table.add_row(*(Text(one_line(cell)) for cell in cells), style="bold" if chosen else None)
        out.print(table)
