"""Windows with padding, strides and dilation, and the pools that reduce them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import TypedDict, Unpack

from glenside.builder.layout import pad, split_at
from glenside.builder.pointwise import combine, compute, divide, filled, multiply
from glenside.ir.operator import require
from glenside.ir.term import Term, build

Sizes = int | Sequence[int]
Padding = int | Sequence[tuple[int, int]]


def per_axis(operation: str, what: str, value: Sizes, axes: int, least: int = 1) -> tuple[int, ...]:
    """Returns one number for each axis; a single int applies to all of them."""
    sizes = (value,) * axes if isinstance(value, int) else tuple(value)
    fits = len(sizes) == axes and all(n >= least for n in sizes)
    require(fits, operation, f"{what} of at least {least}, one for each of {axes} axes", value)
    return sizes


def pairs_per_axis(operation: str, value: Padding, axes: int, least: int | None = 0) -> tuple[tuple[int, int], ...]:
    """Returns (before, after) for each axis; a single int applies to all of them."""
    pairs = ((value, value),) * axes if isinstance(value, int) else tuple((lo, hi) for lo, hi in value)
    fits = len(pairs) == axes and (least is None or all(n >= least for pair in pairs for n in pair))
    bound = "" if least is None else f" of at least {least}"
    require(fits, operation, f"padding{bound}, one pair for each of {axes} axes", value)
    return pairs


def windows(x: Term, window: Sequence[int], strides: Sequence[int], dilations: Sequence[int]) -> Term:
    """(S)(I) -> (S, counts)(window): every window of the item.

    Dilated windows are every dilation-th element of larger ones. Dilating the other operand would be equal, but would
    also multiply by zeros.
    """
    spans = [(k - 1) * d + 1 if k else 0 for k, d in zip(window, dilations, strict=True)]
    found = build("access-windows", x, spans, strides)
    if spans == list(window):
        return found
    picked = build("access-windows", found, [min(k, 1) for k in window], dilations)
    return split_at(build("access-reshape", picked, (picked.access.shape, ())), found.access.split)


def overlap_add(x: Term, sizes: Sequence[int], strides: Sequence[int], dilations: Sequence[int]) -> Term:
    """Adds every window where it came from: ()(S counts window) -> ()(S sizes), the adjoint of `windows`."""
    first = x.access.rank - len(sizes)
    for axis, d in enumerate(dilations, first):
        x = build("access-dilate", split_at(x, 0), axis, d - 1) if d > 1 else x
    return split_at(build("access-overlap-add", split_at(x, first), sizes, strides), 0)


@dataclass(frozen=True, slots=True)
class _Pool:
    """The checked attributes of a pool over x, ()(N C d..); `beyond` is the padding that only the last windows
    reach.
    """

    x: Term
    window: tuple[int, ...]
    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    padding: tuple[tuple[int, int], ...]
    beyond: tuple[tuple[int, int], ...]

    def reduced(self, kind: str, x: Term) -> Term:
        """Reduces each window of x, which is padded already, to one number."""
        return split_at(build("compute", kind, windows(split_at(x, 2), self.window, self.strides, self.dilations)), 0)

    def of(self, kind: str, filler: str) -> Term:
        """Reduces each window to one number."""
        pairs = [(lo, hi + more) for (lo, hi), (_, more) in zip(self.padding, self.beyond, strict=True)]
        return self.reduced(kind, _grown(self.x, pairs, filler))


def _grown(x: Term, pairs: Sequence[tuple[int, int]], filler: str = "zero-padding") -> Term:
    """Pads the axes d of x with these elements."""
    return pad(x, [(0, 0), (0, 0), *pairs], filler)


class Windowing(TypedDict, total=False):
    """Returns the positions of a pool's windows; `strides` default to the window.

    With `ceil` a last window that does not fit counts too, unless it starts in the padding at the end.
    """

    strides: Sizes | None
    padding: Padding
    dilations: Sizes
    ceil: bool


def _pool(
    x: Term,
    window: Sizes,
    strides: Sizes | None = None,
    padding: Padding = 0,
    dilations: Sizes = 1,
    ceil: bool = False,
) -> _Pool:
    axes = x.access.rank - 2
    require(axes >= 1, "pool", "x of ()(N C d..)", x.access)
    size = per_axis("pool", "windows", window, axes)
    steps = size if strides is None else per_axis("pool", "strides", strides, axes)
    spread = per_axis("pool", "dilations", dilations, axes)
    pairs = pairs_per_axis("pool", padding, axes)
    spans = [(k - 1) * d + 1 for k, d in zip(size, spread, strict=True)]
    beyond = [
        (0, overhang(n, span, t, pair) if ceil else 0)
        for n, span, t, pair in zip(x.access.dims[2:], spans, steps, pairs, strict=True)
    ]
    return _Pool(x, size, steps, spread, pairs, tuple(beyond))


def overhang(size: int, span: int, stride: int, padding: tuple[int, int]) -> int:
    """Returns how far the last window may reach beyond the padded axis if it starts before the padding at the end.

    A window spans `span` elements.
    """
    before, after = padding
    whole = before + size + after
    steps = -((span - whole) // stride)
    if steps * stride >= before + size:
        steps -= 1
    return max(0, steps * stride + span - whole)


def max_pool(x: Term, window: Sizes, **lie: Unpack[Windowing]) -> Term:
    """Computes the largest element of each window, ()(N C d..); padding is never the largest."""
    return _pool(x, window, **lie).of("reduce-max", "min-padding")


def largest_positions(x: Term, window: Sizes, **lie: Unpack[Windowing]) -> Term:
    """Computes the position of the first largest element in its window in row-major order, int64, ()(N C d'..)."""
    return _pool(x, window, **lie).of("argmax", "min-padding")


def average_pool(x: Term, window: Sizes, *, count_padding: bool = True, **lie: Unpack[Windowing]) -> Term:
    """The mean of each window; without `count_padding`, of its elements without padding.

    What a window has beyond the padding, with `ceil`, is never counted.
    """
    pool = _pool(x, window, **lie)
    uncounted = any(map(any, pool.beyond)) or (any(map(any, pool.padding)) and not count_padding)
    if not uncounted:
        return pool.of("reduce-mean", "zero-padding")
    dims = [n + (sum(pair) if count_padding else 0) for n, pair in zip(x.access.dims[2:], pool.padding, strict=True)]
    ones = build("full", (1, 1, *dims), 1, x.access.dtype)
    ones = ones if count_padding else _grown(ones, pool.padding)
    return divide(pool.of("reduce-sum", "zero-padding"), pool.reduced("reduce-sum", _grown(ones, pool.beyond)))


def sum_pool(x: Term, window: Sizes, **lie: Unpack[Windowing]) -> Term:
    """Computes the sum of each window; padding adds nothing."""
    return _pool(x, window, **lie).of("reduce-sum", "zero-padding")


def lp_pool(x: Term, window: Sizes, p: float = 2, **lie: Unpack[Windowing]) -> Term:
    """Computes the p-norm of each window, sum(|x|^p)^(1/p); padding adds nothing."""
    return root(_pool(powers(x, p), window, **lie).of("reduce-sum", "zero-padding"), p)


def powers(x: Term, p: float) -> Term:
    """Computes |x|^p, for p of at least 1."""
    require(1 <= p < math.inf, "p-norm", "p of at least 1", p)
    if p == 2:
        return multiply(x, x)
    magnitude = compute("abs", x)
    return magnitude if p == 1 else combine("pow", magnitude, filled(x, str(Fraction(p))))


def root(x: Term, p: float) -> Term:
    """Computes x^(1/p), for x of at least 0."""
    if p in (1, 2):
        return x if p == 1 else compute("sqrt", x)
    return combine("pow", x, filled(x, str(1 / Fraction(p))))


def global_average_pool(x: Term) -> Term:
    """Computes the mean of each channel: ()(N C d..) -> ()(N C)."""
    require(x.access.rank >= 3, "global average pool", "x of ()(N C d..)", x.access)
    return split_at(build("compute", "reduce-mean", split_at(x, 2)), 0)
