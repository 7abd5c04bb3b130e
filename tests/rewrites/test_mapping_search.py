"""Tests the mapping search against brute force over every combination, for any layer, array and dataflow."""

from __future__ import annotations

from typing import Any

import mapping_oracle as oracle
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

import glenside as gl
from glenside.builder import Builder
from glenside.ir.program import Program
from glenside.targets.arrays.array import Array
from glenside.targets.base import InstructionCost

ARRAYS = [(24, 40)]
ARRAYS += [
    pytest.param(*a, marks=pytest.mark.slow) for a in ((16, 16), (7, 200), (8, 8), (64, 64), (256, 256), (128, 32))
]
FLOWS = {
    "weight-stationary": oracle.weight_stationary,
    "output-stationary": oracle.output_stationary,
    "double-buffered": oracle.double_buffered,
}


@st.composite
def convolutions(draw: Any) -> Program:
    """Returns a convolution of one to three axes, with whatever attributes it may have."""
    axes = draw(st.integers(1, 3))
    groups = draw(st.sampled_from((1, 1, 2, 3, 5, 8)))
    channels, filters = groups * draw(st.integers(1, 4)), groups * draw(st.integers(1, 3))
    kernel = [draw(st.integers(1, 4 if axes < 3 else 2)) for _ in range(axes)]
    strides = [draw(st.integers(1, 3)) for _ in range(axes)]
    dilations = [draw(st.integers(1, 3)) for _ in range(axes)]
    sizes = [draw(st.integers(1, 12 if axes < 3 else 5)) for _ in range(axes)]
    padding = [(draw(st.integers(0, 2)), draw(st.integers(0, 2))) for _ in range(axes)]
    for n, k, d, (before, after) in zip(sizes, kernel, dilations, padding, strict=True):
        assume(n + before + after >= (k - 1) * d + 1)
    b = Builder("random")
    x = b.input("x", (draw(st.integers(1, 3)), channels, *sizes))
    w = b.constant("w", (filters, channels // groups, *kernel))
    return b.finish(b.conv(x, w, strides=strides, padding=padding, dilations=dilations, groups=groups))


def serves_holes(layer: oracle.Layer) -> bool:
    """True if a window that serves several outputs holds elements that none of them reads: not looked for yet."""
    axes = zip(layer.kernels, layer.strides, layer.dilations, strict=True)
    return any(k > 1 and t > 1 and d % t and t % d for k, t, d in axes)


FEW = settings(max_examples=8, deadline=None, suppress_health_check=list(HealthCheck))
MANY = settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))


@pytest.mark.parametrize("flow", FLOWS)
@FEW
@given(convolutions(), st.integers(1, 40), st.integers(1, 40))
def test_never_worse_than_brute_force_and_exact(flow: str, program: Program, rows: int, columns: int) -> None:
    hold_to_brute_force(flow, program, rows, columns)


@pytest.mark.slow
@pytest.mark.parametrize("flow", FLOWS)
@MANY
@given(convolutions(), st.integers(1, 80), st.integers(1, 80))
def test_never_worse_than_brute_force_and_exact_many(flow: str, program: Program, rows: int, columns: int) -> None:
    hold_to_brute_force(flow, program, rows, columns)


def hold_to_brute_force(flow: str, program: Program, rows: int, columns: int) -> None:
    result = gl.optimize(program, gl.SystolicArray(rows, columns, dataflow=flow), exact_order=True)
    (row,) = result.report.layers
    (layer,) = oracle.layers_of(program).values()
    assert row.checked == "exact", row
    if not serves_holes(layer):
        least = oracle.best(layer, rows, columns, cycles=FLOWS[flow], crossing=True).cycles
        assert row.measures["cycles"] <= least, row
    assert (row.gap, row.lower_bound) == (0, row.measures["cycles"])
    assert row.baseline["cycles"] == oracle.baseline(layer, rows, columns, cycles=FLOWS[flow])
    assert result.stopped == "saturated"


@pytest.mark.slow
@pytest.mark.parametrize(("rows", "columns"), ARRAYS)
def test_mobilenet_v1_is_never_worse_than_brute_force(rows: int, columns: int) -> None:
    program = gl.models.mobilenet_v1()
    result = gl.optimize(program, gl.SystolicArray(rows, columns), verify=False)
    for row, layer in zip(result.report.layers, oracle.layers_of(program).values(), strict=True):
        assert row.measures["cycles"] <= oracle.best(layer, rows, columns, crossing=True).cycles, row


@pytest.mark.slow
def test_mobilenet_v1_on_64x64_takes_a_sixth_of_the_baseline_cycles() -> None:
    result = gl.optimize(gl.models.mobilenet_v1(), gl.SystolicArray(64, 64))
    assert result.report.ok
    assert result.cost["cycles"] <= 537_000
    assert result.report.baseline["cycles"] == 3_219_520
    assert result.report.gap == 0


