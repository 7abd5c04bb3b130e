"""Tests the algebra between layers for targets that count operations, or traffic between parties."""

from __future__ import annotations

from collections.abc import Callable

import pytest

import glenside as gl
from glenside.ir.program import Program
from glenside.targets.cpu.target import CPU
from glenside.targets.mpc.target import MPC


def low_rank_update() -> Program:
    b = gl.Builder("x (B A)")
    update = b.matmul(b.input("b", (64, 4)), b.input("a", (4, 64)))
    return b.finish(b.matmul(b.input("x", (2, 64)), update))


def two_matrices() -> Program:
    b = gl.Builder("x W V")
    hidden = b.add(b.matmul(b.input("x", (16, 32)), b.constant("w", (32, 128))), b.constant("c", (128,)))
    return b.finish(b.matmul(hidden, b.constant("v", (128, 32))))


def mean_of_a_convolution() -> Program:
    b = gl.Builder("mean of a 1x1")
    y = b.conv(b.input("x", (1, 16, 8, 8)), b.constant("w", (32, 16, 1, 1)))
    return b.finish(b.global_average_pool(b.add(y, b.constant("c", (32, 1, 1)))))


def side_by_side() -> Program:
    b = gl.Builder("x A, x B, x C")
    x = b.input("x", (8, 32))
    parts = [b.relu(b.matmul(x, b.constant(f"w{n}", (32, 32)))) for n in range(3)]
    return b.finish(b.concatenate(parts, 1))


UNITS = ["cpu:unlimited", "cpu:1MB,balance=2", "mpc:semi2k"]


@pytest.mark.parametrize("target", UNITS)
@pytest.mark.parametrize("program", [low_rank_update, two_matrices, mean_of_a_convolution, side_by_side])
def test_an_answer_is_exact_and_costs_no_more_than_as_written(program: Callable[[], Program], target: str) -> None:
    given = program().seeded_constants(0)
    found, kept = gl.optimize(given, target), gl.optimize(given, target, exact_order=True, verify=False)
    first = found.report.objectives[0]
    assert found.report.checked in ("exact", "equal as reals")
    assert found.report.total[first] <= kept.report.total[first]
    assert not kept.report.algebra
    if any(one.taken for one in found.report.algebra):
        assert found.report.total[first] < kept.report.total[first]
    if program is not side_by_side:
        assert any(one.taken for one in found.report.algebra)


@pytest.mark.parametrize("objective", ["time", "bytes", "messages"])
def test_products_of_one_secret_are_merged_where_that_sends_less(objective: str) -> None:
    found = gl.optimize(side_by_side(), gl.MPC(objectives=(objective,)))
    (merged,) = found.report.algebra
    assert merged.taken
    kept = gl.optimize(side_by_side(), gl.MPC(objectives=(objective,)), exact_order=True, verify=False)
    assert kept.report.total["messages"] - found.report.total["messages"] == 4, "two products and their truncations"
    spared = kept.report.total["bytes"] - found.report.total["bytes"]
    assert spared == 2 * 8 * 32 * 8, "the operand is sent once instead of three times, in 8 bytes"


def test_predicted_traffic_is_that_of_the_answer() -> None:
    target = gl.MPC(objectives=("bytes",))
    found = gl.optimize(two_matrices(), target)
    (one,) = found.report.algebra
    assert one.cost == found.report.total["bytes"] == target.predicted(found.program)


@pytest.mark.parametrize(
    ("options", "searched"), [({}, True), ({"truncation": "late"}, False), ({"public": ["w"]}, False)]
)
def test_public_tensors_and_late_truncation_keep_the_order(options: dict[str, object], searched: bool) -> None:
    target = MPC(**options)
    assert (target.product_prices() is not None) == searched
    result = gl.optimize(two_matrices(), target)
    assert bool(result.report.algebra) == searched
    assert result.report.checked in ("exact", "equal as reals")


def test_a_form_with_larger_errors_is_refused() -> None:
    """A mean of 4,096 numbers is a small factor: in front of a product it is rounded before numbers are summed up."""
    target = MPC()
    b = gl.Builder("given")
    x, w = b.input("x", (4, 512)), b.constant("w", (512, 8))
    small = b.full((), "1/65536")
    given = b.finish(b.multiply(b.matmul(x, w), small))
    other = gl.Builder("other")
    x, w = other.input("x", (4, 512)), other.constant("w", (512, 8))
    changed = other.finish(other.matmul(other.multiply(x, small), w))
    assert not target.admits(given, changed)
    assert target.admits(given, given)
    assert target.admits(changed, given)
    assert MPC(max_error=float("inf")).admits(given, changed)


def test_a_form_that_exceeds_a_memory_budget_is_refused() -> None:
    b = gl.Builder("given")
    x, w = b.input("x", (64, 64)), b.input("w", (64, 64))
    given = b.finish(b.matmul(x, w))
    wide = b.concatenate([x, x, x, x], 1)
    other = b.finish(b.matmul(wide, b.concatenate([w, w, w, w], 0)))
    assert CPU().admits(given, other)
    assert CPU("1MB").admits(given, other)
    assert not CPU("20KB").admits(given, other)
    assert CPU("20KB").admits(other, other), "no more than the given form"
