"""Tests the page of a report in a real browser: sorting, filtering, navigation, tooltips, print; no console errors."""

from __future__ import annotations

import base64
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import glenside as gl
from glenside.egraph.origins import Origins
from glenside.report.document import Bars, Cloud, Code, Document, Facts, Grid, Page, Points, Section, Steps
from glenside.report.report_page import result_document
from glenside.report.text import Column, Table

EVIL = "</script><img src=x onerror=alert(1)>"


def network(layers: int = 3) -> gl.Program:
    b = gl.Builder("small network")
    x = b.input("x", (1, 4, 8, 8))
    for i in range(layers):
        x = b.relu(b.conv(x, b.constant(f"w{i}", (4 + i + 1, 4 + i, 3, 3)), padding=1, name=f"conv{i}"))
    return b.finish(x)


@pytest.fixture(scope="module")
def of_array() -> gl.Result:
    return gl.optimize(network(), gl.SystolicArray(8, 4), trace=True)


@pytest.fixture
def opened(browser: Any, tmp_path: Path) -> Iterator[Any]:
    """What opens a document and gives the browser; nothing may be said on its console by the end."""

    def open_(document: Document, hash_: str = "") -> Any:
        path = tmp_path / "report.html"
        path.write_text(document.html(), encoding="utf-8")
        browser.get("about:blank")
        browser.get_log("browser")
        browser.get(path.as_uri() + hash_)
        return browser

    yield open_
    assert browser.get_log("browser") == []


def texts(browser: Any, selector: str) -> list[str]:
    return [found.text for found in browser.find_elements("css selector", selector)]


def column(browser: Any, number: int) -> list[str]:
    """Returns the cells of a column of the first table."""
    script = "return [...document.querySelector('.grid tbody').rows].map((row) => row.cells[arguments[0]].innerText)"
    found: list[str] = browser.execute_script(script, number - 1)
    return found


def grid(names: Sequence[str], numbers: Sequence[str]) -> Document:
    table = Table([Column("name", names, "total", words=True), Column("cycles", numbers, "9,999")])
    pages = [Page(f"page of {name}", "", [Section("Known", [Facts([("name", name)])])]) for name in names]
    return Document("a title", "A sentence.", [Section("Rows", [Grid("", table, range(len(names)))])], pages)


def test_it_says_what_was_asked_the_answer_and_how_it_was_checked(opened: Any, of_array: gl.Result) -> None:
    browser = opened(result_document(of_array, facts={"limits": "none"}))
    said = browser.find_element("tag name", "body").text
    report = of_array.report
    assert f"{report.total['cycles']:,} cycles in all" in texts(browser, ".lead")[0]
    for part in ("small network on systolic-array:8x4", "egglog", "seed", report.how_checked, "limits\nnone"):
        assert part in said
    assert column(browser, 1) == ["conv0", "conv1", "conv2"]
    assert column(browser, 4) == [f"{row.measures['cycles']:,}" for row in report.layers]


def test_a_table_is_sorted_by_numbers_and_back(opened: Any) -> None:
    browser = opened(grid(["b", "a10", "a9", "c"], ["1,000", "20", "unknown", "300"]))
    cycles, name = browser.find_elements("css selector", "th button")[::-1]
    cycles.click()
    assert column(browser, 2) == ["1,000", "300", "20", "unknown"]
    cycles.click()
    assert column(browser, 2) == ["20", "300", "1,000", "unknown"]
    assert browser.find_elements("css selector", "th")[1].get_attribute("aria-sort") == "ascending"
    cycles.click()
    assert column(browser, 1) == ["b", "a10", "a9", "c"]
    name.click()
    assert column(browser, 1) == ["a9", "a10", "b", "c"]
    assert texts(browser, "tfoot td") == ["total", "9,999"]