class Unbounded(Array):
    """An array of which nothing is known to be the least."""

    def bound(self, work: Any, depth: Any, results: Any, weights: Any) -> InstructionCost:
        return InstructionCost(0 * work, 0, 0 * work)


@pytest.mark.slow
@FEW
@given(convolutions(), st.integers(1, 24), st.integers(1, 24), st.sampled_from(tuple(FLOWS)), st.booleans())
def test_the_bound_never_cuts_the_optimum(program: Program, rows: int, columns: int, flow: str, by_bytes: bool) -> None:
    """Without a bound every plan is followed to its end: nothing cheaper comes of it."""
    objectives = ("bytes",) if by_bytes else ("cycles",)
    target, blind = (gl.SystolicArray(rows, columns, dataflow=flow, objectives=objectives) for _ in range(2))
    blind.array = Unbounded(**vars(target.array))
    with_bound, without = (gl.optimize(program, t, verify=False).cost for t in (target, blind))
    assert with_bound[objectives[0]] == without[objectives[0]]


def test_the_size_of_the_egraph_does_not_depend_on_the_number_of_tiles() -> None:
    sizes = {}
    for n in (8, 80, 800, 8000):
        text = (
            "(compute dot-product (access-cartesian-product (access (access-tensor a) 1) (access (access-tensor b) 1)))"
        )
        program = gl.parse(text, shapes={"a": (n + 1, n + 1), "b": (n + 1, n + 1)})
        result = gl.optimize(program, gl.SystolicArray(4, 4), verify=False)
        sizes[result.cost["tiles"]] = result.report.e_nodes
    assert len(sizes) == 4
    assert len(set(sizes.values())) == 1, sizes


def test_windows_on_the_right_are_regrouped_too() -> None:
    """The same convolution with its operands the other way round: as few cycles."""
    windows = "(access-windows (access (access-tensor x) 1) (shape 4 3 3) (shape 1 1 1))"
    weights = "(access (access-tensor w) 1)"
    found = []
    for left, right in ((windows, weights), (weights, windows)):
        text = f"(compute dot-product (access-cartesian-product {left} {right}))"
        program = gl.parse(text, shapes={"x": (1, 4, 30, 30), "w": (3, 4, 3, 3)})
        (row,) = gl.optimize(program, gl.SystolicArray(64, 64)).report.layers
        assert row.checked == "exact"
        found.append(row.measures["cycles"])
    assert found[0] == found[1] < row.baseline["cycles"]


@pytest.mark.slow
def test_loops_of_the_baseline_are_the_same_rows_as_slices() -> None:
    program = gl.models.mobilenet_v1(resolution=64)
    keys = ("name", "groups", "m", "k", "n", "mapped")
    rows = []
    for how in ({"blocking": "unrolled-tiles"}, {"blocking": "tile-loops", "mapping": "baseline"}):
        report = gl.optimize(program, gl.SystolicArray(96, 80), **how).report
        assert report.ok
        rows.append(
            [
                (*(getattr(row, key) for key in keys), row.measures["tiles"], row.measures["cycles"], row.baseline)
                for row in report.layers
            ]
        )
    assert rows[0] == rows[1]


TINY: dict[str, dict[str, Any]] = {
    "mobilenet-v2": {"resolution": 32, "width": 0.1},
    "mobilenet-v3-large": {"resolution": 32, "width": 0.1},
    "resnet-18": {"resolution": 32, "classes": 5},
    "resnet-50": {"resolution": 32, "classes": 5},
    "efficientnet-lite0": {"resolution": 32, "classes": 5},
    "unet-small": {"resolution": 16, "base": 3, "levels": 2},
    "bert-base": {"layers": 1, "hidden": 12, "heads": 2, "sequence": 5, "vocabulary": 11},
    "vit-s-16": {"layers": 1, "hidden": 12, "heads": 3, "resolution": 32, "classes": 5},
}


_LONG = ("resnet-18", "mobilenet-v2", "resnet-50", "mobilenet-v3-large", "efficientnet-lite0")


@pytest.mark.parametrize("name", [pytest.param(n, marks=[pytest.mark.slow] if n in _LONG else []) for n in TINY])
def test_every_layer_of_a_network_is_mapped_and_exact(name: str) -> None:
    result = gl.optimize(gl.models.load(name, **TINY[name]), gl.SystolicArray(8, 4))
    assert result.report.ok, [(r.name, r.checked, r.nearest_miss) for r in result.report.layers if r.checked != "exact"]
    assert result.report.gap == 0
