"""Pairs of programs that compute the same from the same inputs and weights, in two forms, to compare prices with times.

Weights of the second form are terms over those of the first one: they are computed once, before a program runs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial, reduce

from benchmarks.algebra_networks import Network
from glenside.ir.program import Program
from glenside.ir.term import Term

Form = Callable[..., Term]
"""(builder, True for the second form, sizes ..) -> the result."""


def _joined(b: Network, results: Sequence[Term]) -> Term:
    """Returns results, each through a function, side by side."""
    return b.concatenate([b.relu(one) for one in results], 1)


def _parts(b: Network, x: Term, count: int, axis: int) -> list[Term]:
    size = x.access.dims[axis] // count
    return [b.slice_axis(x, axis, k * size, (k + 1) * size) for k in range(count)]


def _padded(b: Network, x: Term, axis: int, around: tuple[int, int]) -> Term:
    return b.pad(x, [around if k == axis else (0, 0) for k in range(x.access.rank)])


def _matrix(b: Network, w: Term, size: int) -> Term:
    """Returns the weights of a 1x1 convolution as a matrix."""
    return b.reshape(w, (w.access.dims[0], size))


def side_by_side(b: Network, second: bool, rows: int, wide: int, columns: int, count: int) -> Term:
    """Products of one operand, merged: queries, keys and values; gate and up."""
    x, w = b.input("x", (rows, wide)), [b.weights(wide, columns) for _ in range(count)]
    if second:
        return _joined(b, _parts(b, b.matmul(x, b.concatenate(w, 1)), count, 1))
    return _joined(b, [b.matmul(x, one) for one in w])


def attention_layer(b: Network, second: bool, rows: int, wide: int, heads: int) -> Term:
    """A layer of attention, with queries, keys and values merged."""
    x, w = b.input("x", (rows, wide)), [b.weights(wide, wide) for _ in range(3)]
    made = _parts(b, b.matmul(x, b.concatenate(w, 1)), 3, 1) if second else [b.matmul(x, one) for one in w]
    q, k, v = (b.transpose(b.reshape(one, (rows, heads, wide // heads)), (1, 0, 2)) for one in made)
    scores = b.softmax(b.multiply(b.matmul(q, b.transpose(k, (0, 2, 1))), b.full((), "1/8")))
    return b.dense(b.reshape(b.transpose(b.matmul(scores, v), (1, 0, 2)), (rows, wide)), wide)


def recurrent_gates(b: Network, second: bool, steps: int, wide: int) -> Term:
    """An LSTM whose gates are merged, step by step."""
    return _lstm(b, steps, wide, gates=second, inputs=False)


def recurrent_inputs(b: Network, second: bool, steps: int, wide: int) -> Term:
    """An LSTM with merged gates whose products with the inputs of all steps are one."""
    return _lstm(b, steps, wide, gates=True, inputs=second)


def recurrent_both(b: Network, second: bool, steps: int, wide: int) -> Term:
    """An LSTM whose gates, and the inputs of all steps, are merged."""
    return _lstm(b, steps, wide, gates=second, inputs=second)


def _lstm(b: Network, steps: int, wide: int, gates: bool, inputs: bool) -> Term:
    xs, h, c = b.input("xs", (steps, wide)), b.input("h", (1, wide)), b.input("c", (1, wide))
    of_x, of_h = ([b.weights(wide, wide) for _ in range(4)] for _ in range(2))
    joined_x, joined_h = b.concatenate(of_x, 1), b.concatenate(of_h, 1)
    all_steps = b.matmul(xs, joined_x)
    for t in range(steps):
        x = b.slice_axis(xs, 0, t, t + 1)
        if gates:
            by_x = b.slice_axis(all_steps, 0, t, t + 1) if inputs else b.matmul(x, joined_x)
            i, f, o, g = _parts(b, b.add(b.matmul(h, joined_h), by_x), 4, 1)
        else:
            both = zip(of_h, of_x, strict=True)
            i, f, o, g = (b.add(b.matmul(h, one), b.matmul(x, other)) for one, other in both)
        c = b.add(b.multiply(b.sigmoid(f), c), b.multiply(b.sigmoid(i), b.tanh(g)))
        h = b.multiply(b.sigmoid(o), b.tanh(c))
    return h


def rows_of_one_matrix(b: Network, second: bool, rows: int, wide: int, columns: int) -> Term:
    """Rows that are multiplied by one matrix, together."""
    x, w = b.input("x", (rows, wide)), b.weights(wide, columns)
    if second:
        return b.tanh(b.matmul(x, w))
    return b.tanh(b.concatenate([b.matmul(row, w) for row in _parts(b, x, rows, 0)], 0))


def fewer_groups(b: Network, second: bool, channels: int, size: int, groups: int, into: int) -> Term:
    """A block of ResNeXt, with groups joined: their weights are in blocks of zeros."""
    x, first = b.input("x", (1, 2 * channels, size, size)), b.weights(channels, 2 * channels, 1, 1)
    w, last = b.weights(channels, channels // groups, 3, 3), b.weights(2 * channels, channels, 1, 1)
    count = groups
    if second:
        per, joined = channels // groups, groups // into
        blocks = [b.slice_axis(w, 0, g * per, (g + 1) * per) for g in range(groups)]
        before = [g % joined * per for g in range(groups)]
        rest = (joined - 1) * per
        padded = [_padded(b, one, 1, (n, rest - n)) for n, one in zip(before, blocks, strict=True)]
        w, count = b.concatenate(padded, 0), into
    y = b.relu(b.conv(b.relu(b.conv(x, first)), w, padding=1, groups=count))
    return b.relu(b.add(x, b.conv(y, last)))


def parallel_1x1(b: Network, second: bool, channels: int, size: int, *filters: int) -> Term:
    """Parallel 1x1 convolutions of one image, as one."""
    x, w = b.input("x", (1, channels, size, size)), [b.weights(n, channels, 1, 1) for n in filters]
    if not second:
        return b.concatenate([b.relu(b.conv(x, one)) for one in w], 1)
    return b.relu(b.conv(x, b.concatenate(w, 0)))


def inception_block(b: Network, second: bool, channels: int, size: int, pooled: int) -> Term:
    """A block of Inception whose average pool is behind its 1x1 convolution."""
    x, w = b.input("x", (1, channels, size, size)), b.weights(pooled, channels, 1, 1)
    narrow, wide = b.weights(48, channels, 1, 1), b.weights(64, 48, 5, 5)
    branch = b.relu(b.conv(b.relu(b.conv(x, narrow)), wide, padding=2))
    pool = partial(b.average_pool, window=3, strides=1, padding=1)
    return b.concatenate([branch, b.relu(pool(b.conv(x, w)) if second else b.conv(pool(x), w))], 1)


def larger_window(b: Network, second: bool, channels: int, filters: int, size: int) -> Term:
    """A fire module: 1x1 and 3x3 of one image, as one 3x3."""
    x = b.input("x", (1, channels, size, size))
    one, three = b.weights(filters, channels, 1, 1), b.weights(filters, channels, 3, 3)
    if not second:
        return b.concatenate([b.relu(b.conv(x, one)), b.relu(b.conv(x, three, padding=1))], 1)
    return b.relu(b.conv(x, b.concatenate([_padded(b, _padded(b, one, 2, (1, 1)), 3, (1, 1)), three], 0), padding=1))


def nearest_resize(b: Network, second: bool, channels: int, filters: int, size: int, factor: int) -> Term:
    """A nearest resize behind a 1x1 convolution."""
    x, w = b.input("x", (1, channels, size, size)), b.weights(filters, channels, 1, 1)
    return b.upsample(b.conv(x, w), factor) if second else b.conv(b.upsample(x, factor), w)


def linear_resize(b: Network, second: bool, channels: int, filters: int, size: int, factor: int) -> Term:
    """A linear resize behind a 1x1 convolution."""
    x, w = b.input("x", (1, channels, size, size)), b.weights(filters, channels, 1, 1)
    return b.resized(b.conv(x, w), factor) if second else b.conv(b.resized(x, factor), w)


def mean_of_products(b: Network, second: bool, channels: int, filters: int, size: int) -> Term:
    """A global average in front of a 1x1 convolution."""
    x, w = b.input("x", (1, channels, size, size)), b.weights(filters, channels, 1, 1)
    if not second:
        return b.global_average_pool(b.conv(x, w))
    return b.matmul(b.global_average_pool(x), b.transpose(_matrix(b, w, channels), (1, 0)))


def average_pool(b: Network, second: bool, channels: int, filters: int, size: int) -> Term:
    """An average pool in front of a 1x1 convolution: DenseNet's transitions."""
    x, w = b.input("x", (1, channels, size, size)), b.weights(filters, channels, 1, 1)
    return b.conv(b.average_pool(x, 2), w) if second else b.average_pool(b.conv(x, w), 2)


