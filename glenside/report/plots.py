"""Pictures of results, readable in grey: what differs has another marker and another line, not another colour only."""

from __future__ import annotations

import io
import math
import textwrap
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from glenside.ir.errors import BadInput
from glenside.ir.names import one_line

if TYPE_CHECKING:
    from glenside.forms import FormReport
    from glenside.report.report import Report
    from glenside.sweep.cells import Cell, Row

ENDINGS = (".png", ".svg", ".pdf")
_ACROSS = 3  # panels in a row
_MOST_PANELS = 12
_LEAST_SPAN = 4.0  # an axis covers at least this ratio, so that 1 % does not look like much
# (marker, line, grey, face, size): where points coincide, the later ones stand inside the earlier, larger ones.
_USUAL = ("o", "--", "0.5", "white", 9.5)
_BEST = (
    ("s", "-", "0.0", "0.0", 7.0),
    ("^", "-.", "0.25", "white", 4.5),
    ("D", ":", "0.4", "0.4", 3.5),
    ("v", (0, (5, 1, 1, 1)), "0.1", "white", 3.0),
)


def plot_ending(path: str) -> str:
    """`png`, `svg` or `pdf`. Raises BadInput for another ending."""
    ending = Path(path).suffix.lower()
    if ending not in ENDINGS:
        raise BadInput(f"a plot is written as {', '.join(ENDINGS[:-1])} or {ENDINGS[-1]}, got {path}")
    return ending[1:]


def sweep_figure(finished: Sequence[tuple[Cell, Row]]) -> Any:
    """A matplotlib figure: a panel for each model, cycles over array sizes, the usual mapping against the best.

    Cells that failed or have unmapped layers are left out: their cycles are not those of the model. Arrays stand in the
    order of their multipliers.
    """
    from matplotlib.figure import Figure
    from matplotlib.ticker import FixedLocator, NullLocator, StrMethodFormatter

    models = list(dict.fromkeys(cell.model for cell, _ in finished)) or ["nothing"]
    sizes = sorted({(cell.rows * cell.columns, cell.rows, cell.columns) for cell, _ in finished})
    names = [f"{rows}x{columns}" for _, rows, columns in sizes]
    objectives = list(dict.fromkeys(cell.objective for cell, _ in finished))
    across = min(len(models), _ACROSS)
    down = math.ceil(len(models) / across)
    width = across * max(4.2, 0.62 * len(names) + 1.6)
    figure = Figure(figsize=(width, 3.3 * down + 0.7), layout="constrained")
    panels = figure.subplots(down, across, squeeze=False).flatten()
    for panel, model in zip(panels, models, strict=False):
        own = {(c.array, c.objective): row for c, row in finished if c.model == model and row.complete and row.cycles}
        usual = {array: row.usual_cycles for (array, _), row in own.items()}
        _line(panel, names, usual, _USUAL, "usual mapping")
        for number, objective in enumerate(objectives):
            best = {array: row.cycles for (array, wanted), row in own.items() if wanted == objective}
            label = "best mapping" if objectives == ["cycles"] else f"best mapping, least {_words(objective)}"
            _line(panel, names, best, _BEST[number % len(_BEST)], label)
        panel.set_title(shown(model, 44), fontsize=10, parse_math=False)
        panel.set_yscale("log")
        panel.set_xlim(-0.5, len(names) - 0.5)
        panel.set_xticks(range(len(names)), names, rotation=45 if len(names) > 6 else 0, fontsize=8)
        panel.set_xlabel("array, rows x columns", fontsize=9)
        panel.grid(which="major", axis="y", color="0.85", linewidth=0.8)
        panel.set_axisbelow(True)
        panel.spines[["top", "right"]].set_visible(False)
        low, high = _span([value for row in own.values() for value in (row.cycles, row.usual_cycles)])
        panel.set_ylim(low, high)
        panel.yaxis.set_major_locator(FixedLocator(_ticks(low, high)))
        panel.yaxis.set_minor_locator(NullLocator())
        panel.yaxis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))
        panel.tick_params(axis="y", labelsize=8)
        if not own:
            panel.text(0.5, 0.5, "nothing to compare", ha="center", transform=panel.transAxes, fontsize=9)
    for panel in panels[len(models) :]:
        panel.set_visible(False)
    for panel in panels[::across]:
        panel.set_ylabel("cycles", fontsize=9)
    handles, labels = panels[0].get_legend_handles_labels()
    figure.legend(
        handles, labels, loc="outside upper center", ncols=max(1, int(width / 3.2)), frameon=False, fontsize=9
    )
    return figure


def _line(panel: Any, names: Sequence[str], values: Mapping[str, int], style: Any, label: str) -> None:
    """A line over those arrays that have a value."""
    at = [position for position, name in enumerate(names) if name in values]
    marker, line, grey, face, size = style
    look = {"marker": marker, "linestyle": line, "color": grey, "markerfacecolor": face, "markersize": size}
    panel.plot(at, [values[names[position]] for position in at], linewidth=1.4, label=label, **look)


def shown(name: str, most: int = 40) -> str:
    """A name as a figure has room for it: on one line, its end when it is long."""
    line = one_line(name)
    return line if len(line) <= most else f"..{line[2 - most :]}"


def _span(values: Sequence[int]) -> tuple[float, float]:
    """The limits of an axis with room around the values."""
    low, high = min(values, default=1), max(values, default=1)
    more = max(1.2, math.sqrt(_LEAST_SPAN * low / high))
    return low / more, high * more


