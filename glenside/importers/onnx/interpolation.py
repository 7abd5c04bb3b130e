"""Where the elements of a resized axis come from, and with which weights: positions known beforehand, so arrays."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from glenside.importers.onnx.tensors import require_table
from glenside.ir.operand import Array


@dataclass(frozen=True)
class ResizedAxis:
    """One axis of `size` elements that becomes one of `resized`.

    scale  how much larger: that may be no quotient of whole numbers
    roi    (start, end) of the part that is resized, of an axis from 0 to 1; only tf_crop_and_resize reads it
    """

    size: int
    resized: int
    scale: float
    roi: tuple[float, float] = (0.0, 1.0)

    @property
    def kept(self) -> bool:
        """Whether nothing happens to it, whatever the mode."""
        return self.size == self.resized and (self.size == 0 or (self.scale == 1 and self.roi == (0, 1)))


def _half_pixel(axis: ResizedAxis, x: Array) -> Array:
    return (x + 0.5) / axis.scale - 0.5


def _half_pixel_symmetric(axis: ResizedAxis, x: Array) -> Array:
    """The centre of the axis stays the centre, although the whole number `resized` is below scale * size."""
    return axis.size / 2 * (1 - axis.resized / (axis.scale * axis.size)) + (x + 0.5) / axis.scale - 0.5


def _pytorch_half_pixel(axis: ResizedAxis, x: Array) -> Array:
    return _half_pixel(axis, x) if axis.resized > 1 else np.zeros_like(x)


def _align_corners(axis: ResizedAxis, x: Array) -> Array:
    """The size that this divides by is that before it is cut to a whole number, as ONNX's tests have it."""
    whole = axis.scale * axis.size
    return np.zeros_like(x) if whole == 1 else x * (axis.size - 1) / (whole - 1)


def _crop_and_resize(axis: ResizedAxis, x: Array) -> Array:
    start, end = axis.roi
    if axis.resized == 1:
        return np.full_like(x, 0.5 * (start + end) * (axis.size - 1))
    return start * (axis.size - 1) + x * (end - start) * (axis.size - 1) / (axis.resized - 1)


TRANSFORMATIONS: dict[str, Callable[[ResizedAxis, Array], Array]] = {
    "half_pixel": _half_pixel,
    "half_pixel_symmetric": _half_pixel_symmetric,
    "pytorch_half_pixel": _pytorch_half_pixel,
    "align_corners": _align_corners,
    "asymmetric": lambda axis, x: x / axis.scale,
    "tf_crop_and_resize": _crop_and_resize,
}
"""Coordinates of the resized axis -> coordinates of the axis itself."""

ROUNDINGS: dict[str, Callable[[Array], Array]] = {
    "round_prefer_floor": lambda x: np.ceil(x - 0.5),
    "round_prefer_ceil": lambda x: np.floor(x + 0.5),
    "floor": np.floor,
    "ceil": np.ceil,
}


def positions(axis: ResizedAxis, transformation: str) -> Array:
    """Where each element of the resized axis stands on the axis itself. Raises BadInput when they are too many."""
    require_table("the table of a resized axis", axis.resized)
    return TRANSFORMATIONS[transformation](axis, np.arange(axis.resized, dtype=np.float64))


def nearest(axis: ResizedAxis, x: Array, rounding: str) -> Array:
    """The index of the element that is nearest to each position."""
    return np.clip(ROUNDINGS[rounding](x), 0, axis.size - 1).astype(np.int64)


def cubic(distance: Array, a: float) -> Array:
    """Keys' kernel, 1 at distance 0 and 0 from distance 2 on; a is its slope at distance 1."""
    d = np.abs(distance)
    inner = ((a + 2) * d - (a + 3)) * d * d + 1
    outer = ((a * d - 5 * a) * d + 8 * a) * d - 4 * a
    return np.where(d <= 1, inner, np.where(d < 2, outer, 0))


def linear(distance: Array) -> Array:
    """1 at distance 0 and 0 from distance 1 on."""
    return np.asarray(np.maximum(1 - np.abs(distance), 0))


@dataclass(frozen=True)
class Kernel:
    """A function of the distance that is 0 from `radius` on.

    antialias        a smaller axis takes what the kernel covers when it is widened by 1 / scale
    exclude_outside  what lies outside of the axis has no weight, where else the element at the edge stands for it
    """

    radius: int
    weight: Callable[[Array], Array]
    antialias: bool = False
    exclude_outside: bool = False

    def taps(self, axis: ResizedAxis, x: Array) -> tuple[Array, Array]:
        """Indices and weights, (positions, taps) each. Raises BadInput when they are too many."""
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
