"""Tests the still picture of an e-graph: no edge crosses a box, no boxes overlap, omissions are stated, markup is
escaped.
"""

from __future__ import annotations

import random
import re
import xml.etree.ElementTree as ElementTree
from dataclasses import replace
from itertools import combinations

import pytest

import glenside as gl
from glenside.egraph.search import program_snapshot
from glenside.egraph.snapshot import Snapshot
from glenside.ir.term import postorder
from glenside.report.egraph_picture import Picture
from glenside.report.egraph_view import EGraphView
from glenside.report.layered import Placed, placed

PRODUCT = "(compute dot-product (access-cartesian-product (access (access-tensor a) 1) (access (access-tensor b) 1)))"
EVIL = '</text><script>alert(1)</script>"&'
Sizes = dict[int, tuple[float, float]]


def points(path: str) -> list[tuple[float, float]]:
    """Points along a path of M, V and C."""
    found: list[tuple[float, float]] = []
    x = y = 0.0
    for kind, numbers in re.findall(r"([MVC])([^MVC]*)", path):
        at = [float(n) for n in numbers.split()]
        if kind == "M":
            x, y = at
        elif kind == "V":
            found += [(x, y + (at[0] - y) * t / 8) for t in range(9)]
            y = at[0]
        else:
            a, b, c, d, e, f = at
            for t in (i / 16 for i in range(17)):
                s = 1 - t
                found.append(
                    (
                        s**3 * x + 3 * s * s * t * a + 3 * s * t * t * c + t**3 * e,
                        s**3 * y + 3 * s * s * t * b + 3 * s * t * t * d + t**3 * f,
                    )
                )
            x, y = e, f
    return found


def assert_clear(layout: Placed, sizes: Sizes) -> None:
    boxes = {c: (x, y, x + sizes[c][0], y + sizes[c][1]) for c, (x, y) in layout.boxes.items()}
    for a, b in combinations(boxes.values(), 2):
        assert a[2] <= b[0] or b[2] <= a[0] or a[3] <= b[1] or b[3] <= a[1]
    for path in layout.paths:
        for x, y in points(path):
            assert not any(a + 0.5 < x < c - 0.5 and t + 0.5 < y < b - 0.5 for a, t, c, b in boxes.values()), path


@pytest.mark.parametrize("seed", range(12))
def test_edges_of_any_graph_keep_clear_of_boxes(seed: int) -> None:
    """Cycles, edges to a box itself, several between two boxes, and parts that nothing joins."""
    draw = random.Random(seed)
    count = draw.randint(1, 24)
    sizes = {c: (draw.uniform(20, 300), draw.uniform(20, 120)) for c in range(count)}
    edges = [(draw.randrange(count), draw.randrange(count), draw.random()) for _ in range(2 * count)]
    layout = placed(sizes, edges)
    assert layout.boxes.keys() == sizes.keys()
    assert [path == "" for path in layout.paths] == [a == b for a, b, _ in edges]
    assert_clear(layout, sizes)
    for (a, b, part), path in zip(edges, layout.paths, strict=True):
        if path:
            (x, y), (_, end) = points(path)[0], points(path)[-1]
            (left, top), (wide, high) = layout.boxes[a], sizes[a]
            assert x == pytest.approx(left + part * wide, abs=0.1)
            assert min(abs(y - top), abs(y - top - high)) < 0.1
            assert min(abs(end - layout.boxes[b][1]), abs(end - layout.boxes[b][1] - sizes[b][1])) < 0.1


def test_a_chain_is_drawn_straight_down() -> None:
    layout = placed({c: (100.0, 40.0) for c in range(5)}, [(c, c + 1, 0.5) for c in range(4)])
    assert len({round(x) for x, _ in layout.boxes.values()}) == 1
    assert [layout.boxes[c][1] for c in range(5)] == sorted(layout.boxes[c][1] for c in range(5))


def test_an_empty_graph_is_a_picture_of_nothing() -> None:
    assert placed({}, []).width == 0


@pytest.fixture(scope="module")
def result() -> gl.Result:
    return gl.optimize(gl.parse(PRODUCT, shapes={"a": (5, 9), "b": (7, 9)}), gl.SystolicArray(4, 2), trace=True)


