"""Writes ONNX files as users have them: standard operators, folded batch norms, random weights, batch 1, float32."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from onnx import TensorProto, helper, numpy_helper, save


class Network:
    """An ONNX graph that is built from standard operators."""

    def __init__(self, *dims: int, dtype: int = TensorProto.FLOAT) -> None:
        self.given = helper.make_tensor_value_info("x", dtype, dims)
        self.nodes: list[Any] = []
        self.weights: list[Any] = []
        self.draw = np.random.default_rng(0)

    def constant(self, dims: tuple[int, ...], scale: float) -> str:
        """Adds a tensor of random numbers."""
        return self.array((self.draw.standard_normal(dims) * scale).astype(np.float32))

    def array(self, values: Any) -> str:
        """Adds a tensor."""
        name = f"w{len(self.weights)}"
        self.weights.append(numpy_helper.from_array(np.asarray(values), name))
        return name

    def node(self, kind: str, *inputs: str, **attributes: Any) -> str:
        """Adds a node; returns its output."""
        name = f"t{len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, list(inputs), [name], **attributes))
        return name

    def conv(
        self, x: str, given: int, made: int, window: int, stride: int = 1, groups: int = 1, activation: str = "Relu"
    ) -> str:
        """Adds a convolution with a bias, and an activation."""
        taps = given // groups * window * window
        gain = 2 if activation == "Relu" else 1
        weight = self.constant((made, given // groups, window, window), (gain / taps) ** 0.5)
        pads = [window // 2] * 4
        sizes = {"kernel_shape": [window] * 2, "strides": [stride] * 2, "pads": pads, "group": groups}
        return self.activated(self.node("Conv", x, weight, self.constant((made,), 0.1), **sizes), activation)

    def activated(self, x: str, activation: str) -> str:
        """Adds an activation; none for an empty name."""
        if activation == "Clip":
            return self.node("Clip", x, self.array(np.float32(0)), self.array(np.float32(6)))
        return self.node(activation, x) if activation else x

    def linear(self, x: str, given: int, made: int) -> str:
        """Adds a product with a matrix, and a bias."""
        return self.node("Add", self.node("MatMul", x, self.constant((given, made), given**-0.5)), self.bias(made))

    def bias(self, made: int) -> str:
        """Draws small numbers."""
        return self.constant((made,), 0.1)

    def classes(self, x: str, given: int) -> str:
        """Adds the mean of each channel, and a product."""
        flat = self.node("Flatten", self.node("GlobalAveragePool", x))
        return self.node("Gemm", flat, self.constant((1000, given), given**-0.5), self.bias(1000), transB=1)

    def norm(self, x: str, width: int) -> str:
        """Adds a layer norm."""
        scale = self.array(1 + 0.1 * self.draw.standard_normal(width).astype(np.float32))
        return self.node("LayerNormalization", x, scale, self.bias(width), axis=-1, epsilon=1e-6)

    def gelu(self, x: str) -> str:
        """Adds x times the normal distribution function, as exporters spell it."""
        inner = self.node("Erf", self.node("Div", x, self.array(np.float32(2**0.5))))
        whole = self.node("Mul", x, self.node("Add", inner, self.array(np.float32(1))))
        return self.node("Mul", whole, self.array(np.float32(0.5)))

    def save(self, result: str, dims: Sequence[int], path: Path) -> None:
        """Writes the graph as a file."""
        made = helper.make_tensor_value_info(result, TensorProto.FLOAT, dims)
        graph = helper.make_graph(self.nodes, path.stem, [self.given], [made], self.weights)
        save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), path)


def mobilenet_v1(path: Path) -> None:
    """Builds MobileNetV1: 28 layers, 13 of them depthwise."""
    net, channels = Network(1, 3, 224, 224), 32
    x = net.conv("x", 3, 32, 3, 2)
    sizes = [(64, 1), (128, 2), (128, 1), (256, 2), (256, 1), (512, 2), *[(512, 1)] * 5, (1024, 2), (1024, 1)]
    for made, stride in sizes:
        x = net.conv(x, channels, channels, 3, stride, groups=channels)
        x, channels = net.conv(x, channels, made, 1), made
    net.save(net.classes(x, channels), (1, 1000), path)


def inverted(
    net: Network, x: str, given: int, wide: int, made: int, window: int, stride: int, activation: str, squeezed: int = 0
) -> str:
    """Adds an inverted residual: expand, depthwise, project; with squeeze and excitation between."""
    y = x if wide == given else net.conv(x, given, wide, 1, activation=activation)
    y = net.conv(y, wide, wide, window, stride, groups=wide, activation=activation)
    if squeezed:
        share = net.conv(net.node("GlobalAveragePool", y), wide, squeezed, 1)
        y = net.node("Mul", y, net.node("HardSigmoid", net.conv(share, squeezed, wide, 1, activation=""), alpha=1 / 6))
    y = net.conv(y, wide, made, 1, activation="")
    return net.node("Add", x, y) if (stride, made) == (1, given) else y


def _inverted(stages: Sequence[tuple[int, int, int, int, int]], path: Path) -> None:
    net, given = Network(1, 3, 224, 224), 32
    x = net.conv("x", 3, 32, 3, 2, activation="Clip")
    for times, window, made, blocks, first in stages:
        for stride in (first, *(1,) * (blocks - 1)):
            x, given = inverted(net, x, given, times * given, made, window, stride, "Clip"), made
    net.save(net.classes(net.conv(x, given, 1280, 1, activation="Clip"), 1280), (1, 1000), path)


V2 = ((1, 3, 16, 1, 1), (6, 3, 24, 2, 2), (6, 3, 32, 3, 2), (6, 3, 64, 4, 2), (6, 3, 96, 3, 1), (6, 3, 160, 3, 2))
LITE = ((1, 3, 16, 1, 1), (6, 3, 24, 2, 2), (6, 5, 40, 2, 2), (6, 3, 80, 3, 2), (6, 5, 112, 3, 1), (6, 5, 192, 4, 2))
V3 = (
    (3, 16, 16, 0, "Relu", 1),
    (3, 64, 24, 0, "Relu", 2),
    (3, 72, 24, 0, "Relu", 1),
    (5, 72, 40, 24, "Relu", 2),
    *((5, 120, 40, 32, "Relu", 1),) * 2,
    (3, 240, 80, 0, "HardSwish", 2),
    (3, 200, 80, 0, "HardSwish", 1),
    *((3, 184, 80, 0, "HardSwish", 1),) * 2,
    (3, 480, 112, 120, "HardSwish", 1),
    (3, 672, 112, 168, "HardSwish", 1),
    (5, 672, 160, 168, "HardSwish", 2),
    *((5, 960, 160, 240, "HardSwish", 1),) * 2,
)


def mobilenet_v3(path: Path) -> None:
    """Builds MobileNetV3: 15 inverted residuals, 8 of them with squeeze and excitation, and hard swish."""
    net, given = Network(1, 3, 224, 224), 16
    x = net.conv("x", 3, 16, 3, 2, activation="HardSwish")
    for window, wide, made, squeezed, activation, stride in V3:
        x, given = inverted(net, x, given, wide, made, window, stride, activation, squeezed), made
    x = net.node("GlobalAveragePool", net.conv(x, given, 960, 1, activation="HardSwish"))
    x = net.conv(x, 960, 1280, 1, activation="HardSwish")
    net.save(net.node("Flatten", net.conv(x, 1280, 1000, 1, activation="")), (1, 1000), path)


def _resnet(blocks: tuple[int, ...], wide: int, path: Path) -> None:
    net, channels = Network(1, 3, 224, 224), 64
    pooled = {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [1] * 4}
    x = net.node("MaxPool", net.conv("x", 3, 64, 7, 2), **pooled)
    for stage, count in enumerate(blocks):
        inner, made = 64 << stage, (64 << stage) * wide
        for block in range(count):
            stride = 2 if stage and not block else 1
            kept = x if (channels, stride) == (made, 1) else net.conv(x, channels, made, 1, stride, activation="")
            if wide > 1:
                y = net.conv(net.conv(x, channels, inner, 1), inner, inner, 3, stride)
                y = net.conv(y, inner, made, 1, activation="")
            else:
                y = net.conv(net.conv(x, channels, inner, 3, stride), inner, made, 3, activation="")
            x, channels = net.node("Relu", net.node("Add", y, kept)), made
    net.save(net.classes(x, channels), (1, 1000), path)


def encoder(net: Network, x: str, words: int, width: int, heads: int, before: bool) -> str:
    """Adds an encoder: attention and two products, each with a skip connection; norms before or after them."""
    each = width // heads

    def parted(y: str, order: Sequence[int]) -> str:
        dims = net.array(np.array([1, words, heads, each]))
        return net.node("Transpose", net.node("Reshape", y, dims), perm=list(order))

    y = net.norm(x, width) if before else x
    q, k, v = (net.linear(y, width, width) for _ in range(3))
    scores = net.node("MatMul", parted(q, (0, 2, 1, 3)), parted(k, (0, 2, 3, 1)))
    shares = net.node("Softmax", net.node("Div", scores, net.array(np.float32(each**0.5))), axis=-1)
    y = net.node("Transpose", net.node("MatMul", shares, parted(v, (0, 2, 1, 3))), perm=[0, 2, 1, 3])
    y = net.linear(net.node("Reshape", y, net.array(np.array([1, words, width]))), width, width)
    x = net.node("Add", x, y) if before else net.norm(net.node("Add", x, y), width)
    y = net.gelu(net.linear(net.norm(x, width) if before else x, width, 4 * width))
    y = net.node("Add", x, net.linear(y, 4 * width, width))
    return y if before else net.norm(y, width)


def bert_base(path: Path) -> None:
    """Builds BERT: 12 encoders, 768 wide, of 128 words."""
    net = Network(1, 128, dtype=TensorProto.INT64)
    x = net.node("Gather", net.constant((5000, 768), 1), "x")
    x = net.norm(net.node("Add", x, net.constant((128, 768), 1)), 768)
    for _ in range(12):
        x = encoder(net, x, 128, 768, 12, before=False)
    net.save(x, (1, 128, 768), path)


def vit_s(path: Path) -> None:
    """Builds a vision transformer: 12 encoders, 384 wide, of 14 x 14 patches and a token."""
    net = Network(1, 3, 224, 224)
    sizes = {"kernel_shape": [16, 16], "strides": [16, 16]}
    x = net.node("Conv", "x", net.constant((384, 3, 16, 16), 768**-0.5), net.bias(384), **sizes)
    x = net.node("Transpose", net.node("Reshape", x, net.array(np.array([1, 384, 196]))), perm=[0, 2, 1])
    x = net.node("Add", net.node("Concat", net.constant((1, 1, 384), 1), x, axis=1), net.constant((197, 384), 0.5))
    for _ in range(12):
        x = encoder(net, x, 197, 384, 6, before=True)
    x = net.node("Gather", net.norm(x, 384), net.array(np.array(0)), axis=1)
    net.save(net.node("Gemm", x, net.constant((1000, 384), 384**-0.5), net.bias(1000), transB=1), (1, 1000), path)


def unet(path: Path) -> None:
    """Builds a U-Net: 4 levels, 32 to 256 channels, 256 x 256."""
    net, kept, given = Network(1, 3, 256, 256), [], 3
    x = "x"
    for level in range(4):
        x = net.node("MaxPool", x, kernel_shape=[2, 2], strides=[2, 2]) if level else x
        made = 32 << level
        x, given = net.conv(net.conv(x, given, made, 3), made, made, 3), made
        kept.append(x)
    for level in (2, 1, 0):
        made = 32 << level
        weight = net.constant((given, made, 2, 2), given**-0.5)
        x = net.node("ConvTranspose", x, weight, net.bias(made), kernel_shape=[2, 2], strides=[2, 2])
        x = net.node("Concat", kept[level], x, axis=1)
        x, given = net.conv(net.conv(x, given, made, 3), made, made, 3), made
    net.save(net.conv(x, given, 2, 1, activation=""), (1, 2, 256, 256), path)


def super_resolution(path: Path) -> None:
    """Builds a network that enlarges an image of one channel three times: https://arxiv.org/abs/1609.05158."""
    net, x = Network(1, 1, 224, 224), "x"
    for given, made, window in ((1, 64, 5), (64, 64, 3), (64, 32, 3)):
        x = net.conv(x, given, made, window)
    x = net.node("DepthToSpace", net.conv(x, 32, 9, 3, activation=""), blocksize=3, mode="CRD")
    net.save(x, (1, 1, 672, 672), path)


NETWORKS: dict[str, Callable[[Path], None]] = {
    "mobilenet-v1": mobilenet_v1,
    "mobilenet-v2": lambda path: _inverted((*V2, (6, 3, 320, 1, 1)), path),
    "mobilenet-v3": mobilenet_v3,
    "efficientnet-lite0": lambda path: _inverted((*LITE, (6, 3, 320, 1, 1)), path),
    "resnet-18": lambda path: _resnet((2, 2, 2, 2), 1, path),
    "resnet-50": lambda path: _resnet((3, 4, 6, 3), 4, path),
    "bert-base": bert_base,
    "vit-s": vit_s,
    "u-net": unet,
    "super-resolution": super_resolution,
}
