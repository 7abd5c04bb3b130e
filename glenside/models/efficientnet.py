"""EfficientNet-Lite: https://arxiv.org/abs/1905.11946 without squeeze-and-excitation, with relu6."""

from __future__ import annotations

from pathlib import Path

from glenside.ir.program import Program
from glenside.models.arguments import require_image_network
from glenside.models.inverted_residual import InvertedResidual, invert
from glenside.models.network import Network, scaled
from glenside.models.registry import model

# (expansion, window, channels, blocks, stride of the first block), table 1 of the paper.
_STAGES = (
    (1, 3, 16, 1, 1),
    (6, 3, 24, 2, 2),
    (6, 5, 40, 2, 2),
    (6, 3, 80, 3, 2),
    (6, 5, 112, 3, 1),
    (6, 5, 192, 4, 2),
    (6, 3, 320, 1, 1),
)


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
    require_image_network("efficientnet_lite0", width, resolution, batch, classes, seed)
    n, number, eps = Network("efficientnet-lite0", seed), 0, "1e-3"
    x = n.convolve("conv1", n.images(batch, resolution), 32, window=3, stride=2, activation="relu6", eps=eps)
    for expansion, window, channels, blocks, first in _STAGES:
        for stride in (first, *(1,) * (blocks - 1)):
            number += 1
            expanded = x.access.dims[1] * expansion if expansion > 1 else 0
            block = InvertedResidual(window, expanded, scaled(channels, width), stride, "relu6", eps)
            x = invert(n, f"block{number}", x, block)
    x = n.convolve("conv2", x, 1280, window=1, activation="relu6", eps=eps)
    return n.finish(n.classify(n.b.global_average_pool(x), classes), weights)
