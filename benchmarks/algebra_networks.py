"""Networks whose sums and products between layers have a better order than the one in which they are written."""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import pairwise

import numpy as np

import glenside as gl
from glenside.ir.program import Program
from glenside.ir.term import Term


class Network(gl.Builder):
    """A builder whose constants are named by number."""

    def weights(self, *dims: int) -> Term:
        """Returns random weights, of variance 1 / fan-in."""
        fan_in = math.prod(dims[1:]) or 1
        values = np.random.default_rng(len(self.tensors)).standard_normal(dims) / math.sqrt(fan_in)
        return self.constant(f"w{len(self.tensors)}", dims, value=values.astype(np.float32))

    def bias(self, channels: int) -> Term:
        """Returns a bias for images."""
        return self.weights(channels, 1, 1)

    def convolution(self, x: Term, filters: int, k: int = 1, *, stride: int = 1, groups: int = 1) -> Term:
        """Computes a convolution that keeps the size of images at stride 1, with a bias."""
        w = self.weights(filters, x.access.dims[1] // groups, k, k)
        return self.add(self.conv(x, w, padding=k // 2, strides=stride, groups=groups), self.bias(filters))

    def dense(self, x: Term, columns: int) -> Term:
        """Computes x W."""
        return self.matmul(x, self.weights(x.access.dims[-1], columns))

    def resized(self, x: Term, factor: int) -> Term:
        """Computes a linear resize of images by a whole factor, with coordinates of half pixels."""
        for axis in (2, 3):
            size = x.access.dims[axis]
            at = np.clip((np.arange(size * factor) + 0.5) / factor - 0.5, 0, size - 1)
            low = np.floor(at).astype(np.int64)
            taps = np.stack([low, np.minimum(low + 1, size - 1)], 1)
            weights = np.stack([1 - (at - low), at - low], 1).astype(np.float32)
            number = len(self.tensors)
            found = self.gather(x, self.constant(f"i{number}", taps.shape, "int64", taps), axis)
            shape = [1] * 5
            shape[axis], shape[axis + 1] = taps.shape
            scale = self.reshape(self.constant(f"t{number}", weights.shape, value=weights), shape)
            x = self.reduce_axes("reduce-sum", self.multiply(found, scale), [axis + 1])
        return x

    def rms_norm(self, x: Term) -> Term:
        """Computes x / sqrt(mean x^2), times a gain."""
        mean = self.reduce_axes("reduce-mean", self.multiply(x, x), [x.access.rank - 1])
        mean = self.reshape(mean, (*x.access.dims[:-1], 1))
        root = self.compute("sqrt", self.add(mean, self.full((), "1/100000")))
        return self.multiply(self.divide(x, root), self.weights(x.access.dims[-1]))


def rep_vgg(b: Network) -> Term:
    """RepVGG as it is trained: 3x3, 1x1 and identity of each block are added."""
    x = b.relu(b.convolution(b.input("x", (1, 3, 112, 112)), 48, 3, stride=2))
    for filters, count in ((48, 2), (96, 4), (192, 6)):
        for block in range(count):
            stride = 1 if block else 2
            y = b.add(b.convolution(x, filters, 3, stride=stride), b.convolution(x, filters, stride=stride))
            x = b.relu(b.add(y, x) if block else y)
    return b.dense(b.global_average_pool(x), 1000)


def mobile_one(b: Network) -> Term:
    """MobileOne as it is trained: four depthwise 3x3 and one 1x1 are added, and two pointwise ones."""
    x = b.relu(b.convolution(b.input("x", (1, 3, 112, 112)), 64, 3, stride=2))
    for filters, stride in ((64, 2), (64, 1), (128, 2), (128, 1), (128, 1), (256, 2), (256, 1)):
        channels = x.access.dims[1]
        y = b.convolution(x, channels, 1, stride=stride, groups=channels)
        for _ in range(4):
            y = b.add(y, b.convolution(x, channels, 3, stride=stride, groups=channels))
        y = b.relu(y)
        x = b.relu(b.add(b.convolution(y, filters), b.convolution(y, filters)))
    return b.dense(b.global_average_pool(x), 1000)


def dense_net(b: Network) -> Term:
    """Blocks of DenseNet; each transition is a 1x1 convolution and an average pool."""
    x = b.relu(b.convolution(b.input("x", (1, 3, 112, 112)), 64, 3, stride=2))
    for count in (3, 4, 5):
        for _ in range(count):
            y = b.relu(b.convolution(x, 64))
            x = b.concatenate([x, b.relu(b.convolution(y, 32, 3))], 1)
        x = b.average_pool(b.convolution(x, x.access.dims[1] // 2), 2)
    return b.dense(b.global_average_pool(b.relu(x)), 1000)


def _trunk(b: Network, size: int = 112, channels: int = 64) -> Term:
    x = b.relu(b.convolution(b.input("x", (1, 3, size, size)), channels // 2, 3, stride=2))
    x = b.relu(b.convolution(x, channels, 3, stride=2))
    return b.relu(b.convolution(x, channels, 3))


def segmentation(b: Network) -> Term:
    """A head that resizes features, linearly, before its 1x1 convolution to classes."""
    return b.convolution(b.resized(b.relu(b.convolution(_trunk(b), 128)), 4), 21)


def super_resolution(b: Network) -> Term:
    """Nearest resize before a 1x1 convolution."""
    return b.relu(b.convolution(b.upsample(_trunk(b), 2), 16))


def atrous_pyramid(b: Network) -> Term:
    """ASPP: dilated convolutions and a global branch, concatenated in front of a 1x1 convolution."""
    x = _trunk(b)
    parts = [b.relu(b.convolution(x, 64))]
    for dilation in (2, 4):
        w = b.weights(64, 64, 3, 3)
        parts.append(b.relu(b.add(b.conv(x, w, padding=dilation, dilations=dilation), b.bias(64))))
    whole = b.relu(b.convolution(b.reshape(b.global_average_pool(x), (1, 64, 1, 1)), 64))
    parts.append(b.broadcast(whole, parts[0].access.dims))
    return b.relu(b.convolution(b.concatenate(parts, 1), 64))


def squeeze_excite(b: Network) -> Term:
    """Inverted residuals with squeeze-and-excitation: gates scale the channels before the projection."""
    x = _trunk(b, channels=32)
    for _ in range(4):
        y = b.relu(b.convolution(b.relu(b.convolution(x, 128)), 128, 3, groups=128))
        gate = b.reshape(b.global_average_pool(y), (1, 128, 1, 1))
        gate = b.sigmoid(b.convolution(b.relu(b.convolution(gate, 32)), 128))
        x = b.add(x, b.convolution(b.multiply(y, gate), 32))
    return b.dense(b.global_average_pool(x), 1000)


def low_rank_layers(b: Network) -> Term:
    """LoRA, not merged: x W + (x A) B in every layer, with updates B A that are inputs in the last."""
    x = b.input("x", (16, 512))
    for _ in range(4):
        x = b.relu(b.add(b.dense(x, 512), b.dense(b.dense(x, 8), 512)))
    update = b.matmul(b.input("b", (512, 8)), b.input("a", (8, 512)))
    return b.matmul(x, update)


def latent_attention(b: Network) -> Term:
    """Attention of DeepSeek: keys and values are products of latents; one row of queries."""
    heads, wide, latent, rows = 8, 64, 128, 1024
    q = b.reshape(b.dense(b.input("x", (1, 512)), heads * wide), (heads, 1, wide))
    c = b.input("c", (rows, latent))
    k, v = (b.matmul(c, b.weights(heads, latent, wide)) for _ in range(2))
    scores = b.multiply(b.matmul(q, b.transpose(k, (0, 2, 1))), b.full((), "1/8"))
    return b.dense(b.reshape(b.matmul(b.softmax(scores), v), (1, heads * wide)), 512)


def linear_attention(b: Network) -> Term:
    """Two layers of attention without softmax, 1,024 rows, 4 heads of 32."""
    x = b.input("x", (1024, 128))
    for _ in range(2):
        q, k, v = (b.transpose(b.reshape(b.dense(x, 128), (1024, 4, 32)), (1, 0, 2)) for _ in range(3))
        q, k = b.relu(q), b.relu(k)
        y = b.matmul(b.matmul(q, b.transpose(k, (0, 2, 1))), v)
        x = b.add(x, b.multiply(b.reshape(b.transpose(y, (1, 0, 2)), (1024, 128)), b.full((), "1/1024")))
    return x


def _recurrent(b: Network, gates: int, step: Callable[[list[Term], list[Term], Term, Term], tuple[Term, Term]]) -> Term:
    wide, steps = 256, 16
    xs = b.input("x", (steps, 1, wide))
    of_x, of_h = ([b.weights(wide, wide) for _ in range(gates)] for _ in range(2))
    h, c = b.input("h", (1, wide)), b.input("c", (1, wide))
    for t in range(steps):
        x = b.reshape(b.slice_axis(xs, 0, t, t + 1), (1, wide))
        h, c = step([b.matmul(x, w) for w in of_x], [b.matmul(h, w) for w in of_h], h, c)
    return h


def lstm(b: Network) -> Term:
    """An LSTM of 16 steps, each gate and step a product of its own."""

    def step(x: list[Term], h: list[Term], _: Term, c: Term) -> tuple[Term, Term]:
        i, f, o, g = (b.add(one, other) for one, other in zip(x, h, strict=True))
        c = b.add(b.multiply(b.sigmoid(f), c), b.multiply(b.sigmoid(i), b.tanh(g)))
        return b.multiply(b.sigmoid(o), b.tanh(c)), c

    return _recurrent(b, 4, step)


def gru(b: Network) -> Term:
    """A GRU of 16 steps, each gate and step a product of its own."""

    def step(x: list[Term], h: list[Term], before: Term, c: Term) -> tuple[Term, Term]:
        z, r = (b.sigmoid(b.add(x[k], h[k])) for k in (0, 1))
        new = b.tanh(b.add(x[2], b.multiply(r, h[2])))
        return b.add(new, b.multiply(z, b.subtract(before, new))), c

    return _recurrent(b, 3, step)


def nas_rnn(b: Network) -> Term:
    """NasRNN of 5 steps with weights that the steps share."""

    def step(x: list[Term], h: list[Term], _: Term, c: Term) -> tuple[Term, Term]:
        s = [b.add(one, other) for one, other in zip(x, h, strict=True)]
        parts = [b.multiply(b.relu(one), b.sigmoid(other)) for one, other in pairwise(s)]
        return b.tanh(b.add(parts[0], b.multiply(parts[1], parts[2]))), c

    return _recurrent(b, 4, step)


def linear_layers(b: Network) -> Term:
    """Two linear layers in a row, 256 to 1,024 to 256, twice."""
    x = b.input("x", (64, 256))
    for _ in range(2):
        x = b.relu(b.dense(b.add(b.dense(x, 1024), b.weights(1024)), 256))
    return x


def decoder(b: Network) -> Term:
    """Blocks of a decoder with RMS norms whose gains meet the next weights; one row."""
    x = b.input("x", (1, 512))
    for _ in range(4):
        y = b.rms_norm(x)
        x = b.add(x, b.dense(b.multiply(b.sigmoid(b.dense(y, 1024)), b.dense(y, 1024)), 512))
    return x


def ensemble(b: Network) -> Term:
    """The mean of four linear heads on one trunk."""
    x = b.global_average_pool(_trunk(b))
    heads = [b.add(b.dense(x, 1000), b.weights(1000)) for _ in range(4)]
    return b.multiply(b.add(b.add(heads[0], heads[1]), b.add(heads[2], heads[3])), b.full((), "1/4"))


def products_of_bert(b: Network) -> Term:
    """TENSAT's BERT: 8 layers of 64 x 1,024 without softmax or feed-forward layers."""
    x = b.input("x", (64, 1024))
    for _ in range(8):
        q, k, v, following = (b.dense(x, 1024) for _ in range(4))
        y = b.matmul(b.matmul(q, b.transpose(k, (1, 0))), v)
        x = b.add(b.multiply(y, b.full((), "1/65536")), following)
    return x


def fire(b: Network) -> Term:
    """SqueezeNet's fire modules: 1x1 and 3x3 of one input, concatenated."""
    x = _trunk(b)
    for _ in range(3):
        y = b.relu(b.convolution(x, 16))
        x = b.concatenate([b.relu(b.convolution(y, 64)), b.relu(b.convolution(y, 64, 3))], 1)
    return x


def inception(b: Network) -> Term:
    """Inception's blocks: parallel convolutions and an average pool in front of a 1x1."""
    x = _trunk(b)
    for _ in range(3):
        pooled = b.convolution(b.average_pool(x, 3, strides=1, padding=1), 32)
        wide = b.convolution(b.relu(b.convolution(x, 48)), 64, 5)
        twice = b.convolution(b.relu(b.convolution(b.relu(b.convolution(x, 64)), 96, 3)), 96, 3)
        x = b.concatenate([b.relu(part) for part in (b.convolution(x, 64), wide, twice, pooled)], 1)
    return x


def residual_groups(b: Network) -> Term:
    """ResNeXt's blocks: grouped 3x3 between 1x1s."""
    x = _trunk(b)
    for _ in range(3):
        y = b.relu(b.convolution(b.relu(b.convolution(x, 128)), 128, 3, groups=32))
        x = b.relu(b.add(x, b.convolution(y, 64)))
    return x


NETWORKS: dict[str, Callable[[Network], Term]] = {
    **{"RepVGG, as trained": rep_vgg, "MobileOne, as trained": mobile_one, "DenseNet": dense_net},
    **{"segmentation head": segmentation, "super-resolution head": super_resolution, "ASPP": atrous_pyramid},
    **{"squeeze-excite": squeeze_excite, "LoRA": low_rank_layers, "latent attention": latent_attention},
    **{"linear attention": linear_attention, "LSTM": lstm, "GRU": gru, "linear layers": linear_layers},
    **{"RMS-norm decoder": decoder, "ensemble": ensemble},
    **{"NasRNN, shared weights": nas_rnn, "BERT of products": products_of_bert, "SqueezeNet modules": fire},
    **{"Inception blocks": inception, "ResNeXt blocks": residual_groups},
}


def network(name: str) -> Program:
    """Returns a network of `NETWORKS`, with random weights."""
    builder = Network(name)
    return builder.finish(NETWORKS[name](builder))
