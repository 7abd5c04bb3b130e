"""Tests pictures of e-graphs: their content, what they say they leave out, and refused file endings."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import glenside as gl
from glenside.ir.errors import BadInput
from glenside.report.draw import egraph_dot, left_out, nearest_classes, write_egraph

TEXT = "(compute dot-product (access-cartesian-product (access (access-tensor a) 1) (access (access-tensor b) 1)))"


@pytest.fixture(scope="module")
def result() -> gl.Result:
    return gl.optimize(gl.parse(TEXT, shapes={"a": (5, 9), "b": (7, 9)}), gl.SystolicArray(4, 2))


def test_dot_has_every_class_and_node_of_a_small_egraph(result: gl.Result) -> None:
    text = egraph_dot(result.egraph, result.choice, limit=10_000)
    reachable = nearest_classes(result.egraph, 10_000)
    assert text.count("subgraph cluster_") == len(reachable)
    assert text.count("fillcolor") == len(set(result.choice.values()))
    assert text.count("{") == text.count("}")


def test_json_has_all_of_it(result: gl.Result, tmp_path: Path) -> None:
    path = tmp_path / "e.json"
    assert write_egraph(result.view, str(path)) == ""
    content = json.loads(path.read_text())
    assert len(content["nodes"]) == result.egraph.e_nodes
    assert len(content["classes"]) == result.egraph.e_classes
    assert sum(node["chosen"] for node in content["nodes"]) == len(result.choice)


@pytest.mark.parametrize(("ending", "start"), [("png", b"\x89PNG"), ("svg", b"<svg"), ("pdf", b"%PDF")])
def test_pictures_are_what_their_ending_says(result: gl.Result, tmp_path: Path, ending: str, start: bytes) -> None:
    path = tmp_path / f"e.{ending}"
    write_egraph(result.view, str(path))
    assert path.read_bytes().startswith(start)


def test_a_large_egraph_says_what_is_left_out(result: gl.Result) -> None:
    assert left_out(result.egraph, 10).startswith(f"The picture shows the 10 of {result.egraph.e_classes} e-classes")
    assert "label=" in egraph_dot(result.egraph, limit=10)


def test_an_unknown_ending_is_refused(result: gl.Result, tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"written as .html"):
        write_egraph(result.view, str(tmp_path / "e.bmp"))
    assert not list(tmp_path.iterdir())
