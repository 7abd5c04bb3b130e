"""Tests that a program made by `gl.gradient` records its source program, and that `result.check()` compares both."""

from __future__ import annotations

from dataclasses import replace

import pytest

import glenside as gl
from glenside.builder.layout import transpose
from glenside.builder.pointwise import relu
from glenside.builder.products import matmul
from glenside.ir.program import GradientOf, Program
from glenside.ir.term import build
from glenside.ir.types import Dims, Tensor


@pytest.fixture
def network() -> Program:
    x, w = (build("access-tensor", Tensor(name, Dims((4, 4)), "float32", name == "w")) for name in "xw")
    return Program(build("compute", "reduce-sum", relu(matmul(x, w).result)), "network")


def test_a_gradient_remembers_what_it_is_of(network: Program) -> None:
    gradient = gl.gradient(network, ["w", "x"])
    said = gradient.gradient_of
    assert said is not None
    assert (said.program, said.wrt, said.of, said.cotangents) == (network, ["w", "x"], None, [])
    assert replace(gradient, name="renamed").gradient_of == said
    assert replace(gradient, term=gradient.term.children[0]).gradient_of is None


def test_results_are_held_to_what_they_are_the_gradients_of(network: Program) -> None:
    result = gl.optimize(gl.value_and_gradient(network, ["w", "x"]), gl.SystolicArray(4, 4))
    assert result.check().ok
    assert any(text.startswith("gradients of network: 2 of 2 exact") for text in result.report.remarks)


def test_a_gradient_that_is_wrong_is_no_right_result(network: Program) -> None:
    """The optimized program is equal to the original, and that is no gradient."""
    right = gl.gradient(network, ["w", "x"])
    by_w, by_x = right.term.children
    term = build("construct-tuple", build("access", transpose(by_w, (1, 0)), 0), by_x)
    wrong = Program(term, "wrong", gradient_of=GradientOf(term, network, ["w", "x"], None, []))
    verdict = gl.optimize(wrong, gl.SystolicArray(4, 4)).check()
    assert verdict.result == "differs: gradient with respect to w, first at (0, 1)"
    assert not verdict.ok


@pytest.mark.parametrize("of", [None, "product-1"])
def test_gradients_of_named_terms_are_held_to_those(network: Program, of: str | None) -> None:
    made = gl.gradient(network, "w", of=of, cotangent="u").gradient_of
    assert made is not None
    answer = gl.gradient(network, "w", of=of, cotangent="u")
    report = gl.check_gradient(network, answer, made.wrt, of=made.of, cotangents=made.cotangents)
    assert report.gradients == {"w": "exact"}
