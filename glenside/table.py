"""The layer table and the lines under it, for a terminal or a pipe."""

from __future__ import annotations

import sys

from rich import box
from rich.console import Console
from rich.table import Table

from glenside.report import Report

_PIPED_WIDTH = 200


def console() -> Console:
    """Standard output; a pipe is as wide as the table needs."""
    return Console(width=None if sys.stdout.isatty() else _PIPED_WIDTH, highlight=False)


def report_table(report: Report) -> Table:
    """One row for each layer, totals in the footer."""
    totals = report.totals
    table = Table(
        title=f"{report.program} on {report.target}",
        title_justify="left",
        show_footer=True,
        box=box.SIMPLE,
        pad_edge=False,
    )
    table.add_column("layer", "total", no_wrap=True, overflow="fold")
    table.add_column("operator", f"{totals['layers']} layer{'' if totals['layers'] == 1 else 's'}", overflow="fold")
    table.add_column("groups x M x K x N", f"{totals['macs']:,} MACs", justify="right", no_wrap=True)
    table.add_column("tiles", f"{totals['tiles']:,}", justify="right", no_wrap=True)
    table.add_column("cycles", f"{totals['cycles']:,}", justify="right", no_wrap=True)
    table.add_column("util %", justify="right", no_wrap=True)
    table.add_column("mapping", f"{totals['mapped']} of {totals['layers']} mapped", overflow="fold")
    table.add_column("checked", overflow="fold")
    for row in report.layers:
        table.add_row(
            row.name,
            row.operator,
            f"{row.groups} x {row.m} x {row.k} x {row.n}",
            f"{row.tiles:,}",
            f"{row.cycles:,}",
            f"{100 * row.utilization:.2f}",
            row.mapping,
            row.checked,
            style=None if row.mapped and row.checked == "exact" else "yellow",
        )
    return table


def comparison_table(report: Report) -> Table:
    """Usual against best, one row for each layer, totals in the footer."""
    totals = report.totals
    table = Table(title=f"{report.program} on {report.target}", title_justify="left", show_footer=True, box=box.SIMPLE)
    table.pad_edge = False
    table.add_column("layer", "total", no_wrap=True, overflow="fold")
    table.add_column("operator", f"{totals['layers']} layer{'' if totals['layers'] == 1 else 's'}", overflow="fold")
    for name, key in (("usual cycles", "usual_cycles"), ("best", "cycles"), ("lower bound", "lower_bound")):
        table.add_column(name, f"{totals[key]:,}", justify="right", no_wrap=True)
    table.add_column("times fewer", _ratio(totals["usual_cycles"], totals["cycles"]), justify="right", no_wrap=True)
    growth = _ratio(totals["mapped_weight_bytes"], totals["weight_bytes"])
    table.add_column("weights x", growth, justify="right", no_wrap=True)
    table.add_column("mapping", f"{totals['mapped']} of {totals['layers']} mapped", overflow="fold")
    for row in report.layers:
        table.add_row(
            row.name,
            row.operator,
            f"{row.usual_cycles:,}",
            f"{row.cycles:,}",
            f"{row.lower_bound:,}",
            _ratio(row.usual_cycles, row.cycles),
            _ratio(row.mapped_weight_bytes, row.weight_bytes),
            row.mapping,
            style=None if row.mapped and row.checked != "different" else "yellow",
        )
    return table


def _ratio(more: int, less: int) -> str:
    return f"{more / less:.2f}" if less else "-"


def print_comparison(report: Report) -> None:
    """Usual against best, and how it was checked."""
    out = console()
    out.print(comparison_table(report))
    out.print(_certificate(report))
    out.print(f"Check of the whole program: {report.checked} ({report.how_checked or 'not run'}).")
    out.print(report.unmapped_sentence())


def _certificate(report: Report) -> str:
    totals, unit = report.totals, report.objectives[0]
    if totals["gap"] == 0 and report.stopped == "saturated":
        return f"No mapping that the rules reach takes fewer {unit}: the bound is {totals['lower_bound']:,}, the gap 0."
    return f"At least {totals['lower_bound']:,} {unit} are needed; the gap of {totals['gap']:,} is not closed."


def print_report(report: Report, explain: bool = False) -> None:
    """The table, what the search did, and one honest sentence on what was not mapped."""
    out = console()
    out.print(report_table(report))
    if explain:
        out.print("Trace of the rules that made what was chosen:")
        for row in report.layers:
            out.print(f"  {row.name}: {', '.join(row.rules) or 'none: as it was written'}")
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
    out.print(f"Check of the whole program: {report.checked} ({report.how_checked or 'not run'}).")
    out.print(report.unmapped_sentence())
