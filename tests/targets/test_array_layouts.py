"""Tests cycles and copies as objectives of one search: no worse in either than when it is searched alone."""

from __future__ import annotations

import json

import pytest

import glenside as gl
from glenside.targets.base import Scope, Way

BOTH = ("cycles", "copies")


def _network(channels: int = 8) -> gl.Program:
    """Two convolutions and a depthwise one between them, with activations, written in NCHW."""
    b = gl.Builder("small")
    wide = 3 * channels // 2
    x = b.input("x", (1, channels, 9, 7))
    first, middle = b.constant("v", (wide, channels, 3, 3)), b.constant("w", (wide, 1, 3, 3))
    x = b.relu(b.conv(x, first, padding=1, name="first"))
    x = b.relu(b.conv(x, middle, padding=1, groups=wide, name="middle"))
    return b.finish(b.conv(x, b.constant("u", (channels, wide, 1, 1)), name="last"))


@pytest.mark.slow
@pytest.mark.parametrize("size", [(8, 5), *((n, n) for n in (4, 16))])
def test_neither_objective_pays_for_the_other(size: tuple[int, int]) -> None:
    program = _network()
    both = gl.optimize(program, gl.SystolicArray(*size, objectives=BOTH))
    cycles = gl.optimize(program, gl.SystolicArray(*size))
    copies = gl.optimize(program, gl.ConvolutionUnit())
    assert both.cost["cycles"] == cycles.cost["cycles"]
    assert both.cost["copies"] == copies.cost["copies"] < both.report.baseline["copies"]
    assert {row.name: row.measures["cycles"] for row in both.report.layers} == {
        row.name: row.measures["cycles"] for row in cycles.report.layers
    }
    assert (both.report.gap, both.stopped, both.report.ok) == (0, "saturated", True)


def test_it_is_one_search_of_the_network() -> None:
    target = gl.SystolicArray(8, 8, objectives=BOTH)
    assert target.scope(Way()) is Scope.NETWORK
    assert [m.name for m in target.measures] == ["cycles", "copies", "copies inside", "copies made"]
    assert gl.SystolicArray(8, 8).scope(Way()) is Scope.LAYERS_AND_BETWEEN


def test_layouts_enter_only_where_they_are_asked_for() -> None:
    result = gl.optimize(_network(), gl.SystolicArray(8, 8), verify=False)
    assert "copies" not in result.cost
    assert not any("rearrang" in rule for rule in result.report.rules)


def test_the_report_lists_the_copies() -> None:
    content = gl.optimize(_network(), gl.SystolicArray(8, 8, objectives=BOTH), verify=False).report.as_dict()
    assert json.loads(json.dumps(content))["copies"]["bytes"] == content["copies"]["bytes"]
    assert len(content["copies"]["chosen"]) == content["totals"]["chosen"]["copies made"]


def test_copies_first_is_another_order_of_the_same() -> None:
    first = gl.optimize(_network(), gl.SystolicArray(8, 8, objectives=("copies", "cycles")), verify=False)
    assert first.cost["copies"] == gl.optimize(_network(), gl.ConvolutionUnit(), verify=False).cost["copies"]


def test_other_objectives_beside_copies_are_refused() -> None:
    with pytest.raises(gl.GlensideError, match="beside copies only cycles are counted"):
        gl.SystolicArray(8, 8, objectives=("bytes", "copies"))


def test_options_of_mappings_are_refused() -> None:
    with pytest.raises(gl.GlensideError, match="has no option --mapping"):
        gl.optimize(_network(), gl.SystolicArray(8, 8, objectives=BOTH), mapping="baseline")


@pytest.mark.slow
def test_an_empty_product_needs_no_array() -> None:
    text = "(compute dot-product (access-cartesian-product (access (access-tensor x) 1) (access (access-tensor w) 1)))"
    program = gl.parse(text, shapes={"x": (0, 5), "w": (4, 5)})
    result = gl.optimize(program, gl.SystolicArray(4, 4, objectives=BOTH))
    assert (result.cost["cycles"], result.report.mapped, result.report.ok) == (0, 1, True)
