"""Residual networks: https://arxiv.org/abs/1512.03385; bottlenecks have their stride on the 3x3 convolution."""

from __future__ import annotations

from pathlib import Path

from glenside.ir.program import Program
from glenside.ir.term import Term
from glenside.models.network import Network, check_parameters
from glenside.models.registry import model


@model
def resnet_18(
    resolution: int = 224, batch: int = 1, classes: int = 1000, seed: int = 0, weights: str | Path | None = None
) -> Program:
    """ResNet-18: 21 layers, blocks of two 3x3 convolutions. Raises BadInput."""
    return _resnet("resnet-18", (2, 2, 2, 2), False, resolution, batch, classes, seed, weights)


@model
def resnet_50(
    resolution: int = 224, batch: int = 1, classes: int = 1000, seed: int = 0, weights: str | Path | None = None
) -> Program:
    """ResNet-50: 54 layers, bottlenecks of 1x1, 3x3 and 1x1 convolutions. Raises BadInput."""
    return _resnet("resnet-50", (3, 4, 6, 3), True, resolution, batch, classes, seed, weights)


def _resnet(
    name: str,
    blocks: tuple[int, ...],
    bottleneck: bool,
    resolution: int,
    batch: int,
    classes: int,
    seed: int,
    weights: str | Path | None,
) -> Program:
    sizes = {"resolution": resolution, "batch": batch, "classes": classes}
    check_parameters(name.replace("-", "_"), sizes, seed)
    n = Network(name, seed)
    x = n.convolve("conv1", n.b.input("x", (batch, 3, resolution, resolution)), 64, window=7, stride=2)
    x = n.b.max_pool(x, 3, strides=2, padding=1)
    for stage, count in enumerate(blocks, 1):
        for block in range(count):
            stride = 2 if stage > 1 and block == 0 else 1
            x = _block(n, f"layer{stage}.{block}", x, 64 << (stage - 1), stride, bottleneck)
    return n.finish(n.b.softmax(n.dense("fc", n.b.global_average_pool(x), classes), axis=1), weights)


def _block(n: Network, name: str, x: Term, width: int, stride: int, bottleneck: bool) -> Term:
    """Two 3x3 convolutions, or 1x1, 3x3 and 1x1, and what is added to them: the input, or its projection."""
    if bottleneck:
        filters = 4 * width
        y = n.convolve(f"{name}.conv1", x, width, window=1)
        y = n.convolve(f"{name}.conv2", y, width, window=3, stride=stride)
        y = n.convolve(f"{name}.conv3", y, filters, window=1, activation=None)
    else:
        filters = width
        y = n.convolve(f"{name}.conv1", x, width, window=3, stride=stride)
        y = n.convolve(f"{name}.conv2", y, width, window=3, activation=None)
    if stride != 1 or x.access.dims[1] != filters:
        x = n.convolve(f"{name}.shortcut", x, filters, window=1, stride=stride, activation=None)
    return n.b.relu(n.b.add(x, y))
