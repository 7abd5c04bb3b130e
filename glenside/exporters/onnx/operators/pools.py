"""Reductions of windows as pools, which read no window twice from memory."""

from __future__ import annotations

import numpy as np

from glenside.exporters.onnx.emitter import Emitter, Windows
from glenside.exporters.onnx.graph import Value
from glenside.exporters.onnx.kernels import runs
from glenside.exporters.onnx.registry import Operand
from glenside.ir.types import Dims

# Runtimes have pools and convolutions of up to so many axes.
MOST_AXES = 3


def windows_under(emit: Emitter, x: Value, item: Dims) -> Windows | None:
    """What the items of a value are windows of, when it is a view of windows that keeps each of them whole."""
    record = emit.windowed.get(emit.base(x).name)
    return record if record and record.window.product() == item.product() else None


def padding_under(emit: Emitter, x: Value, axes: int, fill: Value) -> tuple[Value, list[int]]:
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
    record = windows_under(emit, a.value, a.access.item)
    if not record:
        return None
    x, window = record.source, record.window
    first = next((i for i, k in enumerate(window) if k != 1 or record.strides[i] != 1), len(window))
    axes = len(window) - first
    plain = op == "MaxPool" or set(record.dilations) == {1}  # AveragePool has dilations since opset 19
    if not (0 < axes <= MOST_AXES and plain):
        return None
    fill = emit.lowest(x.dtype) if op == "MaxPool" else emit.number(0, x.dtype)
    inner, pads = padding_under(emit, x, axes, fill)
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
    found = emit.run(
        op, [emit.view(inner, (images, 1, *inner.dims.drop(inner.rank - axes)))], dims, None, attributes, main=True
    )
    return emit.view(found, a.access.shape)
