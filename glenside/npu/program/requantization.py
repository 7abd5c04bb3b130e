"""From sums to bytes: what ONNX's QLinear operators say, in float32 and rounded half to even twice."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from glenside.ir.errors import BadInput
from glenside.npu.machine.model import PARAMETER_ENTRY

PARAMETER = np.dtype(
    [("bias", "<i4"), ("scale", "<f4"), ("zero", "i1"), ("low", "i1"), ("high", "i1"), ("unused", "V5")]
)
"""A column's parameters in DRAM."""
assert PARAMETER.itemsize == PARAMETER_ENTRY
WIDE = (1 << 15) - 1
"""The greatest int16 of what is rounded into accumulators."""
_FAR = 1024
"""Beyond this every value ends at low or high, whatever the zero point."""


def decoded(content: npt.NDArray[np.uint8], columns: int) -> npt.NDArray[np.void]:
    """The parameters of a row from its bytes. Raises BadInput: a scale that is not normal, or 0."""
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
    """The bytes of a row of parameters as DRAM holds it, (columns) each."""
    values = {"bias": bias, "scale": scale, "zero": zero, "low": low, "high": high}
    found = np.zeros(np.broadcast_shapes(*map(np.shape, values.values())), PARAMETER)
    for name, value in values.items():
        found[name] = value
    return found.reshape(-1).view(np.uint8)


def near(sums: npt.NDArray[np.int64], scale: npt.NDArray[np.float32]) -> npt.NDArray[np.int64]:
    """int16(round(float32(sums) * scale)), the nearest of -32767 to 32767."""
    with np.errstate(over="ignore"):
        product = np.rint(sums.astype(np.float32) * scale)
    found: npt.NDArray[np.int64] = np.clip(product, -WIDE, WIDE).astype(np.int64)
    return found


def requantised(sums: npt.NDArray[np.int64], own: npt.NDArray[np.void]) -> npt.NDArray[np.int8]:
    """clamp(round(float32(sums) * scale) + zero point), of sums with their bias, (n)(C), within int32."""
    with np.errstate(over="ignore"):  # beyond float32 is beyond int8 too
        product = np.rint(sums.astype(np.float32) * own["scale"])
    np.clip(product, -_FAR, _FAR, out=product)  # float32 has all sums of such numbers and bytes
    zero, low, high = (own[name].astype(np.float32) for name in ("zero", "low", "high"))
    found: npt.NDArray[np.int8] = np.clip(product + zero, low, high).astype(np.int8)
    return found
