"""EfficientNet-Lite0: EfficientNet-B0 (https://arxiv.org/abs/1905.11946) without squeeze-and-excite, with relu6."""

from __future__ import annotations

from pathlib import Path

from glenside.builder import Builder
from glenside.ir.program import Program
from glenside.models.mobilenet import inverted_residual
from glenside.models.network import Network, check_parameters
from glenside.models.registry import model

# (window, expansion, channels, blocks, stride of the first)
_BLOCKS = (
    (3, 1, 16, 1, 1),
    (3, 6, 24, 2, 2),
    (5, 6, 40, 2, 2),
    (3, 6, 80, 3, 2),
    (5, 6, 112, 3, 1),
    (5, 6, 192, 4, 2),
    (3, 6, 320, 1, 1),
)


@model
def efficientnet_lite0(
    resolution: int = 224, batch: int = 1, classes: int = 1000, seed: int = 0, weights: str | Path | None = None
) -> Program:
    """EfficientNet-Lite0: 50 layers, inverted residuals with 3x3 and 5x5 windows. Raises BadInput."""
    check_parameters("efficientnet_lite0", {"resolution": resolution, "batch": batch, "classes": classes}, seed)
    n = Network("efficientnet-lite0", seed)
    six = Builder.relu6
    x = n.b.input("x", (batch, 3, resolution, resolution))
    x = n.convolve("conv1", x, 32, window=3, stride=2, activation=six)
    number = 0
    for window, expansion, filters, blocks, first in _BLOCKS:
        for block in range(blocks):
            number += 1
            x = inverted_residual(
                n,
                f"block{number}",
                x,
                expanded=expansion * x.access.dims[1],
                filters=filters,
                window=window,
                stride=first if block == 0 else 1,
                activation=six,
            )
    x = n.convolve("conv2", x, 1280, window=1, activation=six)
    return n.finish(n.b.softmax(n.dense("fc", n.b.global_average_pool(x), classes), axis=1), weights)
