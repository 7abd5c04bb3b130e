"""MobileNetV1: https://arxiv.org/abs/1704.04861, table 1."""

from __future__ import annotations

import dataclasses
import math
from pathlib import Path

from glenside.builder import Builder
from glenside.ir.errors import BadInput
from glenside.ir.program import Program
from glenside.ir.term import Term
from glenside.models.registry import model
from glenside.models.weights import random_near_one, random_normal, read_npz

# (stride of the depthwise convolution, channels after the pointwise one) of each pair.
_PAIRS = ((1, 64), (2, 128), (1, 128), (2, 256), (1, 256), (2, 512), *((1, 512),) * 5, (2, 1024), (1, 1024))


@model
def mobilenet_v1(
    width: float = 1.0,
    resolution: int = 224,
    batch: int = 1,
    classes: int = 1000,
    seed: int = 0,
    weights: str | Path | None = None,
) -> Program:
    """MobileNetV1: 28 layers, of which 13 depthwise; width and resolution multipliers as in the paper.

    Every 3x3 convolution is padded by 1 on all sides, as PyTorch ports do; the sizes are those of the paper. Weights
    are random ones of that seed, made when they are read, or the arrays of an .npz file: conv1.weight, conv1.gamma,
    conv1.beta, conv1.mean, conv1.var, and so on for dw1, pw1, .., pw13, then fc.weight and fc.bias. Raises BadInput.
    """
    sizes = {"resolution": resolution, "batch": batch, "classes": classes}
    for name, value in sizes.items():
        if not isinstance(value, int) or value < 1:
            raise BadInput(f"mobilenet_v1 requires {name} to be an integer of at least 1, got {value}")
    if not isinstance(seed, int) or seed < 0:
        raise BadInput(f"mobilenet_v1 requires seed to be an integer of at least 0, got {seed}")
    if not isinstance(width, int | float) or not (math.isfinite(width) and width > 0):
        raise BadInput(f"mobilenet_v1 requires width to be a number above 0, got {width}")
    network = _Network(seed)
    program = network.build(width, resolution, batch, classes)
    if weights is None:
        return program
    constants = {name: tensor for name, tensor in network.b.tensors.items() if tensor.constant}
    return dataclasses.replace(program, constants=read_npz(weights, constants))


def _scaled(channels: int, width: float) -> int:
    """The nearest multiple of 8 that is at least 8 and not more than a tenth below channels * width."""
    wanted = channels * width
    rounded = max(8, int(wanted + 4) // 8 * 8)
    return rounded if rounded >= 0.9 * wanted else rounded + 8


class _Network:
    """The layers with random constants: He-initialised weights, batch norms that keep the scale of what they see."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.b = Builder("mobilenet-v1")

    def build(self, width: float, resolution: int, batch: int, classes: int) -> Program:
        b, channels = self.b, _scaled(32, width)
        x = self.convolve("conv1", b.input("x", (batch, 3, resolution, resolution)), channels, window=3, stride=2)
        for number, (stride, filters) in enumerate(_PAIRS, 1):
            x = self.convolve(f"dw{number}", x, channels, window=3, stride=stride, groups=channels)
            channels = _scaled(filters, width)
            x = self.convolve(f"pw{number}", x, channels, window=1, stride=1)
        weight = self.normal("fc.weight", (classes, channels), 1 / math.sqrt(channels))
        bias = self.normal("fc.bias", (classes,), 0.1)
        return b.finish(b.softmax(b.linear(b.global_average_pool(x), weight, bias, name="fc"), axis=1))

    def convolve(self, name: str, x: Term, filters: int, *, window: int, stride: int, groups: int = 1) -> Term:
        """Convolution, batch norm and relu."""
        b, dims = self.b, (filters, x.access.dims[1] // groups, window, window)
        weight = self.normal(f"{name}.weight", dims, math.sqrt(2 / math.prod(dims[1:])))
        y = b.conv(x, weight, strides=stride, padding=window // 2, groups=groups, name=name)
        gamma, beta = self.near_one(f"{name}.gamma", filters), self.normal(f"{name}.beta", (filters,), 0.1)
        mean, var = self.normal(f"{name}.mean", (filters,), 0.1), self.near_one(f"{name}.var", filters)
        return b.relu(b.batch_norm(y, gamma, beta, mean, var, eps="1e-5"))

    def normal(self, name: str, dims: tuple[int, ...], scale: float) -> Term:
        return self.b.constant(name, dims, value=random_normal(self.seed, name, dims, scale))

    def near_one(self, name: str, length: int) -> Term:
        return self.b.constant(name, (length,), value=random_near_one(self.seed, name, (length,), 0.2))
