"""Convolutions and matrix products, each one `(compute dot-product (access-product A B n))`.

A comes first: it is the operand that streams through an array, B the one that stays. The rules match on these forms:

    convolution           A = (N, d'..)(C, k..)       B = (O)(C, k..)          n = 0   (N, d'.., O)()
    1x1, stride 1         A = (N, d..)(C)             B = (O)(C)               n = 0   (N, d.., O)()
    in groups, depthwise  A = (G, N, d'..)(C/G, k..)  B = (G, O/G)(C/G, k..)   n = 1   (G, N, d'.., O/G)()
    linear                A = (M..)(K)                B = (N)(K)               n = 0   (M.., N)()
    matmul                A = (G.., M)(K)             B = (G.., N)(K)          n = |G| (G.., M, N)()
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from glenside.builder.layout import broadcast, common_dims, pad, rearrange, reshape, split_at, transpose
from glenside.builder.windows import Padding, Sizes, pairs_per_axis, per_axis, windows
from glenside.ir.operator import require
from glenside.ir.term import Term, build
from glenside.ir.types import Dims


@dataclass(frozen=True, slots=True)
class Layer:
    """A product: its dot-product node, what it is in words, and its result as a whole tensor."""

    dot: Term
    label: str
    result: Term


def _dot(a: Term, b: Term, shared: int = 0) -> Term:
    return build("compute", "dot-product", build("access-product", a, b, shared))


@dataclass(frozen=True, slots=True)
class _Convolution:
    """The attributes of one convolution, checked; `pointwise` needs no windows."""

    batch: int
    channels: int
    filters: int
    window: Dims
    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    groups: int

    @property
    def pointwise(self) -> bool:
        return all(k == 1 for k in self.window) and all(t == 1 for t in self.strides)

    @property
    def label(self) -> str:
        if self.pointwise and self.groups == 1:
            return f"pointwise {'x'.join(map(str, self.window))}"
        kind = "conv" if self.groups == 1 else "depthwise" if self.groups == self.channels else "grouped"
        return f"{kind} {sizes_label(self.window, self.strides, self.dilations)}"


def sizes_label(window: Sequence[int], strides: Sequence[int], dilations: Sequence[int]) -> str:
    """What a layer's label says about its windows: 3x3/2 dilated 2x2."""
    stride = strides[:1] if len(set(strides)) == 1 else strides
    dilated = f" dilated {'x'.join(map(str, dilations))}" if set(dilations) != {1} else ""
    return f"{'x'.join(map(str, window))}/{'x'.join(map(str, stride))}{dilated}"


def _checked(x: Term, w: Term, strides: Sizes, dilations: Sizes, groups: int) -> _Convolution:
    name, dims, filters = "conv", x.access.dims, w.access.dims
    ranks = len(dims) == len(filters) >= 3
    require(ranks, name, "x of ()(N C d..) and w of ()(O C/groups k..)", f"{x.access} and {w.access}")
    require(groups >= 1, name, "groups >= 1", groups)
    require(dims[1] == groups * filters[1], name, f"w over {dims[1]} / {groups} channels", w.access)
    require(filters[0] % groups == 0, name, f"a multiple of {groups} filters", filters[0])
    axes = len(dims) - 2
    return _Convolution(
        batch=dims[0],
        channels=dims[1],
        filters=filters[0],
        window=filters.drop(2),
        strides=per_axis(name, "strides", strides, axes),
        dilations=per_axis(name, "dilations", dilations, axes),
        groups=groups,
    )


