"""Dot-products of windows with weights as Conv."""

from __future__ import annotations

from glenside.exporters.onnx.emitter import Emitter, Windows
from glenside.exporters.onnx.graph import Value
from glenside.exporters.onnx.kernels import runs
from glenside.exporters.onnx.operators.pools import MOST_AXES, padding_under, windows_under
from glenside.exporters.onnx.registry import Pair
from glenside.ir.types import AccessType, Dims


def convolution(emit: Emitter, result: AccessType, pair: Pair) -> Value | None:
    """(G, A)(I) x (G, B)(I) where the A are windows, as one Conv of |G| groups; None where there is no such Conv.

    The window's axes that are whole are channels, the others space. Leading axes of what the windows are of are groups
    when they are among the shared ones, and images when they are not.
    """
    groups, _, filters, item = pair.rows
    if not runs("Conv", pair.a.dtype):
        return None
    record = windows_under(emit, pair.a, item)
    if not record:
        return None
    lead, inside = record.source.dims.take(record.split), record.source.dims.drop(record.split)
    shared = next((i for i in range(len(lead) + 1) if lead.take(i).product() == groups.product()), None)
    space = [i for i, count in enumerate(record.counts) if count != 1 or record.window[i] != inside[i]]
    if shared is None or not 0 < len(space) <= MOST_AXES:
        return None
    return _convolved(emit, result, record, pair.b, (shared, filters.product()), space)


def _convolved(
    emit: Emitter, result: AccessType, record: Windows, weights: Value, outer: tuple[int, int], space: list[int]
) -> Value:
    shared, filters = outer
    x, split, window = record.source, record.split, record.window
    whole = [i for i in range(len(window)) if i not in space]
    groups, images = x.dims.take(shared), x.dims.take(split).drop(shared)
    channels = Dims(window[i] for i in whole).product()
    spatial = [split + i for i in space]
    order = [*range(shared, split), *range(shared), *(split + i for i in whole), *spatial]
    x, pads = padding_under(emit, x, len(space), emit.number(0, x.dtype)) if order[-len(space) :] == list(
        range(x.rank - len(space), x.rank)
    ) else (x, [0] * (2 * len(space)))
    sizes = [x.dims[axis] for axis in spatial]
    moved = emit.view(emit.transpose(x, order), (images.product(), groups.product() * channels, *sizes))
    kernel = tuple(window[i] for i in space)
    parts = emit.view(weights, (groups.product(), filters, *window))
    parts = emit.transpose(parts, [0, 1, *(2 + i for i in whole), *(2 + i for i in space)])
    attributes = {
        "kernel_shape": kernel,
        "strides": tuple(record.strides[i] for i in space),
        "dilations": tuple(record.dilations[i] for i in space),
        "pads": tuple(pads),
        "group": groups.product(),
    }
    counts = [record.counts[i] for i in space]
    dims = (images.product(), groups.product() * filters, *counts)
    operands = [moved, emit.view(parts, (groups.product() * filters, channels, *kernel))]
    found = emit.run("Conv", operands, dims, None, attributes, main=True)
    apart = emit.view(found, (images.product(), groups.product(), filters, *counts))
    axes = range(3, 3 + len(counts))
    return emit.view(emit.transpose(apart, [1, 0, *axes, 2]), result.dims)
