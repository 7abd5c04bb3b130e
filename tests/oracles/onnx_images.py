"""Builds image networks as ONNX models, with the operators that exporters use."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
from onnx_graphs import Graph

TO_NCHW, TO_NHWC = (0, 3, 1, 2), (0, 2, 3, 1)


def mobilenet_v2(*, width: float = 1.0, resolution: int = 224, classes: int = 1000) -> onnx.ModelProto:
    """Builds MobileNetV2 as PyTorch writes it in training mode: separate batch norms, ReLU6 as Clip with Constant
    bounds.
    """
    g = Graph("mobilenet_v2", opset=13)

    def sized(channels: int) -> int:
        """Rounds to a multiple of 8 that is not much smaller."""
        near = max(8, int(channels * width + 4) // 8 * 8)
        return near + 8 * (near < 0.9 * channels * width)

    def layer(x: str, name: str, filters: int, channels: int, k: int, act: bool = True, **kw: Any) -> str:
        made = g.batch_norm(g.conv(x, f"{name}.0", filters, channels, k, bias=False, **kw), f"{name}.1", filters)
        return g.node("Clip", made, g.constant(0.0), g.constant(6.0)) if act else made

    channels, block = sized(32), 0
    x = layer(g.input("input", ["batch", 3, resolution, resolution]), "features.0", channels, 3, 3, stride=2)
    settings = [(1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2)]
    settings.append((6, 320, 1, 1))
    for expansion, out, repeats, first in settings:
        filters = sized(out)
        for stride in (first, *[1] * (repeats - 1)):
            block += 1
            name, inner, before = f"features.{block}.conv", channels * expansion, x
            if expansion != 1:
                x = layer(x, f"{name}.0", inner, channels, 1)
            x = layer(x, f"{name}.1", inner, inner, 3, stride=stride, groups=inner)
            x = layer(x, f"{name}.2", filters, inner, 1, act=False)
            if stride == 1 and filters == channels:
                x = g.node("Add", before, x)
            channels = filters
    last = max(1280, sized(1280))
    pooled = g.node("GlobalAveragePool", layer(x, "features.18", last, channels, 1))
    flat = g.node("Flatten", pooled, axis=1)
    weights = g.weight("classifier.1.weight", classes, last), g.weight("classifier.1.bias", classes, scale=0.1)
    return g.model({g.node("Gemm", flat, *weights, alpha=1.0, beta=1.0, transB=1): 2})


def residual(*, blocks: int = 80, channels: int = 8, resolution: int = 16) -> onnx.ModelProto:
    """Adds blocks with skip connections, of seven nodes each."""
    g = Graph("residual", opset=15)
    x = g.conv(g.input("x", ["N", 3, resolution, resolution]), "stem", channels, 3)
    for i in range(blocks):
        y = g.batch_norm(g.conv(x, f"blocks.{i}.conv1", channels, channels, bias=False), f"blocks.{i}.bn1", channels)
        y = g.node("Relu", y)
        y = g.batch_norm(g.conv(y, f"blocks.{i}.conv2", channels, channels, bias=False), f"blocks.{i}.bn2", channels)
        x = g.node("Relu", g.node("Add", g.node("Mul", y, g.constant(0.1)), x))
    return g.model({g.node("ReduceMean", x, axes=[2, 3], keepdims=0): 2})


def _quantised_weight(g: Graph, name: str, *dims: int) -> tuple[str, str]:
    """Draws small int8 weights and an int32 bias."""
    weight = g.random.integers(-20, 21, dims).astype(np.int8)
    return g.tensor(weight, f"{name}.weight"), g.tensor(g.random.integers(-500, 500, dims[:1]).astype(np.int32))


def quantised(*, resolution: int = 12, channels: int = 8, scale: float = 0.03125) -> onnx.ModelProto:
    """Builds a CNN of QLinearConv nodes, the second with a scale for each filter; exact, as the
    scales are powers of 2.
    """
    g = Graph("quantised", opset=13)
    x = g.input("image", [1, 3, resolution, resolution])
    steps, zero = g.tensor(np.float32(scale), "image_scale"), g.tensor(np.uint8(128), "image_zero_point")
    x = g.node("QuantizeLinear", x, steps, zero)
    per_filter = np.array([scale * 2.0 ** (i % 3) for i in range(channels)], np.float32)
    for i, (filters, depth, stride) in enumerate(((channels, 3, 2), (channels, channels, 1))):
        weight, bias = _quantised_weight(g, f"conv{i}", filters, depth, 3, 3)
        w_scale = g.tensor(np.float32(scale) if i == 0 else per_filter)
        w_zero = g.tensor(np.int8(0) if i == 0 else np.zeros(filters, np.int8))
        y_scale, y_zero = g.tensor(np.float32(scale * 4)), g.tensor(np.uint8(100 + i))
        x = g.node(
            "QLinearConv", x, steps, zero, weight, w_scale, w_zero, y_scale, y_zero, bias,
            kernel_shape=[3, 3], pads=[1] * 4, strides=[stride] * 2,
        )  # fmt: skip
        x, steps, zero = g.node("MaxPool", x, kernel_shape=[2, 2], strides=[1, 1]), y_scale, y_zero
    return g.model({g.node("DequantizeLinear", x, steps, zero): 4})


def quantised_qdq(*, resolution: int = 12, channels: int = 8, scale: float = 0.03125) -> onnx.ModelProto:
    """Builds such a CNN in QDQ style: float nodes between QuantizeLinear and DequantizeLinear, and a Gemm."""
    g = Graph("quantised_qdq", opset=13)

    def fake(x: str, zero_point: int, factor: float = 1.0) -> str:
        parts = g.tensor(np.float32(scale * factor)), g.tensor(np.uint8(zero_point))
        return g.node("DequantizeLinear", g.node("QuantizeLinear", x, *parts), *parts)

    def weights(name: str, *dims: int) -> list[str]:
        weight, bias = _quantised_weight(g, name, *dims)
        steps = g.tensor(np.array([scale * 2.0 ** -(i % 2) for i in range(dims[0])], np.float32))
        zeros = g.tensor(np.zeros(dims[0], np.int8))
        made = g.node("DequantizeLinear", weight, steps, zeros, axis=0)
        return [made, g.node("DequantizeLinear", bias, g.tensor(np.float32(scale**2)))]

    x = fake(g.input("image", ["N", 3, resolution, resolution]), 128)
    filters, bias = weights("conv1", channels, 3, 3, 3)
    x = g.node("Conv", x, filters, bias, kernel_shape=[3, 3], strides=[2, 2], pads=[1] * 4)
    x = fake(g.node("Relu", x), 0, 2)
    filters, bias = weights("conv2", channels, 1, 3, 3)
    x = g.node("Conv", x, filters, bias, kernel_shape=[3, 3], pads=[1] * 4, group=channels)
    x = fake(g.node("Clip", x, g.tensor(0.0), g.tensor(6.0)), 3, 2)
    pooled = fake(g.node("GlobalMaxPool", x), 3, 2)
    flat = g.node("Flatten", pooled)
    matrix, bias = weights("fc", 5, channels)
    return g.model({fake(g.node("Gemm", flat, matrix, bias, transB=1), 127, 16): 2})


def unet(*, base: int = 8, resolution: int = 32, classes: int = 3) -> onnx.ModelProto:
    """Builds a U-Net: downsamples twice by MaxPool, upsamples once by ConvTranspose and once by Resize to the size of
    the skip connection.
    """
    g = Graph("unet", opset=13)

    def double(x: str, name: str, filters: int, channels: int) -> str:
        for i, depth in enumerate((channels, filters)):
            x = g.node("Relu", g.batch_norm(g.conv(x, f"{name}.{i}", filters, depth), f"{name}.bn{i}", filters))
        return x

    def halved(x: str) -> str:
        return g.node("MaxPool", x, kernel_shape=[2, 2], strides=[2, 2], ceil_mode=0, pads=[0] * 4)

    first = double(g.input("image", ["N", 3, resolution, resolution]), "down1", base, 3)
    second = double(halved(first), "down2", base * 2, base)
    x = double(halved(second), "bottom", base * 4, base * 2)
    weights = g.weight("up1.weight", base * 4, base * 2, 2, 2), g.weight("up1.bias", base * 2, scale=0.1)
    x = g.node("ConvTranspose", x, *weights, kernel_shape=[2, 2], strides=[2, 2], pads=[0] * 4)
    x = double(g.node("Concat", second, x, axis=1), "up2", base * 2, base * 4)
    start, stop, axes = g.tensor([0]), g.tensor([2]), g.tensor([0])
    lead = g.node("Slice", g.node("Shape", x), start, stop, axes)
    sizes = g.node("Concat", lead, g.dims(g.size(first, 2), g.size(first, 3)), axis=0)
    x = g.node("Resize", x, "", "", sizes, coordinate_transformation_mode="half_pixel", mode="linear")
    x = double(g.node("Concat", first, x, axis=1), "up3", base, base * 3)
    logits = g.conv(x, "head", classes, base, 1)
    return g.model({logits: 4, g.node("Softmax", logits, axis=1): 4})


def super_resolution(
    *,
    height: int = 24,
    width: int = 40,
    channels: int = 64,
    mode: str = "CRD",
    layout: str = "NCHW",
    relu_after_shuffle: bool = False,
) -> onnx.ModelProto:
    """Four times as many pixels each way.

    layout  NCHW; NHWC, with one Transpose at each end; or NHWC-each, with transposes around every convolution
    """
    g = Graph("super_resolution", opset=13)
    each, last = layout == "NHWC-each", layout != "NCHW"

    def moved(x: str, order: tuple[int, ...], when: bool) -> str:
        return g.node("Transpose", x, perm=order) if when else x

    def conv(x: str, name: str, filters: int, depth: int) -> str:
        return moved(g.conv(moved(x, TO_NCHW, each), name, filters, depth), TO_NHWC, each)

    def leaky(x: str) -> str:
        return g.node("LeakyRelu", x, alpha=0.2)

    def shuffled(x: str) -> str:
        made = g.node("DepthToSpace", moved(x, TO_NCHW, each), blocksize=2, mode=mode)
        made = moved(made, TO_NHWC, each)
        return leaky(made) if relu_after_shuffle else made

    dims = ["N", height, width, 3] if last else ["N", 3, height, width]
    x = moved(g.input("image", dims), TO_NCHW, last and not each)
    x = first = conv(x, "head", channels, 3)
    for i in range(2):
        y = leaky(conv(x, f"body.{i}.conv1", channels, channels))
        x = g.node("Add", x, conv(y, f"body.{i}.conv2", channels, channels))
    x = g.node("Add", conv(x, "body.last", channels, channels), first)
    x = shuffled(conv(x, "up.0", 2 * channels, channels))
    x = shuffled(conv(x, "up.1", channels, channels // 2))
    x = conv(x, "tail", 3, channels // 4)
    return g.model({moved(x, TO_NHWC, last and not each): 4})


def pooling(*, resolution: int = 19) -> onnx.ModelProto:
    """Builds a model of an older opset, 9: attributes that later became inputs, a Pad node, pools of uneven windows."""
    g = Graph("pooling", opset=9)
    x = g.node("Pad", g.input("data", [1, 3, resolution, resolution]), pads=[0, 0, 1, 2, 0, 0, 2, 1], mode="reflect")
    x = g.node("Clip", g.conv(x, "conv1", 8, 3, stride=2, pad=0), min=0.0, max=6.0)
    x = g.node("MaxPool", x, kernel_shape=[3, 3], strides=[2, 2], pads=[1, 0, 1, 1])
    x = g.node("AveragePool", x, kernel_shape=[2, 3], pads=[0, 1, 1, 1], count_include_pad=0)
    x = g.node("LRN", x, size=3, alpha=0.01, beta=0.75, bias=1.0)
    x = g.node("Reshape", g.node("Dropout", x, ratio=0.5), g.tensor([1, -1]))
    return g.model({g.node("Softmax", g.node("Slice", x, starts=[-12], ends=[9999], axes=[1]), axis=1): 2})


def maxvit(
    *, blocks: int = 1, channels: int = 12, heads: int = 2, counts: tuple[int, int] = (2, 2), size: int = 3
) -> onnx.ModelProto:
    """Inverted bottlenecks with squeeze and excitation, then attention in windows of pixels and in grids of them.

    An image has `counts` windows of size x size pixels down and across.
    """
    g = Graph("maxvit", opset=20)
    image = [size * n for n in counts]
    groups, within = counts[0] * counts[1], size * size
    x = g.conv(g.input("pixels", [1, 3, 2 * image[0], 2 * image[1]]), "stem", channels, 3, stride=2)

    def attended(x: str, name: str) -> str:
        made = g.linear(g.layer_norm(x, f"{name}.norm1", channels), f"{name}.qkv", 3 * channels, channels)
        made = g.node("Reshape", made, g.tensor([groups, within, 3, heads, channels // heads]))
        made = g.node("Transpose", made, perm=[2, 0, 3, 1, 4])
        q, k, v = (g.node("Gather", made, g.constant(i), axis=0) for i in range(3))
        q = g.node("Mul", q, g.constant((channels // heads) ** -0.5))
        shares = g.node("MatMul", q, g.node("Transpose", k, perm=[0, 1, 3, 2]))
        shares = g.node("Softmax", g.node("Add", shares, g.weight(f"{name}.places", 1, heads, within, within)), axis=-1)
        context = g.node("Transpose", g.node("MatMul", shares, v), perm=[0, 2, 1, 3])
        context = g.node("Reshape", context, g.tensor([groups, within, channels]))
        x = g.node("Add", x, g.linear(context, f"{name}.proj", channels, channels))
        inner = g.linear(g.layer_norm(x, f"{name}.norm2", channels), f"{name}.fc1", 2 * channels, channels)
        return g.node("Add", x, g.linear(g.node("Gelu", inner), f"{name}.fc2", channels, 2 * channels))

    def in_groups(x: str, name: str, cut: list[int], order: list[int], back: list[int]) -> str:
        dims = [([1, *cut, channels])[axis] for axis in order]
        parts = g.node("Transpose", g.node("Reshape", x, g.tensor([1, *cut, channels])), perm=order)
        x = attended(g.node("Reshape", parts, g.tensor([groups, within, channels])), name)
        x = g.node("Transpose", g.node("Reshape", x, g.tensor(dims)), perm=back)
        return g.node("Reshape", x, g.tensor([1, *image, channels]))

    for i in range(blocks):
        name, wide = f"blocks.{i}", 2 * channels
        y = g.node("Gelu", g.conv(g.batch_norm(x, f"{name}.norm", channels), f"{name}.expand", wide, channels, 1))
        y = g.node("Gelu", g.conv(y, f"{name}.depthwise", wide, wide, 3, groups=wide))
        gate = g.conv(g.node("ReduceMean", y, g.tensor([2, 3])), f"{name}.squeeze", channels // 2, wide, 1)
        gate = g.conv(g.node("Relu", gate), f"{name}.excite", wide, channels // 2, 1)
        x = g.node("Add", x, g.conv(g.node("Mul", y, g.node("Sigmoid", gate)), f"{name}.project", channels, wide, 1))
        x = g.node("Transpose", x, perm=[0, 2, 3, 1])
        windows, grid = [counts[0], size, counts[1], size], [size, counts[0], size, counts[1]]
        x = in_groups(x, f"{name}.window", windows, [0, 1, 3, 2, 4, 5], [0, 1, 3, 2, 4, 5])
        x = in_groups(x, f"{name}.grid", grid, [0, 2, 4, 1, 3, 5], [0, 3, 1, 4, 2, 5])
        x = g.node("Transpose", x, perm=[0, 3, 1, 2])
    return g.model({g.node("ReduceMean", x, g.tensor([2, 3]), keepdims=0): 2})


def mobilevit(
    *, encoders: Sequence[int] = (2, 4, 3), channels: int = 8, depth: int = 12, heads: int = 2, size: int = 8
) -> onnx.ModelProto:
    """Inverted bottlenecks, and blocks in which encoders see each of four pixels of every patch by itself.

    One block for each number of encoders; the first sees images of size x size, and each after it half of that.
    """
    g = Graph("mobilevit", opset=20)
    x = g.conv(g.input("pixels", [1, 3, 4 * size, 4 * size]), "stem", channels, 3, stride=2)

    def silu(x: str) -> str:
        return g.node("Mul", x, g.node("Sigmoid", x))

    def conv(x: str, name: str, filters: int, inputs: int, k: int, **how: int) -> str:
        made = g.conv(x, name, filters, inputs, k, bias=False, **how)
        return silu(g.batch_norm(made, f"{name}.norm", filters))

    def bottleneck(x: str, name: str, filters: int, inputs: int, stride: int) -> str:
        y = conv(conv(x, f"{name}.expand", 2 * inputs, inputs, 1), f"{name}.depthwise", 2 * inputs, 2 * inputs, 3,
                 groups=2 * inputs, stride=stride)  # fmt: skip
        y = g.batch_norm(g.conv(y, f"{name}.project", filters, 2 * inputs, 1, bias=False), f"{name}.last", filters)
        return y if stride > 1 or filters != inputs else g.node("Add", x, y)

    def encoder(x: str, name: str, patches: int) -> str:
        made = g.linear(g.layer_norm(x, f"{name}.norm1", depth), f"{name}.qkv", 3 * depth, depth)
        made = g.node("Reshape", made, g.tensor([4, patches, 3, heads, depth // heads]))
        made = g.node("Transpose", made, perm=[2, 0, 3, 1, 4])
        q, k, v = (g.node("Gather", made, g.constant(i), axis=0) for i in range(3))
        scores = g.node("MatMul", q, g.node("Transpose", k, perm=[0, 1, 3, 2]))
        shares = g.node("Softmax", g.node("Mul", scores, g.constant((depth // heads) ** -0.5)), axis=-1)
        context = g.node("Transpose", g.node("MatMul", shares, v), perm=[0, 2, 1, 3])
        context = g.node("Reshape", context, g.tensor([4, patches, depth]))
        x = g.node("Add", x, g.linear(context, f"{name}.proj", depth, depth))
        inner = silu(g.linear(g.layer_norm(x, f"{name}.norm2", depth), f"{name}.fc1", 2 * depth, depth))
        return g.node("Add", x, g.linear(inner, f"{name}.fc2", depth, 2 * depth))

    for i, count in enumerate(encoders):
        name, half = f"blocks.{i}", size // 2
        x = bottleneck(bottleneck(x, f"{name}.down", channels, channels, 2), f"{name}.same", channels, channels, 1)
        y = g.conv(conv(x, f"{name}.local", channels, channels, 3), f"{name}.in", depth, channels, 1, bias=False)
        y = g.node("Transpose", g.node("Reshape", y, g.tensor([depth * half, 2, half, 2])), perm=[0, 2, 1, 3])
        y = g.node("Transpose", g.node("Reshape", y, g.tensor([1, depth, half * half, 4])), perm=[0, 3, 2, 1])
        y = g.node("Reshape", y, g.tensor([4, half * half, depth]))
        for j in range(count):
            y = encoder(y, f"{name}.{j}", half * half)
        y = g.layer_norm(y, f"{name}.norm", depth)
        y = g.node("Transpose", g.node("Reshape", y, g.tensor([1, 4, half * half, depth])), perm=[0, 3, 2, 1])
        y = g.node("Transpose", g.node("Reshape", y, g.tensor([depth * half, half, 2, 2])), perm=[0, 2, 1, 3])
        y = conv(g.node("Reshape", y, g.tensor([1, depth, size, size])), f"{name}.out", channels, depth, 1)
        x = conv(g.node("Concat", x, y, axis=1), f"{name}.fuse", channels, 2 * channels, 3)
        size = half
    return g.model({g.node("ReduceMean", x, g.tensor([2, 3]), keepdims=0): 2})
