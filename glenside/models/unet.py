"""A small U-Net for segmentation, after https://arxiv.org/abs/1505.04597."""

from __future__ import annotations

from pathlib import Path

from glenside.ir.errors import BadInput
from glenside.ir.program import Program
from glenside.ir.term import Term
from glenside.models.network import Network, check_parameters
from glenside.models.registry import model


@model
def unet_small(
    resolution: int = 256,
    batch: int = 1,
    classes: int = 2,
    channels: int = 32,
    levels: int = 4,
    seed: int = 0,
    weights: str | Path | None = None,
) -> Program:
    """U-Net of 4 levels from 32 channels on: 23 layers, skips by concatenation, upsampling by repetition.

    The resolution is a multiple of 2 to the number of levels. Raises BadInput.
    """
    sizes = {"resolution": resolution, "batch": batch, "classes": classes, "channels": channels, "levels": levels}
    check_parameters("unet_small", sizes, seed)
    if resolution % (1 << levels):
        raise BadInput(f"unet_small requires resolution to be a multiple of {1 << levels}, got {resolution}")
    n = Network("unet-small", seed)
    b = n.b
    x = b.input("x", (batch, 3, resolution, resolution))
    skips: list[Term] = []
    for level in range(levels):
        x = _two(n, f"down{level + 1}", x, channels << level)
        skips.append(x)
        x = b.max_pool(x, 2)
    x = _two(n, "middle", x, channels << levels)
    for level in reversed(range(levels)):
        x = n.convolve(f"up{level + 1}.conv0", b.upsample(x, 2), channels << level, window=3)
        x = _two(n, f"up{level + 1}", b.concatenate([skips[level], x], 1), channels << level)
    weight = n.normal("head.weight", (classes, channels, 1, 1), 0.2)
    return n.finish(b.softmax(b.conv(x, weight, n.normal("head.bias", (classes,), 0.1), name="head"), axis=1), weights)


def _two(n: Network, name: str, x: Term, filters: int) -> Term:
    return n.convolve(f"{name}.conv2", n.convolve(f"{name}.conv1", x, filters, window=3), filters, window=3)
