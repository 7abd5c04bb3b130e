"""Imports Resize and Upsample: gathers with constant indices, and constant interpolation weights, axis by axis."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from glenside.builder.layout import broadcast, gather, repeat, transpose, untransposed
from glenside.builder.pointwise import cast, select
from glenside.builder.quantization import rounded
from glenside.builder.reductions import weighted_elements
from glenside.importers.onnx.node import Node, distinct_axes, onnx_operator
from glenside.importers.onnx.tensors import float_dtype, require_table
from glenside.ir.dtypes import FLOATS
from glenside.ir.errors import BadInput
from glenside.ir.operand import Array
from glenside.ir.term import Term


@dataclass(frozen=True)
class ResizedAxis:
    """One axis of `size` elements that is resized to `resized`.

    scale  the scale factor, which need not be resized / size
    roi    (start, end) of the resized part of an axis from 0 to 1; only tf_crop_and_resize uses it
    """

    size: int
    resized: int
    scale: float
    roi: tuple[float, float] = (0.0, 1.0)

    @property
    def kept(self) -> bool:
        """True if the axis is unchanged in every mode."""
        return self.size == self.resized and (self.size == 0 or (self.scale == 1 and self.roi == (0, 1)))


def _half_pixel(axis: ResizedAxis, x: Array) -> Array:
    return (x + 0.5) / axis.scale - 0.5


def _half_pixel_symmetric(axis: ResizedAxis, x: Array) -> Array:
    """Keeps the centre of the axis, although the integer `resized` is below scale * size."""
    return axis.size / 2 * (1 - axis.resized / (axis.scale * axis.size)) + (x + 0.5) / axis.scale - 0.5


def _align_corners(axis: ResizedAxis, x: Array) -> Array:
    """Maps the last element to the last: the specification's `length_resized` is the length of the result.

    onnxruntime does the same, and PyTorch, which exports this. ONNX's reference divides by scale * size - 1, unrounded.
    """
    return np.zeros_like(x) if axis.resized <= 1 else x * (axis.size - 1) / (axis.resized - 1)


def _crop_and_resize(axis: ResizedAxis, x: Array) -> Array:
    start, end = axis.roi
    if axis.resized == 1:
        return np.full_like(x, 0.5 * (start + end) * (axis.size - 1))
    return start * (axis.size - 1) + x * (end - start) * (axis.size - 1) / (axis.resized - 1)


TRANSFORMATIONS: dict[str, Callable[[ResizedAxis, Array], Array]] = {
    "half_pixel": _half_pixel,
    "half_pixel_symmetric": _half_pixel_symmetric,
    "pytorch_half_pixel": lambda axis, x: _half_pixel(axis, x) if axis.resized > 1 else np.zeros_like(x),
    "align_corners": _align_corners,
    "asymmetric": lambda axis, x: x / axis.scale,
    "tf_crop_and_resize": _crop_and_resize,
}
"""Coordinates of the resized axis -> coordinates of the original axis."""

ROUNDINGS: dict[str, Callable[[Array], Array]] = {
    "round_prefer_floor": lambda x: np.ceil(x - 0.5),
    "round_prefer_ceil": lambda x: np.floor(x + 0.5),
    "floor": np.floor,
    "ceil": np.ceil,
}


def positions(axis: ResizedAxis, transformation: str) -> Array:
    """Returns the position of each resized element on the original axis. Raises BadInput for an empty axis or too
    many.
    """
    if axis.resized and not axis.size:
        raise BadInput(f"input 0 requires elements along an axis that is resized to {axis.resized}, got none")
    require_table("the table of a resized axis", axis.resized)
    return TRANSFORMATIONS[transformation](axis, np.arange(axis.resized, dtype=np.float64))


def nearest(axis: ResizedAxis, x: Array, rounding: str) -> Array:
    """Returns the index of the element nearest to each position."""
    return np.clip(ROUNDINGS[rounding](x), 0, axis.size - 1).astype(np.int64)


def cubic(distance: Array, a: float) -> Array:
    """Computes Keys' kernel: 1 at distance 0 and 0 from distance 2 on; a is its slope at distance 1."""
    d = np.abs(distance)
    inner = ((a + 2) * d - (a + 3)) * d * d + 1
    outer = ((a * d - 5 * a) * d + 8 * a) * d - 4 * a
    return np.where(d <= 1, inner, np.where(d < 2, outer, 0))


def linear(distance: Array) -> Array:
    """Computes the linear kernel: 1 at distance 0 and 0 from distance 1 on."""
    return np.asarray(np.maximum(1 - np.abs(distance), 0))


