"""Networks for phones: the MobileNets, and EfficientNet-Lite, without squeeze-and-excitation and with relu6.

https://arxiv.org/abs/1704.04861, https://arxiv.org/abs/1801.04381 and https://arxiv.org/abs/1905.02244;
https://arxiv.org/abs/1905.11946. Every convolution is padded by half its window on all sides, as PyTorch ports do; the
sizes are those of the papers.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from glenside.ir.program import Program
from glenside.ir.term import Term
from glenside.models import model
from glenside.models.network import Network, image_network, scaled

# V1: (stride of the depthwise convolution, channels after the pointwise one) of each pair.
_PAIRS = ((1, 64), (2, 128), (1, 128), (2, 256), (1, 256), (2, 512), *((1, 512),) * 5, (2, 1024), (1, 1024))

# V2 and EfficientNet: (expansion, window, channels, blocks, stride of the first block), tables 2 and 1 of the papers.
_V2_STAGES = (
    (1, 3, 16, 1, 1),
    (6, 3, 24, 2, 2),
    (6, 3, 32, 3, 2),
    (6, 3, 64, 4, 2),
    (6, 3, 96, 3, 1),
    (6, 3, 160, 3, 2),
    (6, 3, 320, 1, 1),
)
_EFFICIENTNET_STAGES = (
    (1, 3, 16, 1, 1),
    (6, 3, 24, 2, 2),
    (6, 5, 40, 2, 2),
    (6, 3, 80, 3, 2),
    (6, 5, 112, 3, 1),
    (6, 5, 192, 4, 2),
    (6, 3, 320, 1, 1),
)

# V3: (window, expanded channels, channels, squeeze-excite, activation, stride) of each block, table 1 of the paper. The
# first one "expands" its 16 channels to 16, that is not at all.
_V3_LARGE = (
    (3, 0, 16, False, "relu", 1),
    (3, 64, 24, False, "relu", 2),
    (3, 72, 24, False, "relu", 1),
    (5, 72, 40, True, "relu", 2),
    (5, 120, 40, True, "relu", 1),
    (5, 120, 40, True, "relu", 1),
    (3, 240, 80, False, "hard_swish", 2),
    (3, 200, 80, False, "hard_swish", 1),
    (3, 184, 80, False, "hard_swish", 1),
    (3, 184, 80, False, "hard_swish", 1),
    (3, 480, 112, True, "hard_swish", 1),
    (3, 672, 112, True, "hard_swish", 1),
    (5, 672, 160, True, "hard_swish", 2),
    (5, 960, 160, True, "hard_swish", 1),
    (5, 960, 160, True, "hard_swish", 1),
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
    n, x = image_network("mobilenet_v1", width, resolution, batch, classes, seed)
    channels = scaled(32, width)
    x = n.convolve("conv1", x, channels, window=3, stride=2, activation="relu")
    for number, (stride, filters) in enumerate(_PAIRS, 1):
        x = n.convolve(f"dw{number}", x, channels, window=3, stride=stride, groups=channels, activation="relu")
        channels = scaled(filters, width)
        x = n.convolve(f"pw{number}", x, channels, window=1, activation="relu")
    return n.finish(n.classify(n.b.global_average_pool(x), classes), weights)


@model
def mobilenet_v2(
    width: float = 1.0,
    resolution: int = 224,
    batch: int = 1,
    classes: int = 1000,
    seed: int = 0,
    weights: str | Path | None = None,
) -> Program:
    """MobileNetV2: 53 layers in 17 inverted residuals, relu6; width and resolution multipliers as in the paper.

    Layers are conv1, block1.depthwise, block1.project, block2.expand, .., block17.project, conv2 and fc. Weights are as
    in mobilenet_v1. Raises BadInput.
    """
    n, x = image_network("mobilenet_v2", width, resolution, batch, classes, seed)
    x = n.convolve("conv1", x, scaled(32, width), window=3, stride=2, activation="relu6")
    x = _staged(n, x, _V2_STAGES, width)
    x = n.convolve("conv2", x, scaled(1280, max(1.0, width)), window=1, activation="relu6")
    return n.finish(n.classify(n.b.global_average_pool(x), classes), weights)


@model
def mobilenet_v3_large(
    width: float = 1.0,
    resolution: int = 224,
    batch: int = 1,
    classes: int = 1000,
    seed: int = 0,
    weights: str | Path | None = None,
) -> Program:
    """MobileNetV3-Large: 64 layers in 15 inverted residuals, 8 of them with squeeze-and-excitation; hard-swish.

    Layers are conv1, block1.depthwise, .., block4.squeeze, block4.excite, block4.project, .., conv2, fc1 and fc2.
    Weights are as in mobilenet_v1. Raises BadInput.
    """
    n, x = image_network("mobilenet_v3_large", width, resolution, batch, classes, seed)
    swish, eps = "hard_swish", "1e-3"
    x = n.convolve("conv1", x, scaled(16, width), window=3, stride=2, activation=swish, eps=eps)
    for number, (window, expanded, channels, excited, activation, stride) in enumerate(_V3_LARGE, 1):
        wide = scaled(expanded, width) if expanded else 0
        squeezed = scaled(wide // 4, 1) if excited else 0
        narrow = scaled(channels, width)
        x = _invert(n, f"block{number}", x, window, wide, narrow, stride, activation, eps, squeezed)
    x = n.convolve("conv2", x, 6 * x.access.dims[1], window=1, activation=swish, eps=eps)
    x = n.linear("fc1", n.b.global_average_pool(x), scaled(1280, width), activation=swish, gain=2)
    return n.finish(n.classify(x, classes, name="fc2"), weights)


@model
def efficientnet_lite0(
    width: float = 1.0,
    resolution: int = 224,
    batch: int = 1,
    classes: int = 1000,
    seed: int = 0,
    weights: str | Path | None = None,
) -> Program:
    """EfficientNet-Lite0: 50 layers in 16 inverted residuals, relu6; first and last convolution keep their width.

    Layers are conv1, block1.depthwise, block1.project, block2.expand, .., block16.project, conv2 and fc. Convolutions
    are padded by half their window on all sides. Weights are as in mobilenet_v1. Raises BadInput.
    """
    n, x = image_network("efficientnet_lite0", width, resolution, batch, classes, seed)
    x = n.convolve("conv1", x, 32, window=3, stride=2, activation="relu6", eps="1e-3")
    x = _staged(n, x, _EFFICIENTNET_STAGES, width, eps="1e-3")
    x = n.convolve("conv2", x, 1280, window=1, activation="relu6", eps="1e-3")
    return n.finish(n.classify(n.b.global_average_pool(x), classes), weights)


def _staged(
    n: Network, x: Term, stages: Sequence[tuple[int, int, int, int, int]], width: float, eps: str = "1e-5"
) -> Term:
    """Builds the blocks of all stages, with relu6: block1, block2, .."""
    number = 0
    for expansion, window, channels, blocks, first in stages:
        for stride in (first, *(1,) * (blocks - 1)):
            number += 1
            expanded = x.access.dims[1] * expansion if expansion > 1 else 0
            x = _invert(n, f"block{number}", x, window, expanded, scaled(channels, width), stride, "relu6", eps)
    return x


def _invert(
    n: Network,
    name: str,
    x: Term,
    window: int,
    expanded: int,
    channels: int,
    stride: int,
    activation: str,
    eps: str,
    squeezed: int = 0,
) -> Term:
    """An inverted residual: NAME.expand, NAME.depthwise, NAME.squeeze, NAME.excite and NAME.project, or some of these.

    It is as wide as `expanded` between the first and the last; with 0 it does not expand. `squeezed` is the number of
    channels between squeeze and excitation; with 0 there are none. The input is added where it has the size of the
    result.
    """
    before = x.access.dims[1]
    y, wide = x, expanded or before
    if expanded:
        y = n.convolve(f"{name}.expand", y, wide, window=1, activation=activation, eps=eps, gain=1)
    y = n.convolve(
        f"{name}.depthwise", y, wide, window=window, stride=stride, groups=wide, activation=activation, eps=eps
    )
    if squeezed:
        y = _squeeze_excite(n, name, y, squeezed)
    gain = 4 if squeezed else 1  # shares of about a half are a quarter of the variance
    y = n.convolve(f"{name}.project", y, channels, window=1, eps=eps, gain=gain)
    return n.b.add(x, y) if (stride, channels) == (1, before) else y


def _squeeze_excite(n: Network, name: str, x: Term, squeezed: int) -> Term:
    """Multiplies each channel of x by a hard sigmoid of all channel means: layers NAME.squeeze and NAME.excite."""
    batch, channels = x.access.dims[:2]
    y = n.linear(f"{name}.squeeze", n.b.global_average_pool(x), squeezed, activation="relu")
    y = n.b.hard_sigmoid(n.linear(f"{name}.excite", y, channels))
    return n.b.multiply(x, n.b.reshape(y, (batch, channels, 1, 1)))
