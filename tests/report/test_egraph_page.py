"""Tests the page of an e-graph in a real browser: it loads, opens, searches and slides, without a console error."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

import glenside as gl
from glenside.egraph.snapshot import ENode, Snapshot
from glenside.report.egraph_view import EGraphView

PRODUCT = "(compute dot-product (access-cartesian-product (access (access-tensor a) 1) (access (access-tensor b) 1)))"
EVIL = "</script><script>alert(1)</script>"
_DONE = "const done = arguments[0]; viewer.ready.then(() => done(true), (error) => done(String(error)));"


@pytest.fixture(scope="module")
def view() -> EGraphView:
    program = gl.parse(PRODUCT, shapes={"a": (5, 9), "b": (7, 9)})
    return gl.optimize(program, gl.SystolicArray(4, 2), trace=True, verify=False).view


def opened(browser: Any, view: EGraphView, folder: Path) -> None:
    path = folder / "e.html"
    path.write_text(view.page(), encoding="utf-8")
    browser.get_log("browser")
    browser.get(path.as_uri())
    assert browser.execute_async_script(_DONE) is True


def found(browser: Any, selector: str) -> list[Any]:
    return list(browser.find_elements("css selector", selector))


def settled(browser: Any, script: str) -> Any:
    """What a script gives, when the picture that follows from it is drawn."""
    result = browser.execute_script(script)
    assert browser.execute_async_script(_DONE) is True
    return result


def test_one_walks_from_the_result_to_the_leaves(browser: Any, view: EGraphView, tmp_path: Path) -> None:
    opened(browser, view, tmp_path)
    assert found(browser, ".box.result .name")[0].text == "result"
    before = len(found(browser, ".box"))
    status = found(browser, ".status")[0].text
    assert status.startswith(f"{before} of {view.snapshot.e_classes} e-classes and ")
    settled(browser, "document.querySelector('.badge').parentNode.dispatchEvent(new MouseEvent('click'))")
    assert len(found(browser, ".box")) > before
    for _ in range(20):
        settled(browser, "viewer.widen()")
    reached = len(found(browser, ".box"))
    assert not found(browser, ".badge")
    settled(browser, "document.querySelector('.box.result').dispatchEvent(new MouseEvent('click'))")
    assert len(found(browser, ".box")) < reached
    assert browser.get_log("browser") == []


def test_the_first_picture_is_in_the_file(view: EGraphView) -> None:
    """A screenshot at once, a print, and a reader without scripts see the e-graph."""
    page = view.page()
    before = page[: page.index("<script")]
    assert '<svg xmlns="http://www.w3.org/2000/svg" class="still"' in before
    assert before.count('<rect class="frame') == len(view.picture.shown) > 10
    assert before.count("<style>") == 1, "the policy of the page names one sheet"


def test_it_is_shown_until_the_script_has_drawn(browser: Any, view: EGraphView, tmp_path: Path) -> None:
    policy = r"script-src [^;]*;"
    (tmp_path / "still.html").write_text(re.sub(policy, "script-src 'none';", view.page()), encoding="utf-8")
    browser.get((tmp_path / "still.html").as_uri())
    frames = "[...document.querySelectorAll('#still .frame')]"
    assert browser.execute_script(f"return {frames}.filter((f) => f.getBoundingClientRect().width > 50).length") == len(
        view.picture.shown
    )
    opened(browser, view, tmp_path)
    assert not found(browser, "#still")


def test_search_shows_what_it_finds_with_its_rule(browser: Any, view: EGraphView, tmp_path: Path) -> None:
    opened(browser, view, tmp_path)
    browser.find_element("css selector", "input[type=search]").send_keys("systolic-array")
    assert "systolic-array" in found(browser, ".results button")[0].text
    found(browser, ".results button")[0].click()
    assert browser.execute_async_script(_DONE) is True
    assert not found(browser, ".results button"), "what was found is not hidden behind the list"
    assert "systolic-array" in found(browser, ".box.selected")[0].text
    panel = found(browser, ".panel")[0].text
    assert "cycles" in panel
    assert "in iteration" in panel
    for details in found(browser, ".panel .member.chosen summary"):
        details.click()
    texts = [rule["reason"] for rule in view.record["rules"]]
    assert any(text in found(browser, ".panel")[0].text for text in texts)
    assert browser.get_log("browser") == []


@pytest.mark.parametrize("width", [390, 700, 1000, 1400])
def test_what_is_found_is_listed_in_the_window(browser: Any, view: EGraphView, tmp_path: Path, width: int) -> None:
    size = {"width": width, "height": 844, "deviceScaleFactor": 1, "mobile": width < 500}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    try:
        opened(browser, view, tmp_path)
        browser.find_element("css selector", "input[type=search]").send_keys("access")
        script = (
            "const {left, right} = document.querySelector('.results').getBoundingClientRect(); return [left, right]"
        )
        left, right = browser.execute_script(script)
        assert 0 <= left < right <= width
        assert browser.execute_script("return document.documentElement.scrollWidth") == width
    finally:
        browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


def test_equal_layers_are_said_once(browser: Any, tmp_path: Path) -> None:
    b = gl.Builder("equal layers")
    x = b.input("x", (1, 4, 6))
    for i in range(12):
        x = b.relu(b.conv(x, b.constant(f"w{i}", (4, 4, 3)), padding=1, name=f"layer{i}"))
    equal = gl.optimize(b.finish(x), gl.SystolicArray(4, 2), trace=True, verify=False).view
    opened(browser, equal, tmp_path)
    c = next(c for name, c, _ in equal.record["roots"] if name == "layer0")
    settled(browser, f"viewer.go({c})")
    assert found(browser, ".panel h2")[0].text == "layer0 and 11 more"
    assert [name.text for name in found(browser, ".panel dt")].count("layer0 and 11 more") == 1
    assert browser.get_log("browser") == []


def test_the_slider_takes_the_e_graph_back_to_the_program(browser: Any, view: EGraphView, tmp_path: Path) -> None:
    opened(browser, view, tmp_path)
    at_end = browser.execute_script("return viewer.walk.members(viewer.model.record.roots[0][1]).length")
    slide = "viewer.slider.value = 0; viewer.slider.dispatchEvent(new Event('input'))"
    settled(browser, slide)
    assert found(browser, "output")[0].text == "0: the program"
    at_start = browser.execute_script("return viewer.walk.members(viewer.model.record.roots[0][1]).length")
    assert at_start == 1 < at_end
    first = min(view.record["made"]["iteration"])
    settled(browser, f"viewer.walk.mode = 'changed'; viewer.moveTo({first})")
    rows = found(browser, ".row")
    assert rows
    assert all("new" in row.get_attribute("class") for row in rows)
    assert browser.get_log("browser") == []


def test_the_keyboard_is_enough(browser: Any, view: EGraphView, tmp_path: Path) -> None:
    from selenium.webdriver.common.keys import Keys

    opened(browser, view, tmp_path)
    browser.execute_script("viewer.picture.focus(viewer.model.record.result)")
    browser.switch_to.active_element.send_keys(Keys.ARROW_RIGHT)
    selected = found(browser, ".box.selected")[0]
    assert "result" not in selected.get_attribute("class")
    read = int(selected.get_attribute("data-eclass"))
    assert read in browser.execute_script("return viewer.walk.below(viewer.model.record.result)")
    browser.switch_to.active_element.send_keys(Keys.ARROW_LEFT)
    assert "result" in found(browser, ".box.selected")[0].get_attribute("class")
    browser.switch_to.active_element.send_keys(Keys.ARROW_RIGHT)
    assert found(browser, ".box.selected")[0].get_attribute("data-eclass") == str(read)
    before = len(found(browser, ".box"))
    browser.switch_to.active_element.send_keys(Keys.ENTER)
    assert browser.execute_async_script(_DONE) is True
    assert len(found(browser, ".box")) < before
    browser.switch_to.active_element.send_keys("/")
    assert browser.switch_to.active_element.get_attribute("type") == "search"


def test_two_fingers_zoom_and_one_moves(browser: Any, view: EGraphView, tmp_path: Path) -> None:
    opened(browser, view, tmp_path)
    script = """
      const picture = document.querySelector('.picture'), place = picture.getBoundingClientRect();
      const event = (kind, pointerId, x, y, buttons = 1) => picture.dispatchEvent(new PointerEvent(kind,
        {pointerId, clientX: place.left + x, clientY: place.top + y, buttons, bubbles: true}));
      picture.setPointerCapture = () => {};
      const seen = [];
      const look = () => seen.push({...viewer.picture.view});
      look();
      event('pointerdown', 1, 100, 100); event('pointermove', 1, 130, 110); look();
      event('pointerdown', 2, 230, 110); event('pointermove', 2, 330, 110); look();
      event('pointerup', 2, 330, 110, 0); event('pointerup', 1, 130, 110, 0);
      event('pointermove', 1, 300, 300, 0); look();
      return seen;"""
    rest, moved, zoomed, after = browser.execute_script(script)
    assert (moved["x"] - rest["x"], moved["y"] - rest["y"], moved["scale"]) == (30, 10, rest["scale"])
    assert zoomed["scale"] == pytest.approx(min(4, 2 * moved["scale"]))
    # What was under the middle of the fingers still is.
    for at, (before, later) in {"x": (180, 230), "y": (110, 110)}.items():
        assert (before - moved[at]) / moved["scale"] == pytest.approx((later - zoomed[at]) / zoomed["scale"])
    assert after == zoomed
    assert browser.get_log("browser") == []


def test_no_edge_runs_through_a_box(browser: Any, view: EGraphView, tmp_path: Path) -> None:
    opened(browser, view, tmp_path)
    for _ in range(20):
        settled(browser, "viewer.widen()")
    script = """
      const boxes = [...viewer.picture.at.values()];
      let through = 0, points = 0;
      for (const edge of document.querySelectorAll('.edge')) {
        const length = edge.getTotalLength();
        for (let at = 0; at <= length; at += 4) {
          const {x, y} = edge.getPointAtLength(at);
          points += 1;
          through += boxes.some((b) => x > b.x + 1 && x < b.x + b.width - 1 && y > b.y + 1 && y < b.y + b.height - 1);
        }
      }
      return [through, points];"""
    through, points = browser.execute_script(script)
    assert points > 500
    assert through == 0


def test_a_name_that_is_a_script_is_text(browser: Any, tmp_path: Path) -> None:
    b = gl.Builder(EVIL)
    program = b.finish(b.conv(b.input("x", (1, 2, 6)), b.constant(EVIL, (3, 2, 3)), name=EVIL))
    evil = gl.optimize(program, gl.SystolicArray(4, 2), trace=True, verify=False).view
    opened(browser, evil, tmp_path)
    assert EVIL in found(browser, "h1")[0].text
    assert len(found(browser, "script")) == 3
    assert browser.get_log("browser") == []


def test_an_e_graph_of_nothing_is_a_sentence(browser: Any, tmp_path: Path) -> None:
    nothing = EGraphView(Snapshot((), (), (), (), {}, {}), title=EVIL)
    path = tmp_path / "nothing.html"
    path.write_text(nothing.page(), encoding="utf-8")
    browser.get_log("browser")
    browser.get(path.as_uri())
    assert found(browser, "main")[0].text == f"{EVIL}: no e-nodes, so there is nothing to walk through."
    assert browser.get_log("browser") == []
    assert "no e-nodes" in nothing.picture.svg()


def test_what_reads_itself_is_drawn(browser: Any, view: EGraphView, tmp_path: Path) -> None:
    nodes = [ENode("access-flip", (0,), (0,)), ENode("access-flip", (1,), (1,)), ENode("access-flip", (0,), (1,))]
    types, tensors = (view.snapshot.types[0],) * 2, view.snapshot.tensors
    around = EGraphView(Snapshot((*nodes, ENode("access-flip", (1,), (0,))), (0, 0, 1, 1), types, (0,), tensors, {}))
    opened(browser, around, tmp_path)
    assert found(browser, ".status")[0].text == "All of it: 2 e-classes, 4 e-nodes."
    settled(browser, "document.querySelector('.box').dispatchEvent(new MouseEvent('click'))")
    assert found(browser, ".status")[0].text == "1 of 2 e-classes and 2 of 4 e-nodes are shown; 1 e-class is not open."
    assert browser.get_log("browser") == []


def test_without_workers_it_says_so_and_draws(browser: Any, view: EGraphView, tmp_path: Path) -> None:
    none = browser.execute_cdp_cmd("Page.addScriptToEvaluateOnNewDocument", {"source": "delete globalThis.Worker;"})
    try:
        opened(browser, view, tmp_path)
        assert "no worker" in found(browser, ".foot")[0].text
        assert found(browser, ".box.result")
        assert browser.get_log("browser") == []
    finally:
        browser.execute_cdp_cmd("Page.removeScriptToEvaluateOnNewDocument", none)


def test_the_widget_draws_into_the_cell_that_it_is_given(browser: Any, view: EGraphView) -> None:
    pytest.importorskip("anywidget", reason="anywidget, which runs the viewer in notebooks, is not installed")
    widget = view.widget()
    traits = {name: getattr(widget, name) for name in ("record", "worker", "height")}
    browser.get("about:blank")
    script = """
      const [text, traits, css, done] = arguments;
      document.head.appendChild(document.createElement("style")).textContent = css;
      document.body.dataset.jpThemeLight = "false";
      const still = document.body.appendChild(document.createElement("div"));
      still.innerHTML = '<svg class="still"></svg>';
      const cell = document.body.appendChild(document.createElement("div")).appendChild(document.createElement("div"));
      cell.className = "jp-RenderedHTMLCommon";
      import(URL.createObjectURL(new Blob([text], {type: "text/javascript"}))).then((module) => {
        const end = module.default.render({ model: { get: (name) => traits[name] }, el: cell });
        const wait = () => {
          if (!cell.querySelector(".box.result")) return setTimeout(wait, 20);
          const hidden = getComputedStyle(still).display;
          end();
          const lines = [...cell.querySelectorAll("dt")].map((name) => {
            const range = document.createRange();
            range.selectNodeContents(name);
            return range.getClientRects().length;
          });
          const paper = getComputedStyle(cell.firstElementChild).backgroundColor;
          done([cell.querySelectorAll(".box").length, cell.style.height, Math.max(...lines), paper, hidden]);
        };
        wait();
      }, (error) => done(String(error)));"""
    css = f"{widget._css}\n.jp-RenderedHTMLCommon dl dt {{ float: left; width: 20%; font-weight: bold; }}"
    boxes, height, lines, paper, hidden = browser.execute_async_script(script, widget._esm, traits, css)
    assert boxes > 10
    assert height == "640px"
    assert hidden == "none", "the still picture before the widget is hidden while the widget is there"
    assert lines == 1, "names of facts stand on one line, whatever a notebook's sheet says of them"
    assert paper == "rgb(21, 25, 29)", "the page is dark where the notebook is"


def test_the_models_own_tests_pass() -> None:
    node = shutil.which("node")
    if node is None:
        pytest.skip("there is no node here")
    tests = Path(__file__).parent / "page"
    done = subprocess.run([node, "--test", str(tests)], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