@dataclass(frozen=True)
class Kernel:
    """A function of the distance that is 0 from `radius` on.

    antialias        when shrinking, the kernel is widened by 1 / scale
    exclude_outside  positions outside of the axis have no weight; otherwise they read the element at the edge
    """

    radius: int
    weight: Callable[[Array], Array]
    antialias: bool = False
    exclude_outside: bool = False

    def taps(self, axis: ResizedAxis, x: Array) -> tuple[Array, Array]:
        """Returns indices and weights, (positions, taps) each. Raises BadInput if there are too many."""
        stretch = min(axis.scale, 1.0) if self.antialias else 1.0
        reach = int(np.ceil(self.radius / stretch))
        require_table("the table of a resized axis", max(1, axis.resized), 2 * reach)
        indices = np.ceil(x)[:, None] + np.arange(-reach, reach)
        weights = self.weight((indices - x[:, None]) * stretch)
        if self.exclude_outside:
            weights = np.where((indices < 0) | (indices >= axis.size), 0, weights)
        if self.antialias or self.exclude_outside:
            total = weights.sum(1, keepdims=True)
            weights = weights / np.where(total == 0, 1, total)
        return np.clip(indices, 0, axis.size - 1).astype(np.int64), weights


@onnx_operator("Resize")
def resize(node: Node) -> Term:
    if node.version < 11:
        return upsample(node)
    mode = node.text("mode", "nearest", "nearest", "linear", "cubic")
    transformation = node.text("coordinate_transformation_mode", "half_pixel", *TRANSFORMATIONS)
    crops = transformation == "tf_crop_and_resize"
    axes = _axes(node, crops)
    if mode == "nearest":
        rounding = node.text("nearest_mode", "round_prefer_floor", *ROUNDINGS)
        y = _nearest(node, node.term(0), axes, transformation, rounding)
    else:
        y = _interpolated(node, node.term(0), axes, transformation, _kernel(node, mode))
    return _extrapolated(node, y, axes) if crops else y


@onnx_operator("Upsample")
def upsample(node: Node) -> Term:
    mode = node.text("mode", "nearest", "nearest", "linear", *(["bilinear"] if node.version < 7 else []))
    x, scales = node.term(0), _upsample_scales(node)
    axes = {i: _scaled(n, scale) for i, (n, scale) in enumerate(zip(x.access.dims, scales, strict=True))}
    if mode != "nearest":
        return _interpolated(node, x, axes, "asymmetric", Kernel(1, linear))
    # Resize of opset 10 took the element after the position along axes that shrink.
    smaller = {i: axis for i, axis in axes.items() if axis.scale < 1 and node.op_type == "Resize"}
    larger = {i: axis for i, axis in axes.items() if i not in smaller}
    return _nearest(node, _nearest(node, x, smaller, "asymmetric", "ceil"), larger, "asymmetric", "floor")


def _upsample_scales(node: Node) -> list[float]:
    rank = node.term(0).access.rank
    if node.version >= 9:
        return _scales(node.known(1), rank, "input 1")
    if node.version >= 7:
        return _scales(np.array(node.numbers("scales") or []), rank, "attribute scales")
    if rank != 4:
        raise BadInput(f"input 0 requires four axes, got {node.term(0).access}")
    sizes = [node.number(name, 0) for name in ("height_scale", "width_scale")]
    return _scales(np.array([1, 1, *sizes]), rank, "attributes height_scale and width_scale")


def _scales(value: Array, count: int, what: str) -> list[float]:
    scales = [float(scale) for scale in value.reshape(-1)]
    if len(scales) != count or not all(0 < scale < math.inf for scale in scales):
        raise BadInput(f"{what} requires a scale above 0 for each of {count} axes, got {scales}")
    return scales


def _scaled(size: int, scale: float) -> ResizedAxis:
    return ResizedAxis(size, int(np.float32(size) * np.float32(scale)), scale)


def _axes(node: Node, crops: bool) -> dict[int, ResizedAxis]:
    """Returns how each named axis is resized, by its number."""
    dims = node.term(0).access.dims
    named = node.integers("axes", range(len(dims)))
    numbers = distinct_axes(named, len(dims), "attribute axes")
    sizes, scales = _given(node, 3), _given(node, 2)
    if (sizes is None) == (scales is None):
        got = "none" if sizes is None else "both"
        raise BadInput(f"either input 2, scales, or input 3, sizes, is required, got {got}")
    chosen = [dims[axis] for axis in numbers]
    if scales is not None:
        resized = [_scaled(*pair) for pair in zip(chosen, _scales(scales, len(numbers), "input 2"), strict=True)]
    else:
        resized = _sized(node, chosen, node.known_ints(3) or [])
    if crops:
        resized = [replace(axis, roi=part) for axis, part in zip(resized, _roi(node, len(numbers)), strict=True)]
    return dict(zip(numbers, resized, strict=True))