def strided(b: Network, second: bool, channels: int, filters: int, size: int) -> Term:
    """Every other pixel of a 1x1 convolution."""
    x, w = b.input("x", (1, channels, size, size)), b.weights(filters, channels, 1, 1)
    return b.conv(x, w, strides=2) if second else b.strided(b.conv(x, w), (1, 1, 2, 2))


def divisor(b: Network, second: bool, heads: int, rows: int, wide: int) -> Term:
    """The divisor of a softmax behind its product with the values."""
    q, k = b.input("q", (heads, rows, wide)), b.input("k", (heads, wide, rows))
    v, scores = b.input("v", (heads, rows, wide)), b.matmul(q, k)
    most = b.reshape(b.reduce_axes("reduce-max", scores, [2]), (heads, rows, 1))
    e = b.compute("exp", b.subtract(scores, most))
    total = b.reshape(b.reduce_axes("reduce-sum", e, [2]), (heads, rows, 1))
    return b.divide(b.matmul(e, v), total) if second else b.matmul(b.divide(e, total), v)


def gain(b: Network, second: bool, rows: int, wide: int, columns: int) -> Term:
    """The gain of an RMS norm in the next weights."""
    x, g, w = b.input("x", (rows, wide)), b.weights(wide), b.weights(wide, columns)
    mean = b.reshape(b.reduce_axes("reduce-mean", b.multiply(x, x), [1]), (rows, 1))
    y = b.divide(x, b.compute("sqrt", b.add(mean, b.full((), "1/100000"))))
    return b.matmul(y, b.multiply(w, b.reshape(g, (wide, 1)))) if second else b.matmul(b.multiply(y, g), w)


