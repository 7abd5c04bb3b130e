"""Sections of a page about a program of an npu: where its cycles and bytes go, and what each unit does over time."""

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
"""Equal parts that time is cut into: as many as one tells apart on a page."""


def machine_sections(program: NpuProgram, times: Times | None = None) -> Sequence[Section]:
    """Of a program as it is predicted, or as it took `times`. Raises BadInput."""
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
        ("How busy each unit is", busy),
        ("How much of each memory holds what is read later", [*found.full.items()]),
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
        Section("Where cycles and bytes go", [table, Words(schedule_sentences(ledger))]),
    ]
