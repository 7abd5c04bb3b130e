"""Imports GridSample, RoiAlign and DeformConv: gathers with computed indices, and weighted sums."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from math import isfinite, prod

import numpy as np

from glenside.builder.indexing import gather_nd
from glenside.builder.layout import broadcast, common_dims, element, reshape, slice_axis, stack, transpose
from glenside.builder.pointwise import add, cast, combine, compare, compute, divide, multiply, select, subtract
from glenside.builder.reductions import weighted_elements
from glenside.importers.onnx.node import DependsOnData, Node, onnx_operator
from glenside.importers.onnx.tensors import TABLE, check_size, float_dtype, require_table
from glenside.importers.onnx.windows import per_axis
from glenside.ir.errors import BadInput
from glenside.ir.operand import Array
from glenside.ir.term import Term, build

# One column per tap: its offset from the element at or below the position, and the polynomial of its distance to the
# position that gives its weight, the highest power first. Cubic is Keys' kernel with a = -3/4.
OFFSETS = {"linear": [0, 1], "cubic": [-1, 0, 1, 2]}
WEIGHTS: dict[str, list[list[float]]] = {
    "linear": [[-1, -1], [1, 1]],
    "cubic": [[-0.75, 1.25, 1.25, -0.75], [3.75, -2.25, -2.25, 3.75], [-6, 0, 0, -6], [3, 1, 1, 3]],
}


def number(like: Term, value: float) -> Term:
    """Returns a number, ()(), in the dtype of a float tensor."""
    return build("full", (), float(value), like.access.dtype)


def within(x: Term, low: float, high: float) -> Term:
    """True where low <= x <= high."""
    return combine("logical-and", compare("ge", x, number(x, low)), compare("le", x, number(x, high)))


@dataclass(frozen=True)
class SampledAxis:
    """An axis of `size` elements.

    padding  zeros: elements beyond the ends are 0; border: the nearest end; reflection: the elements in reverse
    aligned  True if an end is the centre of its element, rather than half an element further out
    """

    size: int
    padding: str
    aligned: bool

    @property
    def ends(self) -> tuple[float, float]:
        return (0, self.size - 1) if self.aligned else (-0.5, self.size - 0.5)

    def position(self, normal: Term) -> Term:
        """Maps a number from -1 to 1 to a position on the axis: ((normal + 1) * length - margin) / 2."""
        low, high = self.ends
        x = multiply(add(normal, number(normal, 1)), number(normal, high - low))
        return divide(add(x, number(x, 2 * low)), number(x, 2))

    def returned(self, x: Term) -> Term:
        """Maps positions beyond the ends to where the padding reads."""
        if self.padding == "reflection":
            return self.reflected(x)
        if self.padding == "border":
            return select(within(x, *self.ends), x, compute(f"(clip 0 {self.size - 1})", x))
        return x

    def reflected(self, x: Term) -> Term:
        """Computes a triangle wave from end to end."""
        low, high = self.ends
        if low == high:
            return broadcast(number(x, low), x.access.dims)
        span, whole = number(x, high - low), number(x, 2 * (high - low))
        distance = compute("abs", subtract(x, number(x, low)))
        left = subtract(distance, multiply(compute("floor", divide(distance, whole)), whole))
        return add(subtract(span, compute("abs", subtract(left, span))), number(x, low))

    def taps(self, node: Node, x: Term, mode: str) -> tuple[Term, Term]:
        """Returns indices and weights around positions: ()(S..) -> two of ()(S.. T)."""
        dtype = x.access.dtype
        at = reshape(x, (*x.access.dims, 1))
        whole = add(compute("floor", at), node.constant(np.array(OFFSETS[mode], dtype)))
        distance = compute("abs", subtract(whole, at))
        first, *rest = (node.constant(np.array(row, dtype)) for row in WEIGHTS[mode])
        weights = reduce(lambda sum_, row: add(multiply(sum_, distance), row), rest, first)
        weights = broadcast(weights, whole.access.dims)
        if self.padding == "zeros":
            weights = select(self.inside(whole), weights, number(weights, 0))
        return self.indices(whole), weights

    def inside(self, whole: Term) -> Term:
        """True where an integer position is an element."""
        return within(whole, 0, self.size - 1)

    def indices(self, whole: Term) -> Term:
        """Converts integer positions to indices of elements; NaN counts as 0."""
        x = self.reflected(whole) if self.padding == "reflection" else whole
        least = select(compare("ge", x, number(x, 0)), x, number(x, 0))
        return cast(combine("minimum", least, number(x, self.size - 1)), "int64")


def require_elements(x: Term) -> None:
    """Raises BadInput if an axis of x after (N C) is empty."""
    if 0 in x.access.dims.drop(2):
        raise BadInput(f"input 0 requires elements to sample, got {x.access}")


def channels_last(x: Term) -> Term:
    """Transposes ()(N C d..) -> ()(N d.. C)."""
    return transpose(x, (0, *range(2, x.access.rank), 1))


def channels_first(y: Term) -> Term:
    """Transposes ()(N S.. C) -> ()(N C S..)."""
    return transpose(y, (0, y.access.rank - 1, *range(1, y.access.rank - 1)))


def places(indices: Sequence[Term]) -> Term:
    """Stacks broadcast indices of several axes: ()(S..) each -> ()(S.. axes)."""
    dims = common_dims("places", *(index.access.dims for index in indices))
    return stack([broadcast(index, dims) for index in indices], -1)


def apart(taps: Sequence[Term]) -> list[Term]:
    """Reshapes taps of several axes, ()(S.. T) each, to broadcast to all combinations, ()(S.. T T ..)."""
    ones = (1,) * len(taps)
    numbered = enumerate((tap, tap.access.dims) for tap in taps)
    return [reshape(tap, dims[:-1] + ones[:k] + dims[-1:] + ones[k + 1 :]) for k, (tap, dims) in numbered]


def sampled(node: Node, x: Term, axes: Sequence[SampledAxis], positions: Sequence[Term], mode: str) -> Term:
    """Samples x, ()(N C d..), between elements, at positions ()(N S..) of each axis -> ()(N C S..)."""
    dims = positions[0].access.dims
    taps = [axis.taps(node, at, mode) for axis, at in zip(axes, positions, strict=True)]
    weights = reduce(multiply, apart([weight for _, weight in taps]))
    count = weights.access.dims.drop(len(dims)).product()
    at = reshape(places(apart([index for index, _ in taps])), (*dims, count, len(axes)))
    return channels_first(weighted_elements(gather_nd(channels_last(x), at, 1), reshape(weights, (*dims, count))))


def picked(x: Term, axes: Sequence[SampledAxis], whole: Sequence[Term]) -> Term:
    """Gathers elements of x, ()(N C d..), at integer positions ()(N S..) of each axis -> ()(N C S..)."""
    at = places([axis.indices(one) for axis, one in zip(axes, whole, strict=True)])
    y = gather_nd(channels_last(x), at, 1)
    if axes[0].padding == "zeros":
        there = [axis.inside(one) for axis, one in zip(axes, whole, strict=True)]
        inside = reduce(lambda a, b: combine("logical-and", a, b), there)
        y = select(reshape(inside, (*inside.access.dims, 1)), y, build("full", (), 0, y.access.dtype))
    return channels_first(y)


@onnx_operator("GridSample")
def grid_sample(node: Node) -> Term:
    x, grid = node.term(0), node.term(1)
    rank = x.access.rank - 2
    fits = rank >= 1 and grid.access.rank == rank + 2 and grid.access.dims[-1] == rank
    if not fits or grid.access.dims[0] != x.access.dims[0]:
        raise BadInput(f"inputs require x of (N C d..) and a grid of (N o.. {rank}), got {x.access} and {grid.access}")
    require_elements(x)
    names = ("bilinear", "bicubic", "nearest") if node.version < 20 else ("linear", "cubic", "nearest")
    mode = node.text("mode", names[0], *names).removeprefix("bi")
    padding = node.text("padding_mode", "zeros", "zeros", "border", "reflection")
    axes = [SampledAxis(n, padding, bool(node.integer("align_corners", 0))) for n in x.access.dims[2:]]
    wide = cast(grid, float_dtype(grid))
    normal = [element(wide, -1, rank - 1 - i) for i in range(rank)]  # a grid lists axes from the last
    at = [axis.position(one) for axis, one in zip(axes, normal, strict=True)]
    if mode == "nearest":
        return picked(x, axes, [a.returned(compute("round", one)) for a, one in zip(axes, at, strict=True)])
    dtype = float_dtype(x, grid)
    at = [cast(axis.returned(one), dtype) for axis, one in zip(axes, at, strict=True)]
    return cast(sampled(node, cast(x, dtype), axes, at, mode), x.access.dtype)


@onnx_operator("DeformConv")
def deform_conv(node: Node) -> Term:
    x, w, offset, mask = node.term(0), node.term(1), node.term(2), node.optional(4)
    axes = x.access.rank - 2
    if axes < 1 or w.access.rank != axes + 2 or offset.access.rank != axes + 2:
        raise BadInput(f"inputs 0 to 2 require as many axes, got {x.access}, {w.access} and {offset.access}")
    require_elements(x)
    batch, channels = x.access.dims[:2]
    kernel, out = w.access.dims[2:], offset.access.dims[2:]
    if (node.integers("kernel_shape") or list(kernel)) != list(kernel):
        raise BadInput(f"attribute kernel_shape requires the sizes of the weights, {list(kernel)}")
    groups = node.integer("offset_group", 1)
    if groups < 1 or channels % groups:
        raise BadInput(f"attribute offset_group requires a number that divides {channels} channels, got {groups}")
    parts_of = (batch * groups, prod(kernel))
    base = _window_positions(node, x.access.dims[2:], kernel, out)
    dtype = float_dtype(x)
    moved = _parted(cast(offset, dtype), "input 2", (*parts_of, axes, *out))
    at = [add(element(moved, 2, k), node.constant(base[k].astype(dtype))) for k in range(axes)]
    taken = [SampledAxis(n, "zeros", True) for n in x.access.dims[2:]]
    parts = reshape(cast(x, dtype), (batch * groups, channels // groups, *x.access.dims[2:]))
    y = sampled(node, parts, taken, at, "linear")
    if mask is not None:
        y = multiply(y, _parted(cast(mask, dtype), "input 4", (batch * groups, 1, prod(kernel), *out)))
    columns = cast(reshape(y, (batch, channels * prod(kernel), *out)), x.access.dtype)
    weights = reshape(w, (w.access.dims[0], w.access.dims[1] * prod(kernel), *(1 for _ in kernel)))
    groups = node.integer("group", 1)
    return node.builder.conv(columns, weights, node.optional(3), groups=groups, name=node.layer_name())


def _parted(x: Term, what: str, dims: tuple[int, ...]) -> Term:
    if x.access.size != prod(dims):
        raise BadInput(f"{what} requires {prod(dims)} elements, one for each element of the windows, got {x.access}")
    return reshape(x, dims)


def _window_positions(node: Node, sizes: tuple[int, ...], kernel: tuple[int, ...], out: tuple[int, ...]) -> list[Array]:
    """Returns the undeformed positions of all window elements on each axis, ()(k.. o..) as (K, o..)."""
    axes = len(sizes)
    strides, dilations = per_axis(node, "strides", axes), per_axis(node, "dilations", axes)
    pads = per_axis(node, "pads", 2 * axes, least=0)
    room = [n + pads[i] + pads[axes + i] - (kernel[i] - 1) * dilations[i] - 1 for i, n in enumerate(sizes)]
    counts = [n // t + 1 if k else 0 for n, t, k in zip(room, strides, kernel, strict=True)]
    if counts != list(out):
        raise BadInput(f"input 2 requires offsets for {counts} windows, got {list(out)}")
    result = []
    for i in range(axes):
        grid = np.add.outer(np.arange(kernel[i]) * dilations[i] - pads[i], np.arange(out[i]) * strides[i])
        rest = [j for j in range(2 * axes) if j not in (i, axes + i)]
        whole = np.broadcast_to(np.expand_dims(grid, rest), (*kernel, *out))
        result.append(whole.reshape(prod(kernel), *out))
    return result


@onnx_operator("RoiAlign")
def roi_align(node: Node) -> Term:
    x, rois, batch = node.term(0), node.term(1), node.term(2)
    count = rois.access.dims[0] if rois.access.rank else 0
    if x.access.rank != 4 or rois.access.dims != (count, 4) or batch.access.dims != (count,):
        raise BadInput(f"inputs require (N C H W), (R 4) and (R), got {x.access}, {rois.access} and {batch.access}")
    require_elements(x)
    mode, dtype = node.text("mode", "avg", "avg", "max"), float_dtype(x)
    boxes = _Boxes(node, cast(rois, dtype), mode)
    indices, weights = zip(*(boxes.taps(axis, size) for axis, size in enumerate(x.access.dims[2:])), strict=True)
    at = places([reshape(cast(batch, "int64"), (count, 1, 1, 1, 1, 1, 1)), *indices])
    bins, samples = at.access.dims[:3], prod(at.access.dims[3:-1])
    check_size("the table of samples", (*bins, samples, 3))
    found = gather_nd(channels_last(cast(x, dtype)), reshape(at, (*bins, samples, 3)))
    shares = reshape(multiply(*weights), (*bins, samples))
    y = weighted_elements(found, shares, "reduce-sum" if mode == "avg" else "reduce-max")
    return cast(channels_first(y), x.access.dtype)


class _Boxes:
    """The samples of boxes ()(R 4), each given by its start (x, y) and its end."""

    def __init__(self, node: Node, rois: Term, mode: str) -> None:
        self.node, self.mode = node, mode
        standard = "half_pixel" if node.version >= 16 else "output_half_pixel"
        kind = node.text("coordinate_transformation_mode", standard, "half_pixel", "output_half_pixel")
        scale = node.number("spatial_scale", 1)
        if not isfinite(scale):
            raise BadInput(f"attribute spatial_scale requires a finite number, got {scale}")
        self.pooled = [node.integer(name, 1) for name in ("output_height", "output_width")]
        if min(self.pooled) < 1:
            raise BadInput(f"attributes output_height and output_width require at least 1, got {self.pooled}")
        ends = multiply(rois, number(rois, scale))
        self.ends = subtract(ends, number(rois, 0.5)) if kind == "half_pixel" else ends
        start, end = slice_axis(self.ends, 1, 0, 2), slice_axis(self.ends, 1, 2, 4)
        size = subtract(end, start)
        self.size = size if kind == "half_pixel" else combine("maximum", size, number(rois, 1))
        self.counts = self._counts()

    def _counts(self) -> Array:
        """Returns the number of samples per bin of each box along height and width, (R, 2)."""
        ratio = self.node.integer("sampling_ratio", 0)
        if ratio < 0:
            raise BadInput(f"attribute sampling_ratio requires at least 0, got {ratio}")
        if ratio:
            return np.full((self.size.access.dims[0], 2), ratio)
        known = self.node.scope.known(self.size)
        if known is None:
            words = "attribute sampling_ratio is required above 0 where boxes depend on data, got 0"
            raise DependsOnData(words, self.size)
        counts = np.nan_to_num(np.ceil(known[:, ::-1] / np.array(self.pooled, known.dtype)))
        return np.asarray(np.clip(counts, 0, TABLE).astype(np.int64))

    def taps(self, axis: int, size: int) -> tuple[Term, Term]:
        """Returns indices and weights along height or width, of dims that broadcast: ()(R PH PW SH SW 2 2)."""
        counts, pooled = self.counts[:, axis, None], self.pooled[axis]
        most = max(1, int(counts.max(initial=1)))
        require_table("the table of samples", len(counts), pooled, most)
        sample = np.minimum(np.arange(most), np.maximum(counts - 1, 0))  # further samples repeat the last
        steps = np.arange(pooled)[:, None] + ((sample + 0.5) / np.maximum(counts, 1))[:, None]
        dtype = self.ends.access.dtype
        start, length = (reshape(slice_axis(v, 1, 1 - axis, 2 - axis), (-1, 1, 1)) for v in (self.ends, self.size))
        bins = multiply(length, number(length, 1 / pooled))
        at = add(start, multiply(bins, self.node.constant(steps.astype(dtype))))
        inside = within(at, -1, size)
        clipped = compute(f"(clip 0 {size - 1})", at)
        indices, weights = SampledAxis(size, "border", True).taps(self.node, clipped, "linear")
        share = np.where(np.arange(most) < counts, 1 / np.maximum(counts, 1) if self.mode == "avg" else 1, 0)
        if self.mode == "max":
            share = np.broadcast_to(counts > 0, share.shape)
        shared = select(inside, self.node.constant(share[:, None].astype(dtype)), number(at, 0))
        dims = [counts.shape[0], 1, 1, 1, 1, 1, 1]
        dims[1 + axis], dims[3 + axis], dims[5 + axis] = pooled, most, 2
        weights = multiply(weights, reshape(shared, (*shared.access.dims, 1)))
        return reshape(indices, dims), reshape(weights, dims)