def two_matrices(b: Network, second: bool, rows: int, wide: int, inner: int, columns: int) -> Term:
    """Two matrices in a row as one: cheaper if the one between them is large, dearer if it is small."""
    x, u, v = b.input("x", (rows, wide)), b.weights(wide, inner), b.weights(inner, columns)
    return b.matmul(x, b.matmul(u, v)) if second else b.matmul(b.matmul(x, u), v)


def two_convolutions(b: Network, second: bool, channels: int, inner: int, filters: int, size: int) -> Term:
    """A 1x1 and a 3x3 convolution in a row, as one."""
    x = b.input("x", (1, channels, size, size))
    u, v = b.weights(inner, channels, 1, 1), b.weights(filters, inner, 3, 3)
    if not second:
        return b.conv(b.conv(x, u), v, padding=1)
    taps = b.reshape(b.transpose(v, (0, 2, 3, 1)), (filters * 9, inner))
    both = b.reshape(b.matmul(taps, _matrix(b, u, channels)), (filters, 3, 3, channels))
    return b.conv(x, b.transpose(both, (0, 3, 1, 2)), padding=1)


def trained_branches(b: Network, second: bool, channels: int, size: int) -> Term:
    """RepVGG as it is trained, 3x3 + 1x1, as one 3x3."""
    x = b.input("x", (1, channels, size, size))
    three, one = b.weights(channels, channels, 3, 3), b.weights(channels, channels, 1, 1)
    if not second:
        return b.relu(b.add(b.conv(x, three, padding=1), b.conv(x, one)))
    return b.relu(b.conv(x, b.add(three, _padded(b, _padded(b, one, 2, (1, 1)), 3, (1, 1))), padding=1))


def depthwise_branches(b: Network, second: bool, channels: int, size: int) -> Term:
    """MobileOne as it is trained, four depthwise 3x3 that are added, as one."""
    x, w = b.input("x", (1, channels, size, size)), [b.weights(channels, 1, 3, 3) for _ in range(4)]
    window = partial(b.conv, padding=1, groups=channels)
    if not second:
        return b.relu(reduce(b.add, [window(x, one) for one in w]))
    return b.relu(window(x, reduce(b.add, w)))


