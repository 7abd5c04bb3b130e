"""Draws an npu program over time: the activity of each unit and the occupancy of the memories; readable in grey."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from glenside.report.plots import shown, write_figure

if TYPE_CHECKING:
    from glenside.npu.model.cycle_model import Times
    from glenside.npu.program.program import NpuProgram

_WIDE, _HIGH = 15.0, 7.5  # inches
_APART = 0.011  # the least share of the width between two names of layers
ROWS = {"stream": "array", "load": "weights to array", "store": "sums to lanes"}
_LINES = {"lanes": ("black", "-"), "weights": ("0.55", "-"), "accumulators": ("0.3", ":")}


def timeline_figure(name: str, program: NpuProgram, times: Times) -> Any:
    """Returns a matplotlib figure. Each unit has a row, as high as its share of busy time; below are the shares of each
    memory that hold live data; above are the layers, at their first streamed row.
    """
    from matplotlib.figure import Figure
    from matplotlib.ticker import StrMethodFormatter

    from glenside.npu.analysis.occupancy import timeline

    found = timeline(program, times)
    figure = Figure(figsize=(_WIDE, _HIGH), layout="constrained")
    upper, lower = figure.subplots(2, 1, sharex=True, height_ratios=(len(found.busy) * 0.45, 2))
    begins, last = found.edges[:-1], int(found.edges[-1])
    for row, (unit, shares) in enumerate(found.busy.items()):
        base = -row
        dark = "0.15" if unit == "stream" else "0.45"
        upper.fill_between(found.edges, base, [*(base + 0.85 * shares), base], step="post", color=dark, linewidth=0)
        upper.axhline(base, color="0.7", linewidth=0.6)
    labels = [
        f"{ROWS.get(unit, unit)}\n{100 * float((shares * (found.edges[1:] - begins)).sum()) / last:.0f} % busy"
        for unit, shares in found.busy.items()
    ]
    upper.set_yticks([0.4 - row for row in range(len(labels))], labels, fontsize=9)
    upper.set(ylim=(0.9 - len(labels), 1.0), xlim=(0, last))
    upper.tick_params(axis="y", length=0)
    for memory, shares in found.full.items():
        color, line = _LINES.get(memory, ("0.7", "--"))
        lower.plot(found.edges, 100 * shares, line, color=color, linewidth=1.3, label=memory)
    lower.set(ylim=(0, 105), ylabel="holds what is\nread later, %", xlabel="cycles")
    lower.legend(loc="lower right", bbox_to_anchor=(1, 1), fontsize=9, frameon=False, ncols=len(found.full))
    lower.grid(axis="y", color="0.85")
    lower.xaxis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))
    before = -1.0
    for layer, begin, end in found.layers:
        for axes in (upper, lower):
            axes.axvline(begin, color="0.8", linewidth=0.6, zorder=0)
        middle = (begin + end) / 2 / last
        if middle - before >= _APART:
            upper.text(middle * last, 1.08, shown(layer, 20), rotation=90, ha="center", va="bottom", fontsize=8,
                       parse_math=False)  # fmt: skip
            before = middle
    for axes in (upper, lower):
        axes.spines[["top", "right"]].set_visible(False)
    figure.suptitle(f"{shown(name, 44)} on {program.machine}: {last:,} cycles", fontsize=12, parse_math=False)
    return figure


def write_timeline(name: str, program: NpuProgram, times: Times, path: str) -> None:
    """Writes the picture; the file is complete or not written. Raises BadInput."""
    write_figure(timeline_figure(name, program, times), path)
