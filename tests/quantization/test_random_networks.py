"""Tests random networks of quantized tensors as integer layers."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from onnx_integer_networks import Graph, by_layers, computed, drawn, results

from glenside.ir.program import Program
from glenside.quantization.calibration import quantized
from glenside.quantization.network import integer_network


class Drawn:
    """A network as it is drawn: the tensor so far, ()(N C H W), and an older one of the same dims and scale."""

    def __init__(self, graph: Graph) -> None:
        self.g = graph
        draw = self.g.draw
        self.dtype = str(draw.choice(["uint8", "int8"]))
        self.dims = [int(draw.integers(1, 3)), int(draw.integers(1, 5)), *map(int, draw.integers(5, 9, 2))]
        self.first = tuple(self.dims)
        self.scale = 0.02
        self.now = self.quantized("x")

    def quantized(self, x: str, scale: float | None = None) -> str:
        self.scale = self.scale if scale is None else scale
        low = 0 if self.dtype == "uint8" else -128
        return self.g.quantized(x, self.scale, low + int(self.g.draw.integers(40, 200)), self.dtype)

    def after(self, count: int) -> float:
        """Returns the scale of a sum of products of bytes."""
        return float(self.scale * 0.4 * np.sqrt(count) * self.g.draw.uniform(0.8, 1.3))

    def pads(self, most: int) -> list[int]:
        return [int(n) for n in self.g.draw.integers(0, most + 1, 4)]

    def sizes(self, window: list[int], strides: list[int], pads: list[int], dilation: int = 1) -> list[int]:
        spans = [(k - 1) * dilation + 1 for k in window]
        return [
            (n + before + after - k) // t + 1
            for n, k, t, before, after in zip(self.dims[2:], spans, strides, pads[:2], pads[2:], strict=True)
        ]

    def conv(self) -> None:
        draw, g = self.g.draw, self.g
        groups = int(draw.choice([d for d in range(1, self.dims[1] + 1) if self.dims[1] % d == 0]))
        filters = groups * int(draw.integers(1, 4))
        window, strides, pads = [*map(int, draw.integers(1, 4, 2))], [*map(int, draw.integers(1, 3, 2))], self.pads(2)
        sizes = self.sizes(window, strides, pads)
        if min(sizes) < 1:
            return
        inner = self.dims[1] // groups * window[0] * window[1]
        parts = g.with_bias((filters, self.dims[1] // groups, *window), self.scale)
        y = g.node("Conv", self.now, *parts, group=groups, strides=strides, pads=pads)
        step = str(draw.choice(["", "Relu", "Clip", "Mul", "Transpose", "Squeeze"]))
        if step == "Relu":
            y = g.node("Relu", y)
        elif step == "Clip":
            y = g.node("Clip", y, g.constant(-1, "float32"), g.constant(2, "float32"))
        elif step == "Mul":
            y = g.node("Mul", y, g.constant(draw.uniform(0.5, 1.5, (filters, 1, 1)), "float32"))
        elif step == "Transpose":
            y = g.node("Transpose", y, perm=[0, 1, 3, 2])
            sizes = sizes[::-1]
        elif step == "Squeeze":
            y = g.node("Reshape", y, g.constant([self.dims[0], filters, 1, -1], "int64"))
            sizes = [1, sizes[0] * sizes[1]]
        self.dims = [self.dims[0], filters, *sizes]
        self.now = self.quantized(y, self.after(inner))

    def pool(self) -> None:
        op = str(self.g.draw.choice(["MaxPool", "AveragePool"]))
        window, strides = [*map(int, self.g.draw.integers(1, 4, 2))], [*map(int, self.g.draw.integers(1, 3, 2))]
        pads = [min(p, (*window, *window)[i] - 1) for i, p in enumerate(self.pads(1))]
        sizes = self.sizes(window, strides, pads)
        if min(sizes) < 1:
            return
        y = self.g.node(op, self.now, kernel_shape=window, strides=strides, pads=pads)
        self.dims = [*self.dims[:2], *sizes]
        self.now = self.quantized(y, self.scale * (1 if op == "MaxPool" else 0.8713))

    def join(self) -> None:
        other = self.quantized(self.g.node("Conv", self.now, self.g.weights((self.dims[1], self.dims[1], 1, 1))),
                               self.after(self.dims[1]))  # fmt: skip
        if self.g.draw.integers(2):
            self.now = self.quantized(self.g.node("Add", self.now, other), self.scale * 1.87)
            return
        self.now = self.quantized(self.g.node("Concat", self.now, other, axis=1), self.scale * 1.5117)
        self.dims[1] *= 2

    def cut(self) -> None:
        if self.dims[2] < 3:
            return
        ends = [self.g.constant([n], "int64") for n in (1, 2**31, 2)]
        self.now = self.g.node("Slice", self.now, *ends)
        self.dims[2] -= 1

    def pad(self) -> None:
        self.now = self.g.node("Pad", self.now, self.g.constant([0, 0, 1, 0, 0, 0, 0, 2], "int64"))
        self.dims[2], self.dims[3] = self.dims[2] + 1, self.dims[3] + 2


class Floats(Graph):
    """A graph whose weights are floats."""

    def weights(self, dims: Sequence[int], axis: int = 0) -> str:
        return self.constant(self.draw.standard_normal(dims) / np.sqrt(np.prod(dims[1:])), "float32")

    def with_bias(self, dims: Sequence[int], scale: float) -> list[str]:
        return [self.weights(dims), self.constant(self.draw.standard_normal(dims[0]) / 8, "float32")]

    def quantized(self, x: str, scale: float, zero: int, dtype: str = "uint8") -> str:
        return x


def network(graph: Graph) -> Program:
    it = Drawn(graph)
    it.conv()
    for _ in range(4):
        steps = [it.conv, it.conv, it.pool, it.join, it.cut, it.pad]
        steps[int(it.g.draw.integers(len(steps)))]()
    last = it.g.node("Conv", it.now, it.g.weights((3, it.dims[1], 1, 1)))
    return it.g.program({"x": (it.first, "float32")}, it.quantized(last, it.after(it.dims[1])))


@pytest.mark.parametrize("seed", range(16))
def test_near_what_floats_say(seed: int) -> None:
    program = network(Graph(seed))
    found = integer_network(program)
    inputs = drawn(program, seed)
    (want,), (got,) = results(program, program.constants, inputs), computed(found, inputs)
    (scale, _), *_ = found.outputs
    apart = np.abs(want - got) / scale
    assert want.shape == got.shape
    assert (apart > 0.01).mean() <= 0.05
    assert apart.max() < 4  # what differs by one somewhere spreads
    assert np.unique(want).size > 2
    by_layers(found, inputs)


@pytest.mark.parametrize("seed", [*range(8), 43, 245])
def test_networks_of_floats(seed: int) -> None:
    """Calibrated on what they are tried on: elsewhere, values beyond the ranges seen are cut."""
    program = network(Floats(seed))
    inputs = drawn(program, seed)
    found = quantized(program, data=inputs)
    (want,), (got,) = results(program, program.constants, inputs), computed(found, inputs)
    assert np.square(got - want).sum() <= np.square(want).sum() / 250  # 24 decibels
    by_layers(found, inputs)
