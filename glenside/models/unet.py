"""U-Net: https://arxiv.org/abs/1505.04597, with padded convolutions, batch norm, and nearest-neighbour upsampling."""

from __future__ import annotations

from pathlib import Path

from glenside.ir.errors import BadInput
from glenside.ir.program import Program
from glenside.ir.term import Term
from glenside.models import model
from glenside.models.network import Network, require_integers, require_multiple


@model
def unet_small(
    base: int = 32,
    levels: int = 4,
    resolution: int = 256,
    batch: int = 1,
    classes: int = 2,
    seed: int = 0,
    weights: str | Path | None = None,
) -> Program:
    """U-Net of 4 levels, 32 to 256 channels: 18 layers; the probability of each class at each pixel.

    Level i has base * 2^(i - 1) channels and half the size of the one before it. Layers are down1.conv1, down1.conv2,
    .., down4.conv2, then up3.resize (after upsampling), up3.conv1 (after concatenation with the result of down3),
    up3.conv2, .., up1.conv2, and head. Weights are as in mobilenet_v1. Raises BadInput.
    """
    require_integers("unet_small", seed, base=base, levels=levels, resolution=resolution, batch=batch, classes=classes)
    if levels > 16:
        raise BadInput(f"unet_small requires at most 16 levels, got {levels}")
    require_multiple("unet_small", "resolution", resolution, 2 ** (levels - 1))
    n, skips = Network("unet-small", seed), list[Term]()
    x = n.images(batch, resolution)
    for level in range(1, levels + 1):
        if skips:
            x = n.b.max_pool(x, 2)
        x = _twice(n, f"down{level}", x, base * 2 ** (level - 1))
        skips.append(x)
    for level in range(levels - 1, 0, -1):
        x = _up(n, f"up{level}", x, skips[level - 1])
    return n.finish(n.b.softmax(n.project("head", x, classes), axis=1), weights)


def _twice(n: Network, name: str, x: Term, channels: int) -> Term:
    x = n.convolve(f"{name}.conv1", x, channels, window=3, activation="relu")
    return n.convolve(f"{name}.conv2", x, channels, window=3, activation="relu")


def _up(n: Network, name: str, x: Term, skip: Term) -> Term:
    """Doubles the size of x to the channels of skip, concatenates it to skip, and applies two convolutions."""
    channels = skip.access.dims[1]
    x = n.convolve(f"{name}.resize", n.b.upsample(x, 2), channels, window=3, activation="relu")
    return _twice(n, name, n.b.concatenate([skip, x], 1), channels)
