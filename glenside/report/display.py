"""What notebooks show: reports as tables, cycles as plots, an e-graph as it grows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape
from typing import Any

from glenside.egraph.encode import program_nodes
from glenside.egraph.saturation import Limits, Request, Saturation
from glenside.egraph.snapshot import Snapshot
from glenside.ir.program import Program
from glenside.report.columns import Table, tables_of
from glenside.report.plots import shown
from glenside.report.report import Report
from glenside.report.sentences import sentences
from glenside.targets.base import Target, Way
from rewrites import of_families


def report_html(report: Report) -> str:
    """The tables of a report, with totals, and the sentences under them, as HTML."""
    said = "<br>".join(map(escape, sentences(report)))
    return f"{''.join(map(_table, tables_of(report)))}<p>{said}</p>"


def _table(table: Table) -> str:
    lines = list(zip(*(column.cells for column in table.columns), strict=True))
    if table.between:
        lines.append((table.between, *(column.between for column in table.columns[1:])))
    head, foot = [column.name for column in table.columns], [column.total for column in table.columns]
    body = "".join(_line(line, "td") for line in (*lines, foot))
    return f"<table>{_line(head, 'th')}{body}</table>"


def _line(cells: Sequence[str], tag: str) -> str:
    return "<tr>" + "".join(f"<{tag}>{escape(cell)}</{tag}>" for cell in cells) + "</tr>"


def growing(
    program: Program, target: Target, blocking: str = "tile-loops"
) -> Iterator[tuple[int, Snapshot, list[str]]]:
    """(iteration, e-graph, rules that matched in it), from the program itself until saturated."""
    nodes = program_nodes(program.term)
    families = of_families(target.families(Way(blocking), nodes))
    search = Saturation(Request.of(nodes, families, target.rule_parameters(), Limits()))
    yield 0, search.snapshot(program.tensors), []
    before = {name: 0 for name in search.progress.rules}
    while search.progress.stopped is None:
        search.step()
        now = {name: run.matches for name, run in search.progress.rules.items()}
        yield search.progress.iterations, search.snapshot(program.tensors), [n for n in now if now[n] > before[n]]
        before = now


def layer_plot(report: Report) -> Any:
    """A figure with cycles and utilization of each layer, depthwise layers in a colour of their own."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(11, 6), layout="constrained")
    upper, lower = figure.subplots(2, 1, sharex=True)
    places = range(len(report.layers))
    colours = ["tab:orange" if row.groups > 1 else "tab:blue" for row in report.layers]
    upper.bar(places, [row.measures["cycles"] or 0 for row in report.layers], color=colours)
    upper.set(ylabel="cycles")
    upper.set_title(f"{shown(report.program)} on {report.target}: {report.total['cycles']:,} cycles", parse_math=False)
    lower.bar(places, [100 * (row.utilization or 0) for row in report.layers], color=colours)
    lower.set(ylabel="utilization, %", yscale="log")
    lower.set_xticks(places, [shown(row.name) for row in report.layers], rotation=90, parse_math=False)
    return figure
