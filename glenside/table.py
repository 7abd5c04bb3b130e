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


def print_report(report: Report) -> None:
    """The table, what the search did, and one honest sentence on what was not mapped."""
    out = console()
    out.print(report_table(report))
    seconds = ", ".join(f"{name} {value:.2f} s" for name, value in report.seconds.items())
    out.print(
        f"Search: {report.e_nodes:,} e-nodes in {report.e_classes:,} e-classes after {report.iterations} iterations, "
        f"stopped: {report.stopped}."
    )
    out.print(f"Seconds: {seconds}.")
    out.print(f"Check of the whole program: {report.checked} ({report.how_checked or 'not run'}).")
    out.print(report.unmapped_sentence())
