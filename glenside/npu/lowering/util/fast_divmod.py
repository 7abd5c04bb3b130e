"""Quotients and rests of integers by one number: numpy finds both one by one, and quotients alone many at a time."""

from __future__ import annotations

from glenside.ir.operand import Array


def divided(numbers: Array, by: int) -> tuple[Array, Array]:
    """As `numpy.divmod`, of integers of which the divisor is one too."""
    if by & (by - 1) == 0:  # most are, and bits take a fifth of the time
        return numbers >> numbers.dtype.type(by.bit_length() - 1), numbers & numbers.dtype.type(by - 1)
    quotient = numbers // numbers.dtype.type(by)
    return quotient, numbers - quotient * numbers.dtype.type(by)
