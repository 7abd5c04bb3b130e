"""Tests the picture of a network's layouts: every counted copy is there with its bytes, and names are text."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree

import pytest
from command_line import run

import glenside as gl
from glenside.ir.errors import BadInput
from glenside.report import network_picture as pictures
from glenside.report.network_picture import Network, layout_picture

SVG = "{http://www.w3.org/2000/svg}"


def network(blocks: int = 2) -> gl.Program:
    b = gl.Builder("<net>")
    x = b.relu(b.conv(b.input("x & y", (1, 3, 12, 12)), b.constant("w", (8, 3, 3, 3)), padding=1, name="first"))
    for i in range(blocks):
        y = b.relu(b.conv(x, b.constant(f"w{i}", (8, 8, 3, 3)), padding=1, name=f"<b>{i}"))
        x = b.relu(b.add(x, y))
    return b.finish(x)


@pytest.fixture(scope="module", params=["unit", "array"])
def result(request: pytest.FixtureRequest) -> gl.Result:
    array = gl.SystolicArray(8, 8, objectives=("cycles", "copies"))
    return gl.optimize(network(), gl.ConvolutionUnit("nhwc") if request.param == "unit" else array, verify=False)


def test_every_copy_is_a_box_with_its_bytes(result: gl.Result) -> None:
    told = result.report.sections["copies"]
    for program, which in ((result.original, "as written"), (result.program, "chosen")):
        found = Network.of(program, result.target.copies(program))
        assert sorted(step.bytes for step in found.copies) == sorted(copy["bytes"] for copy in told[which])
        assert all(a in found.steps and b in found.steps for a, b in found.edges)
        layers = [line.split(":")[0] for step in found.steps.values() if step.kind == "layer" for line in step.lines]
        assert {*program.layers} <= {*layers}
    assert len(told["as written"]) > len(told["chosen"])
    picture = ElementTree.fromstring(layout_picture(result))
    words = [element.text or "" for element in picture.iter(f"{SVG}text")]
    for copy in (*told["as written"], *told["chosen"]):
        assert f"{copy['bytes']:,} bytes" in words
    boxes = [rect for rect in picture.iter(f"{SVG}rect") if rect.attrib["class"] == "box copy"]
    assert len(boxes) == len(told["as written"]) + len(told["chosen"])
    assert words[0] == f"<net> on {result.target.name}"
    assert {"x & y", "result"} <= {*words}


def test_what_joins_a_path_again_stays_a_box_of_its_own() -> None:
    program = network(40)  # many steps: those in a row are one box
    found = Network.of(program, ())
    after = {a: sum(1 for edge in found.edges if edge[0] == a) for a in found.steps}
    assert sum(count == 2 for count in after.values()) == 40
    assert sum(step.kind == "layer" for step in found.steps.values()) == 41


def test_what_cannot_be_drawn_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    mapped = gl.optimize(network(), gl.SystolicArray(8, 8), verify=False)
    with pytest.raises(BadInput, match="systolic-array:8x8 counts no copies: a network is drawn for convolution-unit"):
        layout_picture(mapped)
    monkeypatch.setattr(pictures, "MOST", 5)
    with pytest.raises(BadInput, match="a picture has at most 5 steps, and <net> on convolution-unit:nhwc, as written"):
        layout_picture(gl.optimize(network(), gl.ConvolutionUnit(), verify=False))


def test_the_command_writes_it_or_refuses_its_ending(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source, picture = tmp_path / "net.json", tmp_path / "net.svg"
    gl.save(network(1), source)
    assert run("layout", source, "--plot", picture) == 0
    assert "copy into the unit" in picture.read_text()
    assert run("layout", source, "--plot", tmp_path / "net.png") == 2
    assert "a picture of a network is written as .svg, got " in capsys.readouterr().err
    assert not (tmp_path / "net.png").exists()
