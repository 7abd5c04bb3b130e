"""Tests products of training steps on arrays: never worse than brute force over each of them, and exact."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import mapping_oracle as oracle
import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from rule_checks import saturated
from slow_cases import quick

import glenside as gl
from glenside.builder import Builder
from glenside.check import is_equal
from glenside.egraph.encode import program_nodes
from glenside.gradients.step_options import step_from_options
from glenside.ir.term import build
from glenside.rewrites import of_families
from glenside.semantics.interpreter import evaluate
from glenside.targets.base import Way

FLOWS = {
    "weight-stationary": oracle.weight_stationary,
    "output-stationary": oracle.output_stationary,
    "double-buffered": oracle.double_buffered,
}
FEW = settings(max_examples=3, deadline=None, suppress_health_check=list(HealthCheck))
MANY = settings(max_examples=80, deadline=None, suppress_health_check=list(HealthCheck))


@st.composite
def networks(draw: Any) -> tuple[gl.Program, tuple[int, int], int]:
    """Returns a convolution of images, often depthwise, and one before it, so that both have gradients; its input's
    sizes, and their padding.
    """
    groups, batch = draw(st.sampled_from((1, 2, 3, 8, 11))), draw(st.integers(1, 3))
    filters = groups * draw(st.integers(1, 2))
    kernel, stride = draw(st.integers(1, 3)), draw(st.integers(1, 2))
    height, width = (draw(st.integers(1, 8)) for _ in range(2))
    padding, dilation = draw(st.integers(0, 1)), draw(st.sampled_from((1, 1, 2)))
    assume(min(height, width) + 2 * padding >= (kernel - 1) * dilation + 1)
    b = Builder("random")
    x = b.input("x", (batch, 2, height, width))
    y = b.conv(x, b.constant("v", (groups, 2, 1, 1)), name="first")
    w = b.constant("w", (filters, 1, kernel, kernel))
    strided = {"strides": stride, "padding": padding, "dilations": dilation}
    program = b.finish(b.conv(b.relu(y), w, groups=groups, name="second", **strided))
    return program, (height, width), padding


def hold_to_brute_force(flow: str, network: tuple[gl.Program, tuple[int, int], int], rows: int, columns: int) -> None:
    program, sizes, padding = network
    step, _ = step_from_options(program)
    second = oracle.layers_of(program)["second"]
    result = gl.optimize(step.program, gl.SystolicArray(rows, columns, dataflow=flow))
    assert result.stopped == "saturated"
    assert is_equal(result.report.checked)
    for row in result.report.layers:
        layer = oracle.matmul(row.groups, row.m, row.k, row.n)
        assert is_equal(row.checked), row
        least = oracle.best(layer, rows, columns, cycles=FLOWS[flow], crossing=True).cycles
        assert row.measures["cycles"] <= least, row
        assert row.baseline["cycles"] == oracle.baseline(layer, rows, columns, cycles=FLOWS[flow])
        assert row.gap == 0
        plain = max(second.dilations) == 1 and min(*second.kernels, *second.sizes, *sizes) > 1
        if row.name == "second.input-gradient" and plain:  # others have no other form: docs/training.md, limits
            for form in oracle.of_gradients(second, sizes, (padding, padding)):
                found = [oracle.best(of_form, rows, columns, FLOWS[flow], dilated_span=True) for of_form in form]
                assert row.measures["cycles"] <= sum(mapping.cycles for mapping in found), form


@pytest.mark.slow
@pytest.mark.parametrize("flow", FLOWS)
@MANY
@given(networks(), st.integers(1, 40), st.integers(1, 40))
def test_products_of_a_step_are_never_worse_than_brute_force_many(
    flow: str, network: tuple[gl.Program, tuple[int, int], int], rows: int, columns: int
) -> None:
    hold_to_brute_force(flow, network, rows, columns)


@pytest.mark.parametrize(
    ("groups", "m", "k", "n"),
    quick([(32, 1, 500, 9), (7, 1, 40, 1), (5, 3, 17, 2), (64, 2, 64, 3), (9, 40, 5, 2)], 1, 2, unpacked=True),
)
@pytest.mark.parametrize(
    "flow", [pytest.param(f, marks=pytest.mark.slow if f != "output-stationary" else ()) for f in FLOWS]
)
def test_groups_are_crossed_where_that_is_best(flow: str, groups: int, m: int, k: int, n: int) -> None:
    text = "(compute dot-product (access-product (access (access-tensor x) 2) (access (access-tensor w) 2) 1))"
    program = gl.parse(text, shapes={"x": (groups, m, k), "w": (groups, n, k)})
    result = gl.optimize(program, gl.SystolicArray(16, 16, dataflow=flow))
    (row,) = result.report.layers
    assert row.checked == "exact"
    best = oracle.best(oracle.matmul(groups, m, k, n), 16, 16, cycles=FLOWS[flow], crossing=True)
    assert row.measures["cycles"] <= best.cycles
    assert best.crossed or groups != 32
    if best.crossed and row.measures["cycles"] == best.cycles:
        assert row.details["plan"]["crossed"]
        assert "groups crossed" in row.label or "channels crossed" in row.label


@pytest.mark.slow
@pytest.mark.parametrize("batch", [1, 32])
def test_the_step_of_mobilenet_v1_on_64x64(batch: int) -> None:
    step, _ = step_from_options(gl.models.mobilenet_v1(batch=batch))
    result = gl.optimize(step.program, gl.SystolicArray(64, 64), verify=False)
    assert (result.stopped, result.report.mapped, result.report.gap) == ("saturated", 83, 0)
    most, baseline = {1: (2_300_000, 13_166_016), 32: (42_800_000, 329_092_258)}[batch]
    assert result.report.baseline["cycles"] == baseline
    assert result.cost["cycles"] <= most
    for row in result.report.layers:
        layer = oracle.matmul(row.groups, row.m, row.k, row.n)
        assert row.measures["cycles"] <= oracle.best(layer, 64, 64, crossing=True).cycles, row


_GROUPS = "(compute dot-product (access-product (access (access-tensor a) 2) (access (access-tensor b) 2) 1))"
_ROWS = "(access (access-reshape (access-tensor {}) (access-shape (shape) (shape {} 20))) 1)"
_BLOCKS = (
    f"(access-reshape (access (compute dot-product (access-product {_ROWS.format('a', 4)} {_ROWS.format('b', 8)} 0)) 0)"
    " (access-shape (shape) (shape 4 4 2)))"
)  # of group i of a with group j of b
_PART = "(access-slice (access-slice {} 0 {} {}) 1 {} {})"


def _blocks(columns: Sequence[int]) -> str:
    """Returns the block of each group of a with that of b, as (4 1 2)()."""
    parts = [_PART.format(_BLOCKS, i, i + 1, j, j + 1) for i, j in enumerate(columns)]
    whole = parts[0]
    for part in parts[1:]:
        whole = f"(access-concatenate {whole} {part} 0)"
    return f"(access {whole} 3)"


@pytest.mark.parametrize("columns", [(0, 1, 2, 3), (1, 2, 3, 0), (0, 1, 3, 2)])
def test_blocks_beside_the_diagonal_are_refuted(columns: tuple[int, ...]) -> None:
    """By the rules of the target, which cross these groups."""
    texts, target = (_GROUPS, _blocks(columns)), gl.SystolicArray(8, 8)
    left, right = (gl.parse(text, shapes={"a": (4, 1, 20), "b": (4, 2, 20)}).term for text in texts)
    both = gl.Program(build("construct-tuple", left, right))
    values = {
        name: np.random.default_rng(1).integers(-9, 9, t.dims).astype(t.dtype) for name, t in both.tensors.items()
    }
    one, other = evaluate(both.term.children, values)
    assert np.array_equal(one, other) == (columns == (0, 1, 2, 3))
    nodes = program_nodes(both.term)
    rules = of_families(target.families(Way(), nodes))
    snapshot, search = saturated(both, rules, target.rule_parameters(), iterations=200)
    assert search.progress.stopped == "saturated"
    assert search.progress.rules["groups-are-crossed"].matches > 0
    if columns != (0, 1, 2, 3):
        assert snapshot.program[nodes.index(left)] != snapshot.program[nodes.index(right)]
