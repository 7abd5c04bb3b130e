"""Builds a network of dequantized and quantized tensors, as in QDQ files, with values that need no rounding."""

from __future__ import annotations

from typing import Any

import numpy as np

import glenside as gl
from glenside.builder import layout, pointwise, quantization
from glenside.ir.operand import Array
from glenside.ir.program import Program
from glenside.ir.term import Term


def one(b: Any, name: str, dtype: str) -> Term:
    """Returns a constant of one number."""
    return layout.reshape(b.constant(name, (1,), dtype=dtype), ())


def network(zero: bool, activation: str = "uint8", groups: int = 1) -> Program:
    """Builds a network on (1 4 7 6) floats: quantized, a padded convolution with scales per channel, a bias, quantized
    again, a pointwise convolution, a skip connection, and quantized a third time.
    """
    b = gl.Builder("p")
    scale, other = one(b, "scale", "float32"), one(b, "other", "float32")
    point = one(b, "point", activation) if zero else None

    def real(x: Term, by: Term) -> Term:
        return quantization.dequantize(quantization.quantize(x, by, point, activation), by, point)

    def weights(name: str, *dims: int) -> Term:
        scales = layout.reshape(b.constant(f"{name} scales", dims[:1]), (dims[0], 1, 1, 1))
        return quantization.dequantize(b.constant(name, dims, dtype="int8"), scales, None)

    x = real(b.input("x", (1, 4, 7, 6)), scale)
    y = b.conv(x, weights("w", 8, 4 // groups, 3, 3), padding=1, groups=groups)
    y = real(pointwise.add(y, layout.reshape(b.constant("bias", (8,)), (8, 1, 1))), other)
    z = real(b.conv(y, weights("v", 8, 8, 1, 1)), other)
    return b.finish(real(pointwise.add(y, z), other))


def values(program: Program, seed: int) -> dict[str, Array]:
    """Returns values whose scales are powers of two and whose biases are small multiples of these."""
    draw = np.random.default_rng(seed)
    found: dict[str, Array] = {}
    for name, tensor in program.tensors.items():
        if name == "point":
            found[name] = draw.integers(3, 120, tensor.dims).astype(tensor.dtype)
        elif "scale" in name or name == "other":
            found[name] = np.exp2(draw.integers(-4, 0, tensor.dims)).astype(np.float32) * (8 if name == "other" else 1)
        elif tensor.dtype == "int8":
            found[name] = draw.integers(-128, 128, tensor.dims).astype(np.int8)
        else:
            found[name] = (draw.integers(-400, 400, tensor.dims) / 16).astype(np.float32)
    return found
