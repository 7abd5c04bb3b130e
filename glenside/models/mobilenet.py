"""The MobileNets: https://arxiv.org/abs/1704.04861, https://arxiv.org/abs/1801.04381, https://arxiv.org/abs/1905.02244.

Every convolution is padded by half its window on all sides, as PyTorch ports do; the sizes are those of the papers.
"""

from __future__ import annotations

from pathlib import Path

from glenside.ir.program import Program
from glenside.models.arguments import require_image_network
from glenside.models.inverted_residual import InvertedResidual, invert
from glenside.models.network import Network, scaled
from glenside.models.registry import model

# V1: (stride of the depthwise convolution, channels after the pointwise one) of each pair.
_PAIRS = ((1, 64), (2, 128), (1, 128), (2, 256), (1, 256), (2, 512), *((1, 512),) * 5, (2, 1024), (1, 1024))

# V2: (expansion, channels, blocks, stride of the first block), table 2 of the paper.
_V2_STAGES = (
    (1, 16, 1, 1),
    (6, 24, 2, 2),
    (6, 32, 3, 2),
    (6, 64, 4, 2),
    (6, 96, 3, 1),
    (6, 160, 3, 2),
    (6, 320, 1, 1),
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
    require_image_network("mobilenet_v1", width, resolution, batch, classes, seed)
    n, channels = Network("mobilenet-v1", seed), scaled(32, width)
    x = n.convolve("conv1", n.images(batch, resolution), channels, window=3, stride=2, activation="relu")
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
    require_image_network("mobilenet_v2", width, resolution, batch, classes, seed)
    n, number = Network("mobilenet-v2", seed), 0
    x = n.convolve("conv1", n.images(batch, resolution), scaled(32, width), window=3, stride=2, activation="relu6")
    for expansion, channels, blocks, first in _V2_STAGES:
        for stride in (first, *(1,) * (blocks - 1)):
            number += 1
            expanded = x.access.dims[1] * expansion if expansion > 1 else 0
            block = InvertedResidual(3, expanded, scaled(channels, width), stride, "relu6")
            x = invert(n, f"block{number}", x, block)
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
    require_image_network("mobilenet_v3_large", width, resolution, batch, classes, seed)
    n, eps = Network("mobilenet-v3-large", seed), "1e-3"
    images, swish = n.images(batch, resolution), "hard_swish"
    x = n.convolve("conv1", images, scaled(16, width), window=3, stride=2, activation=swish, eps=eps)
    for number, (window, expanded, channels, excited, activation, stride) in enumerate(_V3_LARGE, 1):
        wide = scaled(expanded, width) if expanded else 0
        squeezed = scaled(wide // 4, 1) if excited else 0
        block = InvertedResidual(window, wide, scaled(channels, width), stride, activation, eps, squeezed)
        x = invert(n, f"block{number}", x, block)
    x = n.convolve("conv2", x, 6 * x.access.dims[1], window=1, activation=swish, eps=eps)
    x = n.linear("fc1", n.b.global_average_pool(x), scaled(1280, width), activation=swish, gain=2)
    return n.finish(n.classify(x, classes, name="fc2"), weights)
