"""Requantizes sums to bytes as ONNX's QLinear operators do: in float32, rounding half to even twice."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from glenside.ir.errors import BadInput
from glenside.npu.machine.model import PARAMETER_ENTRY

PARAMETER = np.dtype(
    [("bias", "<i4"), ("scale", "<f4"), ("zero", "i1"), ("low", "i1"), ("high", "i1"), ("unused", "V5")]
)
"""The layout of a column's parameters in DRAM."""
assert PARAMETER.itemsize == PARAMETER_ENTRY
WIDE = (1 << 15) - 1
"""Saturation limit of values that are rounded to int16."""
_PRODUCT_LIMIT = 1024
"""A product beyond this limit saturates at `low` or `high` for every zero point."""


def decoded(content: npt.NDArray[np.uint8], columns: int) -> npt.NDArray[np.void]:
    """Decodes a row of parameters. Raises BadInput for a scale neither 0 nor normal, and for low above high."""
    found = content[: columns * PARAMETER_ENTRY].view(PARAMETER)
    scale = found["scale"]
    good = (scale == 0) & ~np.signbit(scale) | np.isfinite(scale) & (np.abs(scale) >= np.finfo(np.float32).tiny)
    if not good.all():
        column = int(good.argmin())
        raise BadInput(f"the scale of column {column} is 0 or a normal float32, got {scale[column]!s}")
    if (found["low"] > found["high"]).any():
        column = int((found["low"] > found["high"]).argmax())
        low, high = found["low"][column], found["high"][column]
        raise BadInput(f"the least value of column {column}, {low}, is above its greatest, {high}")
    return found


def encoded(
    bias: npt.ArrayLike, scale: npt.ArrayLike, zero: npt.ArrayLike, low: npt.ArrayLike, high: npt.ArrayLike
) -> npt.NDArray[np.uint8]:
    """Encodes a row of parameters, (columns) each, as its bytes in DRAM."""
    values = {"bias": bias, "scale": scale, "zero": zero, "low": low, "high": high}
    found = np.zeros(np.broadcast_shapes(*map(np.shape, values.values())), PARAMETER)
    for name, value in values.items():
        found[name] = value
    return found.reshape(-1).view(np.uint8)


def near(sums: npt.NDArray[np.int64], scale: npt.NDArray[np.float32]) -> npt.NDArray[np.int64]:
    """Returns int16(round(float32(sums) * scale)), saturated to -32767..32767."""
    with np.errstate(over="ignore"):
        product = np.rint(sums.astype(np.float32) * scale)
    found: npt.NDArray[np.int64] = np.clip(product, -WIDE, WIDE).astype(np.int64)
    return found


def requantised(sums: npt.NDArray[np.int64], own: npt.NDArray[np.void]) -> npt.NDArray[np.int8]:
    """Returns clamp(round(float32(sums) * scale) + zero point) for int32 sums with bias, (n)(C)."""
    with np.errstate(over="ignore"):  # overflow saturates below
        product = np.rint(sums.astype(np.float32) * own["scale"])
    np.clip(product, -_PRODUCT_LIMIT, _PRODUCT_LIMIT, out=product)  # adding a byte is then exact in float32
    zero, low, high = (own[name].astype(np.float32) for name in ("zero", "low", "high"))
    found: npt.NDArray[np.int8] = np.clip(product + zero, low, high).astype(np.int8)
    return found