def _ticks(low: float, high: float) -> list[int]:
    """Round numbers of an axis, fewer for each decade where there are more decades."""
    decades = math.log10(high / low)
    steps = (10, 15, 20, 30, 40, 50, 70) if decades <= 1.1 else (10, 20, 50) if decades <= 2.5 else (10,)
    ticks = [step * 10**power // 10 for power in range(math.ceil(math.log10(high)) + 1) for step in steps]
    return [tick for tick in dict.fromkeys(ticks) if low <= tick <= high]


def _words(objective: str) -> str:
    return objective.replace(",", ", then ")


def comparison_figure(report: Report) -> Any:
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
        f"{shown(report.program, 44)} on {report.target}\n"
        f"{sum(usual):,} cycles as usual, {sum(best):,} at best: {ratio:.1f} times fewer",
        fontsize=11,
        parse_math=False,
    )
    upper.set(ylabel="cycles", yscale="log")
    peak = [row.macs / (row.utilization * row.cycles) if row.utilization else 1.0 for row in rows]
    shares = [
        (100 * row.macs / (row.usual_cycles * p), 100 * row.utilization) for row, p in zip(rows, peak, strict=True)
    ]
    lower.plot(places, [u for u, _ in shares], "o", color="0.55", label="usual", markersize=4)
    lower.plot(places, [b for _, b in shares], "s", color="black", label="best", markersize=4)
    lower.set(ylabel="utilization, %", ylim=(0, 105), xlim=(-0.7, len(rows) - 0.3))
    lower.set_xticks(list(places), [shown(row.name) for row in rows], rotation=90, fontsize=8, parse_math=False)
    for axes in (upper, lower):
        axes.grid(axis="y", color="0.85")
        axes.set_axisbelow(True)
        axes.legend(loc="upper right", framealpha=1.0)
    return figure


def front_figure(report: FormReport) -> Any:
    """A figure: for each distinct layer what its forms trade, such as time for memory; the chosen form is filled."""
    from matplotlib.figure import Figure

    distinct = {str((row.operator, row.front)): row for row in report.layers}
    rows = list(distinct.values())[:_MOST_PANELS] or list(report.layers)
    across = max(1, min(len(rows), _ACROSS))
    down = max(1, math.ceil(len(rows) / across))
    figure = Figure(figsize=(4.6 * across, 3.6 * down + 0.6), layout="constrained")
    panels = figure.subplots(down, across, squeeze=False).flatten()
    first, second = report.axes
    for panel, row in zip(panels, rows, strict=False):
        front = row.front_of(report.axes)
        every = [(c.measures[second], c.measures[first]) for c in row.front]
        panel.plot(*zip(*every, strict=True), "o", color="0.75", markersize=4, label="every form")
        best = sorted((c.measures[second], c.measures[first]) for c in front)
        look = {"color": "0.4", "markerfacecolor": "white", "markersize": 6, "drawstyle": "steps-post"}
        panel.plot(*zip(*best, strict=True), "s-", label="front", **look)
        chosen = row.chosen
        panel.plot(chosen.measures[second], chosen.measures[first], "D", color="black", markersize=7, label="chosen")
        right = 2 * chosen.measures[second] > min(best)[0] + max(x for x, _ in every)
        panel.annotate(
            textwrap.fill(one_line(chosen.form), 24),
            (chosen.measures[second], chosen.measures[first]),
            xytext=(-6 if right else 6, 8),
            ha="right" if right else "left",
            textcoords="offset points",
            fontsize=8,
            parse_math=False,
        )
        panel.set_title(shown(f"{row.name}, {row.operator}", 44), fontsize=10, parse_math=False)
        panel.set_xlabel(_with_unit(second, report.units[second]), fontsize=9)
        panel.set_ylabel(_with_unit(first, report.units[first]), fontsize=9)
        panel.margins(0.15)
        panel.grid(color="0.9")
        panel.set_axisbelow(True)
        panel.ticklabel_format(axis="both", style="sci", scilimits=(-3, 4))
        panel.tick_params(labelsize=8)
    for panel in panels[len(rows) :]:
        panel.set_visible(False)
    handles, labels = panels[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper center", ncols=3, frameon=False, fontsize=9)
    return figure


def _with_unit(measure: str, unit: str) -> str:
    return measure if measure == unit else f"{measure}, {unit}"


def write_front_plot(report: FormReport, path: str) -> None:
    """Write the figure of a choice of forms, whole or not at all. Raises BadInput."""
    _write(front_figure(report), path)


def write_sweep_plot(finished: Sequence[tuple[Cell, Row]], path: str) -> None:
    """Write the figure of a sweep, whole or not at all. Raises BadInput."""
    _write(sweep_figure(finished), path)


def write_comparison_plot(report: Report, path: str) -> None:
    """Write the figure of a comparison, whole or not at all. Raises BadInput."""
    _write(comparison_figure(report), path)


def _write(figure: Any, path: str) -> None:
    import matplotlib

    from glenside.ir.files import write_bytes

    picture = io.BytesIO()
    kind = plot_ending(path)
    with matplotlib.rc_context({"svg.hashsalt": "glenside"}), warnings.catch_warnings():
        # The same rows give the same bytes. A font may lack letters of a name: it shows boxes for them.
        warnings.filterwarnings("ignore", "Glyph .* missing")
        figure.savefig(picture, format=kind, dpi=130, metadata={"Date": None} if kind == "svg" else {})
    write_bytes(path, picture.getvalue())
