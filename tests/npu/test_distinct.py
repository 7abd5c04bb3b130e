"""Compares distinct sorted numbers, quotients and remainders with numpy."""

from __future__ import annotations

import numpy as np
import pytest

from glenside.npu.lowering.util.fast_divmod import divided
from glenside.npu.lowering.util.fast_unique import distinct, ordered, placed

CASES = [
    np.zeros(0, np.int64),
    np.array([7]),
    np.array([3, 1, 3, -2, 1, 1, 9, -2]),
    np.arange(50, dtype=np.int32),
    np.full(9, 5),
    np.array([1 << 60, -(1 << 60), 0, 1 << 60]),
    np.random.default_rng(0).integers(-40, 40, 1000),
    np.random.default_rng(1).integers(0, 1 << 50, 1000),
    np.random.default_rng(2).integers(0, 9, 77).astype(np.uint8),
    np.random.default_rng(3).integers(-128, 128, 500).astype(np.int8),
    np.random.default_rng(4).permutation(1000) * 3 - 700,
    np.random.default_rng(5).integers(0, 50_000, 2000) - (1 << 60),
]


@pytest.mark.parametrize("numbers", CASES)
def test_equal_numbers_keep_their_order(numbers: np.ndarray) -> None:
    assert ordered(numbers).tolist() == np.argsort(numbers, kind="stable").tolist()


@pytest.mark.parametrize("numbers", CASES)
def test_each_number_once(numbers: np.ndarray) -> None:
    values, first, which = np.unique(numbers, return_index=True, return_inverse=True)
    found = placed(numbers)
    assert [own.tolist() for own in found] == [values.tolist(), first.tolist(), which.tolist()]
    assert distinct(numbers).tolist() == values.tolist()
    assert distinct(numbers).dtype == numbers.dtype


@pytest.mark.parametrize("numbers", CASES)
@pytest.mark.parametrize("by", [1, 3, 64])
def test_quotients_and_rests(numbers: np.ndarray, by: int) -> None:
    found, wanted = divided(numbers, by), np.divmod(numbers, by)
    assert [own.tolist() for own in found] == [own.tolist() for own in wanted]
    assert found[0].dtype == numbers.dtype