def _given(node: Node, i: int) -> Array | None:
    """Returns an input that counts as missing if it is empty, as files of opset 11 have it."""
    if node.optional(i) is None or (node.term(i).access.dims == (0,) and node.term(0).access.rank):
        return None
    return node.known(i)


def _sized(node: Node, chosen: Sequence[int], sizes: Sequence[int]) -> list[ResizedAxis]:
    policy = node.text("keep_aspect_ratio_policy", "stretch", "stretch", "not_larger", "not_smaller")
    if len(sizes) != len(chosen) or min(sizes, default=0) < 0:
        raise BadInput(f"input 3 requires a size of at least 0 for each of {len(chosen)} axes, got {sizes}")
    scales = [size / n if n else 1.0 for n, size in zip(chosen, sizes, strict=True)]
    if policy != "stretch" and scales:
        scale = min(scales) if policy == "not_larger" else max(scales)
        scales, sizes = [scale] * len(chosen), [int(scale * n + 0.5) for n in chosen]
    return [ResizedAxis(*axis) for axis in zip(chosen, sizes, scales, strict=True)]


def _roi(node: Node, count: int) -> list[tuple[float, float]]:
    value = _given(node, 1)
    ends = [] if value is None else [float(end) for end in value.reshape(-1)]
    if len(ends) != 2 * count or not np.isfinite(ends).all():
        raise BadInput(f"input 1, roi, requires {count} starts and {count} ends, got {ends or 'nothing'}")
    return list(zip(ends[:count], ends[count:], strict=True))


def _kernel(node: Node, mode: str) -> Kernel:
    a = node.number("cubic_coeff_a", -0.75)
    if not math.isfinite(a):
        raise BadInput(f"attribute cubic_coeff_a requires a finite number, got {a}")
    flags = bool(node.integer("antialias", 0)), bool(node.integer("exclude_outside", 0))
    return Kernel(1, linear, *flags) if mode == "linear" else Kernel(2, lambda d: cubic(d, a), *flags)


def _nearest(node: Node, x: Term, axes: dict[int, ResizedAxis], transformation: str, rounding: str) -> Term:
    if node.integer("antialias", 0):
        raise BadInput("attribute antialias requires the mode linear or cubic, got nearest")
    counts = [1] * x.access.rank
    for number, axis in axes.items():
        if axis.kept:
            continue
        found = nearest(axis, positions(axis, transformation), rounding)
        whole = axis.resized // max(axis.size, 1)
        if len(found) == axis.size * whole and np.array_equal(found, np.repeat(np.arange(axis.size), whole)):
            counts[number] = whole
        else:
            x = gather(x, node.constant(found), number)
    return repeat(x, counts)


def _interpolated(node: Node, x: Term, axes: dict[int, ResizedAxis], transformation: str, kernel: Kernel) -> Term:
    dtype, wide = x.access.dtype, float_dtype(x)
    if dtype == "bool":
        raise BadInput("input 0 requires numbers for the modes linear and cubic, got bool")
    y = cast(x, wide)
    for number, axis in axes.items():
        if not axis.kept:
            indices, weights = kernel.taps(axis, positions(axis, transformation))
            order = (number, *(i for i in range(x.access.rank) if i != number))
            found = gather(transpose(y, order), node.constant(indices))
            y = untransposed(weighted_elements(found, node.constant(weights.astype(wide))), order)
    return cast(y, dtype) if dtype in FLOATS else rounded(y, None, dtype)


def _extrapolated(node: Node, y: Term, axes: dict[int, ResizedAxis]) -> Term:
    """Returns y with a fixed value where a coordinate is outside of the axis."""
    value = node.number("extrapolation_value", 0)
    outside = np.zeros((1,) * y.access.rank, bool)
    for number, axis in axes.items():
        x = positions(axis, "tf_crop_and_resize")
        beyond = (x < 0) | (x > axis.size - 1)
        outside = outside | beyond.reshape([-1 if i == number else 1 for i in range(y.access.rank)])
    if not outside.any():
        return y
    filler = node.scope.filled((1,) * y.access.rank, np.array([value]).astype(y.access.dtype)[0])
    return select(broadcast(node.constant(outside), y.access.dims), filler, y)
