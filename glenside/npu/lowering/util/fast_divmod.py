"""Divides integer arrays by one integer, faster than `numpy.divmod`, which does not use vector instructions."""

from __future__ import annotations

from glenside.ir.operand import Array


def divided(numbers: Array, by: int) -> tuple[Array, Array]:
    """Returns quotients and remainders, as `numpy.divmod` does."""
    if by & (by - 1) == 0:  # usually a power of two; shifts are five times as fast
        return numbers >> numbers.dtype.type(by.bit_length() - 1), numbers & numbers.dtype.type(by - 1)
    quotient = numbers // numbers.dtype.type(by)
    return quotient, numbers - quotient * numbers.dtype.type(by)
