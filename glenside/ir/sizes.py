"""Arithmetic on sizes that reads the same for ints and for what stands for an int in a rule of the e-graph."""

from __future__ import annotations

from typing import Any


def ceil_div(a: Any, b: Any) -> Any:
    """a / b rounded up, for a >= 0 and b >= 1."""
    return (a + b - 1) // b


def largest(a: Any, b: Any) -> Any:
    """The larger of two sizes."""
    return max(a, b) if isinstance(a, int) and isinstance(b, int) else _symbolic(a, b).combine("max", a, b)


def smallest(a: Any, b: Any) -> Any:
    """The smaller of two sizes."""
    return min(a, b) if isinstance(a, int) and isinstance(b, int) else _symbolic(a, b).combine("min", a, b)


def if_fits(size: Any, capacity: Any, then: Any, otherwise: Any) -> Any:
    """`then` where size <= capacity, else `otherwise`: sums and products only, so that it can stand in a rule."""
    over = smallest(1, largest(0, size - capacity))
    return then + over * (otherwise - then)


def _symbolic(a: Any, b: Any) -> Any:
    return b if isinstance(a, int) else a
