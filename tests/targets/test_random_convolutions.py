"""Tests random convolutions on every target: no search fails, and each answer is equal to the original."""

from __future__ import annotations

import random

import pytest
from fuzzing import Fuzzing

import glenside as gl
from glenside.builder import Builder
from glenside.check import is_equal

TARGETS = (gl.MPC(), gl.SystolicArray(3, 2), gl.NPU(4, 4), gl.CPU("8MB"), gl.ConvolutionUnit())


def convolution(seed: int) -> gl.Program:
    """Along one to three axes: strides, dilations, paddings, groups; one of four is transposed."""
    r = random.Random(seed)
    axes, groups = r.choice((1, 2, 2, 3)), r.choice((1, 1, 2))
    inputs, outputs = groups * r.randint(1, 2), groups * r.randint(1, 2)
    kernel = [r.randint(1, 3) for _ in range(axes)]
    how = {"strides": [r.randint(1, 3) for _ in range(axes)], "dilations": [r.randint(1, 3) for _ in range(axes)]}
    padding = [(r.randint(0, 3), r.randint(0, 3)) for _ in range(axes)]
    transposed = r.random() < 0.25
    spans = [(k - 1) * d + 1 for k, d in zip(kernel, how["dilations"], strict=True)]
    sizes = [max(1, span - sum(pad)) + r.randint(0, 3) for span, pad in zip(spans, padding, strict=True)]
    b = Builder(f"convolution-{seed}")
    x = b.input("x", (r.randint(1, 2), inputs, *sizes))
    if transposed:
        w = b.constant("w", (inputs, outputs // groups, *kernel))
        return b.finish(b.conv_transpose(x, w, groups=groups, **how))
    w = b.constant("w", (outputs, inputs // groups, *kernel))
    return b.finish(b.conv(x, w, groups=groups, padding=padding, **how))


def assert_equal_on(target: gl.Target, program: gl.Program) -> None:
    result = gl.optimize(program, target, limits=gl.Limits(iterations=40, nodes=20_000))
    assert not result.report.faults, (str(program), result.report.faults)
    assert is_equal(result.report.checked), (str(program), result.report.checked)


@pytest.mark.slow
def test_dilations_of_one_axis_alone_on_two_parties() -> None:
    b = Builder("mixed")
    x, w = b.input("x", (1, 1, 2, 6)), b.constant("w", (1, 1, 3, 2))
    assert_equal_on(gl.MPC(), b.finish(b.conv(x, w, padding=[(0, 3), (3, 1)], dilations=(1, 3))))


@pytest.mark.parametrize("seed", range(2))
def test_random_convolutions_on_two_parties(seed: int) -> None:
    assert_equal_on(gl.MPC(), convolution(seed))


@pytest.mark.slow
@pytest.mark.parametrize("target", TARGETS, ids=lambda t: t.name)
def test_many_random_convolutions_on_every_target(target: gl.Target, fuzzing: Fuzzing) -> None:
    for seed in fuzzing.seeds(25):
        assert_equal_on(target, convolution(seed))
