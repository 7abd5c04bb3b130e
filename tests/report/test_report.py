"""Tests reports for every target: one table and the sentences under it, as text and as a page."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

import glenside as gl
from glenside.report.display import growing
from glenside.report.report import CHOSEN, Choice
from glenside.report.text import report_html, sentences, tables_of
from glenside.targets.base import Rounds, Target


def program() -> gl.Program:
    b = gl.Builder("layer")
    x, w = b.input("x", (1, 8, 16, 16)), b.constant("w", (8, 8, 3, 3))
    return b.finish(b.relu(b.conv(x, w, padding=1, name="<conv>")))


@pytest.fixture(scope="module")
def of_array() -> gl.Result:
    return gl.optimize(program(), gl.SystolicArray(8, 8))


TARGETS: list[Target] = [gl.SystolicArray(8, 8), gl.MPC(), gl.CPU("1MB"), gl.ConvolutionUnit()]
COLUMNS = [
    "layer; operator; groups x M x K x N; cycles; tiles; util %; mapping; checked",
    "layer; operator; plain time; Winograd everywhere time; chosen time; chosen bytes; chosen messages; "
    "chosen truncations; chosen error; variant; checked",
    "layer; operator; plain multiply-adds; plain peak; least memory multiply-adds; least memory peak; "
    "chosen multiply-adds; chosen peak; chosen moved; variant; checked",
    "copy; where; dims; before; bytes before; after; bytes after",
]


@pytest.mark.parametrize(("target", "columns"), list(zip(TARGETS, COLUMNS, strict=True)), ids=lambda v: str(v)[:12])
def test_every_report_has_a_table_sentences_and_a_page(target: Target, columns: str) -> None:
    report = gl.optimize(program(), target).report
    (table,) = tables_of(report)
    assert "; ".join(column.name.replace("\n", " ") for column in table.columns) == columns
    assert len({len(column.cells) for column in table.columns}) == 1
    assert not table.wrong
    said = "\n".join(sentences(report))
    assert f"Check of the whole program: {report.checked}" in said
    assert report.checked == ("equal as reals" if isinstance(target, Rounds) else "exact")
    assert "e-classes after" in said
    assert ("Every product is mapped" in said) == (report.peak is not None)
    page = report_html(report)
    assert page.count("<tr>") == len(table.columns[0].cells) + 2 + bool(table.between)
    assert "<conv>" not in page
    assert json.loads(json.dumps(report.as_dict()))["checked"] == report.checked


def test_a_comparison_shows_baseline_bound_and_growth(of_array: gl.Result) -> None:
    report = of_array.report
    (row,) = report.layers
    (table,) = tables_of(report, compare=True)
    cells = {c.name.replace("\n", " "): (c.cells[0], c.total) for c in table.columns}
    taken, before = row.measures["cycles"], row.baseline["cycles"]
    assert taken is not None
    assert before is not None
    assert cells["baseline cycles"] == (f"{before:,}", f"{before:,}")
    assert cells["chosen cycles"] == (f"{taken:,}", f"{taken:,}")
    assert cells["lower bound"][0] == f"{row.lower_bound:,}"
    assert cells["times fewer"] == (f"{before / taken:.2f}",) * 2
    assert float(cells["weight bytes x"][0]) >= 1
    assert "checked" not in cells


def test_an_amount_that_is_not_known_is_no_number(of_array: gl.Result) -> None:
    report = replace(of_array.report, layers=list(of_array.report.layers))
    row = report.layers[0]
    unknown = Choice("?", {**row.measures, "cycles": None})
    report.layers[0] = replace(row, variants={**row.variants, CHOSEN: unknown}, checked="different")
    report.totals = {**report.totals, CHOSEN: unknown.measures}
    (table,) = tables_of(report)
    (cycles,) = (column for column in table.columns if column.name == "cycles")
    assert (cycles.cells, cycles.total) == (["unknown"], "unknown")
    assert table.wrong == {0}
    assert "unknown" in sentences(report)[0]


def test_an_answer_above_its_baseline_says_so(of_array: gl.Result) -> None:
    report = replace(of_array.report)
    report.totals = {"plain": {**report.total, "cycles": 100}, CHOSEN: {**report.total, "cycles": 150}}
    assert (
        sentences(report)[0]
        == "150 cycles in all, 50.0 % above the baseline plain, which takes 100: 0.67 times as many."
    )


def test_an_egraph_grows_until_it_is_saturated() -> None:
    for blocking in ("tile-loops", "unrolled-tiles"):
        steps = list(growing(program(), gl.SystolicArray(72, 8), blocking))
        assert [number for number, _, _ in steps] == list(range(len(steps)))
        assert steps[-1][1].e_nodes > steps[0][1].e_nodes


def test_names_that_never_were_are_errors(of_array: gl.Result) -> None:
    for thing in (of_array, of_array.report, of_array.report.layers[0], of_array.cost):
        with pytest.raises(AttributeError, match="ghost"):
            thing.ghost  # type: ignore[union-attr]  # noqa: B018
    with pytest.raises(KeyError):
        of_array.report.totals["ghost"]
