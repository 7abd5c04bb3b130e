"""Tests the still picture of tiles: exactly the cells with a number are painted, once; names are escaped."""

from __future__ import annotations

import re
from xml.etree import ElementTree

import numpy as np
import pytest

import glenside as gl
from glenside.ir.errors import BadInput
from glenside.report.tile import Source, Tile, baseline_tiles, tiles_of
from glenside.report.tile_picture import layer_picture, tile_picture

SVG = "{http://www.w3.org/2000/svg}"


def _painted(group: ElementTree.Element, rows: int, columns: int) -> np.ndarray:
    times = np.zeros((rows, columns), int)
    for path in group.iter(f"{SVG}path"):
        for x, y, way, length in re.findall(r"M([\d.]+) ([\d.]+)([hv])(\d+)", path.attrib["d"]):
            c, r, n = int(float(x)), int(float(y)), int(length)
            times[r : r + (n if way == "v" else 1), c : c + (n if way == "h" else 1)] += 1
    return times


def _held(tile: Tile) -> np.ndarray:
    return np.cumsum(np.repeat(tile.cells[::2], tile.cells[1::2])).reshape(tile.rows, tile.columns) > 0


@pytest.fixture(scope="module")
def result() -> gl.Result:
    b = gl.Builder("tiles")
    x = b.input("x", (1, 5, 9, 9))
    x = b.relu(b.conv(x, b.constant("w", (7, 5, 3, 3)), padding=1, name="<script>"))
    x = b.relu(b.conv(x, b.constant("d", (7, 1, 3, 3)), padding=1, groups=7, name="depthwise"))
    x = b.conv(x, b.constant("p", (4, 7, 1, 1)), strides=2, name="pointwise")
    return gl.optimize(b.finish(x), gl.SystolicArray(8, 6), verify=False)


def test_places_that_hold_numbers_are_painted_once(result: gl.Result) -> None:
    for name, layer in result.program.layers.items():
        picture = ElementTree.fromstring(layer_picture(result, name))
        groups = picture.findall(f"{SVG}g")
        tiles = [baseline_tiles(result.prepared.layers[name], 8, 6)[0], tiles_of(layer)[0]]
        assert len(groups) == 2
        for group, tile in zip(groups, tiles, strict=True):
            assert (_painted(group, 8, 6) == _held(tile)).all()


def test_a_tile_says_what_it_holds_and_names_are_text(result: gl.Result) -> None:
    picture = layer_picture(result, "<script>")
    words = [element.text for element in ElementTree.fromstring(picture).iter(f"{SVG}text")]
    assert "<script>" not in picture
    assert words[0] is not None
    assert words[0].startswith("<script>: ")
    row = next(row for row in result.report.layers if row.name == "<script>")
    assert any(str(row.measures["cycles"]) + " cycles" in (text or "").replace(",", "") for text in words)
    assert f"{tiles_of(result.program.layers['<script>'])[0].used} of 48 places" in picture


def test_equal_elements_look_alike_and_those_beside_them_do_not() -> None:
    tile = Tile(1, 4, 1, 1, (Source("w", (2,)),), (1, 2, 0, 1, -1, 1), 4)  # elements 1 2 2 1
    paths = list(ElementTree.fromstring(tile_picture("t", [(["a"], tile)])).iter(f"{SVG}path"))
    assert [path.attrib["d"] for path in paths] == ["M0 0.5h1M3 0.5h1", "M1 0.5h2"]
    assert len({path.attrib["stroke"] for path in paths}) == 2


def test_what_has_no_tile_is_said(result: gl.Result) -> None:
    with pytest.raises(BadInput, match="there is no layer nothing; the first ones are <script>, depthwise"):
        layer_picture(result, "nothing")
    unmapped = gl.optimize(result.original, gl.ConvolutionUnit("nhwc"), verify=False)
    with pytest.raises(BadInput, match="depthwise has no tile of weights in an array"):
        layer_picture(unmapped, "depthwise")
