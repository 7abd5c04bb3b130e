"""Tests the cycles by which the algebra between layers is chosen for arrays: those of the best mappings of products."""

from __future__ import annotations

import random

import pytest
from slow_cases import quick

import glenside as gl
from glenside.ir.program import Program
from glenside.targets.arrays.array import Array
from glenside.targets.arrays.best_mappings import TilePrices
from glenside.targets.arrays.matrix_array import MatrixArray
from glenside.targets.chosen import as_target


def two_convolutions(channels: tuple[int, int, int], kernels: tuple[int, int], size: int, stride: int) -> Program:
    b, (first, second, third), (k, m) = gl.Builder("two convolutions"), channels, kernels
    y = b.conv(b.input("x", (1, first, size, size)), b.constant("w", (second, first, k, k)))
    return b.finish(b.conv(y, b.constant("v", (third, second, m, m)), strides=stride))


CASES = [
    ("systolic-array:128x128", two_convolutions((8, 1, 3), (1, 3), 96, 1)),
    ("systolic-array:32x32", two_convolutions((16, 4, 1), (1, 3), 32, 2)),
    ("npu:32x32", two_convolutions((16, 1, 4), (5, 5), 64, 2)),
]


@pytest.mark.parametrize(("target", "program"), quick(CASES, 0, 2, unpacked=True), ids=[target for target, _ in CASES])
def test_one_convolution_that_is_cheaper_as_written_is_refused(
    target: str, program: Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both convolutions regroup windows; the larger one leaves less room for that."""
    kept = gl.optimize(program, target, exact_order=True, verify=False)
    found = gl.optimize(program, target)
    (candidate,) = found.report.algebra
    assert found.report.checked == "exact"
    assert not candidate.taken
    assert candidate.given == found.cost["cycles"] == kept.cost["cycles"] < candidate.cost
    monkeypatch.setattr(MatrixArray, "predicted", lambda *_: None)
    by_sizes = gl.optimize(program, target, verify=False)
    assert by_sizes.report.algebra[0].taken, "by the sizes of its products it would be taken"
    assert by_sizes.cost["cycles"] == candidate.cost


@pytest.mark.parametrize("seed", quick(range(6), 0, 3, 5))
def test_predicted_cycles_are_those_of_the_answer(seed: int) -> None:
    draw = random.Random(seed)
    target = draw.choice(["systolic-array:16x16", "systolic-array:64x64", "npu:32x32"])
    b = gl.Builder("branches")
    x, channels, groups = b.input("x", (1, 8, 12, 12)), draw.choice([4, 8, 16]), draw.choice([1, 2, 4])
    y = b.conv(x, b.constant("w", (channels, 8 // groups, 3, 3)), padding=1, groups=groups)
    y = b.add(y, b.conv(x, b.constant("u", (channels, 8, 1, 1))))
    program = b.finish(b.relu(y)).seeded_constants(seed)
    found, kept = (gl.optimize(program, target, exact_order=order, verify=not order) for order in (False, True))
    assert found.report.checked == "exact"
    assert found.cost["cycles"] <= kept.cost["cycles"]
    for candidate in found.report.algebra:
        assert candidate.given == kept.cost["cycles"]
        if candidate.taken:
            assert candidate.cost == found.cost["cycles"]


def test_a_product_is_predicted_once(monkeypatch: pytest.MonkeyPatch) -> None:
    target = as_target("systolic-array:16x16")
    assert isinstance(target, MatrixArray)
    b = gl.Builder("equal products")
    x = b.input("x", (4, 32))
    program = b.finish(b.concatenate([b.matmul(x, b.input(f"w{n}", (32, 32))) for n in range(3)], 1))
    each = gl.optimize(program, target, exact_order=True, verify=False).cost["cycles"]
    assert target.predicted(program) == each
    monkeypatch.setattr(target._mapped, "_searched", lambda _: pytest.fail("searched again"))
    assert target.predicted(program) == each


@pytest.mark.parametrize("seed", range(4))
def test_prices_by_size_are_between_the_best_mapping_and_the_plain_one(seed: int) -> None:
    draw = random.Random(seed)
    groups, m, k, n = draw.choice([1, 3, 8]), draw.randint(1, 40), draw.randint(1, 40), draw.randint(1, 40)
    b = gl.Builder("products")
    program = b.finish(b.matmul(b.input("x", (groups, m, k)), b.input("w", (groups, k, n))))
    found = gl.optimize(program, "systolic-array:16x16", exact_order=True, verify=False)
    array = Array(16, 16)
    assert found.cost["cycles"] <= TilePrices(array).product(groups, m, k, n, 0) <= array.tiled(groups, m, k, n).cycles
