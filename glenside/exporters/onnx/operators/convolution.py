"""Dot-products of windows, or of channels, with weights as Conv: runtimes are fastest there, and nothing is copied."""

from __future__ import annotations

from dataclasses import dataclass

from glenside.exporters.onnx.emitter import Emitter
from glenside.exporters.onnx.graph import Value
from glenside.exporters.onnx.kernels import runs
from glenside.exporters.onnx.operators.pools import MOST_AXES, padding_under, windows_under
from glenside.exporters.onnx.registry import Pair
from glenside.ir.types import AccessType, Dims


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


def convolution(emit: Emitter, result: AccessType, pair: Pair, inner: str) -> Value | None:
    """(G, A)(I) x (G, B)(I) as one Conv of |G| groups in the dtype `inner`; None where there is no such Conv."""
    if not runs("Conv", inner):
        return None
    conv = _of_windows(emit, pair) or _of_channels(emit, pair)
    if not conv:
        return None
    filters = pair.rows[2].product()
    apart = emit.view(pair.b, (conv.groups, filters, *conv.item))
    weights = emit.transpose(apart, [0, 1, *(2 + i for i in conv.order)])
    images, pads = padding_under(emit, conv.images, len(conv.window), emit.number(0, pair.a.dtype))
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


def _of_windows(emit: Emitter, pair: Pair) -> _Convolution | None:
    """Axes of which windows take the whole are channels, the others space.

    Leading axes of what the windows are of are groups when they are among the shared ones, and images when not.
    """
    groups, _, _, item = pair.rows
    record = windows_under(emit, pair.a, item)
    if not record:
        return None
    x, split, window = record.source, record.split, record.window
    shared = next((i for i in range(split + 1) if x.dims.take(i).product() == groups.product()), None)
    space = [i for i, k in enumerate(window) if record.counts[i] != 1 or k != x.dims[split + i]]
    if shared is None or not 0 < len(space) <= MOST_AXES:
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


def _of_channels(emit: Emitter, pair: Pair) -> _Convolution | None:
    """Channels that a transpose moved behind the space: a Conv reads them where they were."""
    moved = emit.graph.producer(pair.a, "Transpose")
    if pair.shared or not moved:
        return None
    (x,), perm, rank = moved.inputs, moved.attributes["perm"], pair.a.rank - pair.item
    channels = perm[rank:]
    first = channels[0] if channels else rank
    space = x.dims.drop(first + pair.item)
    if list(perm) != [*range(first), *range(first + pair.item, x.rank), *channels] or list(channels) != sorted(
        channels
    ):
        return None
    if not 0 < len(space) <= MOST_AXES:
        return None
    length, ones = x.dims.drop(first).take(pair.item).product(), (1,) * len(space)
    images = emit.view(x, (x.dims.take(first).product(), length, *space))
    return _Convolution(images, 1, length, ones, ones, ones, space, Dims((length,)), (0,))
