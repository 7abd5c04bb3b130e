"""Pictures of a sweep, readable in grey, each line with a marker and a dash of its own: cycles over array sizes, and
the cost of machines for them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from glenside.report.plots import ACROSS, shown, write_figure
from glenside.sweep.cells import Cell, Row

_SHORT = 9  # characters of the name of an array; names of other machines are longer
_LEAST_SPAN = 4.0  # an axis covers at least this ratio, so that 1 % does not look like much
# (marker, line, grey, face, size): where points coincide, the later ones stand inside the earlier, larger ones.
_BASELINE = ("o", "--", "0.5", "white", 9.5)
_BEST = (
    ("s", "-", "0.0", "0.0", 7.0),
    ("^", "-.", "0.25", "white", 4.5),
    ("D", ":", "0.4", "0.4", 3.5),
    ("v", (0, (5, 1, 1, 1)), "0.1", "white", 3.0),
)


def sweep_figure(finished: Sequence[tuple[Cell, Row]]) -> Any:
    """Returns a matplotlib figure with a panel for each model: cycles by array size, the baseline mapping and the best.

    Cells that failed or have unmapped layers are left out, since their cycles are not those of the model. Arrays are
    ordered by their multipliers.
    """
    from matplotlib.figure import Figure
    from matplotlib.ticker import FixedLocator, NullLocator, StrMethodFormatter

    models = list(dict.fromkeys(cell.model for cell, _ in finished)) or ["nothing"]
    sizes = {cell.array: cell.multipliers for cell, _ in finished}
    names = sorted(sizes, key=lambda name: sizes[name])  # those of one size as they were given
    objectives = list(dict.fromkeys(cell.objective for cell, _ in finished))
    across = min(len(models), ACROSS)
    down = math.ceil(len(models) / across)
    width = across * max(4.2, 0.62 * len(names) + 1.6)
    figure = Figure(figsize=(width, 3.3 * down + 0.7), layout="constrained")
    panels = figure.subplots(down, across, squeeze=False).flatten()
    for panel, model in zip(panels, models, strict=False):
        own = {(c.array, c.objective): row for c, row in finished if c.model == model and row.complete and row.cycles}
        baseline = {array: row.baseline_cycles for (array, _), row in own.items()}
        _line(panel, names, baseline, _BASELINE, "baseline mapping")
        for number, objective in enumerate(objectives):
            best = {array: row.cycles for (array, wanted), row in own.items() if wanted == objective}
            least = f", least {objective.replace(',', ', then ')}" if objectives != ["cycles"] else ""
            _line(panel, names, best, _BEST[number % len(_BEST)], f"best mapping{least}")
        panel.set_title(shown(model, 44), fontsize=10, parse_math=False)
        panel.set_yscale("log")
        panel.set_xlim(-0.5, len(names) - 0.5)
        turned = 90 if max(map(len, names), default=0) > _SHORT else 45 if len(names) > 6 else 0
        panel.set_xticks(range(len(names)), [name.replace(",", ",\n") for name in names], rotation=turned, fontsize=8)
        panel.set_xlabel("array, rows x columns" if turned < 90 else "machine", fontsize=9)
        panel.grid(which="major", axis="y", color="0.85", linewidth=0.8)
        panel.set_axisbelow(True)
        panel.spines[["top", "right"]].set_visible(False)
        low, high = _span([value for row in own.values() for value in (row.cycles, row.baseline_cycles)])
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
    """Draws a line over the arrays that have a value."""
    at = [position for position, name in enumerate(names) if name in values]
    marker, line, grey, face, size = style
    look = {"marker": marker, "linestyle": line, "color": grey, "markerfacecolor": face, "markersize": size}
    panel.plot(at, [values[names[position]] for position in at], linewidth=1.4, label=label, **look)


def _span(values: Sequence[int]) -> tuple[float, float]:
    """Returns the limits of an axis, with a margin around the values."""
    low, high = min(values, default=1), max(values, default=1)
    more = max(1.2, math.sqrt(_LEAST_SPAN * low / high))
    return low / more, high * more


def _ticks(low: float, high: float) -> list[int]:
    """Returns round numbers for an axis, fewer per decade if there are more decades."""
    decades = math.log10(high / low)
    steps = (10, 15, 20, 30, 40, 50, 70) if decades <= 1.1 else (10, 20, 50) if decades <= 2.5 else (10,)
    ticks = [step * 10**power // 10 for power in range(math.ceil(math.log10(high)) + 1) for step in steps]
    return [tick for tick in dict.fromkeys(ticks) if low <= tick <= high]


def write_sweep_plot(finished: Sequence[tuple[Cell, Row]], path: str) -> None:
    """Writes the figure of a sweep, whole or not at all. Raises BadInput."""
    write_figure(sweep_figure(finished), path)


def front(points: Sequence[tuple[float, float]]) -> list[int]:
    """Returns the Pareto-optimal points, ordered by the first coordinate."""
    found: list[int] = []
    for number in sorted(range(len(points)), key=lambda n: points[n]):
        if not found or points[number][1] < points[found[-1]][1]:
            found.append(number)
    return found


def pareto_figure(finished: Sequence[tuple[Cell, Row]]) -> Any:
    """Returns a matplotlib figure with a row of panels for each model: cycles by area, and by energy if it is known.

    Machines that are Pareto-optimal are joined and named. Cycles are those of the whole program if there is one,
    otherwise those of the array. Machines of unknown area and failed cells are left out.
    """
    from matplotlib.figure import Figure

    own = [(cell, row) for cell, row in finished if row.complete and row.gates and (row.program_cycles or row.cycles)]
    models = list(dict.fromkeys(cell.model for cell, _ in own)) or ["nothing"]
    across = 2 if any(row.picojoules for _, row in own) else 1
    figure = Figure(figsize=(7.0 * across, 5.0 * len(models)), layout="constrained")
    panels = figure.subplots(len(models), across, squeeze=False)
    for model, (first, *more) in zip(models, panels, strict=True):
        cells = [(cell, row) for cell, row in own if cell.model == model]
        _trade(first, cells, lambda row: row.gates / 1e6, "area, million gates (NANDs of two inputs)")
        first.set_title(shown(model, 44), fontsize=11, parse_math=False)
        for panel in more:
            counted = [(cell, row) for cell, row in cells if row.picojoules]
            _trade(panel, counted, lambda row: row.picojoules / 1e6, "energy, microjoules")
    return figure


def _trade(panel: Any, cells: Sequence[tuple[Cell, Row]], cost: Callable[[Row], float], label: str) -> None:
    """Plots cycles against a cost."""
    points = [(cost(row), float(row.program_cycles or row.cycles)) for _, row in cells]
    if points:
        panel.plot(*zip(*points, strict=True), "o", color="0.7", markersize=6, label="every machine")
        best = front(points)
        chosen = [points[number] for number in best]
        look = {"color": "black", "markerfacecolor": "white", "drawstyle": "steps-post", "markersize": 7}
        panel.plot(*zip(*chosen, strict=True), "s-", label="no other is better in both", **look)
        for place, number in enumerate(best, 1):
            panel.annotate(str(place), points[number], xytext=(6, 5), textcoords="offset points", fontsize=9)
            panel.plot([], [], " ", label=f"{place}  {shown(_apart(cells[number][0].array, cells), 60)}")
        panel.legend(loc="upper center", bbox_to_anchor=(0.5, -0.12), fontsize=8, frameon=False)
    else:
        panel.text(0.5, 0.5, "nothing to compare", ha="center", transform=panel.transAxes, fontsize=9)
    whole = any(row.program_cycles for _, row in cells)
    panel.set_xlabel(label, fontsize=9)
    panel.set_ylabel("cycles, input to result" if whole else "cycles of the array", fontsize=9)
    panel.margins(0.18)
    panel.set_ylim(bottom=0)
    panel.grid(color="0.9")
    panel.set_axisbelow(True)
    panel.spines[["top", "right"]].set_visible(False)
    panel.yaxis.set_major_formatter("{x:,.0f}")
    panel.tick_params(labelsize=8)


def _apart(array: str, cells: Sequence[tuple[Cell, Row]]) -> str:
    """Returns the name of a machine without the options that all machines share."""
    alike = set.intersection(*({*cell.array.split(",")[1:]} for cell, _ in cells))
    return ",".join(part for part in array.split(",") if part not in alike)


def write_pareto_plot(finished: Sequence[tuple[Cell, Row]], path: str) -> None:
    """Writes the figure of costs and cycles of machines, whole or not at all. Raises BadInput."""
    write_figure(pareto_figure(finished), path)
