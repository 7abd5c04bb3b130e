"""Tests the pages of trainings, timings, predictions, comparisons and areas, in the browser and from their commands."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from command_line import run

import glenside as gl
from glenside.execution.runtime_comparison import Row
from glenside.execution.spu.comparison import Comparison, Measures
from glenside.execution.spu.comparison import Row as Layer
from glenside.npu.machine.model import Machine
from glenside.npu.rtl.synthesis import Area, Part
from glenside.report.check_page import check_document
from glenside.report.document import Curves, Document, Section
from glenside.report.measured_pages import area_document, bench_document, calibration_document, spu_document
from glenside.training.loop import Epoch, Trained
from glenside.training.page import training_document

DOT = "(compute dot-product (access-cartesian-product (access (access-tensor x) 1) (access (access-tensor w) 1)))"
EVIL = "<script>alert(1)</script>"


def bench() -> Document:
    rows = [
        Row("compiled", 1, (0.002, 0.003, 0.001), 1.0, 1.0, 1_500_000, 0.0),
        Row("other 1.0", 1, (0.004, 0.006, 0.002), 2.0, 2.1, None, 1e-7),
        Row("wrong 2.0", 1, (0.001, 0.001, 0.001), 0.5, 0.6, None, 0.3),
    ]
    nests = [("conv: dot-product", 0.0015, 0.0012), (EVIL, 0.0005, None)]
    return bench_document(EVIL, rows, nests, ["medians of 3 rounds"], {"machine": "plain"})


def spu() -> Document:
    whole = Layer(("net",), Measures(300, 3, 0.3), Measures(310, 3, 0.4))
    rows = [Layer(("conv", "conv2"), Measures(100, 1, 0.1), Measures(100, 1, 0.11))]
    found = Comparison(rows, whole, [], 0.0, 1.0, 0.1, [], [])
    return spu_document("net", "mpc", found, ["It agrees."], {"link": "wan"})


def area() -> Document:
    parts = {"array": Part(1000.4, 100, 0, 64), "lanes": Part(500, 50, 4096, 0)}
    return area_document(Area(Machine(8, 8), Part(10, 1), parts), ["Gates are NANDs."], {})


def training() -> Document:
    epochs = [Epoch(i + 1, 1 / (i + 1), i / 9, 1.5 / (i + 1), None if i < 2 else i / 10, 0.1) for i in range(9)]
    program = gl.parse(DOT, shapes={"x": (8, 6), "w": (3, 6)})
    return training_document(Trained(program, epochs, "plain loops", ["A note."], False), {"seed": "3"})


DOCUMENTS = {
    "bench": (bench, "It takes 2.000 ms on 1 thread (other 1.0 2.00 times as long, wrong 2.0 0.50 times as long).", 3),
    "spu": (spu, "It takes 0.400 s, 310 bytes and 3 messages of each party", 2),
    "area": (area, "1,500 gates, 150 flip-flops among them, 4,096 bits of RAM and 64 bits of registers.", 2),
    "calibration": (
        lambda: calibration_document("avx2", [("a", 1e-3, 1.1e-3), ("b", 1e-6, 1e-6)], "[nanoseconds]", {}),
        "2 timed; prediction error 5 % (mean)",
        1,
    ),
    "check": (
        lambda: check_document("a beside b", "layer", {"conv": "exact", EVIL: "differs at 3"}, "exact", "residues", {}),
        "The result: exact. Of 2 layers 1 are equal.",
        0,
    ),
}


@pytest.fixture
def opened(browser: Any, tmp_path: Path) -> Iterator[Any]:
    def open_(document: Document) -> Any:
        path = tmp_path / "page.html"
        path.write_text(document.html(), encoding="utf-8")
        browser.get("about:blank")
        browser.get_log("browser")
        browser.get(path.as_uri())
        return browser

    yield open_
    assert browser.get_log("browser") == []


@pytest.mark.parametrize("name", DOCUMENTS)
def test_a_page_says_its_answer_and_draws_its_numbers(opened: Any, name: str) -> None:
    made, lead, charts = DOCUMENTS[name]
    document = made()
    assert EVIL not in document.html()
    page = opened(document)
    assert page.find_element("css selector", ".lead").text.startswith(lead)
    assert len(page.find_elements("css selector", ".chart")) == charts
    assert page.find_elements("css selector", "tbody tr")
    assert "NaN" not in page.page_source.split('id="record"')[0]
    wrong = [row.text for row in page.find_elements("css selector", "tr.wrong")]
    assert [bool(w) for w in wrong] == [True] * (name in ("bench", "check"))


def test_a_training_has_its_curve_and_where_it_was_best(opened: Any) -> None:
    from selenium.webdriver.common.keys import Keys

    page = opened(training())
    lead = page.find_element("css selector", ".lead").text
    assert lead.startswith("After 9 epochs: loss 0.1111, 88.89 % right; of what is held out 0.1667")
    chart = page.find_elements("css selector", ".chart")[1]
    chart.send_keys(Keys.ARROW_RIGHT)
    told = [found.text for found in page.find_elements("css selector", ".tip > div") if found.text]
    assert told == ["epoch 1", "trained on: 0", "held out: not known"]
    assert len(chart.find_elements("css selector", ".point")) == 9 + 7


def test_what_is_no_number_is_left_out_of_a_curve(opened: Any) -> None:
    curve = Curves("c", "x", "u", [1, 2, 3], [("a", [1.0, float("nan"), float("inf")]), ("b", [None, None, 2])])
    page = opened(Document("t", "l", [Section("s", [curve])]))
    assert len(page.find_elements("css selector", ".point")) == 2
    assert "NaN" not in page.page_source.split('id="record"')[0]


def test_a_check_writes_a_page_and_refuses_what_is_none(tmp_path: Path) -> None:
    net, shapes, page, none = (tmp_path / n for n in ("net.glenside", "shapes.json", "page.html", "none.html"))
    net.write_text(DOT)
    shapes.write_text('{"x": [8, 6], "w": [3, 6]}')
    more = ("--shapes", shapes, "--html")
    assert run("check", net, net, *more, page) == 0
    assert "The result: exact" in page.read_text()
    for words, path in (
        (("check", net), none),  # nothing to compare
        (("run", net), none),  # the interpreter takes nothing that is told
        (("check", net, net), tmp_path),
        (("check", net, net), tmp_path / "page.pdf"),
        (("bench", net), tmp_path / "page.pdf"),
        (("calibrate", "--target", "cpu", "-o", tmp_path / "c.toml"), tmp_path / "page.pdf"),
    ):
        given = more if words[0] != "calibrate" else ("--html",)
        assert run(*words, *given, path) == 2
    assert sorted(p.name for p in tmp_path.iterdir()) == ["net.glenside", "page.html", "shapes.json"]


def test_a_calibration_and_an_area_write_pages(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """What is measured takes minutes: here it is given."""
    from glenside.codegen.processor.model import MACHINES
    from glenside.execution import processor
    from glenside.npu.rtl import synthesis as areas

    machine = MACHINES["avx2"]
    named = ("conv", 1e-6), (EVIL, 2e-6)
    nests = [processor.Timed("network", name, machine.nanoseconds, seconds) for name, seconds in named]
    monkeypatch.setattr(processor, "calibrate", lambda *_: processor.Fit(machine, nests))
    page = tmp_path / "page.html"
    assert run("calibrate", "--target", "cpu:avx2", "-o", tmp_path / "costs.toml", "--html", page) == 0
    assert "2 timed" in page.read_text()
    assert "network: conv" in page.read_text()
    assert EVIL not in page.read_text()
    parts = {"array": Part(1000.4, 100, 0, 64), "lanes": Part(500, 50, 4096, 0)}
    monkeypatch.setattr(areas, "area", lambda of: Area(of, Part(10, 1), parts))
    assert run("area", "npu:8x8", "--html", page) == 0
    assert "1,500 gates" in page.read_text()
    printed = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in printed[-5:]] == ["gates", "array", "lanes", "all", "one"]
