"""MobileNets: V1 https://arxiv.org/abs/1704.04861, V2 https://arxiv.org/abs/1801.04381, V3 https://arxiv.org/abs/1905.02244.

Windows are padded by half their size on all sides, as PyTorch ports do; the sizes are those of the papers.
"""

from __future__ import annotations

import math
from pathlib import Path

from glenside.builder import Builder
from glenside.ir.program import Program
from glenside.ir.term import Term
from glenside.models.network import Activation, Network, check_parameters, scaled
from glenside.models.registry import model

# (stride of the depthwise convolution, channels after the pointwise one) of each pair.
_V1 = ((1, 64), (2, 128), (1, 128), (2, 256), (1, 256), (2, 512), *((1, 512),) * 5, (2, 1024), (1, 1024))
# (expansion, channels, blocks, stride of the first)
_V2 = ((1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1))
# (window, expanded channels, channels, squeeze and excite, hard swish, stride)
_V3 = (
    (3, 16, 16, False, False, 1),
    (3, 64, 24, False, False, 2),
    (3, 72, 24, False, False, 1),
    (5, 72, 40, True, False, 2),
    (5, 120, 40, True, False, 1),
    (5, 120, 40, True, False, 1),
    (3, 240, 80, False, True, 2),
    (3, 200, 80, False, True, 1),
    (3, 184, 80, False, True, 1),
    (3, 184, 80, False, True, 1),
    (3, 480, 112, True, True, 1),
    (3, 672, 112, True, True, 1),
    (5, 672, 160, True, True, 2),
    (5, 960, 160, True, True, 1),
    (5, 960, 160, True, True, 1),
)


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

    Weights are random ones of that seed, made when they are read, or the arrays of an .npz file: conv1.weight,
    conv1.gamma, conv1.beta, conv1.mean, conv1.var, and so on for dw1, pw1, .., pw13, then fc.weight and fc.bias. Raises
    BadInput.
    """
    check_parameters("mobilenet_v1", {"resolution": resolution, "batch": batch, "classes": classes}, seed, width)
    n = Network("mobilenet-v1", seed)
    channels = scaled(32, width)
    x = n.convolve("conv1", n.b.input("x", (batch, 3, resolution, resolution)), channels, window=3, stride=2)
    for number, (stride, filters) in enumerate(_V1, 1):
        x = n.convolve(f"dw{number}", x, channels, window=3, stride=stride, groups=channels)
        channels = scaled(filters, width)
        x = n.convolve(f"pw{number}", x, channels, window=1)
    return n.finish(n.b.softmax(n.dense("fc", n.b.global_average_pool(x), classes), axis=1), weights)


def inverted_residual(
    n: Network,
    name: str,
    x: Term,
    *,
    expanded: int,
    filters: int,
    window: int,
    stride: int,
    activation: Activation,
    excite: bool = False,
) -> Term:
    """Expand, convolve depthwise, project, and add the input where sizes allow; names are .expand, .depthwise,
    .project.
    """
    channels = x.access.dims[1]
    y = x
    if expanded != channels:
        y = n.convolve(f"{name}.expand", y, expanded, window=1, activation=activation)
    y = n.convolve(
        f"{name}.depthwise", y, expanded, window=window, stride=stride, groups=expanded, activation=activation
    )
    if excite:
        y = squeeze_and_excite(n, name, y)
    y = n.convolve(f"{name}.project", y, filters, window=1, activation=None)
    return n.b.add(x, y) if stride == 1 and filters == channels else y


def squeeze_and_excite(n: Network, name: str, x: Term) -> Term:
    """x * hard_sigmoid(W2 relu(W1 mean(x))), with a quarter of the channels between."""
    b, channels = n.b, x.access.dims[1]
    inner = b.relu(n.dense(f"{name}.squeeze", b.global_average_pool(x), scaled(channels / 4)))
    gate = b.hard_sigmoid(n.dense(f"{name}.excite", inner, channels))
    return b.multiply(x, b.reshape(gate, (*gate.access.dims, 1, 1)))


@model
def mobilenet_v2(
    width: float = 1.0,
    resolution: int = 224,
    batch: int = 1,
    classes: int = 1000,
    seed: int = 0,
    weights: str | Path | None = None,
) -> Program:
    """MobileNetV2: 53 layers, inverted residuals with linear bottlenecks. Raises BadInput."""
    check_parameters("mobilenet_v2", {"resolution": resolution, "batch": batch, "classes": classes}, seed, width)
    n = Network("mobilenet-v2", seed)
    six = Builder.relu6
    x = n.b.input("x", (batch, 3, resolution, resolution))
    x = n.convolve("conv1", x, scaled(32, width), window=3, stride=2, activation=six)
    number = 0
    for expansion, filters, blocks, first in _V2:
        for block in range(blocks):
            number += 1
            x = inverted_residual(
                n,
                f"block{number}",
                x,
                expanded=expansion * x.access.dims[1],
                filters=scaled(filters, width),
                window=3,
                stride=first if block == 0 else 1,
                activation=six,
            )
    x = n.convolve("conv2", x, scaled(1280, max(1.0, width)), window=1, activation=six)
    return n.finish(n.b.softmax(n.dense("fc", n.b.global_average_pool(x), classes), axis=1), weights)


@model
def mobilenet_v3_large(
    width: float = 1.0,
    resolution: int = 224,
    batch: int = 1,
    classes: int = 1000,
    seed: int = 0,
    weights: str | Path | None = None,
) -> Program:
    """MobileNetV3-Large: 64 layers, with squeeze-and-excite and hard swish. Raises BadInput."""
    check_parameters("mobilenet_v3_large", {"resolution": resolution, "batch": batch, "classes": classes}, seed, width)
    n = Network("mobilenet-v3-large", seed)
    b, swish = n.b, Builder.hard_swish
    x = b.input("x", (batch, 3, resolution, resolution))
    x = n.convolve("conv1", x, scaled(16, width), window=3, stride=2, activation=swish)
    for number, (window, expanded, filters, excite, swishes, stride) in enumerate(_V3, 1):
        x = inverted_residual(
            n,
            f"block{number}",
            x,
            expanded=scaled(expanded, width),
            filters=scaled(filters, width),
            window=window,
            stride=stride,
            activation=swish if swishes else Builder.relu,
            excite=excite,
        )
    x = n.convolve("conv2", x, scaled(960, width), window=1, activation=swish)
    x = b.hard_swish(n.dense("fc1", b.global_average_pool(x), math.ceil(scaled(1280, max(1.0, width)))))
    return n.finish(b.softmax(n.dense("fc2", x, classes), axis=1), weights)
