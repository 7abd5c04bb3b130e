"""Draws results with matplotlib; markers and lines differ as well as colours, so that a print in grey is readable."""

from __future__ import annotations

import io
import math
import textwrap
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

from glenside.ir.errors import BadInput
from glenside.ir.names import one_line

if TYPE_CHECKING:
    from glenside.report.report import Choice, Report

ENDINGS = (".png", ".svg", ".pdf")
ACROSS = 3  # panels in a row
_MOST_PANELS = 12


def plot_ending(path: str) -> str:
    """Returns `png`, `svg` or `pdf`. Raises BadInput for another ending."""
    ending = Path(path).suffix.lower()
    if ending not in ENDINGS:
        raise BadInput(f"a plot is written as {', '.join(ENDINGS[:-1])} or {ENDINGS[-1]}, got {path}")
    return ending[1:]


def shown(name: str, most: int = 40) -> str:
    """Shortens a name for a figure: one line, its end if it is long."""
    line = one_line(name)
    return line if len(line) <= most else f"..{line[2 - most :]}"


def comparison_figure(report: Report) -> Any:
    """Draws the cycles of each layer by the baseline mapping and by the best one, and the utilization of both."""
    from matplotlib.figure import Figure

    rows = [row for row in report.layers if row.baseline["cycles"] and row.measures["cycles"]]
    width = max(7.0, 0.32 * len(rows) + 2.5)
    figure = Figure(figsize=(width, 6.5), layout="constrained")
    upper, lower = figure.subplots(2, 1, sharex=True)
    places = range(len(rows))
    baseline = [row.baseline["cycles"] or 0 for row in rows]
    best = [row.measures["cycles"] or 0 for row in rows]
    look = {"color": "0.75", "edgecolor": "black", "hatch": "///"}
    upper.bar([x - 0.2 for x in places], baseline, 0.4, label="baseline", **look)
    upper.bar([x + 0.2 for x in places], best, 0.4, label="best", color="0.25", edgecolor="black")
    ratio = sum(baseline) / max(sum(best), 1)
    upper.set_title(
        f"{shown(report.program, 44)} on {report.target}\n"
        f"{sum(baseline):,} cycles by the baseline mapping, {sum(best):,} at best: {ratio:.1f} times fewer",
        fontsize=11,
        parse_math=False,
    )
    upper.set(ylabel="cycles", yscale="log")
    for name, cycles, marker, color in (("baseline", baseline, "o", "0.55"), ("best", best, "s", "black")):
        shares = [100 * row.macs / (taken * (report.peak or 1)) for row, taken in zip(rows, cycles, strict=True)]
        lower.plot(places, shares, marker, color=color, label=name, markersize=4)
    lower.set(ylabel="utilization, %", ylim=(0, 105), xlim=(-0.7, len(rows) - 0.3))
    lower.set_xticks(list(places), [shown(row.name) for row in rows], rotation=90, fontsize=8, parse_math=False)
    for axes in (upper, lower):
        axes.grid(axis="y", color="0.85")
        axes.set_axisbelow(True)
        axes.legend(loc="upper right", framealpha=1.0)
    return figure


def front_figure(report: Report) -> Any:
    """Draws the trade-off of each distinct layer's variants, such as time for memory; the chosen one is filled."""
    from matplotlib.figure import Figure

    distinct = {str((row.operator, row.front)): row for row in report.layers}
    rows = list(distinct.values())[:_MOST_PANELS] or list(report.layers)
    across = max(1, min(len(rows), ACROSS))
    down = max(1, math.ceil(len(rows) / across))
    figure = Figure(figsize=(4.6 * across, 3.6 * down + 0.6), layout="constrained")
    panels = figure.subplots(down, across, squeeze=False).flatten()
    first, second = report.front[:2]
    for panel, row in zip(panels, rows, strict=False):
        front = row.front_of((first, second))
        every = [_point(c, first, second) for c in row.front]
        panel.plot(*zip(*every, strict=True), "o", color="0.75", markersize=4, label="every variant")
        best = sorted(_point(c, first, second) for c in front)
        look = {"color": "0.4", "markerfacecolor": "white", "markersize": 6, "drawstyle": "steps-post"}
        panel.plot(*zip(*best, strict=True), "s-", label="front", **look)
        chosen = _point(row.chosen, first, second)
        panel.plot(*chosen, "D", color="black", markersize=7, label="chosen")
        lowest = chosen[1] <= min(y for _, y in best)  # below it the front does not run
        right = 2 * chosen[0] > min(best)[0] + max(x for x, _ in every)
        panel.annotate(
            textwrap.fill(one_line(row.label), 24),
            chosen,
            xytext=(-6 if right else 6, -7 if lowest else 8),
            ha="right" if right else "left",
            va="top" if lowest else "bottom",
            textcoords="offset points",
            fontsize=8,
            parse_math=False,
            bbox={"facecolor": "white", "edgecolor": "none", "alpha": 0.85, "pad": 1.5},
        )
        panel.set_title(shown(f"{row.name}, {row.operator}", 44), fontsize=10, parse_math=False)
        panel.set_xlabel(_with_unit(second, report.units[second]), fontsize=9)
        panel.set_ylabel(_with_unit(first, report.units[first]), fontsize=9)
        panel.margins(0.15, 0.28)
        panel.grid(color="0.9")
        panel.set_axisbelow(True)
        panel.ticklabel_format(axis="both", style="sci", scilimits=(-3, 4))
        panel.tick_params(labelsize=8)
    for panel in panels[len(rows) :]:
        panel.set_visible(False)
    handles, labels = panels[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper center", ncols=3, frameon=False, fontsize=9)
    return figure


def _point(choice: Choice, first: str, second: str) -> tuple[float, float]:
    """Returns the coordinates of a variant; NaN for an unknown measure."""
    x, y = choice.measures[second], choice.measures[first]
    return (math.nan if x is None else x, math.nan if y is None else y)


def _with_unit(measure: str, unit: str) -> str:
    return measure if measure == unit else f"{measure}, {unit}"


def write_report_plot(report: Report, path: str) -> None:
    """Writes the trade-off of variants, or else the comparison with the baseline. Raises BadInput."""
    write_figure(front_figure(report) if report.front else comparison_figure(report), path)


def write_figure(figure: Any, path: str, dpi: int | str = 130) -> None:
    """Writes a figure; the file is complete or not written. Raises BadInput."""
    import matplotlib

    from glenside.ir.files import write_bytes

    picture = io.BytesIO()
    kind = plot_ending(path)
    with matplotlib.rc_context({"svg.hashsalt": "glenside"}), warnings.catch_warnings():
        # The same rows give the same bytes. A font may lack letters of a name: it shows boxes for them.
        warnings.filterwarnings("ignore", "Glyph .* missing")
        figure.savefig(picture, format=kind, dpi=dpi, metadata={"Date": None} if kind == "svg" else {})
    write_bytes(path, picture.getvalue())
