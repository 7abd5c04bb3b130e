"""Plots the curve of a training, readable in grayscale."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from glenside.report.plots import shown

if TYPE_CHECKING:
    from glenside.training.loop import Epoch


def figure(name: str, epochs: Sequence[Epoch]) -> Any:
    """Returns a figure of the loss by epoch, and of the share of correct outputs if there is one."""
    from matplotlib.figure import Figure

    numbers = [epoch.number for epoch in epochs]
    shares = any(epoch.accuracy is not None for epoch in epochs)
    made = Figure(figsize=(8.5 if shares else 4.5, 3.4), layout="constrained")
    panels = made.subplots(1, 2 if shares else 1, squeeze=False)[0]
    curves = {
        "loss": ([e.loss for e in epochs], [e.held_out_loss for e in epochs]),
        "right, %": tuple(
            [None if share is None else 100 * share for share in column]
            for column in ([e.accuracy for e in epochs], [e.held_out_accuracy for e in epochs])
        ),
    }
    for axes, (label, (own, apart)) in zip(panels, curves.items(), strict=False):
        looks = (("trained on", own, "o", "0.6", "-"), ("held out", apart, "s", "black", "--"))
        for words, values, marker, color, line in looks:
            if any(value is not None for value in values):
                drawn = [float("nan") if value is None else value for value in values]
                axes.plot(numbers, drawn, marker, color=color, linestyle=line, label=words, markersize=4)
        axes.set(xlabel="epoch", ylabel=label)
        axes.grid(axis="y", color="0.85")
        axes.set_axisbelow(True)
        axes.legend(framealpha=1.0)
        axes.xaxis.get_major_locator().set_params(integer=True)
    made.suptitle(shown(name, 60), fontsize=11)
    return made
