"""Tests fits: coefficients are found where they are determined, and are never negative."""

from __future__ import annotations

import numpy as np

from glenside.execution.fit import non_negative


def test_what_was_measured_without_noise_is_found() -> None:
    random = np.random.default_rng(0)
    counts = random.integers(0, 1000, (30, 6)).astype(float) * 10.0 ** np.arange(6)
    wanted = np.array([3.0, 0.0, 0.2, 7.0, 0.0, 1e-3])
    assert np.allclose(non_negative(counts, counts @ wanted), wanted, rtol=1e-6, atol=1e-9)


def test_nothing_is_below_0() -> None:
    """Where the least squares would have it: of two columns that are nearly one, and of a column of zeros."""
    random = np.random.default_rng(1)
    first = random.uniform(1, 2, 20)
    counts = np.stack([first, first * 1.001 + random.uniform(0, 1e-3, 20), np.zeros(20), random.uniform(0, 1, 20)], 1)
    measured = 2 * first - 0.5 * counts[:, 3] + random.uniform(0, 0.01, 20)
    assert np.linalg.lstsq(counts, measured, rcond=None)[0].min() < 0
    found = non_negative(counts, measured)
    assert (found >= 0).all()
    assert found[2] == found[3] == 0
    assert np.allclose(counts @ found, measured, rtol=0.3)


def test_errors_are_relative() -> None:
    """A thousandth of a second that is told as two is as wrong as a second that is."""
    found = non_negative(np.array([[1.0], [1000.0]]), np.array([2.0, 1000.0]))
    assert 1 < found[0] < 1.5
