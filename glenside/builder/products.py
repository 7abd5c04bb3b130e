"""Convolutions, also transposed, and matrix products, each one `(compute dot-product (access-product A B n))`.

A comes first: it is the operand that streams through an array, B the one that stays. The rules match on these forms:

    convolution           A = (N, d'..)(C, k..)       B = (O)(C, k..)          n = 0   (N, d'.., O)()
    1x1, stride 1         A = (N, d..)(C)             B = (O)(C)               n = 0   (N, d.., O)()
    in groups, depthwise  A = (G, N, d'..)(C/G, k..)  B = (G, O/G)(C/G, k..)   n = 1   (G, N, d'.., O/G)()
    linear                A = (M..)(K)                B = (N)(K)               n = 0   (M.., N)()
    matmul                A = (G.., M)(K)             B = (G.., N)(K)          n = |G| (G.., M, N)()
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from glenside.builder.layout import broadcast, common_dims, pad, pad_or_crop, rearrange, reshape, split_at, transpose
from glenside.builder.pointwise import add, divide, softmax, square_root
from glenside.builder.windows import Padding, Sizes, pairs_per_axis, per_axis, windows
from glenside.ir.operator import require
from glenside.ir.operators.requirements import spelled
from glenside.ir.term import Term, build
from glenside.ir.types import Dims


@dataclass(frozen=True, slots=True)
class Layer:
    """A product: its dot-product node, its description, and its result as a whole tensor."""

    dot: Term
    label: str
    result: Term


def _dot(a: Term, b: Term, shared: int = 0) -> Term:
    return build("compute", "dot-product", build("access-product", a, b, shared))


@dataclass(frozen=True, slots=True)
class _Convolution:
    """The checked attributes of one convolution; `pointwise` needs no windows."""

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
        return f"{kind} {_sizes_label(self.window, self.strides, self.dilations)}"


def _sizes_label(window: Sequence[int], strides: Sequence[int], dilations: Sequence[int]) -> str:
    """The description of the windows in the label of a layer: 3x3/2 dilated 2x2."""
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
    """Convolves x ()(N C d..) with w ()(O C/groups k..) -> ()(N O d'..), channels first, over any number of axes d."""
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
    """Computes all groups as one product with G as the shared axis; a depthwise convolution has groups of one
    channel.
    """
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


def transposed_convolution(
    x: Term, w: Term, strides: Sizes, padding: Padding, output_padding: Sizes, dilations: Sizes, groups: int
) -> Layer:
    """x of ()(N C d..) with w of ()(C O/groups k..) -> ()(N O d'..): each element of x adds a window, a multiple of w.

    Each element of the result is a product of nearby elements of x with w reversed. So it is a convolution of stride 1
    over x with strides - 1 zeros between elements.
    """
    name, dims, filters, both = "conv_transpose", x.access.dims, w.access.dims, f"{x.access} and {w.access}"
    fits = len(dims) == len(filters) >= 3 and dims[1] == filters[0]
    require(fits, name, "x of ()(N C d..) and w of ()(C O/groups k..)", both)
    require(all(n >= 1 for n in (*dims[2:], *filters[2:])), name, "sizes of at least 1", both)
    require(groups >= 1 and dims[1] % groups == 0, name, f"groups that divide {dims[1]} channels", groups)
    axes, window = len(dims) - 2, filters.drop(2)
    steps, spread = per_axis(name, "strides", strides, axes), per_axis(name, "dilations", dilations, axes)
    more = per_axis(name, "output padding", output_padding, axes, least=0)
    fits = all(extra < max(t, d) for extra, t, d in zip(more, steps, spread, strict=True))
    bounds = tuple(map(max, steps, spread))
    require(fits, name, f"output padding below {spelled(bounds)}, the larger of stride and dilation", spelled(more))
    pairs = pairs_per_axis(name, padding, axes, least=None)
    edges = []
    for axis, (k, d, (before, after)) in enumerate(zip(window, spread, pairs, strict=True)):
        x = x if steps[axis] == 1 else build("access-dilate", x, axis + 2, steps[axis] - 1)
        edges.append(((k - 1) * d - before, (k - 1) * d - after + more[axis]))
    x = pad_or_crop(x, [(0, 0), (0, 0), *edges])
    made = convolution(x, _backwards(w, groups), 1, 0, spread, groups)
    return replace(made, label=f"transposed conv {_sizes_label(window, steps, spread)}")


def _backwards(w: Term, groups: int) -> Term:
    """Rearranges ()(C O/groups k..) -> ()(O C/groups k..), with each axis k reversed."""
    channels, filters, *window = w.access.dims
    apart = reshape(w, (groups, channels // groups, filters, *window))
    turned = transpose(apart, (0, 2, 1, *range(3, apart.access.rank)))
    turned = reshape(turned, (groups * filters, channels // groups, *window))
    for axis, k in enumerate(window, 2):
        turned = build("access-flip", turned, axis) if k > 1 else turned
    return turned


def linear(x: Term, w: Term) -> Layer:
    """Multiplies x ()(M.. K) by the transpose of w ()(N K) -> ()(M.. N); K of w may be cut into blocks ()(N B S)."""
    fits = x.access.rank >= 1 and w.access.rank >= 2 and x.access.dims[-1] == w.access.dims.drop(1).product()
    require(fits, "linear", "x of ()(M.. K) and w of ()(N K)", f"{x.access} and {w.access}")
    rows = x.access.dims[:-1]
    if w.access.rank > 2:
        x = reshape(x, (*rows, *w.access.dims[1:]))
    dot = _dot(split_at(x, len(rows)), split_at(w, 1))
    return Layer(dot, "dense", split_at(dot, 0))


def matmul(x: Term, y: Term) -> Layer:
    """Computes the matrix product of numpy: leading axes broadcast; a vector is a row on the left, a column on the
    right.
    """
    require(x.access.rank >= 1 and y.access.rank >= 1, "matmul", "at least one axis", f"{x.access} and {y.access}")
    row, column = x.access.rank == 1, y.access.rank == 1
    x = reshape(x, (1, *x.access.dims)) if row else x
    y = reshape(y, (*y.access.dims, 1)) if column else y
    agree = x.access.dims[-1] == y.access.dims[-2]
    require(agree, "matmul", "the last axis of x to equal the last but one of y", f"{x.access} and {y.access}")
    lead = Dims()
    if y.access.rank > 2:  # one matrix y serves all of x as additional rows, without being repeated
        lead = common_dims("matmul", x.access.dims[:-2], y.access.dims[:-2])
        x, y = broadcast(x, (*lead, *x.access.dims[-2:])), broadcast(y, (*lead, *y.access.dims[-2:]))
    rank = y.access.rank
    columns = transpose(y, (*range(rank - 2), rank - 1, rank - 2))
    dot = _dot(split_at(x, x.access.rank - 1), split_at(columns, rank - 1), shared=len(lead))
    dims = dot.access.dims
    kept = dims[:-2] + dims[-2:-1] * (not row) + dims[-1:] * (not column)
    return Layer(dot, "matmul", reshape(dot, kept))


def attention(
    q: Term, k: Term, v: Term, mask: Term | None, heads: int, product: Callable[[str, Term, Term], Term]
) -> Term:
    """softmax(q k^T / sqrt(D / heads) + mask) v in each head, as in `Builder.attention`.

    `product` is given a name, scores or context, and two batches of matrices.
    """
    kinds = [x.access for x in (q, k, v)]
    got = f"{' and '.join(map(str, kinds))} in {heads} heads"
    require(all(x.rank == 3 for x in kinds), "attention", "q, k and v of ()(N S D)", got)
    (n, length, depth), keys, values = (x.dims for x in kinds)
    require(keys[0] == n and values[:2] == keys[:2] and keys[2] == depth, "attention", "q, k and v that agree", got)
    require(heads >= 1 and depth % heads == values[2] % heads == 0, "attention", "heads that divide the depths", got)

    def split(x: Term, order: tuple[int, ...]) -> Term:
        batch, length, depth = x.access.dims
        return transpose(reshape(x, (batch, length, heads, depth // heads)), order)

    scores = product("scores", split(q, (0, 2, 1, 3)), split(k, (0, 2, 3, 1)))
    scaled = divide(scores, square_root(depth // heads, scores.access.dtype))
    shares = softmax(scaled if mask is None else add(scaled, mask))
    context = product("context", shares, split(v, (0, 2, 1, 3)))
    return reshape(transpose(context, (0, 2, 1, 3)), (n, length, values[2]))
