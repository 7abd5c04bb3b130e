"""Residual networks: https://arxiv.org/abs/1512.03385, table 1."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from glenside.ir.errors import BadInput
from glenside.ir.program import Program
from glenside.ir.term import Term
from glenside.models import model
from glenside.models.network import Network, image_network, scaled

STEMS = {"7x7": (7, 2), "3x3": (3, 1)}
"""The first convolution: its window and its stride."""

# Blocks between x and y: network, name, x, channels, stride.
_Branch = Callable[[Network, str, Term, int, int], Term]


@model
def resnet_18(
    width: float = 1.0,
    resolution: int = 224,
    batch: int = 1,
    classes: int = 1000,
    seed: int = 0,
    weights: str | Path | None = None,
    stem: str = "7x7",
) -> Program:
    """ResNet-18: 21 layers in 8 residual blocks of two 3x3 convolutions.

    Layers are conv1, layer1.0.conv1, layer1.0.conv2, .., layer2.0.downsample, .., layer4.1.conv2 and fc. Weights are as
    in mobilenet_v1. `width` multiplies all channels; the stem 3x3 has stride 1 and no pool, as for images of 32 x 32.
    Raises BadInput.
    """
    n, x = image_network("resnet_18", width, resolution, batch, classes, seed)
    x = _trunk(n, x, width, (2, 2, 2, 2), _basic, stem)
    return n.finish(n.classify(n.b.global_average_pool(x), classes), weights)


@model
def resnet_50(
    width: float = 1.0,
    resolution: int = 224,
    batch: int = 1,
    classes: int = 1000,
    seed: int = 0,
    weights: str | Path | None = None,
    stem: str = "7x7",
) -> Program:
    """ResNet-50: 54 layers in 16 bottlenecks, which have their stride on the 3x3 convolution, as PyTorch has.

    Layers are conv1, layer1.0.conv1, .., layer1.0.conv3, layer1.0.downsample, .., layer4.2.conv3 and fc. Weights are as
    in mobilenet_v1. `width` and `stem` are those of resnet_18. Raises BadInput.
    """
    n, x = image_network("resnet_50", width, resolution, batch, classes, seed)
    x = _trunk(n, x, width, (3, 4, 6, 3), _bottleneck, stem)
    return n.finish(n.classify(n.b.global_average_pool(x), classes), weights)


def _trunk(n: Network, x: Term, width: float, blocks: tuple[int, ...], branch: _Branch, stem: str) -> Term:
    """Builds all but the classifier; each group of blocks but the first halves the size and doubles the channels."""
    if stem not in STEMS:
        raise BadInput(f"the stem of a residual network is {' or '.join(STEMS)}, got {stem!r}")
    window, stride = STEMS[stem]
    x = n.convolve("conv1", x, scaled(64, width), window=window, stride=stride, activation="relu")
    x = n.b.max_pool(x, 3, strides=2, padding=1) if stride > 1 else x
    for group, count in enumerate(blocks):
        for block in range(count):
            stride = 2 if group and not block else 1
            x = _residual(n, f"layer{group + 1}.{block}", x, scaled(64 * 2**group, width), stride, branch)
    return x


def _residual(n: Network, name: str, x: Term, channels: int, stride: int, branch: _Branch) -> Term:
    """Computes relu(branch + x), with x projected to the size of the branch where they differ."""
    y = branch(n, name, x, channels, stride)
    if y.access != x.access:
        x = n.convolve(f"{name}.downsample", x, y.access.dims[1], window=1, stride=stride, gain=1)
    return n.b.relu(n.b.add(y, x))


def _basic(n: Network, name: str, x: Term, channels: int, stride: int) -> Term:
    y = n.convolve(f"{name}.conv1", x, channels, window=3, stride=stride, activation="relu")
    return n.convolve(f"{name}.conv2", y, channels, window=3, gain=0.5)


def _bottleneck(n: Network, name: str, x: Term, channels: int, stride: int) -> Term:
    y = n.convolve(f"{name}.conv1", x, channels, window=1, activation="relu")
    y = n.convolve(f"{name}.conv2", y, channels, window=3, stride=stride, activation="relu")
    return n.convolve(f"{name}.conv3", y, 4 * channels, window=1, gain=0.5)