def joined_depth(b: Network, second: bool, rows: int, wide: int, columns: int) -> Term:
    """x A + y B as one product."""
    x, y = b.input("x", (rows, wide)), b.input("y", (rows, wide))
    u, v = b.weights(wide, columns), b.weights(wide, columns)
    if second:
        return b.relu(b.matmul(b.concatenate([x, y], 1), b.concatenate([u, v], 0)))
    return b.relu(b.add(b.matmul(x, u), b.matmul(y, v)))


def split_depth(b: Network, second: bool, channels: int, filters: int, size: int) -> Term:
    """A 1x1 convolution of a concatenation, as a sum of two."""
    x, w = b.input("x", (1, channels, size, size)), b.weights(filters, 2 * channels, 1, 1)
    p, q = b.relu(x), b.tanh(x)
    if not second:
        return b.relu(b.conv(b.concatenate([p, q], 1), w))
    u, v = _parts(b, w, 2, 1)
    return b.relu(b.add(b.conv(p, u), b.conv(q, v)))


def common_factor(b: Network, second: bool, rows: int, wide: int, columns: int) -> Term:
    """x A + y A = (x + y) A."""
    x, y, w = b.input("x", (rows, wide)), b.input("y", (rows, wide)), b.weights(wide, columns)
    return b.matmul(b.add(x, y), w) if second else b.add(b.matmul(x, w), b.matmul(y, w))


def global_branch(b: Network, second: bool, channels: int, filters: int, size: int) -> Term:
    """A broadcast branch past a concatenation and a 1x1 convolution: ASPP."""
    x, of_all = b.input("x", (1, channels, size, size)), b.weights(filters, channels, 1, 1)
    of_each, w = b.weights(filters, channels, 1, 1), b.weights(filters, 2 * filters, 1, 1)
    whole = b.relu(b.conv(b.reshape(b.global_average_pool(x), (1, channels, 1, 1)), of_all))
    y = b.relu(b.conv(x, of_each))
    if not second:
        return b.relu(b.conv(b.concatenate([y, b.broadcast(whole, y.access.dims)], 1), w))
    u, v = _parts(b, w, 2, 1)
    return b.relu(b.add(b.conv(y, u), b.conv(whole, v)))


def latent_attention(b: Network, second: bool, heads: int, rows: int, latent: int, wide: int) -> Term:
    """q (c W)^T = (q W^T) c^T."""
    c, q = b.input("c", (rows, latent)), b.input("q", (heads, 1, wide))
    w = b.weights(heads, latent, wide)
    if second:
        return b.matmul(b.matmul(q, b.transpose(w, (0, 2, 1))), b.transpose(c, (1, 0)))
    return b.matmul(q, b.transpose(b.matmul(c, w), (0, 2, 1)))


def linear_attention(b: Network, second: bool, heads: int, rows: int, wide: int) -> Term:
    """(q k^T) v = q (k^T v)."""
    q, k, v = (b.input(name, (heads, rows, wide)) for name in "qkv")
    k = b.transpose(k, (0, 2, 1))
    return b.matmul(q, b.matmul(k, v)) if second else b.matmul(b.matmul(q, k), v)


def low_rank_update(b: Network, second: bool, rows: int, wide: int, rank: int) -> Term:
    """x (B A) = (x B) A, with updates that are inputs."""
    x, u, v = b.input("x", (rows, wide)), b.input("u", (wide, rank)), b.input("v", (rank, wide))
    return b.matmul(b.matmul(x, u), v) if second else b.matmul(x, b.matmul(u, v))


def low_rank_weights(b: Network, second: bool, rows: int, wide: int, rank: int) -> Term:
    """x W + (x B) A = x (W + B A), with constant weights."""
    x, w = b.input("x", (rows, wide)), b.weights(wide, wide)
    u, v = b.weights(wide, rank), b.weights(rank, wide)
    return b.matmul(x, b.add(w, b.matmul(u, v))) if second else b.add(b.matmul(x, w), b.matmul(b.matmul(x, u), v))


