"""Builds the sections about an npu program: the causes of its cycles and bytes, and each unit over time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from glenside.ir.names import one_line
from glenside.report.document import Block, Grid, Section, Steps, Words
from glenside.report.schedule import schedule_sentences, schedule_table
from glenside.report.timeline import ROWS

if TYPE_CHECKING:
    from glenside.npu.model.cycle_model import Times
    from glenside.npu.program.program import NpuProgram

_PARTS = 400
"""Number of equal intervals of time in a drawing."""


def machine_sections(program: NpuProgram, times: Times | None = None) -> Sequence[Section]:
    """Returns the sections for predicted times, or for measured `times`. Raises BadInput."""
    from glenside.npu.analysis.critical_path import accounts
    from glenside.npu.analysis.occupancy import timeline

    ledger = accounts(program) if times is None else accounts(program, times)
    found = timeline(program, times, _PARTS)
    edges, last = [int(edge) for edge in found.edges], int(found.edges[-1])
    spans = [(one_line(name), first, end) for name, first, end in found.layers]
    widths = found.edges[1:] - found.edges[:-1]
    busy = [
        (f"{ROWS.get(unit, unit)}, {100 * float((shares * widths).sum()) / last:.0f} % in all", shares)
        for unit, shares in found.busy.items()
    ]
    kinds = (
        ("Busy time of each unit", busy),
        ("Live data in each memory", [*found.full.items()]),
    )
    drawn: list[Block] = [
        Steps(
            title,
            "cycles",
            "%",
            edges,
            [(name, [round(100 * float(share), 1) for share in shares]) for name, shares in series],
            spans=spans,
            apart=True,
        )
        for title, series in kinds
    ]
    table = Grid("", schedule_table(ledger))
    return [
        Section("The machine over time", drawn),
        Section("Cycles and bytes by cause", [table, Words(schedule_sentences(ledger))]),
    ]