def test_the_picture_shows_the_chosen_program_and_says_what_it_leaves_out(result: gl.Result) -> None:
    whole = Picture(result.view.record, most=1_000)
    assert {result.egraph.owner[n] for n in result.choice.values()} <= {*whole.shown}
    few = Picture(result.view.record, most=5)
    assert len(few.shown) == 5
    assert f"5 of {result.egraph.e_classes} e-classes" in few.left_out
    root = ElementTree.fromstring(few.svg())
    words = ["".join(text.itertext()) for text in root.iter("{http://www.w3.org/2000/svg}text")]
    assert any("135 cycles" in word for word in words)
    assert few.left_out in " ".join(words)
    assert sum(word.startswith("● access") for word in words) >= 3


def test_a_picture_is_as_wide_as_a_page_and_styles_nothing_else(result: gl.Result) -> None:
    b = gl.Builder("wide")
    x = b.input("x", (1, 4, 6))
    y = x
    for i in range(30):
        y = b.add(y, b.conv(x, b.constant(f"w{i}", (4, 4, 1)), name=f"conv{i}"))
    wide = gl.optimize(b.finish(y), gl.SystolicArray(4, 4), verify=False).view.picture
    tree = gl.parse(
        "(compute relu (access-pair (access-tensor a) (access-tensor b)))", shapes={"a": (2, 2), "b": (2, 2)}
    )
    known = program_snapshot([*postorder(tree.term)])
    (pair,) = (node for node in known.nodes if len(node.children) == 2)
    leaf = next(node for node in known.nodes if not node.children)
    pairs, leaves = [replace(pair, children=(2 * c + 1, 2 * c + 2)) for c in range(31)], [leaf] * 32
    spread = Snapshot((*pairs, *leaves), (*range(63),), (known.types[0],) * 63, (0,), known.tensors, {})
    forest = EGraphView(spread).picture
    assert len(Picture(EGraphView(spread).record, most=36).shown) == 36
    assert 12 <= len(forest.shown) < 36
    assert f"{len(forest.shown)} of 63 e-classes" in forest.left_out
    for picture in (wide, forest, result.view.picture):
        root = ElementTree.fromstring(picture.svg())
        width, high = float(root.get("width", "")), float(root.get("height", ""))
        _, _, *drawn = map(float, root.get("viewBox", "").split())
        assert width <= 980
        assert width / high == pytest.approx(drawn[0] / drawn[1], rel=0.01)
        (style,) = (element.text or "" for element in root.iter("{http://www.w3.org/2000/svg}style"))
        selectors = [own for line in re.findall(r"([^{}]+)\{[^{}]*\}", style) for own in line.split(",")]
        assert selectors
        assert all(own.split()[0] == ".still" for own in selectors)
        assert root.get("class") == "still"


def test_a_picture_of_which_nothing_was_chosen_speaks_of_no_choice(result: gl.Result) -> None:
    assert "chosen:" in result.view.picture.svg()
    assert "chosen:" not in EGraphView(result.egraph).picture.svg()


def test_a_notebook_gets_the_picture_then_the_widget(result: gl.Result, monkeypatch: pytest.MonkeyPatch) -> None:
    """As two outputs: a notebook in static HTML shows the picture, whatever it makes of widgets."""
    display = pytest.importorskip("IPython.display", reason="IPython, which shows views in notebooks, is not installed")
    shown: list[dict[str, str]] = []
    monkeypatch.setattr(display, "display", lambda bundle, raw: shown.append(bundle))
    result.view._ipython_display_()
    assert shown[0]["image/svg+xml"].startswith("<svg")
    assert "application/vnd.jupyter.widget-view+json" not in shown[0]
    assert {bundle["text/plain"] for bundle in shown} == {repr(result.view)}
    pytest.importorskip("anywidget", reason="anywidget, which runs the viewer in notebooks, is not installed")
    assert ["application/vnd.jupyter.widget-view+json" in bundle for bundle in shown] == [False, True]
    widget = result.view.widget()
    assert '"patterns":' in widget.record
    assert "<" not in widget.record
    assert "arrange" in widget.worker
    assert widget._esm.rstrip().endswith("export default { render };")


def test_a_name_stays_text_in_a_picture() -> None:
    b = gl.Builder(EVIL)
    program = b.finish(b.conv(b.input("x", (1, 2, 6)), b.constant("w", (3, 2, 3)), name=EVIL))
    svg = gl.optimize(program, gl.SystolicArray(4, 2), verify=False).view.picture.svg()
    tags = {element.tag.rpartition("}")[2] for element in ElementTree.fromstring(svg).iter()}
    assert "script" not in tags
    assert "alert(1)" in svg
