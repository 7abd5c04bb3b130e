"""Plots of reports, readable when they are printed in grey."""

from __future__ import annotations

from typing import Any

from glenside.report import Report


def comparison(report: Report) -> Any:
    """A figure: the usual cycles of each layer against the best, and the utilization of both."""
    from matplotlib.figure import Figure

    rows = [row for row in report.layers if row.usual_cycles and row.cycles]
    width = max(7.0, 0.32 * len(rows) + 2.5)
    figure = Figure(figsize=(width, 6.5), layout="constrained")
    upper, lower = figure.subplots(2, 1, sharex=True)
    places = range(len(rows))
    usual, best = [row.usual_cycles for row in rows], [row.cycles for row in rows]
    upper.bar([x - 0.2 for x in places], usual, 0.4, label="usual", color="0.75", edgecolor="black", hatch="///")
    upper.bar([x + 0.2 for x in places], best, 0.4, label="best", color="0.25", edgecolor="black")
    ratio = sum(usual) / max(sum(best), 1)
    upper.set_title(
        f"{report.program} on {report.target}\n"
        f"{sum(usual):,} cycles as usual, {sum(best):,} at best: {ratio:.1f} times fewer",
        fontsize=11,
    )
    upper.set(ylabel="cycles", yscale="log")
    peak = [row.macs / (row.utilization * row.cycles) if row.utilization else 1.0 for row in rows]
    shares = [
        (100 * row.macs / (row.usual_cycles * p), 100 * row.utilization) for row, p in zip(rows, peak, strict=True)
    ]
    lower.plot(places, [u for u, _ in shares], "o--", color="0.55", label="usual", markersize=4)
    lower.plot(places, [b for _, b in shares], "s-", color="black", label="best", markersize=4)
    lower.set(ylabel="utilization, %", ylim=(0, 105), xlim=(-0.7, len(rows) - 0.3))
    lower.set_xticks(list(places), [row.name for row in rows], rotation=90, fontsize=8)
    for axes in (upper, lower):
        axes.grid(axis="y", color="0.85")
        axes.set_axisbelow(True)
        axes.legend(loc="upper right", framealpha=1.0)
    return figure


def save_comparison(report: Report, path: str) -> None:
    """Write the figure as its ending says: .png, .svg or .pdf. Raises BadInput."""
    save_figure(comparison(report), path)


def save_figure(figure: Any, path: str) -> None:
    """Write a figure whole or not at all. Raises BadInput."""
    import io

    from glenside.ir.files import write_bytes

    buffer = io.BytesIO()
    figure.savefig(buffer, format=path.rsplit(".", 1)[-1].lower(), dpi=140)
    write_bytes(path, buffer.getvalue())
