"""Represents numbers as narrow integers: with a scale, and a zero point, the integer that represents 0."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from glenside.builder.pointwise import add, cast, compute, divide, filled, multiply, subtract
from glenside.builder.reductions import upcast
from glenside.ir.dtypes import REALS, largest_float, limits, wider
from glenside.ir.operator import require
from glenside.ir.term import Term, build


def saturated(x: Term, dtype: str) -> Term:
    """Converts floats to integers, rounded towards zero and saturated."""
    lowest, highest = limits(dtype)
    bound = np.array(highest).astype(x.access.dtype)
    if int(bound) > highest:  # 2^31 - 1 is not a float32
        bound = np.nextafter(bound, bound.dtype.type(0))
    return cast(compute(f"(clip {lowest} {int(bound)})", x), dtype)


def saturated_float(x: Term, dtype: str) -> Term:
    """Converts numbers to floats that are only stored: those beyond the largest one, and infinities, become the
    largest.
    """
    if x.access.dtype == "bool" or x.access.dtype == dtype:
        return cast(x, dtype)
    largest = int(largest_float(dtype))
    wide = cast(x, wider(x.access.dtype) if x.access.dtype in REALS else "float64")
    return cast(compute(f"(clip {-largest} {largest})", wide), dtype)


def quantize(x: Term, scale: Term, zero: Term | None, dtype: str, saturates: bool = True) -> Term:
    """round(x / scale) + zero in an integer dtype, saturated; halves go to the even integer. In a float dtype it is
    x / scale + zero, rounded to that, saturated unless that is not wanted.

    Scale and zero point broadcast to x.
    """
    if dtype in REALS:
        y = divide(x, scale)
        y = y if zero is None else add(y, cast(zero, y.access.dtype))
        return saturated_float(y, dtype) if saturates else cast(y, dtype)
    return rounded(divide(x, scale), zero, dtype)


def rounded(x: Term, zero: Term | None, dtype: str) -> Term:
    """Computes round(x) + zero in an integer dtype, saturated; halves are rounded to the even integer."""
    y = upcast(compute("round", x))  # floats of 16 bits cannot hold all integers above 2048
    return saturated(y if zero is None else add(y, cast(zero, y.access.dtype)), dtype)


def dequantize(x: Term, scale: Term, zero: Term | None) -> Term:
    """Computes (x - zero) * scale in the dtype of the scale; the scale and the zero point broadcast to x."""
    if x.access.dtype in REALS:
        real = cast(x, scale.access.dtype)
        return multiply(real if zero is None else subtract(real, cast(zero, scale.access.dtype)), scale)
    wide = cast(x, "int32")
    return multiply(cast(wide if zero is None else subtract(wide, cast(zero, "int32")), scale.access.dtype), scale)


def as_int8(x: Term) -> Term:
    """Converts uint8 to int8 by subtracting 128; with a zero point that is also less 128 it represents the same
    numbers.
    """
    require(x.access.dtype == "uint8", "as int8", "dtype uint8", x.access)
    signed = cast(x, "int8")
    return add(signed, filled(signed, -128))


def without_zero_points(
    product: Term,
    zeros: tuple[Term | None, Term | None],
    sums: tuple[Callable[[], Term], Callable[[], Term]],
    depth: int,
) -> Term:
    """Computes the product of (x - zx) and (w - zw) from that of x and w: subtract zw * sum(x) and zx * (sum(w) - depth
    * zw).

    A zero point of None is 0. `sums` are the sums of each operand over the `depth` elements of one result. Everything
    is int32, whose overflow wraps equally in both forms.
    """
    (zx, zw), (sum_x, sum_w) = zeros, sums
    y = product if zw is None else subtract(product, multiply(zw, sum_x()))
    if zx is None:
        return y
    total = sum_w()
    if zw is not None:
        total = subtract(total, multiply(zw, build("full", (), depth, "int32")))
    return subtract(y, multiply(zx, total))
