"""Fits non-negative coefficients to measurements, and names the processor."""

from __future__ import annotations

import platform

import numpy as np

from glenside.ir.operand import Array

_NEAR = 0.03
"""Relative errors below which all weigh the same in a robust fit."""


def robust(counts: Array, measured: Array, rounds: int = 12) -> Array:
    """Returns the coefficients x >= 0 with the least absolute relative errors of counts (M)(N) times x - measured (M).

    Absolute instead of squared errors keep a few unexplained measurements from moving the others. It iterates
    reweighted least squares.
    """
    weights = np.ones(len(measured))
    for _ in range(rounds):
        found = non_negative(counts, measured, weights)
        weights = 1 / np.sqrt(np.maximum(np.abs(counts @ found / measured - 1), _NEAR))
    return found


def non_negative(counts: Array, measured: Array, weights: Array | None = None) -> Array:
    """Returns the coefficients x >= 0 with the least squared relative errors of counts (M)(N) times x - measured (M).

    `weights` multiply the errors. It uses Lawson and Hanson's active sets: columns enter while that reduces the error,
    and leave where they would be negative. Measurements must be positive; columns of zeros get 0.
    """
    a = np.asarray(counts, float) / np.asarray(measured, float)[:, None]
    b = np.ones(len(a)) if weights is None else weights
    a = a * b[:, None]
    scale = np.linalg.norm(a, axis=0)
    a = a / np.where(scale > 0, scale, 1)
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


def processor() -> str:
    """Returns the name of the processor."""
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            return next(line.split(":", 1)[1].strip() for line in file if line.startswith("model name"))
    except (OSError, StopIteration, UnicodeDecodeError):
        return platform.processor() or platform.machine()
