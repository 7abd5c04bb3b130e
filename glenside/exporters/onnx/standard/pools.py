"""Matches MaxPool, AveragePool and GlobalAveragePool."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from glenside.exporters.onnx.affine_indices import Loop, Reading, Unreadable, followed, read
from glenside.exporters.onnx.emitter import Emitter
from glenside.exporters.onnx.sliding_windows import Images, arranged, images
from glenside.exporters.onnx.standard.record import standard
from glenside.exporters.onnx.supported_dtypes import runs
from glenside.exporters.writer import Value
from glenside.ir.index_map import Axis, Fill
from glenside.ir.term import Term, tensors
from glenside.semantics.interpreter import evaluate


@standard("MaxPool", "reduce-max")
def max_pool(emit: Emitter, term: Term) -> Value | None:
    """y[n, c, i..] = max over w of x[n, c, i * stride + w * dilation - before ..], for indices within x."""

    def whole(*_: Any) -> bool:
        return True

    return _pool(emit, term, "MaxPool", Fill.LOWEST, whole)


@standard("AveragePool", "reduce-mean", "reduce-sum", "elementwise-div")
def average_pool(emit: Emitter, term: Term) -> Value | None:
    """y[n, c, i..] = the mean over w of x[n, c, i * stride + w - before ..], 0 outside of x; sums are multiples.

    Sums divided by the number of indices within x are means that exclude the padding.
    """
    if term.attributes[0] == "elementwise-div":
        return _uncounted(emit, term)
    pool = _pool(emit, term, "AveragePool", Fill.ZERO, _is_undilated)
    if pool is None or term.attributes[0] == "reduce-mean":
        return pool
    count = term.children[0].access.item.product()
    return emit.elementwise("Mul", pool, emit.number(count, pool.dtype, pool.rank))


def _is_undilated(found: Images, _: Loop) -> bool:
    """True if nothing is dilated: dilated means would need opset 19."""
    return all(slide.dilation == 1 or slide.window == 1 for slide in found.space)


def _uncounted(emit: Emitter, term: Term) -> Value | None:
    (pair,) = term.children
    if (
        pair.operator.name != "access-product"
        or pair.arguments()[2] != 0
        or term.access.dims != pair.children[0].access.dims
    ):
        return None
    sums, counts = pair.children
    while sums.operator.name == "access":
        sums = sums.children[0]
    is_sum = sums.operator.name == "compute" and sums.attributes[0] == "reduce-sum"
    if (
        not is_sum
        or not emit.is_constant(counts)
        or any(True for _ in tensors(counts))
        or counts.access.dims != term.access.dims
    ):
        return None

    def counted(found: Images, loop: Loop) -> bool:
        """True if the divisors, in the order of the pool, are the numbers of elements in each window."""
        space = [axis for own in loop.parts[2 : term.access.rank] for axis in own]
        if not _is_undilated(found, loop) or space != [*found.counted] or term.access.rank != 2 + len(found.space):
            return False
        want = np.ones((1,) * 2)
        for slide in found.space:
            first = np.arange(slide.count) * slide.stride - slide.before
            size = slide.high - slide.low
            want = np.multiply.outer(want, np.minimum(first + slide.window, size) - np.maximum(first, 0))
        (have,) = evaluate([counts], {})
        return bool(np.array_equal(np.broadcast_to(want, have.shape), have))

    return _pool(emit, sums, "AveragePool", Fill.ZERO, counted, padding=0)


def _pool(
    emit: Emitter, term: Term, op: str, fill: Fill, fits: Callable[[Images, Loop], bool], padding: int = 1
) -> Value | None:
    (a,) = term.children
    if not a.access.size or not runs(op, a.access.dtype) or a.access.item.product() == 1:
        return None
    loop = Loop.over(a.access.dims)
    try:
        reading, inside = _reading(emit, loop, a, fill), _inside(loop, a)
        if reading.value.rank < 3:
            return None  # rows of a matrix
        reading = reading.windowed(loop, inside, [axis for own in loop.parts[: a.access.split] for axis in own])
        axes = reading.axes
        rows = [axis for axis in axes if axis not in loop.slides and axis not in inside]
        first = min((i for i, axis in enumerate(axes) if axis in loop.slides), default=0)
        channels = [axis for axis in axes[:first] if axis in rows][-1:]
        found = images(emit, loop, reading, channels, inside)
    except Unreadable:
        return None
    if found is None or not fits(found, loop):
        return None
    counted = [*channels, *found.batch, *found.counted, *(axis for slide in found.space for axis in slide.ats)]
    every = {axis for own in loop.parts for axis in own}
    narrow = all(max(slide.before, slide.after) < slide.window and slide.spread == 1 for slide in found.space)
    if not narrow or len(counted) != len(every) or {*counted} != every:
        return None
    attributes: dict[str, Any] = dict(found.attributes)
    if op == "AveragePool":
        del attributes["dilations"]
        attributes["count_include_pad"] = padding
    dims = (*found.value.dims[:2], *found.counts)
    y = emit.run(op, [found.value], dims, None, attributes, main=True)
    return arranged(emit, loop, y, [*found.batch, *channels, *found.counted], term.access.dims)


@standard("GlobalAveragePool", "reduce-mean")
def global_average_pool(emit: Emitter, term: Term) -> Value | None:
    """y[n, c] = the mean over i.. of x[n, c, i..]."""
    (a,) = term.children
    if not a.access.size or not runs("AveragePool", a.access.dtype):
        return None
    loop = Loop.over(a.access.dims)
    try:
        reading = _reading(emit, loop, a, Fill.ZERO)
        axes, inside = reading.axes, _inside(loop, a)
    except Unreadable:
        return None
    x, lead = reading.value, [axis for axis in axes if axis not in inside]
    is_image = 4 <= x.rank <= 5 and x.dims.drop(2).product() == a.access.item.product()
    if not is_image or {*loop.slides} & {*axes} or axes[: len(lead)] != lead or {*axes} - {*lead} != {*inside}:
        return None
    y = emit.run("GlobalAveragePool", [x], x.dims.take(2).append([1] * (x.rank - 2)), main=True)
    return arranged(emit, loop, y, lead, term.access.dims)


def _reading(emit: Emitter, loop: Loop, a: Term, fill: Fill) -> Reading:
    return read(loop, lambda: followed(loop, emit.graph, a, loop.places(), emit.value_of, fill))


def _inside(loop: Loop, a: Term) -> Sequence[Axis]:
    """Returns the axes over the items."""
    return [axis for own in loop.parts[a.access.split :] for axis in own]
