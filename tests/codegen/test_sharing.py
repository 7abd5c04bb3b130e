"""Tests the choice of parallel nests: its cost is the least among all choices, and programs follow it."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

import glenside as gl
from glenside.builder.layout import concatenate, slice_axis
from glenside.builder.pointwise import compute
from glenside.codegen.cost.count_work import is_shared
from glenside.codegen.loop_ir.ir import Loops
from glenside.codegen.passes.parallelize import decided
from glenside.codegen.pipeline import lower
from glenside.codegen.processor.model import MACHINES, Machine
from glenside.codegen.runtime.compiled_function import Lowered
from glenside.ir.program import Program

MACHINE = MACHINES["avx2"]
pytestmark = pytest.mark.usefixtures("shared_by_price")


def _layers(rows: int, width: int, layers: int = 3) -> Program:
    b, draw = gl.Builder("layers"), np.random.default_rng(rows * width)
    x = b.input("x", (rows, width))
    for i in range(layers):
        weights = draw.standard_normal((width, width)).astype(np.float32) / np.float32(width**0.5)
        x = compute("relu", b.linear(x, b.constant(f"w{i}", (width, width), value=weights)))
    return b.finish(x)


def _shared(loops: Loops) -> list[bool]:
    return [is_shared(nest) for nest in loops.nests]


def _passed(draw: np.random.Generator, count: int) -> dict[int, dict[int, float]]:
    found: dict[int, dict[int, float]] = {i: {} for i in range(count)}
    for i, j in product(range(count), repeat=2):
        if i < j and (j == i + 1 or draw.random() < 0.3):
            found[i][j] = found[j][i] = float(draw.integers(0, 9))
    return found


@pytest.mark.parametrize("seed", range(60))
def test_no_other_choice_costs_less(seed: int) -> None:
    draw = np.random.default_rng(seed)
    count = int(draw.integers(1, 9))
    passed = _passed(draw, count)
    spared = [float("-inf") if draw.random() < 0.2 else float(draw.integers(-12, 13)) for _ in range(count)]

    def cost(shared: tuple[bool, ...]) -> float:
        alone = sum(-own for own, is_so in zip(spared, shared, strict=True) if is_so)
        return alone + sum(n for i, to in passed.items() for j, n in to.items() if i < j and shared[i] != shared[j])

    found = decided(spared, passed)
    assert cost(tuple(found[i] for i in range(count))) == min(map(cost, product((False, True), repeat=count)))


def test_some_are_decided_by_the_cut_alone() -> None:
    """No nest is sure by itself: each spares a little, and all are shared for what would pass otherwise."""
    passed = {0: {1: 5.0}, 1: {0: 5.0, 2: 5.0}, 2: {1: 5.0}}
    assert decided([3.0, -4.0, 3.0], passed) == {0: True, 1: True, 2: True}
    assert decided([2.0, -4.5, 2.0], passed) == {0: False, 1: False, 2: False}


@pytest.mark.parametrize("machine", [MACHINE, MACHINES["avx512"], MACHINES["generic"]], ids=lambda m: m.name)
def test_little_is_done_by_one_thread_and_much_is_shared(machine: Machine) -> None:
    assert not any(_shared(lower(_layers(5, 40), machine)))
    assert all(_shared(lower(_layers(150, 400), machine)))


@pytest.mark.needs_compiler
def test_a_program_that_shares_nothing_has_no_other_threads() -> None:
    program = _layers(5, 40)
    f = gl.compile(program, "none")
    x = f.drawn()
    want = gl.evaluate([program.term], {**program.constants, "x": x[0]})[0]
    assert "pthread_create" not in f.source
    assert np.allclose(f(*x, threads=3), want, 1e-4, 1e-5)


def test_constants_that_are_put_together_are_one_before_the_program_runs() -> None:
    """Gates of a recurrent layer, say, in another order than a file has them."""
    b, draw = gl.Builder("gates"), np.random.default_rng(1)
    x, w = b.input("x", (3, 24)), draw.standard_normal((60, 24)).astype(np.float32)
    weights = b.constant("w", (60, 24), value=w)
    order = (2, 0, 1)
    parts = [slice_axis(weights, 0, 20 * i, 20 * i + 20) for i in order]
    program = b.finish(b.linear(x, concatenate(parts, 0)))
    loops = Lowered(program, MACHINE).loops
    assert len(loops.nests) == 1