def test_a_filter_takes_words_and_amounts(opened: Any) -> None:
    names = [f"layer {i} {'dw' if i % 3 else 'pw'}" for i in range(30)]
    browser = opened(grid(names, [f"{i * 100:,}" for i in range(30)]))
    browser.find_element("tag name", "body").send_keys("/")
    browser.switch_to.active_element.send_keys("DW cycles>=2000")
    assert column(browser, 2) == [f"{i * 100:,}" for i in range(20, 30) if i % 3]
    assert texts(browser, ".filter [role=status]") == ["7 of 30 rows"]


def test_on_a_phone_only_wide_things_move_sideways(opened: Any, of_array: gl.Result) -> None:
    document = result_document(of_array, facts={"x" * 90: "y" * 300})
    names = [f"npu:{i}x32,bandwidth=16,scratchpad=256KB" for i in range(12)]
    wide = Section("Wide", [Code("a = 1  # " + "b" * 400), Bars("names", "cycles", names, [("made", [1.0] * 12)])])
    document = replace(document, lead="z" * 300, sections=[*document.sections, wide])
    phone = {"width": 390, "height": 844, "deviceScaleFactor": 1, "mobile": True}
    browser = opened(document)
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", phone)
    try:
        for hash_ in ("", "#2"):
            browser = opened(document, hash_)
            assert browser.execute_script("return document.documentElement.scrollWidth") == 390
    finally:
        browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
    browser = opened(document)
    assert [text for text in texts(browser, ".chart .name") if text in names] == names
    (cell, *_) = browser.find_elements("css selector", "td.brief")
    assert browser.execute_script("return getComputedStyle(arguments[0]).whiteSpace", cell) == "nowrap"


def test_numbers_and_short_words_stand_on_one_line(opened: Any) -> None:
    long = [f"npu:{i}x32,bandwidth=16,scratchpad=256KB,burst=64" for i in range(8)]
    table = Table(
        [
            Column("machine", long, words=True),
            *(Column(f"cycles {i}", ["1,234,567,890"] * 8) for i in range(9)),
            Column("operator", ["depthwise 3x3/1"] * 8, words=True),
        ]
    )
    browser = opened(Document("", "", [Section("", [Grid("", table)])]))
    script = """
      const row = document.querySelector('tbody tr'), lines = (node) => {
        const range = document.createRange();
        range.selectNodeContents(node);
        return new Set([...range.getClientRects()].map((one) => one.top)).size;
      };
      return [[...row.cells].slice(1).map(lines), row.cells[0].textContent];"""
    assert browser.execute_script(script) == [[1] * 10, long[0]]


def headed(browser: Any, titles: list[str]) -> None:
    """Wait for the headings: a change of the address is told to the page after what made it."""
    from selenium.common.exceptions import StaleElementReferenceException
    from selenium.webdriver.support.wait import WebDriverWait

    redrawn = [StaleElementReferenceException]  # between finding a heading and reading it
    WebDriverWait(browser, 5, ignored_exceptions=redrawn).until(lambda _: texts(browser, "h1") == titles)


def test_rows_lead_to_layers_and_keys_from_one_to_the_next(opened: Any, of_array: gl.Result) -> None:
    from selenium.webdriver.common.keys import Keys

    browser = opened(result_document(of_array))
    browser.find_element("link text", "conv1").click()
    headed(browser, ["conv1"])
    said = browser.find_element("tag name", "body").text
    row = of_array.report.layers[1]
    cone = of_array.answer.layers["conv1"].cone
    assert cone is not None
    for part in (row.operator, row.label, f"{row.lower_bound:,} cycles", *cone.rules):
        assert part in said
    browser.find_element("tag name", "body").send_keys(Keys.ARROW_RIGHT)
    headed(browser, ["conv2"])
    browser.find_element("tag name", "body").send_keys(Keys.ESCAPE)
    headed(browser, ["small network on systolic-array:8x4"])


