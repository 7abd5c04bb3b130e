"""Reductions of windows as pools, and dot-products of windows, or of channels, with weights as Conv: nothing is
copied, and runtimes are fastest there.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from glenside.exporters.onnx.emitter import Emitter, Windows
from glenside.exporters.onnx.kernels import runs
from glenside.exporters.onnx.registry import Operand
from glenside.exporters.writer import Pair, Value
from glenside.ir.types import AccessType, Dims

# Runtimes have pools and convolutions of up to so many axes.
_MOST_AXES = 3


def _windows_under(emit: Emitter, x: Value, item: Dims) -> Windows | None:
    """What the items of a value are windows of, when it is a view of windows that keeps each of them whole."""
    record = emit.windowed.get(emit.base(x).name)
    return record if record and record.window.product() == item.product() else None


def _padding_under(emit: Emitter, x: Value, axes: int, fill: Value) -> tuple[Value, list[int]]:
    """The value before its last axes were padded, and by how much: all befores, then all afters."""
    none = [0] * (2 * axes)
    padding = emit.padding(emit.base(x))
    if not padding or not np.array_equal(padding.fill, emit.graph.arrays[fill.name]):
        return x, none
    rank = padding.source.rank
    grown = [b + a for b, a in zip(padding.before, padding.after, strict=True)]
    same = padding.source.dims.drop(rank - axes)
    if any(grown[: rank - axes]) or rank < axes:
        return x, none
    if [n + g for n, g in zip(same, grown[rank - axes :], strict=True)] != list(x.dims.drop(x.rank - axes)):
        return x, none
    before = emit.view(padding.source, x.dims.take(x.rank - axes).append(same))
    return before, [*padding.before[rank - axes :], *padding.after[rank - axes :]]


def pooled(emit: Emitter, op: str, a: Operand) -> Value | None:
    """The reduction of windows as MaxPool or AveragePool; None where there is no such pool."""
    if not runs(op, a.access.dtype):
        return None
    record = _windows_under(emit, a.value, a.access.item)
    if not record:
        return None
    x, window = record.source, record.window
    first = next((i for i, k in enumerate(window) if k != 1 or record.strides[i] != 1), len(window))
    axes = len(window) - first
    plain = op == "MaxPool" or set(record.dilations) == {1}  # AveragePool has dilations since opset 19
    if not (0 < axes <= _MOST_AXES and plain):
        return None
    fill = emit.lowest(x.dtype) if op == "MaxPool" else emit.number(0, x.dtype)
    inner, pads = _padding_under(emit, x, axes, fill)
    if any(p >= k for p, k in zip(pads, window.drop(first) * 2, strict=True)):
        inner, pads = x, [0] * (2 * axes)
    images = inner.dims.take(inner.rank - axes).product()
    attributes = {
        "kernel_shape": tuple(window.drop(first)),
        "strides": tuple(record.strides.drop(first)),
        "pads": tuple(pads),
        **({"dilations": tuple(record.dilations.drop(first))} if op == "MaxPool" else {"count_include_pad": 1}),
    }
    dims = (images, 1, *record.counts.drop(first))
    planes = emit.view(inner, (images, 1, *inner.dims.drop(inner.rank - axes)))
    return emit.view(emit.run(op, [planes], dims, None, attributes, main=True), a.access.shape)


@dataclass(frozen=True, slots=True)
class _Convolution:
    """A Conv of `images`, (N, groups * channels, space), where `counts` windows fit into the space.

    Items of the weights have dims `item`; those axes in `order` are channels first, then those of the window.
    """

    images: Value
    groups: int
    channels: int
    window: tuple[int, ...]
    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    counts: tuple[int, ...]
    item: Dims
    order: tuple[int, ...]


def convolution(emit: Emitter, result: AccessType, pair: Pair[Value], inner: str) -> Value | None:
    """(G, A)(I) x (G, B)(I) as one Conv of |G| groups in the dtype `inner`; None where there is no such Conv."""
    if not runs("Conv", inner):
        return None
    conv = _of_windows(emit, pair) or _of_channels(emit, pair)
    if not conv:
        return None
    filters = pair.rows[2].product()
    apart = emit.view(pair.b, (conv.groups, filters, *conv.item))
    weights = emit.transpose(apart, [0, 1, *(2 + i for i in conv.order)])
    images, pads = _padding_under(emit, conv.images, len(conv.window), emit.number(0, pair.a.dtype))
    attributes = {
        "kernel_shape": conv.window,
        "strides": conv.strides,
        "dilations": conv.dilations,
        "pads": tuple(pads),
        "group": conv.groups,
    }
    kernels = emit.view(weights, (conv.groups * filters, conv.channels, *conv.window))
    dims = (images.dims[0], conv.groups * filters, *conv.counts)
    y = emit.run("Conv", [emit.cast(x, inner) for x in (images, kernels)], dims, None, attributes, main=True)
    y = emit.view(y, (images.dims[0], conv.groups, filters, *conv.counts))
    return emit.view(emit.transpose(y, [1, 0, *range(3, y.rank), 2]), result.dims)


def _of_windows(emit: Emitter, pair: Pair[Value]) -> _Convolution | None:
    """Axes of which windows take the whole are channels, the others space.

    Leading axes of what the windows are of are groups when they are among the shared ones, and images when not.
    """
    groups, _, _, item = pair.rows
    record = _windows_under(emit, pair.a, item)
    if not record:
        return None
    x, split, window = record.source, record.split, record.window
    shared = next((i for i in range(split + 1) if x.dims.take(i).product() == groups.product()), None)
    space = [i for i, k in enumerate(window) if record.counts[i] != 1 or k != x.dims[split + i]]
    if shared is None or not 0 < len(space) <= _MOST_AXES:
        return None
    whole = [i for i in range(len(window)) if i not in space]
    order = [*range(shared, split), *range(shared), *(split + i for i in (*whole, *space))]
    channels = Dims(window[i] for i in whole).product()
    images = x.dims.take(split).drop(shared).product()
    dims = (images, groups.product() * channels, *(x.dims[split + i] for i in space))
    return _Convolution(
        images=emit.view(emit.transpose(x, order), dims),
        groups=groups.product(),
        channels=channels,
        window=tuple(window[i] for i in space),
        strides=tuple(record.strides[i] for i in space),
        dilations=tuple(record.dilations[i] for i in space),
        counts=tuple(record.counts[i] for i in space),
        item=window,
        order=(*whole, *space),
    )


def _of_channels(emit: Emitter, pair: Pair[Value]) -> _Convolution | None:
    """Channels that a transpose moved behind the space: a Conv reads them where they were."""
    moved = emit.graph.producer(pair.a, "Transpose")
    if pair.shared or not moved:
        return None
    (x,), perm, rank = moved.inputs, moved.attributes["perm"], pair.a.rank - pair.item
    channels = perm[rank:]
    first = channels[0] if channels else rank
    space = x.dims.drop(first + pair.item)
    moved_last = (*range(first), *range(first + pair.item, x.rank), *sorted(channels))
    if tuple(perm) != moved_last or not 0 < len(space) <= _MOST_AXES:
        return None
    length, ones = x.dims.drop(first).take(pair.item).product(), (1,) * len(space)
    images = emit.view(x, (x.dims.take(first).product(), length, *space))
    return _Convolution(images, 1, length, ones, ones, ones, space, Dims((length,)), (0,))
