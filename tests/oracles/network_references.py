"""Computes networks in float64 numpy, from their papers; constants are found by the names of layers."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from network_tables import LITE0, RESNET_18, RESNET_50, V2, V3
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

Floats = NDArray[Any]
Activation = Callable[[Floats], Floats]


def softmax(x: Floats, axis: int) -> Floats:
    powers = np.exp(x - x.max(axis, keepdims=True))
    return np.asarray(powers / powers.sum(axis, keepdims=True))


def relu(x: Floats) -> Floats:
    return np.where(x > 0, x, 0)


def relu6(x: Floats) -> Floats:
    return np.clip(x, 0, 6)


def none(x: Floats) -> Floats:
    return x


def hard_sigmoid(x: Floats) -> Floats:
    return np.clip(x / 6 + 0.5, 0, 1)


def hard_swish(x: Floats) -> Floats:
    return x * hard_sigmoid(x)


def gelu(x: Floats) -> Floats:
    return np.asarray(x * np.vectorize(math.erfc)(-x / math.sqrt(2)) / 2)


class Images:
    """Computes layers on images, ()(N C H W), with one network's constants."""

    def __init__(self, constants: Mapping[str, Floats], eps: float) -> None:
        self.c = {name: value.astype(np.float64) for name, value in constants.items()}
        self.eps = eps

    def plain(self, name: str, x: Floats, stride: int, padding: int) -> Floats:
        """Applies each filter of one channel to its own channel."""
        w = self.c[f"{name}.weight"]
        padded = np.pad(x, ((0, 0), (0, 0), (padding, padding), (padding, padding)))
        windows = sliding_window_view(padded, w.shape[2:], (2, 3))[:, :, ::stride, ::stride]
        if w.shape[1] == 1:
            return np.asarray(np.einsum("nchwkl,ckl->nchw", windows, w[:, 0]))
        return np.asarray(np.einsum("nchwkl,ockl->nohw", windows, w, optimize=True))

    def conv(self, name: str, x: Floats, activation: Activation, stride: int = 1) -> Floats:
        y = self.plain(name, x, stride, self.c[f"{name}.weight"].shape[2] // 2)
        gamma, beta, mean, var = (self.c[f"{name}.{p}"].reshape(-1, 1, 1) for p in ("gamma", "beta", "mean", "var"))
        return activation((y - mean) / np.sqrt(var + self.eps) * gamma + beta)

    def linear(self, name: str, x: Floats) -> Floats:
        return np.asarray(x @ self.c[f"{name}.weight"].T + self.c[f"{name}.bias"])

    def inverted(
        self, name: str, x: Floats, widens: bool, excited: bool, activation: Activation, stride: int
    ) -> Floats:
        y = self.conv(f"{name}.expand", x, activation) if widens else x
        y = self.conv(f"{name}.depthwise", y, activation, stride)
        if excited:
            middle = relu(self.linear(f"{name}.squeeze", y.mean((2, 3))))
            y = y * hard_sigmoid(self.linear(f"{name}.excite", middle))[:, :, None, None]
        y = self.conv(f"{name}.project", y, none)
        return x + y if y.shape == x.shape and stride == 1 else y

    def residual(self, name: str, x: Floats, stride: int, bottleneck: bool) -> Floats:
        y = self.conv(f"{name}.conv1", x, relu, 1 if bottleneck else stride)
        y = self.conv(f"{name}.conv2", y, relu if bottleneck else none, stride if bottleneck else 1)
        if bottleneck:
            y = self.conv(f"{name}.conv3", y, none)
        return relu(y + (x if y.shape == x.shape else self.conv(f"{name}.downsample", x, none, stride)))


def mobilenet_v2(x: Floats, constants: Mapping[str, Floats]) -> Floats:
    n = Images(constants, 1e-5)
    x = n.conv("conv1", x, relu6, 2)
    for number, (expansion, _, stride) in enumerate(V2, 1):
        x = n.inverted(f"block{number}", x, expansion > 1, False, relu6, stride)
    return softmax(n.linear("fc", n.conv("conv2", x, relu6).mean((2, 3))), 1)


def mobilenet_v3_large(x: Floats, constants: Mapping[str, Floats]) -> Floats:
    n = Images(constants, 1e-3)
    x = n.conv("conv1", x, hard_swish, 2)
    for number, (_, _, _, squeezed, swish, stride) in enumerate(V3, 1):
        x = n.inverted(f"block{number}", x, number > 1, squeezed > 0, hard_swish if swish else relu, stride)
    x = hard_swish(n.linear("fc1", n.conv("conv2", x, hard_swish).mean((2, 3))))
    return softmax(n.linear("fc2", x), 1)


def efficientnet_lite0(x: Floats, constants: Mapping[str, Floats]) -> Floats:
    n = Images(constants, 1e-3)
    x = n.conv("conv1", x, relu6, 2)
    for number, (_, expansion, _, stride) in enumerate(LITE0, 1):
        x = n.inverted(f"block{number}", x, expansion > 1, False, relu6, stride)
    return softmax(n.linear("fc", n.conv("conv2", x, relu6).mean((2, 3))), 1)


def _resnet(x: Floats, constants: Mapping[str, Floats], blocks: tuple[int, ...], bottleneck: bool) -> Floats:
    n = Images(constants, 1e-5)
    x = np.pad(n.conv("conv1", x, relu, 2), ((0, 0), (0, 0), (1, 1), (1, 1)), constant_values=-np.inf)
    x = sliding_window_view(x, (3, 3), (2, 3))[:, :, ::2, ::2].max((4, 5))
    for group, count in enumerate(blocks, 1):
        for block in range(count):
            x = n.residual(f"layer{group}.{block}", x, 2 if group > 1 and block == 0 else 1, bottleneck)
    return softmax(n.linear("fc", x.mean((2, 3))), 1)


def resnet_18(x: Floats, constants: Mapping[str, Floats]) -> Floats:
    return _resnet(x, constants, RESNET_18, bottleneck=False)


def resnet_50(x: Floats, constants: Mapping[str, Floats]) -> Floats:
    return _resnet(x, constants, RESNET_50, bottleneck=True)


def unet_small(x: Floats, constants: Mapping[str, Floats]) -> Floats:
    n, skips = Images(constants, 1e-5), []
    for level in range(1, 5):
        x = n.conv(f"down{level}.conv2", n.conv(f"down{level}.conv1", x, relu), relu)
        skips.append(x)
        if level < 4:
            x = np.maximum(
                np.maximum(x[..., ::2, ::2], x[..., 1::2, ::2]), np.maximum(x[..., ::2, 1::2], x[..., 1::2, 1::2])
            )
    for level in range(3, 0, -1):
        x = n.conv(f"up{level}.resize", np.kron(x, np.ones((1, 1, 2, 2))), relu)
        x = n.conv(f"up{level}.conv1", np.concatenate([skips[level - 1], x], 1), relu)
        x = n.conv(f"up{level}.conv2", x, relu)
    return softmax(n.plain("head", x, 1, 0) + n.c["head.bias"].reshape(-1, 1, 1), 1)


class Tokens(Images):
    """Computes layers on sequences, ()(N S D)."""

    def norm(self, name: str, x: Floats) -> Floats:
        deviation = np.sqrt(x.var(-1, keepdims=True) + self.eps)
        return (x - x.mean(-1, keepdims=True)) / deviation * self.c[f"{name}.gamma"] + self.c[f"{name}.beta"]

    def attend(self, name: str, x: Floats, heads: int, mask: Floats) -> Floats:
        q, k, v = (np.split(self.linear(f"{name}.{part}", x), heads, -1) for part in ("query", "key", "value"))
        depth = x.shape[-1] / heads
        scores = [queries @ keys.swapaxes(1, 2) / math.sqrt(depth) + mask for queries, keys in zip(q, k, strict=True)]
        mixed = [softmax(s, -1) @ values for s, values in zip(scores, v, strict=True)]
        return self.linear(f"{name}.output", np.concatenate(mixed, -1))

    def feed(self, name: str, x: Floats) -> Floats:
        return self.linear(f"{name}.output", gelu(self.linear(f"{name}.intermediate", x)))


def bert_base(
    ids: Floats, types: Floats, mask: Floats, constants: Mapping[str, Floats], layers: int, heads: int
) -> Floats:
    n = Tokens(constants, 1e-12)
    words, kinds, places = (n.c[f"embeddings.{part}"] for part in ("words", "types", "positions"))
    x = n.norm("embeddings.norm", words[ids] + kinds[types] + places[: ids.shape[1]])
    for number in range(layers):
        name = f"encoder.{number}"
        x = n.norm(f"{name}.attention.norm", x + n.attend(f"{name}.attention", x, heads, mask[:, None]))
        x = n.norm(f"{name}.norm", x + n.feed(name, x))
    return np.tanh(n.linear("pooler", x[:, 0]))


def vit_s_16(x: Floats, constants: Mapping[str, Floats], layers: int, heads: int, patch: int) -> Floats:
    n = Tokens(constants, 1e-6)
    count, filters = x.shape[2] // patch, n.c["patches.weight"]
    x = np.stack([
        np.tensordot(x[:, :, i * patch : (i + 1) * patch, j * patch : (j + 1) * patch], filters, ((1, 2, 3),) * 2)
        for i in range(count)
        for j in range(count)
    ], 1)  # fmt: skip
    first = np.repeat(n.c["token"], len(x), 0)
    x = np.concatenate([first, x + n.c["patches.bias"]], 1) + n.c["positions"]
    for number in range(layers):
        name = f"encoder.{number}"
        x = x + n.attend(f"{name}.attention", n.norm(f"{name}.attention.norm", x), heads, np.zeros(1))
        x = x + n.feed(name, n.norm(f"{name}.norm", x))
    return softmax(n.linear("head", n.norm("norm", x)[:, 0]), 1)