@pytest.mark.parametrize("target", [gl.MPC(outputs=(2,)), gl.CPU("20KB")], ids=["mpc", "cpu"])
def test_rules_of_a_variant_are_those_that_made_its_term(target: Any) -> None:
    b = gl.Builder("taps")
    taps = b.finish(b.conv(b.input("x", (1, 2, 40)), b.constant("w", (2, 2, 3)), name="conv"))
    result = gl.optimize(taps, target, trace=True, verify=False)
    origins = Origins(result.egraph)
    made = {name for _, _, name, *_ in result.egraph.facts["made"]}
    plain, *others = result.answer.layers["conv"].variants
    assert plain.term is not None
    assert origins.of(plain.term) == ()
    assert others
    for variant in others:
        assert variant.term is not None
        rules = origins.of(variant.term)
        assert rules
        assert {*rules} <= made
        assert ("Winograd" in variant.label) == any("winograd" in name for name in rules)


def test_a_tile_says_which_element_is_where(opened: Any, of_array: gl.Result) -> None:
    from selenium.webdriver.common.keys import Keys

    browser = opened(result_document(of_array), "#1")
    assert any(text.startswith("best: tile 1 of") for text in texts(browser, ".tile figcaption"))
    baseline = browser.find_element("css selector", ".tile canvas")
    baseline.send_keys(Keys.ARROW_RIGHT, Keys.ARROW_DOWN)
    assert texts(browser, ".tile .note")[0] == "Row 2, column 1: element (0, 0, 0, 1) of w0."
    painted = "const c = document.querySelector('canvas'); return c.getContext('2d').getImageData(2, 2, 1, 1).data[3]"
    assert browser.execute_script(painted) == 255


def test_bars_tell_their_numbers(opened: Any, of_array: gl.Result) -> None:
    from selenium.webdriver.common.keys import Keys

    browser = opened(result_document(of_array))
    chart = browser.find_element("css selector", ".chart")
    chart.send_keys(Keys.ARROW_RIGHT)
    row = of_array.report.layers[0]
    told = [row.name, f"baseline: {row.baseline['cycles']:,}", f"chosen: {row.measures['cycles']:,}"]
    assert texts(browser, ".tip > div") == told
    figure = browser.find_element("css selector", "figure")
    heights = [float(bar.get_attribute("height")) for bar in figure.find_elements("css selector", ".bar")]
    rows = of_array.report.layers
    amounts = [row.variants[which].measures["cycles"] or 0 for row in rows for which in ("baseline", "chosen")]
    by_amount = [height for _, height in sorted(zip(amounts, heights, strict=True))]
    assert by_amount == sorted(heights)
    assert heights[0] > 0


def test_the_e_graph_opens_at_the_layer(opened: Any, of_array: gl.Result) -> None:
    browser = opened(result_document(of_array), "#2")
    browser.find_element("css selector", ".egraph button").click()
    done = "const done = arguments[0]; viewer.ready.then(() => done(true), (error) => done(String(error)));"
    assert browser.execute_async_script(done) is True
    assert "conv1" in texts(browser, ".box.selected")[0]


def test_memory_is_drawn_with_the_step_that_holds_it(opened: Any) -> None:
    result = gl.optimize(network(2), gl.CPU("1MB"), verify=False)
    held = result.target.memory_over_time(result.program)
    assert held is not None
    document = result_document(result)
    browser = opened(document)
    titles = texts(browser, "figcaption")
    assert any(f"{max(count for *_, count in held):,} bytes at most" in title for title in titles)
    assert {layer for _, layer, _ in held} == {"", "conv0", "conv1"}
    assert max(count for *_, count in held) == result.report.total["peak"]


def test_points_and_strips_are_drawn(opened: Any) -> None:
    best = [(1.0, 5.0, "one"), (2.0, 3.0, "two")]
    cloud = [Cloud("every", [*best, (4, 4, "bad")]), Cloud("front", best, joined=True)]
    series = [("a", [50, 100]), ("b", [0, 10, 20])]
    strips = Steps("strips", "cycles", "%", [0, 5, 10], series, spans=[("l", 0, 5)], apart=True)
    browser = opened(Document("t", "l", [Section("s", [Points("p", "x", "y", cloud), strips])]))
    assert len(browser.find_elements("css selector", ".point")) == 5
    assert texts(browser, ".strip") == ["a", "b"]
    assert "NaN" not in browser.page_source.split('id="record"')[0]


