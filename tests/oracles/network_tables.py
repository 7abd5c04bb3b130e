"""Lists the networks as tables of their papers: multiplications of each layer at full size, by arithmetic alone."""

from __future__ import annotations

from collections.abc import Sequence

# MobileNetV2, table 2, one row for each block: expansion, channels, stride.
V2 = [(1, 16, 1), (6, 24, 2), (6, 24, 1), (6, 32, 2), (6, 32, 1), (6, 32, 1), (6, 64, 2), *[(6, 64, 1)] * 3]
V2 += [*[(6, 96, 1)] * 3, (6, 160, 2), (6, 160, 1), (6, 160, 1), (6, 320, 1)]

# MobileNetV3-Large, table 1: window, expanded, channels, channels between squeeze and excite, hard-swish, stride.
V3 = [(3, 16, 16, 0, 0, 1), (3, 64, 24, 0, 0, 2), (3, 72, 24, 0, 0, 1), (5, 72, 40, 24, 0, 2)]
V3 += [(5, 120, 40, 32, 0, 1)] * 2 + [(3, 240, 80, 0, 1, 2), (3, 200, 80, 0, 1, 1)] + [(3, 184, 80, 0, 1, 1)] * 2
V3 += [(3, 480, 112, 120, 1, 1), (3, 672, 112, 168, 1, 1), (5, 672, 160, 168, 1, 2)] + [(5, 960, 160, 240, 1, 1)] * 2

# EfficientNet-B0, table 1, one row for each block: window, expansion, channels, stride.
LITE0 = [(3, 1, 16, 1), (3, 6, 24, 2), (3, 6, 24, 1), (5, 6, 40, 2), (5, 6, 40, 1), (3, 6, 80, 2), *[(3, 6, 80, 1)] * 2]
LITE0 += [*[(5, 6, 112, 1)] * 3, (5, 6, 192, 2), *[(5, 6, 192, 1)] * 3, (3, 6, 320, 1)]

# ResNet, table 1: blocks of each group.
RESNET_18, RESNET_50 = (2, 2, 2, 2), (3, 4, 6, 3)


def _inverted(rows: Sequence[tuple[int, int, int, int, int]], stem: int) -> dict[str, int]:
    """Returns rows of window, expanded channels, channels, squeezed channels and stride, at 112 x 112 after the first
    convolution.
    """
    counts, size, channels = {"conv1": 112 * 112 * 27 * stem}, 112, stem
    for number, (window, wide, out, squeezed, stride) in enumerate(rows, 1):
        name = f"block{number}"
        if wide != channels:
            counts[f"{name}.expand"] = size * size * channels * wide
        size //= stride
        counts[f"{name}.depthwise"] = size * size * window * window * wide
        if squeezed:
            counts[f"{name}.squeeze"] = counts[f"{name}.excite"] = wide * squeezed
        counts[f"{name}.project"] = size * size * wide * out
        channels = out
    assert size == 7
    return counts


def mobilenet_v2() -> dict[str, int]:
    channels = [32, *(c for _, c, _ in V2)]
    rows = [(3, t * before, c, 0, s) for before, (t, c, s) in zip(channels, V2, strict=False)]
    return {**_inverted(rows, 32), "conv2": 49 * 320 * 1280, "fc": 1280 * 1000}


def mobilenet_v3_large() -> dict[str, int]:
    rows = [(window, wide, out, squeezed, stride) for window, wide, out, squeezed, _, stride in V3]
    return {**_inverted(rows, 16), "conv2": 49 * 160 * 960, "fc1": 960 * 1280, "fc2": 1280 * 1000}


def efficientnet_lite0() -> dict[str, int]:
    channels = [32, *(c for _, _, c, _ in LITE0)]
    rows = [(k, t * before, c, 0, s) for before, (k, t, c, s) in zip(channels, LITE0, strict=False)]
    return {**_inverted(rows, 32), "conv2": 49 * 320 * 1280, "fc": 1280 * 1000}


def resnet_18() -> dict[str, int]:
    counts = {"conv1": 112 * 112 * 49 * 3 * 64}
    for group in range(1, 5):
        size, out = 112 >> group, 32 << group
        for block in range(RESNET_18[group - 1]):
            name, before = f"layer{group}.{block}", out // 2 if group > 1 and block == 0 else out
            counts[f"{name}.conv1"] = size**2 * 9 * before * out
            counts[f"{name}.conv2"] = size**2 * 9 * out * out
            if before != out:
                counts[f"{name}.downsample"] = size**2 * before * out
    return {**counts, "fc": 512 * 1000}


def resnet_50() -> dict[str, int]:
    counts, before = {"conv1": 112 * 112 * 49 * 3 * 64}, 64
    for group in range(1, 5):
        size, narrow, out = 112 >> group, 32 << group, 128 << group
        for block in range(RESNET_50[group - 1]):
            name = f"layer{group}.{block}"
            entry = 2 * size if group > 1 and block == 0 else size
            counts[f"{name}.conv1"] = entry**2 * before * narrow
            counts[f"{name}.conv2"] = size**2 * 9 * narrow * narrow
            counts[f"{name}.conv3"] = size**2 * narrow * out
            if block == 0:
                counts[f"{name}.downsample"] = size**2 * before * out
            before = out
    return {**counts, "fc": 2048 * 1000}


def _encoders(tokens: int, hidden: int, wide: int) -> dict[str, int]:
    """Lists 12 encoders; each head has its part of the width."""
    counts = {}
    for number in range(12):
        name = f"encoder.{number}"
        counts |= {f"{name}.attention.{part}": tokens * hidden * hidden for part in ("query", "key", "value")}
        counts |= {f"{name}.attention.{part}": tokens * tokens * hidden for part in ("scores", "context")}
        counts[f"{name}.attention.output"] = tokens * hidden * hidden
        counts[f"{name}.intermediate"] = counts[f"{name}.output"] = tokens * hidden * wide
    return counts


def bert_base() -> dict[str, int]:
    return {**_encoders(128, 768, 3072), "pooler": 768 * 768}


def vit_s_16() -> dict[str, int]:
    return {"patches": 14 * 14 * 16 * 16 * 3 * 384, **_encoders(197, 384, 1536), "head": 384 * 1000}


def unet_small() -> dict[str, int]:
    counts, before = {}, 3
    for level, channels in enumerate((32, 64, 128, 256)):
        pixels = (256 >> level) ** 2
        counts[f"down{level + 1}.conv1"] = pixels * 9 * before * channels
        counts[f"down{level + 1}.conv2"] = pixels * 9 * channels * channels
        before = channels
    for level, channels in ((2, 128), (1, 64), (0, 32)):
        pixels = (256 >> level) ** 2
        counts[f"up{level + 1}.resize"] = pixels * 9 * 2 * channels * channels
        counts[f"up{level + 1}.conv1"] = pixels * 9 * 2 * channels * channels
        counts[f"up{level + 1}.conv2"] = pixels * 9 * channels * channels
    return {**counts, "head": 256 * 256 * 32 * 2}
