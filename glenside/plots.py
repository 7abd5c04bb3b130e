"""Pictures of results, readable in grey: what differs has another marker and another line, not another colour only."""

from __future__ import annotations

import io
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from glenside.ir.errors import BadInput

if TYPE_CHECKING:
    from glenside.sweep import Cell, Row

ENDINGS = (".png", ".svg")
_ACROSS = 3  # panels in a row
# (marker, line, grey): the usual mapping first, then one for each list of objectives
_USUAL = ("o", "--", "0.55")
_BEST = (("s", "-", "0.0"), ("^", "-.", "0.25"), ("D", ":", "0.4"), ("v", (0, (5, 1, 1, 1)), "0.1"))


def plot_ending(path: str) -> str:
    """`png` or `svg`. Raises BadInput for another ending."""
    ending = Path(path).suffix.lower()
    if ending not in ENDINGS:
        raise BadInput(f"a plot is written as {' or '.join(ENDINGS)}, got {path}")
    return ending[1:]


def sweep_figure(finished: Sequence[tuple[Cell, Row]]) -> Any:
    """A matplotlib figure: a panel for each model, cycles over array sizes, the usual mapping against the best.

    Cells that failed or have unmapped layers are left out: their cycles are not those of the model. Arrays stand in the
    order of their multipliers.
    """
    from matplotlib.figure import Figure
    from matplotlib.ticker import LogLocator, NullFormatter, StrMethodFormatter

    models = list(dict.fromkeys(cell.model for cell, _ in finished)) or ["nothing"]
    sizes = sorted({(cell.rows * cell.columns, cell.rows, cell.columns) for cell, _ in finished})
    names = [f"{rows}x{columns}" for _, rows, columns in sizes]
    objectives = list(dict.fromkeys(cell.objective for cell, _ in finished))
    across = min(len(models), _ACROSS)
    down = math.ceil(len(models) / across)
    wide = max(4.2, 0.62 * len(names) + 1.6)
    figure = Figure(figsize=(wide * across, 3.3 * down + 0.7), layout="constrained")
    panels = figure.subplots(down, across, sharey=True, squeeze=False).flatten()
    for panel, model in zip(panels, models, strict=False):
        own = {(c.array, c.objective): row for c, row in finished if c.model == model and row.complete and row.cycles}
        usual = {array: row.usual_cycles for (array, _), row in own.items()}
        _line(panel, names, usual, _USUAL, "usual mapping", filled=False)
        for number, objective in enumerate(objectives):
            best = {array: row.cycles for (array, wanted), row in own.items() if wanted == objective}
            label = "best mapping" if objectives == ["cycles"] else f"best mapping, least {_words(objective)}"
            _line(panel, names, best, _BEST[number % len(_BEST)], label)
        panel.set_title(model if len(model) <= 44 else f"..{model[-42:]}", fontsize=10)
        panel.set_yscale("log")
        panel.set_xlim(-0.5, len(names) - 0.5)
        panel.set_xticks(range(len(names)), names, rotation=45 if len(names) > 6 else 0, fontsize=8)
        panel.set_xlabel("array, rows x columns", fontsize=9)
        panel.grid(which="major", axis="y", color="0.85", linewidth=0.8)
        panel.set_axisbelow(True)
        panel.spines[["top", "right"]].set_visible(False)
        panel.tick_params(axis="y", labelleft=True, labelsize=8)
        panel.yaxis.set_major_locator(LogLocator(subs=_ticks(own.values())))
        panel.yaxis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))
        panel.yaxis.set_minor_formatter(NullFormatter())
    for panel in panels[len(models) :]:
        panel.set_visible(False)
    for panel in panels[::across]:
        panel.set_ylabel("cycles", fontsize=9)
    handles, labels = panels[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper center", ncols=min(3, len(labels)), frameon=False, fontsize=9)
    return figure


def _line(
    panel: Any, names: Sequence[str], values: Mapping[str, int], style: Any, label: str, filled: bool = True
) -> None:
    """A line over those arrays that have a value."""
    at = [position for position, name in enumerate(names) if name in values]
    marker, line, grey = style
    face = grey if filled else "white"
    heights = [values[names[position]] for position in at]
    size = 6 if filled else 8  # where both are equal, the smaller stands inside the larger
    panel.plot(
        at, heights, marker=marker, linestyle=line, color=grey, markerfacecolor=face, markersize=size, label=label
    )


def _ticks(rows: Any) -> tuple[float, ...]:
    """More ticks where the values span little, so that an axis has at least two."""
    values = [value for row in rows for value in (row.cycles, row.usual_cycles) if value]
    decades = math.log10(max(values) / min(values)) if values else 1.0
    return (1.0,) if decades > 2.5 else (1.0, 2.0, 5.0) if decades > 0.7 else tuple(map(float, range(1, 10)))


def _words(objective: str) -> str:
    return objective.replace(",", ", then ")


def write_sweep_plot(finished: Sequence[tuple[Cell, Row]], path: str) -> None:
    """Write the figure of a sweep as .png or .svg, whole or not at all. Raises BadInput."""
    import matplotlib

    from glenside.ir.files import write_bytes

    picture = io.BytesIO()
    kind = plot_ending(path)
    with matplotlib.rc_context({"svg.hashsalt": "glenside"}):  # the same rows give the same bytes
        sweep_figure(finished).savefig(picture, format=kind, dpi=130, metadata={"Date": None} if kind == "svg" else {})
    write_bytes(path, picture.getvalue())
