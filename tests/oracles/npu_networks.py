"""Draws small networks of dequantized and quantized tensors: layers as in networks, at unusual sizes, with scales that
use the range of bytes.
"""

from __future__ import annotations

import random

import numpy as np

import glenside as gl
from glenside.builder import quantization
from glenside.ir.program import Program
from glenside.ir.term import Term

_SPREAD = 74.0
"""Standard deviation of bytes in tensors that are not degenerate."""


class _Drawing:
    def __init__(self, pick: random.Random) -> None:
        self.pick, self.b, self.draw = pick, gl.Builder("network"), np.random.default_rng(pick.randrange(1 << 32))
        self.scale, self.count = 0.0, 0

    def name(self, kind: str) -> str:
        self.count += 1
        return f"{kind}{self.count}"

    def real(self, x: Term, scale: float) -> Term:
        """Dequantizes x with a given scale and a random zero point; returns bytes and numbers."""
        self.scale = float(np.float32(scale))
        zero = self.b.full((), self.pick.choice([0, self.pick.randint(-40, 40), -128]), "int8")
        by = self.b.full((), repr(self.scale), "float32")
        return quantization.dequantize(quantization.quantize(x, by, zero, "int8"), by, zero)

    def weights(self, name: str, dims: tuple[int, ...], axis: int) -> tuple[Term, float]:
        """Draws int8 weights with a scale for each channel, and a scale near all of these."""
        values = self.draw.integers(-127, 128, dims).astype(np.int8)
        sizes = [size if each == axis else 1 for each, size in enumerate(dims)]
        by = (0.02 * self.draw.uniform(0.7, 1.4, sizes)).astype(np.float32)
        w = self.b.constant(name, dims, "int8", values)
        return quantization.dequantize(w, self.b.constant(f"{name} scale", sizes, "float32", by), None), 0.02

    def after(self, y: Term, channels: int, axis: int, terms: int, weight: float) -> Term:
        """Requantizes sums of a given depth with a bias, sometimes clipped, to bytes that use their range."""
        deviation = self.scale * weight * _SPREAD * _SPREAD * terms**0.5
        if self.pick.random() < 0.7:
            sizes = [channels if each == axis else 1 for each in range(y.access.rank)]
            bias = (self.draw.standard_normal(sizes) * deviation / 2).astype(np.float32)
            y = self.b.add(y, self.b.constant(self.name("bias"), sizes, "float32", bias))
        activation = self.pick.choice(["", "relu", "clip"])
        if activation == "relu":
            y = self.b.relu(y)
        elif activation == "clip":
            low, high = float(np.float32(-deviation)), float(np.float32(1.5 * deviation))
            y = self.b.compute(f"(clip {low!r} {high!r})", y)
        return self.real(y, deviation / self.pick.uniform(25, 60))

    def convolution(self, x: Term) -> Term:
        pick, (_, channels, *size) = self.pick, x.access.dims
        kind = pick.choice(["any", "any", "depthwise", "grouped", "pointwise"])
        grouped = pick.choice([g for g in (1, 2, 3) if channels % g == 0])
        groups = {"depthwise": channels, "grouped": grouped}.get(kind, 1)
        filters = groups * pick.randint(1, max(1, min(12, 24 // groups)) if kind != "depthwise" else 2)
        window = (1, 1) if kind == "pointwise" else (pick.randint(1, 3), pick.randint(1, 3))
        dilations = pick.choice([1, 1, 2])
        padding = pick.choice([0, 1]) if kind != "pointwise" else 0
        if any(n + 2 * padding < (w - 1) * dilations + 1 for n, w in zip(size, window, strict=True)):
            window, dilations = (1, 1), 1
        name = self.name(kind)
        w, scale = self.weights(f"{name} w", (filters, channels // groups, *window), 0)
        strides = pick.choice([1, 1, 2])
        y = self.b.conv(x, w, strides=strides, dilations=dilations, groups=groups, padding=padding, name=name)
        return self.after(y, filters, 1, channels // groups * window[0] * window[1], scale)

    def pool(self, x: Term) -> Term:
        window = tuple(min(2, size) for size in x.access.dims[2:])
        return self.real(self.b.average_pool(x, window), self.scale / 1.5)

    def same(self, x: Term, filters: int | None = None, *, depthwise: bool = False) -> Term:
        """Adds a 3 x 3 or a depthwise convolution that keeps the size, and the channels unless others are given."""
        channels, kind = x.access.dims[1], "depthwise" if depthwise else "same"
        filters, groups = filters or channels, channels if depthwise else 1
        filters = channels if depthwise else filters
        name, window = self.name(kind), 3 if depthwise or self.pick.random() < 0.5 else 1
        w, scale = self.weights(f"{name} w", (filters, channels // groups, window, window), 0)
        y = self.b.conv(x, w, groups=groups, padding=window // 2, name=name)
        return self.after(y, filters, 1, channels // groups * window * window, scale)

    def matmul(self, x: Term, n: int | None = None) -> Term:
        k = x.access.dims[1]
        n, name = n or self.pick.randint(1, 12), self.name("matmul")
        w, scale = self.weights(f"{name} w", (k, n), 1)
        return self.after(self.b.matmul(x, w, name=name), n, 1, k, scale)


def network(pick: random.Random) -> Program:
    """Draws 2 to 5 layers in a chain, on tensors of (1)(channels)(odd sizes), or on matrices."""
    own = _Drawing(pick)
    layers = pick.randint(2, 5)
    if pick.random() < 0.2:
        x = own.real(own.b.input("x", (pick.randint(1, 12), pick.randint(1, 12))), 0.03)
        for _ in range(layers):
            x = own.matmul(x)
        return own.b.finish(x)
    x = own.real(own.b.input("x", (1, pick.randint(1, 8), pick.randint(3, 11), pick.randint(3, 11))), 0.03)
    for _ in range(layers):
        x = own.pool(x) if pick.random() < 0.15 else own.convolution(x)
    if pick.random() < 0.3:
        x = own.matmul(own.b.reshape(x, (x.access.dims[1], x.access.size // x.access.dims[1])))
    return own.b.finish(x)


_BRANCHES = "residual", "concatenated", "gate", "separable", "attention"


def branches(pick: random.Random) -> Program:
    """Draws 3 to 5 layers with branches: tensors read by two layers and joined by a sum, a product or a concatenation;
    alternating depthwise and pointwise layers; or products of two computed tensors.
    """
    own, kind = _Drawing(pick), pick.choice(_BRANCHES)
    b = own.b
    if kind == "attention":
        x = own.real(b.input("x", (pick.randint(2, 9), pick.randint(2, 9))), 0.03)
        scale, q = own.scale, own.matmul(x)
        own.scale = scale
        k = own.matmul(x, q.access.dims[1])
        return b.finish(own.real(b.matmul(q, b.transpose(k, (1, 0))), own.scale * 4))
    x = own.real(b.input("x", (1, pick.randint(1, 6), pick.randint(3, 9), pick.randint(3, 9))), 0.03)
    if kind == "separable":
        for _ in range(2):
            x = own.same(own.same(x, depthwise=True), pick.randint(1, 9))
        return b.finish(x)
    y = own.same(x, pick.randint(1, 6) if kind == "concatenated" else None, depthwise=pick.random() < 0.3)
    if kind == "residual":
        z = own.real(b.add(x, y), own.scale * 1.5)
    elif kind == "concatenated":
        z = own.real(b.concatenate([x, y], 1), own.scale)
    else:
        z = own.real(b.multiply(x, y), own.scale * 2)
    return b.finish(own.convolution(own.convolution(z)))
