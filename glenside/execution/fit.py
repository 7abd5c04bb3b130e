"""Coefficients, none below 0, of what was measured."""

from __future__ import annotations

import numpy as np

from glenside.ir.operand import Array


def non_negative(counts: Array, measured: Array) -> Array:
    """The coefficients x >= 0 with least relative squares of counts (M)(N) times x - measured (M).

    Lawson and Hanson's active sets: columns come in while that makes the error less, and leave where they would be
    below 0. A measurement is above 0; columns of zeros get 0.
    """
    a = np.asarray(counts, float) / np.asarray(measured, float)[:, None]
    scale = np.linalg.norm(a, axis=0)
    a = a / np.where(scale > 0, scale, 1)
    b = np.ones(len(a))
    x, free = np.zeros(a.shape[1]), np.zeros(a.shape[1], bool)
    for _ in range(10 * a.shape[1]):
        gradient = np.where(free | (scale == 0), -np.inf, a.T @ (b - a @ x))
        if gradient.max(initial=-np.inf) <= 1e-9:
            break
        free[gradient.argmax()] = True
        while True:
            trial = np.zeros_like(x)
            trial[free] = np.linalg.lstsq(a[:, free], b, rcond=None)[0]
            if (trial[free] > 0).all():
                break
            below = free & (trial <= 0)
            step = np.min(x[below] / np.maximum(x[below] - trial[below], 1e-300))
            x += step * (trial - x)
            free &= x > 1e-15
            x[~free] = 0
        x = trial
    return x / np.where(scale > 0, scale, 1)