def channel_scale(b: Network, second: bool, channels: int, filters: int, size: int) -> Term:
    """Gates of channels into the weights of the next 1x1 convolution."""
    x, of_gate = b.input("x", (1, channels, size, size)), b.weights(channels, channels)
    w = b.weights(filters, channels, 1, 1)
    gate = b.sigmoid(b.matmul(b.global_average_pool(x), of_gate))
    if not second:
        return b.conv(b.multiply(x, b.reshape(gate, (1, channels, 1, 1))), w)
    y = b.matmul(b.multiply(_matrix(b, w, channels), gate), b.reshape(x, (channels, size * size)))
    return b.reshape(y, (1, filters, size, size))


KINDS: dict[Form, Sequence[tuple[int, ...]]] = {
    side_by_side: (
        *((1, 128, 128, 3), (1, 256, 256, 3), (1, 768, 768, 3), (8, 768, 768, 3), (32, 768, 768, 3)),
        *((64, 256, 256, 3), (4, 64, 64, 3), (1, 768, 2048, 2), (64, 768, 2048, 2)),
    ),
    attention_layer: ((16, 768, 12), (128, 768, 12)),
    recurrent_gates: ((16, 256), (5, 512)),
    recurrent_inputs: ((16, 256), (5, 512)),
    recurrent_both: ((16, 256), (8, 128), (5, 512)),
    rows_of_one_matrix: ((16, 256, 256), (8, 512, 1024), (4, 1024, 1024)),
    fewer_groups: (
        *((128, 56, 32, 16), (128, 56, 32, 4), (256, 28, 32, 16), (256, 28, 32, 4)),
        *((512, 14, 32, 16), (512, 14, 32, 4), (1024, 7, 32, 16)),
    ),
    parallel_1x1: ((192, 35, 64, 48, 64), (768, 17, 192, 160, 160), (1280, 8, 320, 384, 448)),
    inception_block: ((192, 35, 32), (768, 17, 192), (1280, 8, 192)),
    larger_window: ((16, 64, 55), (64, 256, 13)),
    nearest_resize: ((64, 16, 56, 2), (64, 64, 56, 2), (128, 21, 32, 4)),
    linear_resize: ((64, 16, 56, 2), (128, 21, 32, 4), (64, 64, 28, 2)),
    mean_of_products: ((256, 128, 14), (64, 256, 28)),
    average_pool: ((256, 128, 28), (512, 256, 14)),
    strided: ((256, 128, 28), (64, 256, 56)),
    divisor: ((4, 256, 64), (2, 1024, 64)),
    gain: ((4, 256, 256), (128, 768, 768)),
    two_matrices: ((64, 256, 1024, 256), (64, 1024, 32, 1024), (1, 512, 2048, 512), (8, 512, 64, 512)),
    two_convolutions: ((64, 256, 64, 28), (32, 64, 32, 56)),
    trained_branches: ((64, 56), (256, 14), (128, 28)),
    depthwise_branches: ((128, 28), (256, 14)),
    joined_depth: ((64, 256, 256), (1, 512, 512)),
    split_depth: ((128, 64, 28), (64, 128, 56)),
    common_factor: ((64, 256, 256), (1, 1024, 1024)),
    global_branch: ((128, 64, 32), (256, 128, 16)),
    latent_attention: ((4, 512, 64, 128), (8, 1024, 128, 64)),
    linear_attention: ((1, 1024, 32), (4, 512, 64)),
    low_rank_update: ((1, 1024, 16), (64, 512, 64)),
    low_rank_weights: ((16, 512, 8), (1, 512, 8), (64, 768, 64)),
    channel_scale: ((128, 64, 28), (512, 128, 14)),
}
"""The sizes of the pairs of each kind."""

PAIRS = {
    f"{kind.__name__} {' '.join(map(str, sizes))}": (kind, sizes) for kind, every in KINDS.items() for sizes in every
}


def forms(name: str) -> tuple[Program, Program]:
    """Returns both forms of a pair of `PAIRS`."""
    kind, sizes = PAIRS[name]

    def form(second: bool) -> Program:
        b = Network(name)
        return b.finish(kind(b, second, *sizes))

    return form(False), form(True)
