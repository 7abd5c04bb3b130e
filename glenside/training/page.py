"""The report page of a training: its curve, and the results of each epoch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from glenside.ir.names import one_line
from glenside.report.document import Block, Curves, Document, Facts, Grid, Section, Words, asked
from glenside.report.text import Column, Table, table_html

if TYPE_CHECKING:
    from glenside.training.loop import Epoch, Trained


def training_document(trained: Trained, facts: Mapping[str, str]) -> Document:
    """Returns the document of a run; `facts` describe its options."""
    epochs, table = trained.epochs, _table(trained.epochs)
    sections = [
        Section("The curve", _curves(epochs)),
        Section("Epochs", [Grid("", table)] if epochs else []),
        Section("How it was trained", [Facts([("on", trained.on)]), Words(trained.notes)]),
        asked(facts.items()),
    ]
    return Document(f"Training of {one_line(trained.program.name)}", _lead(trained), sections, plain=table_html(table))


def _lead(trained: Trained) -> str:
    """Describes the final loss, and the epoch with the best loss on held-out examples."""
    if not trained.epochs:
        return "It ended before its first epoch was over."
    last = trained.epochs[-1]
    said = f"After {last.number} epochs: loss {last.loss:.4f}{_right(last.accuracy)}"
    if last.held_out_loss is not None:
        said += f"; of what is held out {last.held_out_loss:.4f}{_right(last.held_out_accuracy)}"
        best = min(trained.epochs, key=lambda epoch: epoch.held_out_loss or 0.0)
        if best.number != last.number:
            said += f", least after epoch {best.number}: {best.held_out_loss:.4f}{_right(best.held_out_accuracy)}"
    return f"{said}.{' It was interrupted.' if trained.interrupted else ''}"


def _right(share: float | None) -> str:
    return "" if share is None else f", {100 * share:.2f} % right"


def _curves(epochs: Sequence[Epoch]) -> list[Block]:
    at = [epoch.number for epoch in epochs]
    losses = (("trained on", [e.loss for e in epochs]), ("held out", [e.held_out_loss for e in epochs]))
    shares = (("trained on", [e.accuracy for e in epochs]), ("held out", [e.held_out_accuracy for e in epochs]))
    blocks: list[Block] = []
    for title, unit, columns, scale in (("Loss", "loss", losses, 1), ("Outputs that are right", "%", shares, 100)):
        known = [
            (what, [None if n is None else scale * n for n in column])
            for what, column in columns
            if any(n is not None for n in column)
        ]
        blocks += [Curves(title, "epoch", unit, at, known)] if known else []
    return blocks


def _table(epochs: Sequence[Epoch]) -> Table:
    def shown(amounts: Sequence[float | None], digits: int, scale: float = 1) -> list[str]:
        return ["" if n is None else f"{scale * n:.{digits}f}" for n in amounts]

    columns = [
        Column("epoch", [str(e.number) for e in epochs]),
        Column("loss", shown([e.loss for e in epochs], 4)),
        Column("right, %", shown([e.accuracy for e in epochs], 2, 100)),
        Column("held out: loss", shown([e.held_out_loss for e in epochs], 4)),
        Column("held out: right, %", shown([e.held_out_accuracy for e in epochs], 2, 100)),
        Column("seconds", shown([e.seconds for e in epochs], 2)),
    ]
    return Table([column for column in columns if any(column.cells)])