def test_names_that_are_markup_are_text(opened: Any) -> None:
    b = gl.Builder(EVIL)
    program = b.finish(b.conv(b.input("x", (1, 2, 6)), b.constant(EVIL, (3, 2, 3)), name=EVIL))
    result = gl.optimize(program, gl.SystolicArray(4, 2), trace=True, verify=False)
    document = result_document(result, facts={EVIL: EVIL})
    assert EVIL not in document.html()
    for hash_ in ("", "#1"):
        browser = opened(document, hash_)
        assert EVIL in texts(browser, "h1")[0]
        assert not browser.find_elements("tag name", "img")
        assert len(browser.find_elements("tag name", "script")) == 4


def quickly(browser: Any) -> bool:
    """True if a page of 300 rows opened in 2 seconds."""
    assert len(column(browser, 1)) == 300
    taken: float = browser.execute_script("return performance.getEntriesByType('navigation')[0].duration")
    return 0 < taken < 2000


def test_a_page_of_300_rows_opens_in_2_seconds(opened: Any, of_array: gl.Result) -> None:
    document = result_document(of_array)
    grids = [block for section in document.sections for block in section.blocks if isinstance(block, Grid)]
    own = grids[0].table.columns
    columns = [replace(c, cells=[f"{cell} {i}" if not n else cell for i in range(100) for cell in c.cells])
               for n, c in enumerate(own)]  # fmt: skip
    rows = Grid("", Table(columns), range(300))
    bars = Bars("cycles", "cycles", columns[0].cells, [("a", [1, 10, 100] * 100), ("b", [2, 1, 50] * 100)])
    assert quickly(opened(replace(document, sections=[Section("", [rows, bars])], pages=[*document.pages] * 100)))


@pytest.mark.slow
def test_a_network_of_300_layers_opens_in_2_seconds(opened: Any) -> None:
    b = gl.Builder("deep")
    x = b.input("x", (1, 6, 6, 6))
    for i in range(300):
        w = b.constant(f"w{i}", (6, 6, 3, 3) if i % 2 else (6, 6, 1, 1))
        x = b.relu(b.conv(x, w, padding=i % 2, name=f"layer{i}"))
    result = gl.optimize(b.finish(x), gl.SystolicArray(8, 8), trace=True, verify=False)
    assert quickly(opened(result_document(result)))


def test_paper_has_all_layers_and_no_buttons(opened: Any, of_array: gl.Result) -> None:
    browser = opened(result_document(of_array))
    browser.execute_script("window.print = () => {}; report.printed()")
    assert texts(browser, "h1")[1:] == ["conv0", "conv1", "conv2"]
    paper = base64.b64decode(browser.execute_cdp_cmd("Page.printToPDF", {})["data"])
    assert paper.startswith(b"%PDF")
    assert paper.count(b"/Type /Page\n") >= 4
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "print"})
    try:
        hidden = "return [...document.querySelectorAll('.filter, .foot')].every((e) => e.offsetParent === null)"
        assert browser.execute_script(hidden)
    finally:
        browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": ""})


def test_an_e_graph_that_is_too_large_is_left_out_and_said(
    of_array: gl.Result, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("glenside.report.document._LARGEST", of_array.egraph.e_nodes - 1)
    document = result_document(of_array)
    assert document.egraph is None
    assert f"The e-graph of {of_array.egraph.e_nodes:,} e-nodes is too large" in document.html()
    assert "Its e-graph" not in document.html()
    monkeypatch.undo()
    assert result_document(of_array).html() == of_array.page()


def test_without_scripts_the_tables_are_there(of_array: gl.Result) -> None:
    page = result_document(of_array).html()
    plain = page.split("<noscript>")[1].split("</noscript>")[0]
    assert plain.count("<tr>") == len(of_array.report.layers) + 2
    assert "Content-Security-Policy" in page
    assert "default-src 'none'" in page
    assert "unsafe" not in page.split("</title>")[0]
