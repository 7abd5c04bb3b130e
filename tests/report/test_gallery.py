"""Tests the pictures of the README: small, drawn by a script, and all of them shown."""

from __future__ import annotations

import re
from itertools import pairwise
from pathlib import Path
from xml.etree import ElementTree

import glenside as gl
from glenside.report.plots import front_figure

ROOT = Path(__file__).parent.parent.parent
PICTURES = ROOT / "docs" / "pictures"


def test_the_readme_shows_every_picture_and_none_is_large() -> None:
    shown = {ROOT / path for path in re.findall(r"!\[[^]]*\]\(([^)]+)\)", (ROOT / "README.md").read_text())}
    assert shown == {*PICTURES.glob("*.svg"), *PICTURES.glob("*.png")}
    for path in shown:
        if path.suffix == ".png":
            assert path.stat().st_size < 400_000
            continue
        assert path.stat().st_size < 100_000
        elements = {element.tag.rpartition("}")[2] for element in ElementTree.parse(path).iter()}
        assert {"svg", "path"} <= elements
        assert not elements & {"script", "foreignObject", "image"}  # which code hosts drop


def test_a_front_of_more_than_two_measures_is_drawn_by_the_first_two() -> None:
    b = gl.Builder("front")
    x = b.conv(b.input("x", (1, 6, 10, 10)), b.constant("w", (6, 1, 3, 3)), groups=6, name="depthwise")
    result = gl.optimize(b.finish(x), gl.NPU(8), verify=False)
    assert len(result.report.front) > 2
    (panel, *_) = front_figure(result.report).axes
    assert (panel.get_ylabel(), panel.get_xlabel()) == ("cycles", "bytes")
    (front,) = (line for line in panel.lines if line.get_label() == "front")
    points = sorted(zip(*front.get_data(), strict=True))
    assert all(a[1] > b[1] for a, b in pairwise(points))
