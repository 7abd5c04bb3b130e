"""Tests which results of open sizes count as those of the interpreter."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import glenside as gl
from glenside.codegen.open_sizes.compare import Moved, is_near
from glenside.semantics.interpreter import evaluate
from glenside.semantics.native import Native

DRAWN = np.random.default_rng(0).standard_normal((16, 64)).astype(np.float32)


@pytest.mark.parametrize("does_round", [False, True])
def test_results_of_other_meaning_are_not_near(does_round: bool) -> None:
    for wrong in (DRAWN[::-1], np.roll(DRAWN, 1, axis=1), DRAWN * np.float32(1.2), 0 * DRAWN):
        assert not is_near(wrong, DRAWN, does_round)
    one = DRAWN.copy()
    one[3, 5] += 2 * DRAWN.max()
    assert not is_near(one, DRAWN, does_round)
    one[3, 5] = np.nan
    assert not is_near(one, DRAWN, does_round)
    assert is_near(one, one, does_round)


def test_only_programs_that_round_may_differ_by_steps() -> None:
    steps = np.round(DRAWN * 63) / np.float32(63)
    assert is_near(steps, DRAWN, does_round=True)
    assert not is_near(steps, DRAWN, does_round=False)
    codes = np.clip(np.round(DRAWN * 40), -127, 127).astype(np.int8)
    other = np.where(np.arange(64) % 9, codes, codes - np.sign(codes)).astype(np.int8)
    assert is_near(other, codes, does_round=True)
    assert not is_near(other, codes, does_round=False)
    assert not is_near(other.astype(np.int32), codes.astype(np.int32), does_round=True)


def _eighths(x: Any, b: gl.Builder) -> Any:
    return b.divide(b.compute("round", b.multiply(x, b.full((), "8"))), b.full((), "8"))


def test_deep_programs_may_differ_as_much_as_rounding_makes_them() -> None:
    """Values that are moved by less than rounding errors give other results after some layers that round."""
    b = gl.Builder("rounded")
    x = b.input("x", (8, 32))
    for layer in range(12):
        x = _eighths(b.tanh(b.matmul(x, b.constant(f"w{layer}", (32, 32)))), b)
    program = b.finish(x).seeded_constants(1)
    given = np.random.default_rng(2).standard_normal((8, 32)).astype(np.float32)
    results = [
        np.asarray(evaluate([program.term], {**program.constants, "x": x}, numbers)[0])
        for x, numbers in ((given, None), (given * np.float32(1 + 1e-6), None), (given, Moved()))
    ]
    assert np.abs(results[0] - results[2]).max() > 0
    assert is_near(results[1], results[0], True, results[2])
    for wrong in (results[0][::-1], np.roll(results[0], 1, axis=1), 0 * results[0]):
        assert not is_near(wrong, results[0], True, results[2])


def test_halves_are_moved_before_they_are_rounded() -> None:
    values = np.random.default_rng(0).uniform(1, 2, 4096).astype(np.float32)
    moved, plain = (numbers.cast(values, "float16").astype(np.float32) for numbers in (Moved(), Native()))
    assert 0 < np.count_nonzero(moved != plain) < 200
    assert np.abs(moved - plain).max() <= 2.0**-10