def convolution(x: Term, w: Term, strides: Sizes, padding: Padding, dilations: Sizes, groups: int) -> Layer:
    """x of ()(N C d..) with w of ()(O C/groups k..) -> ()(N O d'..), channels first, over any number of axes d."""
    c = _checked(x, w, strides, dilations, groups)
    x = pad(x, [(0, 0), (0, 0), *pairs_per_axis("conv", padding, len(c.window))])
    if c.groups > 1:
        return _grouped(x, w, c)
    axes = len(c.window)
    if c.pointwise:
        a = split_at(transpose(x, (0, *range(2, axes + 2), 1)), axes + 1)
        b = split_at(reshape(w, (c.filters, c.channels)), 1)
    else:
        found = windows(split_at(x, 1), (c.channels, *c.window), (1, *c.strides), (1, *c.dilations))
        a, b = build("access-squeeze", found, 1), split_at(w, 1)
    dot = _dot(a, b)
    return Layer(dot, c.label, transpose(dot, (0, axes + 1, *range(1, axes + 1))))


def _grouped(x: Term, w: Term, c: _Convolution) -> Layer:
    """All groups as one product with G as the shared axis; a depthwise convolution has one channel in each group."""
    axes, per_group, filters = len(c.window), c.channels // c.groups, c.filters // c.groups
    space = tuple(range(3, axes + 3))
    sizes = x.access.dims.drop(2)
    parts = (c.batch, c.groups, per_group, *sizes)
    if c.pointwise:
        dims = (c.groups, c.batch, *sizes, per_group)
        a = split_at(rearrange(x, parts, (1, 0, *space, 2), dims), axes + 2)
        b = split_at(reshape(w, (c.groups, filters, per_group)), 2)
    else:
        apart = rearrange(x, parts, (1, 0, 2, *space), (c.groups, c.batch, per_group, *sizes))
        found = windows(split_at(apart, 2), (per_group, *c.window), (1, *c.strides), (1, *c.dilations))
        a = build("access-squeeze", found, 2)
        b = split_at(reshape(w, (c.groups, filters, per_group, *c.window)), 2)
    dot = _dot(a, b, shared=1)
    dims = (c.batch, c.filters, *dot.access.dims[2 : axes + 2])
    return Layer(dot, c.label, rearrange(dot, dot.access.dims, (1, 0, axes + 2, *range(2, axes + 2)), dims))


def linear(x: Term, w: Term) -> Layer:
    """x of ()(M.. K) times w of ()(N K), transposed -> ()(M.. N)."""
    fits = x.access.rank >= 1 and w.access.rank == 2 and x.access.dims[-1:] == w.access.dims[1:]
    require(fits, "linear", "x of ()(M.. K) and w of ()(N K)", f"{x.access} and {w.access}")
    dot = _dot(split_at(x, x.access.rank - 1), split_at(w, 1))
    return Layer(dot, "dense", split_at(dot, 0))


def matmul(x: Term, y: Term) -> Layer:
    """The matrix product of numpy: leading axes broadcast, and a vector is a row on the left, a column on the right."""
    require(x.access.rank >= 1 and y.access.rank >= 1, "matmul", "at least one axis", f"{x.access} and {y.access}")
    row, column = x.access.rank == 1, y.access.rank == 1
    x = reshape(x, (1, *x.access.dims)) if row else x
    y = reshape(y, (*y.access.dims, 1)) if column else y
    agree = x.access.dims[-1] == y.access.dims[-2]
    require(agree, "matmul", "the last axis of x to equal the last but one of y", f"{x.access} and {y.access}")
    lead = Dims()
    if y.access.rank > 2:  # one matrix y serves all of x as further rows, without being repeated
        lead = common_dims("matmul", x.access.dims[:-2], y.access.dims[:-2])
        x, y = broadcast(x, (*lead, *x.access.dims[-2:])), broadcast(y, (*lead, *y.access.dims[-2:]))
    rank = y.access.rank
    columns = transpose(y, (*range(rank - 2), rank - 1, rank - 2))
    dot = _dot(split_at(x, x.access.rank - 1), split_at(columns, rank - 1), shared=len(lead))
    dims = dot.access.dims
    kept = dims[:-2] + dims[-2:-1] * (not row) + dims[-1:] * (not column)
    return Layer(dot, "matmul", reshape(dot, kept))
