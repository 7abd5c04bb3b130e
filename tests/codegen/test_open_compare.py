"""Tests which results of open sizes count as those of the interpreter."""

from __future__ import annotations

import numpy as np
import pytest

from glenside.codegen.open_sizes.compare import _is_near

DRAWN = np.random.default_rng(0).standard_normal((16, 64)).astype(np.float32)


@pytest.mark.parametrize("roundings", [0, 1, 97])
def test_results_of_other_meaning_are_not_near(roundings: int) -> None:
    for wrong in (DRAWN[::-1], np.roll(DRAWN, 1, axis=1), DRAWN * np.float32(1.2), 0 * DRAWN):
        assert not _is_near(wrong, DRAWN, roundings)
    one = DRAWN.copy()
    one[3, 5] += 2 * DRAWN.max()
    assert not _is_near(one, DRAWN, roundings)
    one[3, 5] = np.nan
    assert not _is_near(one, DRAWN, roundings)
    assert _is_near(one, one, roundings)


def test_only_programs_that_round_may_differ_by_steps() -> None:
    steps = np.round(DRAWN * 63) / np.float32(63)
    assert _is_near(steps, DRAWN, roundings=1)
    assert not _is_near(steps, DRAWN, roundings=0)
    codes = np.clip(np.round(DRAWN * 40), -127, 127).astype(np.int8)
    other = np.where(np.arange(64) % 9, codes, codes - np.sign(codes)).astype(np.int8)
    assert _is_near(other, codes, roundings=1)
    assert not _is_near(other, codes, roundings=0)
    assert not _is_near(other.astype(np.int32), codes.astype(np.int32), roundings=1)
