"""Windows with padding, strides and dilation, and the pools that reduce them."""

from __future__ import annotations

from collections.abc import Sequence

from glenside.builder.layout import pad, split_at
from glenside.builder.pointwise import divide
from glenside.ir.operator import require
from glenside.ir.term import Term, build

Sizes = int | Sequence[int]
Padding = int | Sequence[tuple[int, int]]


def per_axis(operation: str, what: str, value: Sizes, axes: int, least: int = 1) -> tuple[int, ...]:
    """One number for each axis; a single int stands for all of them."""
    sizes = (value,) * axes if isinstance(value, int) else tuple(value)
    fits = len(sizes) == axes and all(n >= least for n in sizes)
    require(fits, operation, f"{what} of at least {least}, one for each of {axes} axes", value)
    return sizes


def pairs_per_axis(operation: str, value: Padding, axes: int) -> tuple[tuple[int, int], ...]:
    """(before, after) for each axis; a single int stands for all of them."""
    pairs = ((value, value),) * axes if isinstance(value, int) else tuple((lo, hi) for lo, hi in value)
    fits = len(pairs) == axes and all(n >= 0 for pair in pairs for n in pair)
    require(fits, operation, f"padding of at least 0, one pair for each of {axes} axes", value)
    return pairs


def windows(x: Term, window: Sequence[int], strides: Sequence[int], dilations: Sequence[int]) -> Term:
    """(S)(I) -> (S, counts)(window): every window of the item.

    Dilated windows are every dilation-th element of larger ones. Dilating what they are multiplied with would be
    equal, but would multiply by the zeros too.
    """
    spans = [(k - 1) * d + 1 if k else 0 for k, d in zip(window, dilations, strict=True)]
    found = build("access-windows", x, spans, strides)
    if spans == list(window):
        return found
    picked = build("access-windows", found, [min(k, 1) for k in window], dilations)
    return split_at(build("access-reshape", picked, (picked.access.shape, ())), found.access.split)


def _pool(
    kind: str, x: Term, window: Sizes, strides: Sizes | None, padding: Padding, dilations: Sizes, filler: str
) -> Term:
    axes = x.access.rank - 2
    require(axes >= 1, "pool", "x of ()(N C d..)", x.access)
    size = per_axis("pool", "windows", window, axes)
    steps = size if strides is None else per_axis("pool", "strides", strides, axes)
    spread = per_axis("pool", "dilations", dilations, axes)
    padded = pad(x, [(0, 0), (0, 0), *pairs_per_axis("pool", padding, axes)], filler)
    return split_at(build("compute", kind, windows(split_at(padded, 2), size, steps, spread)), 0)


def max_pool(
    x: Term, window: Sizes, *, strides: Sizes | None = None, padding: Padding = 0, dilations: Sizes = 1
) -> Term:
    """The largest element of each window, ()(N C d..); padding never wins. Strides are the window unless given."""
    return _pool("reduce-max", x, window, strides, padding, dilations, "min-padding")


def average_pool(
    x: Term,
    window: Sizes,
    *,
    strides: Sizes | None = None,
    padding: Padding = 0,
    dilations: Sizes = 1,
    count_padding: bool = True,
) -> Term:
    """The mean of each window; without `count_padding`, of those of its elements that are not padding."""
    pairs = pairs_per_axis("pool", padding, x.access.rank - 2)
    if count_padding or not any(map(any, pairs)):
        return _pool("reduce-mean", x, window, strides, pairs, dilations, "zero-padding")
    sums = _pool("reduce-sum", x, window, strides, pairs, dilations, "zero-padding")
    ones = build("full", (1, 1, *x.access.dims[2:]), 1, x.access.dtype)
    return divide(sums, _pool("reduce-sum", ones, window, strides, pairs, dilations, "zero-padding"))


def global_average_pool(x: Term) -> Term:
    """The mean of each channel: ()(N C d..) -> ()(N C)."""
    require(x.access.rank >= 3, "global average pool", "x of ()(N C d..)", x.access)
    return split_at(build("compute", "reduce-mean", split_at(x, 2)), 0)
