"""Tests Winograd's convolutions: which forms exist, that all are equal, and their operations."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rule_checks import assert_all_equal

import glenside as gl
from glenside.egraph.encode import program_nodes
from glenside.egraph.saturation import Limits, Request, Saturation
from glenside.egraph.search import search
from glenside.egraph.snapshot import Snapshot
from glenside.ir.program import Program
from glenside.ir.term import Term, postorder
from glenside.rewrites import of_families
from glenside.targets.base import Way
from glenside.targets.mpc.target import MPC

FAMILIES = ("analyses", "recipe-analyses", "winograd")


@dataclass(frozen=True)
class Convolution:
    """One entry for each axis: size, window, stride, dilation, padding before and after."""

    sizes: tuple[int, ...]
    window: tuple[int, ...]
    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    padding: tuple[tuple[int, int], ...]
    batch: int = 1
    groups: int = 1
    channels: int = 1
    filters: int = 1
    """Of each group."""

    def program(self) -> Program:
        b = gl.Builder()
        x = b.input("x", (self.batch, self.groups * self.channels, *self.sizes))
        w = b.constant("w", (self.groups * self.filters, self.channels, *self.window))
        y = b.conv(x, w, strides=self.strides, dilations=self.dilations, padding=self.padding, groups=self.groups)
        return b.finish(y)

    def outputs(self) -> list[int]:
        rows = zip(self.sizes, self.window, self.strides, self.dilations, self.padding, strict=True)
        return [(lo + n + hi - (k - 1) * d - 1) // t + 1 for n, k, t, d, (lo, hi) in rows]

    def forms(self, wanted: Sequence[int]) -> set[str]:
        """What there should be: for each axis a choice of m, or none; axes of the product's result, the last first."""
        first = 2 if self.groups > 1 else 1
        choices: list[list[str]] = []
        for i, (h, r, t, d) in enumerate(zip(self.outputs(), self.window, self.strides, self.dilations, strict=True)):
            fits = [m for m in wanted if r > 1 and t == d and h > 1 and m + r - 1 <= 8 and m < 2 * h]
            choices.append(["", *(f"winograd:{first + i}:{m}:{r}" for m in fits)])
        return {" ".join(step for step in reversed(steps) if step) for steps in product(*choices)}


def _searched(program: Program, wanted: Sequence[int]) -> Snapshot:
    parameters = {"winograd": sum(1 << m for m in wanted)}
    nodes = program_nodes(program.term)
    request = Request.of(nodes, of_families(FAMILIES), parameters, Limits(iterations=200), reported=("recipe",))
    search = Saturation(request)
    assert search.run().stopped == "saturated"
    return search.snapshot(program.tensors)


@st.composite
def convolutions(draw: Any) -> Convolution:
    axes = draw(st.sampled_from([1, 1, 2, 2, 2, 3]))
    window = tuple(draw(st.integers(1 if axes > 1 else 2, 5 if axes < 3 else 3)) for _ in range(axes))
    steps = [draw(st.sampled_from([(1, 1), (1, 1), (1, 1), (2, 2), (2, 1), (1, 2)])) for _ in range(axes)]
    padding = tuple((draw(st.integers(0, 2)), draw(st.integers(0, 2))) for _ in range(axes))
    sizes = tuple(
        draw(st.integers(max(1, (k - 1) * d + 1 - lo - hi), (k - 1) * d + 7 // axes + 2))
        for k, (_, d), (lo, hi) in zip(window, steps, padding, strict=True)
    )
    strides, dilations = zip(*steps, strict=True)
    few = st.integers(1, 2)
    return Convolution(
        sizes, window, strides, dilations, padding, draw(few), draw(st.integers(1, 3)), draw(few), draw(few)
    )


@settings(max_examples=8, deadline=None)
@given(convolutions(), st.sampled_from([(2,), (3,), (2, 4)]))
def test_every_form_of_any_convolution_is_found_and_equal(convolution: Convolution, wanted: tuple[int, ...]) -> None:
    snapshot = _searched(convolution.program(), wanted)
    assert {words for _, words in snapshot.facts["recipe"]} == convolution.forms(wanted)
    assert_all_equal(snapshot)


def _variant(program: Program, recipe: str) -> Term:
    """Returns the cheapest term of a recipe, as a target for secure computation extracts it."""
    (layer,) = program.layers.values()
    target = MPC(outputs=(2, 4))
    root = target.root(layer)
    nodes = program_nodes(root)
    rules = of_families(target.families(Way(), nodes))
    searched = search(nodes, rules, target.rule_parameters(), reported=("recipe",))
    found = target.strategy(target, searched, Way()).layer(searched.snapshot.program[-1], root)
    term = next(v.term for v in found.variants if v.recipe == recipe)
    assert term is not None
    return term


def test_two_dimensions_are_tiles_and_two_maps_of_each_operand() -> None:
    """Tiles of 6 x 4 elements in steps of 4 x 2, not windows of windows; products over channels only."""
    program = Convolution((9, 11), (3, 3), (1, 1), (1, 1), ((1, 1), (1, 1)), channels=5, filters=7).program()
    term = _variant(program, "winograd:2:2:3 winograd:1:4:3")
    nodes = list(postorder(term))
    (windows,) = (t for t in nodes if t.operator.name == "access-windows")
    assert windows.attributes == ((5, 6, 4), (1, 4, 2))
    (made,) = (t for t in nodes if t.operator.name == "compute")
    assert made.children[0].access.dims == (6, 4, 1, 3, 6, 7, 2, 5)
    maps = Counter(t.attributes[1] for t in nodes if t.operator.name == "linear-map")
    assert maps == {6: 2, 4: 3, 2: 1}  # rows: data and filter to 6 and to 4, results to 4 and to 2


def test_the_search_of_a_layer_is_small() -> None:
    """64 channels of 32 x 32, F(2, 3) and F(4, 3) along both axes: nine forms."""
    layer = Convolution((32, 32), (3, 3), (1, 1), (1, 1), ((1, 1), (1, 1)), channels=64, filters=64)
    started = time.perf_counter()
    snapshot = _searched(layer.program(), (2, 4))
    assert time.perf_counter() - started < 5
    assert len(snapshot.facts["recipe"]) == 9
    assert snapshot.e_nodes < 300


@pytest.mark.parametrize("dtype", ["int32", "int8"])
def test_integers_have_no_fractions(dtype: str) -> None:
    b = gl.Builder()
    made = b.conv(b.input("x", (1, 2, 7, 9), dtype), b.constant("w", (3, 2, 3, 3), dtype))
    assert {words for _, words in _searched(b.finish(made), (2, 4)).facts["recipe"]} == {""}


def test_weights_may_come_first() -> None:
    windows = "(access-windows (access (access-tensor x) 1) (shape 3) (shape 1))"  # (3 7)(3)
    text = f"(compute dot-product (access-product (access (access-tensor w) 1) {windows} 0))"
    snapshot = _searched(gl.parse(text, shapes={"x": (3, 9), "w": (5, 3)}), (2, 4))
    assert {words for _, words in snapshot.facts["recipe"]} == {"", "winograd:1:2:3", "winograd:1:4:3"}
    assert_all_equal(snapshot)
