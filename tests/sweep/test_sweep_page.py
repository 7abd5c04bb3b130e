"""Tests the page of a sweep: the table of the terminal, bars by machine, the front by cost, and reported failures."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from command_line import run
from sweep_programs import sample_programs

from glenside.report.document import Bars, Grid, Points
from glenside.sweep.cells import Cell, Row
from glenside.sweep.page import sweep_document, table_of


def cell(array: str, multipliers: int, objective: str = "cycles") -> Cell:
    return Cell("net", "", {}, array, multipliers, (objective,))


def row(cycles: int, **more: object) -> Row:
    given = {"layers": 2, "mapped": 2, "baseline_cycles": 90, "cycles": cycles, "stopped": "saturated"}
    return Row(**{**given, "checked": "not checked", **more})  # type: ignore[arg-type]


FINISHED = [
    (cell("8x8", 64), row(30, gates=4e6)),
    (cell("4x4", 16), row(60, gates=2e6)),
    (cell("4x8", 32), row(70, gates=3e6)),
    (cell("2x2", 4), Row(failed="<no memory>")),
]


def test_what_is_drawn_is_what_the_rows_say() -> None:
    document = sweep_document(FINISHED, 5, False, {"machines": "m"})
    assert document.lead.startswith("3 of 5 cells take fewer cycles than their baseline mapping; ")
    assert document.lead.endswith("the most is 3.00 times fewer, of net on 8x8.")
    blocks = [block for section in document.sections for block in section.blocks]
    (grid,) = (b for b in blocks if isinstance(b, Grid))
    assert grid.table == table_of(FINISHED, False)
    assert grid.table.wrong == {3}
    assert grid.table.columns[-1].cells[-1] == "<no memory>"
    (bars,) = (b for b in blocks if isinstance(b, Bars))
    assert list(bars.names) == ["2x2", "4x4", "4x8", "8x8"]
    assert list(bars.series[1][1]) == [None, 60, 70, 30]
    (points,) = (b for b in blocks if isinstance(b, Points))
    assert list(points.clouds[1].points) == [(2.0, 60.0, "4x4"), (4.0, 30.0, "8x8")]
    page = document.html()
    assert "<no memory>" not in page
    assert "1 of 5 cells failed." in page
    assert "4 of 5 cells are finished" in page


def test_the_command_writes_it_and_refuses_what_is_no_page(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    program = sample_programs(tmp_path)[0]
    page = tmp_path / "sweep.html"
    assert run("sweep", program, "--arrays", "4x2,8x8", "--jobs", "1", "--html", page) == 0
    found = re.search(r'<script id="record" type="application/json">(.*?)</script>', page.read_text(encoding="utf-8"))
    assert found is not None
    (rows,) = (b["rows"] for s in json.loads(found[1])["sections"] for b in s["blocks"] if b["kind"] == "grid")
    assert [cells[1] for cells in rows] == ["4x2", "8x8"]
    for path, why in ((tmp_path / "a.txt", "written as .html"), (tmp_path, "it is a folder")):
        assert run("sweep", program, "--arrays", "4x2", "--html", path) == 2
        assert why in capsys.readouterr().err
