"""Tests which results of open sizes count as those of the interpreter."""

from __future__ import annotations

import numpy as np
import pytest

from glenside.codegen.open_sizes.compare import _is_near

DRAWN = np.random.default_rng(0).standard_normal((16, 64)).astype(np.float32)


@pytest.mark.parametrize("is_rounded", [False, True])
def test_results_of_other_meaning_are_not_near(is_rounded: bool) -> None:
    for wrong in (DRAWN[::-1], np.roll(DRAWN, 1, axis=1), DRAWN * np.float32(1.1), 0 * DRAWN):
        assert not _is_near(wrong, DRAWN, is_rounded)
    one = DRAWN.copy()
    one[3, 5] += 1
    assert not _is_near(one, DRAWN, is_rounded)
    one[3, 5] = np.nan
    assert not _is_near(one, DRAWN, is_rounded)
    assert _is_near(one, one, is_rounded)


def test_only_programs_that_round_may_differ_by_steps() -> None:
    steps = np.round(DRAWN * 63) / np.float32(63)
    assert _is_near(steps, DRAWN, is_rounded=True)
    assert not _is_near(steps, DRAWN, is_rounded=False)
    codes = np.clip(np.round(DRAWN * 40), -127, 127).astype(np.int8)
    other = np.where(np.arange(64) % 9, codes, codes - np.sign(codes)).astype(np.int8)
    assert _is_near(other, codes, is_rounded=True)
    assert not _is_near(other, codes, is_rounded=False)
    assert not _is_near(other.astype(np.int32), codes.astype(np.int32), is_rounded=True)
