"""GridSample, RoiAlign and DeformConv: gathers with computed indices, and weighted sums."""

from __future__ import annotations

from math import isfinite, prod

import numpy as np

from glenside.builder.indexing import gather_nd
from glenside.builder.layout import element, reshape, slice_axis
from glenside.builder.pointwise import add, cast, combine, compute, multiply, select, subtract
from glenside.builder.sampling import weighted_elements
from glenside.importers.onnx.node import Node, onnx_operator
from glenside.importers.onnx.positions import (
    SampledAxis,
    channels_first,
    channels_last,
    number,
    picked,
    places,
    require_elements,
    sampled,
    within,
)
from glenside.importers.onnx.tensors import ELEMENTS, check_size, float_dtype, require_table
from glenside.ir.errors import BadInput
from glenside.ir.operand import Array
from glenside.ir.term import Term

GRID_MODES = {"bilinear": "linear", "bicubic": "cubic", "linear": "linear", "cubic": "cubic", "nearest": "nearest"}


@onnx_operator("GridSample")
def grid_sample(node: Node) -> Term:
    x, grid = node.term(0), node.term(1)
    rank = x.access.rank - 2
    fits = rank >= 1 and grid.access.rank == rank + 2 and grid.access.dims[-1] == rank
    if not fits or grid.access.dims[0] != x.access.dims[0]:
        raise BadInput(f"inputs require x of (N C d..) and a grid of (N o.. {rank}), got {x.access} and {grid.access}")
    require_elements(x)
    names = ("bilinear", "bicubic", "nearest") if node.version < 20 else ("linear", "cubic", "nearest")
    mode = GRID_MODES[node.text("mode", names[0], *names)]
    padding = node.text("padding_mode", "zeros", "zeros", "border", "reflection")
    axes = [SampledAxis(n, padding, bool(node.integer("align_corners", 0))) for n in x.access.dims[2:]]
    wide = cast(grid, float_dtype(grid))
    normal = [element(wide, -1, rank - 1 - i) for i in range(rank)]  # a grid counts axes from the last
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
    name, group = node.layer_name(), node.integer("group", 1)
    return node.builder.conv(columns, weights, node.optional(3), groups=group, name=name)


def _parted(x: Term, what: str, dims: tuple[int, ...]) -> Term:
    if x.access.size != prod(dims):
        raise BadInput(f"{what} requires {prod(dims)} elements, one for each element of the windows, got {x.access}")
    return reshape(x, dims)


def _window_positions(node: Node, sizes: tuple[int, ...], kernel: tuple[int, ...], out: tuple[int, ...]) -> list[Array]:
    """Where the elements of all windows stand on each axis before they are moved, ()(k.. o..) as (K, o..)."""
    axes = len(sizes)
    strides, dilations = (_per_axis(node, name, axes, 1) for name in ("strides", "dilations"))
    pads = _per_axis(node, "pads", 2 * axes, 0)
    spans = [(k - 1) * d + 1 for k, d in zip(kernel, dilations, strict=True)]
    counts = [
        (n + pads[i] + pads[axes + i] - spans[i]) // strides[i] + 1 if kernel[i] else 0 for i, n in enumerate(sizes)
    ]
    if counts != list(out):
        raise BadInput(f"input 2 requires offsets for {counts} windows, got {list(out)}")
    result = []
    for i in range(axes):
        along = np.arange(kernel[i]) * dilations[i] - pads[i]
        grid = along[:, None] + np.arange(out[i]) * strides[i]
        dims = [(kernel[i] if j == i else 1) for j in range(axes)] + [(out[i] if j == i else 1) for j in range(axes)]
        whole = np.broadcast_to(grid.reshape(dims), (*kernel, *out))
        result.append(whole.reshape(prod(kernel), *out))
    return result


def _per_axis(node: Node, name: str, count: int, least: int) -> list[int]:
    value = node.integers(name, [least] * count)
    if len(value) != count or min(value) < least:
        raise BadInput(f"attribute {name} requires {count} numbers of at least {least}, got {value}")
    return value


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
    """The samples of boxes ()(R 4), of x and y where each starts and then where it ends."""

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
        """How many samples each bin of each box has along height and width, (R, 2)."""
        ratio = self.node.integer("sampling_ratio", 0)
        if ratio < 0:
            raise BadInput(f"attribute sampling_ratio requires at least 0, got {ratio}")
        if ratio:
            return np.full((self.size.access.dims[0], 2), ratio)
        known = self.node.scope.known(self.size)
        if known is None:
            raise BadInput("attribute sampling_ratio is required above 0 where boxes depend on data, got 0")
        counts = np.nan_to_num(np.ceil(known[:, ::-1] / np.array(self.pooled, known.dtype)))
        return np.asarray(np.clip(counts, 0, ELEMENTS).astype(np.int64))

    def taps(self, axis: int, size: int) -> tuple[Term, Term]:
        """Indices and weights along height or width, of dims that broadcast: ()(R PH PW SH SW 2 2)."""
        counts, pooled = self.counts[:, axis, None], self.pooled[axis]
        most = max(1, int(counts.max(initial=1)))
        require_table("the table of samples", len(counts), pooled, most)
        sample = np.minimum(np.arange(most), np.maximum(counts - 1, 0))  # further ones repeat the last
        steps = np.arange(pooled)[:, None] + ((sample + 0.5) / np.maximum(counts, 1))[:, None]
        dtype = self.ends.access.dtype
        start, length = (reshape(slice_axis(v, 1, 1 - axis, 2 - axis), (-1, 1, 1)) for v in (self.ends, self.size))
        bins = multiply(length, number(length, 1 / pooled))
        at = add(start, multiply(bins, self.node.constant(steps.astype(dtype))))
        inside = within(at, -1, size)
        indices, weights = SampledAxis(size, "border", True).taps(
            self.node, compute(f"(clip 0 {size - 1})", at), "linear"
        )
        share = np.where(np.arange(most) < counts, 1 / np.maximum(counts, 1) if self.mode == "avg" else 1, 0)
        if self.mode == "max":
            share = np.broadcast_to(counts > 0, share.shape)
        shared = select(inside, self.node.constant(share[:, None].astype(dtype)), number(at, 0))
        dims = [counts.shape[0], 1, 1, 1, 1, 1, 1]
        dims[1 + axis], dims[3 + axis], dims[5 + axis] = pooled, most, 2
        weights = multiply(weights, reshape(shared, (*shared.access.dims, 1)))
        return reshape(indices, dims), reshape(weights, dims)
