"""The layer table and the lines under it, for a terminal or a pipe."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from glenside.ir.names import one_line
from glenside.report.report import LayerRow, Report

PIPED_WIDTH = 200
_WRAPPED = ("layer", "mapping")  # columns that a person or a rule fills with as many words as there are
_NARROW = 130  # characters below which a table leaves columns out


def console() -> Console:
    """Standard output; a pipe is as wide as the table needs."""
    return Console(width=None if sys.stdout.isatty() else PIPED_WIDTH, highlight=False)


@dataclass(frozen=True)
class _Column:
    """A column of the layer table; `wide` ones are left out on a narrow terminal."""

    name: str
    total: str
    value: Callable[[LayerRow], str]
    words: bool = False
    wide: bool = False


def _layer_table(report: Report, columns: Sequence[_Column], width: int, wrong: Callable[[LayerRow], bool]) -> Table:
    """One row for each layer, totals in the footer."""
    shown = [column for column in columns if width >= _NARROW or not column.wide]
    title = Text(f"{one_line(report.program)} on {report.target}", style="table.title")
    table = Table(title=title, title_justify="left", show_footer=True, box=box.SIMPLE)
    table.pad_edge = False
    for column in shown:
        justify: Literal["left", "right"] = "left" if column.words else "right"
        wraps = column.name in _WRAPPED
        table.add_column(column.name, column.total, justify=justify, no_wrap=not wraps, overflow="fold")
    for row in report.layers:
        cells = (Text(one_line(column.value(row))) for column in shown)  # no name is taken for markup
        table.add_row(*cells, style="yellow" if wrong(row) else None)
    return table


def report_table(report: Report, width: int = PIPED_WIDTH) -> Table:
    """What each layer became; `width` is that of the terminal, in characters."""
    totals = report.totals
    columns = (
        _Column("layer", "total", lambda row: row.name, words=True),
        _Column("operator", _layers(report), lambda row: row.operator, words=True, wide=True),
        _Column(
            "groups x M x K x N",
            f"{totals['macs']:,} MACs",
            lambda row: f"{row.groups} x {row.m} x {row.k} x {row.n}",
        ),
        _Column("tiles", f"{totals['tiles']:,}", lambda row: f"{row.tiles:,}", wide=True),
        _Column("cycles", f"{totals['cycles']:,}", lambda row: f"{row.cycles:,}"),
        _Column("util %", "", lambda row: f"{100 * row.utilization:.2f}", wide=True),
        _Column("mapping", f"{totals['mapped']} of {totals['layers']} mapped", lambda row: row.mapping, words=True),
        _Column("checked", "", lambda row: row.checked, words=True),
    )
    return _layer_table(report, columns, width, lambda row: not (row.mapped and row.checked == "exact"))


def comparison_table(report: Report, width: int = PIPED_WIDTH) -> Table:
    """Usual against best; `width` is that of the terminal, in characters."""
    totals = report.totals
    growth = _ratio(totals["mapped_weight_bytes"], totals["weight_bytes"])
    columns = (
        _Column("layer", "total", lambda row: row.name, words=True),
        _Column("operator", _layers(report), lambda row: row.operator, words=True, wide=True),
        _Column("usual cycles", f"{totals['usual_cycles']:,}", lambda row: f"{row.usual_cycles:,}"),
        _Column("best", f"{totals['cycles']:,}", lambda row: f"{row.cycles:,}"),
        _Column("lower bound", f"{totals['lower_bound']:,}", lambda row: f"{row.lower_bound:,}", wide=True),
        _Column(
            "times fewer",
            _ratio(totals["usual_cycles"], totals["cycles"]),
            lambda row: _ratio(row.usual_cycles, row.cycles),
        ),
        _Column("weights x", growth, lambda row: _ratio(row.mapped_weight_bytes, row.weight_bytes), wide=True),
        _Column("mapping", f"{totals['mapped']} of {totals['layers']} mapped", lambda row: row.mapping, words=True),
    )
    return _layer_table(report, columns, width, lambda row: not row.mapped or row.checked == "different")


def _layers(report: Report) -> str:
    count = len(report.layers)
    return f"{count} layer{'' if count == 1 else 's'}"


def _ratio(more: int, less: int) -> str:
    return f"{more / less:.2f}" if less else "-"


def print_comparison(report: Report) -> None:
    """Usual against best, and how it was checked."""
    out = console()
    out.print(comparison_table(report, out.width))
    out.print(_certificate(report))
    out.print(f"Check of the whole program: {report.checked} ({report.how_checked or 'not run'}).", markup=False)
    out.print(report.unmapped_sentence(), markup=False)


def _certificate(report: Report) -> str:
    totals, unit = report.totals, report.objectives[0]
    if totals["gap"] == 0 and report.stopped == "saturated":
        return f"No mapping that the rules reach takes fewer {unit}: the bound is {totals['lower_bound']:,}, the gap 0."
    return f"At least {totals['lower_bound']:,} {unit} are needed; the gap of {totals['gap']:,} is not closed."


def print_report(report: Report, explain: bool = False) -> None:
    """The table, what the search did, and one honest sentence on what was not mapped."""
    out = console()
    out.print(report_table(report, out.width))
    if explain:
        out.print("Trace of the rules that made what was chosen:")
        for row in report.layers:
            out.print(f"  {one_line(row.name)}: {', '.join(row.rules) or 'none: as it was written'}", markup=False)
    if report.totals["usual_cycles"] and report.totals["cycles"]:
        fewer = _ratio(report.totals["usual_cycles"], report.totals["cycles"])
        growth = _ratio(report.totals["mapped_weight_bytes"], report.totals["weight_bytes"])
        out.print(
            f"The usual mapping takes {report.totals['usual_cycles']:,} cycles, {fewer} times as many; "
            f"weights grow {growth} times, to {report.totals['mapped_weight_bytes']:,} bytes."
        )
    out.print(_certificate(report))
    seconds = ", ".join(f"{name} {value:.2f} s" for name, value in report.seconds.items())
    out.print(
        f"Search: {report.distinct} distinct layer{'' if report.distinct == 1 else 's'}, {report.e_nodes:,} e-nodes in "
        f"{report.e_classes:,} e-classes after {report.iterations} iterations, stopped: {report.stopped}."
    )
    kept = "From the cache; seconds when it was found" if report.cached else "Seconds"
    out.print(f"{kept}: {seconds}.")
    out.print(f"Check of the whole program: {report.checked} ({report.how_checked or 'not run'}).", markup=False)
    out.print(report.unmapped_sentence(), markup=False)
