"""What notebooks show: reports as tables, cycles as plots, an e-graph as it grows."""

from __future__ import annotations

import math
from collections.abc import Iterator
from html import escape
from typing import Any

from glenside.egraph.encode import program_nodes
from glenside.egraph.saturation import Limits, Request, Saturation
from glenside.egraph.snapshot import Snapshot
from glenside.forms import FormReport
from glenside.ir.program import Program
from glenside.report.plots import shown
from glenside.report.report import Report
from glenside.targets.base import Target
from rewrites import of_families

_COLUMNS = ("name", "operator", "groups", "m", "k", "n", "tiles", "cycles", "utilization", "mapping", "checked")


def report_html(report: Report) -> str:
    """The layer table, totals and search of a report as HTML."""
    head = "".join(f"<th>{name}</th>" for name in _COLUMNS)
    body = "".join(
        "<tr>" + "".join(f"<td>{escape(_cell(getattr(row, name)))}</td>" for name in _COLUMNS) + "</tr>"
        for row in report.layers
    )
    totals = ", ".join(f"{name} {value:,}" for name, value in report.totals.items())
    search = f"{report.e_nodes:,} e-nodes, {report.e_classes:,} e-classes, stopped: {report.stopped}"
    sentence = escape(report.unmapped_sentence())
    return f"<table><tr>{head}</tr>{body}</table><p>{totals}; {search}. {sentence}</p>"


def forms_html(report: FormReport) -> str:
    """What each layer takes, by every policy and as chosen, as HTML."""
    first, *others = report.units
    head = ["layer", "operator", *(f"{policy}, {first}" for policy in report.totals), *others, "form", "checked"]
    lines = [
        [
            *(row.name, row.operator),
            *(_cell(row.choices[policy].measures[first]) for policy in report.totals),
            *(_cell(row.chosen.measures[name]) for name in others),
            *(row.chosen.form, row.checked),
        ]
        for row in report.layers
    ]
    body = "".join("<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in line) + "</tr>" for line in lines)
    titles = "".join(f"<th>{escape(title)}</th>" for title in head)
    totals = "; ".join(f"{policy} {_cell(amounts[first])} {first}" for policy, amounts in report.totals.items())
    search = f"{report.e_nodes:,} e-nodes, {report.e_classes:,} e-classes, stopped: {report.stopped}"
    said = " ".join(map(escape, (*report.remarks, *report.notes)))
    return f"<table><tr>{titles}</tr>{body}</table><p>{escape(totals)}; {search}. {said}</p>"


def _cell(value: Any) -> str:
    if value == math.inf:
        return "unknown"
    if isinstance(value, float):
        return f"{100 * value:.2f} %"
    return f"{value:,}" if isinstance(value, int) else str(value)


def growing(program: Program, target: Target, blocking: str = "loops") -> Iterator[tuple[int, Snapshot, list[str]]]:
    """(iteration, e-graph, rules that matched in it), from the program itself until saturated."""
    nodes = program_nodes(program.term)
    request = Request.of(nodes, of_families(target.families[blocking]), target.rule_parameters(), Limits())
    search = Saturation(request)
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
    upper.bar(places, [row.cycles for row in report.layers], color=colours)
    upper.set(ylabel="cycles")
    title = f"{shown(report.program)} on {report.target}: {report.totals['cycles']:,} cycles"
    upper.set_title(title, parse_math=False)
    lower.bar(places, [100 * row.utilization for row in report.layers], color=colours)
    lower.set(ylabel="utilization, %", yscale="log")
    lower.set_xticks(places, [shown(row.name) for row in report.layers], rotation=90, parse_math=False)
    return figure
