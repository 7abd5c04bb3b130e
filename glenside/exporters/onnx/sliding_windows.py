"""Matches windows that an ONNX operator slides over an axis: their size, strides, dilations and padding."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from glenside.exporters.onnx.affine_indices import Loop, Reading, Unreadable, runs
from glenside.exporters.onnx.emitter import Emitter
from glenside.exporters.writer import Value
from glenside.ir.index_map import Axis, Index
from glenside.ir.types import Dims

MOST_AXES = 3
"""The maximum number of spatial axes that runtimes support."""


@dataclass(frozen=True, slots=True)
class Slide:
    """Windows along one axis: element stride * count + dilation * at - before, for elements from `low` up to `high`.

    counts, ats  the loop axes that count windows, and positions in one
    spread       the distance of elements, with zeros between them, as ConvTranspose has; then all elements are read
    first        the index of the first element of the first window
    """

    counts: tuple[Axis, ...]
    ats: tuple[Axis, ...]
    stride: int
    dilation: int
    before: int
    after: int
    low: int
    high: int
    spread: int = 1
    first: int = 0

    @property
    def count(self) -> int:
        return Dims(axis.size for axis in self.counts).product()

    @property
    def window(self) -> int:
        return Dims(axis.size for axis in self.ats).product()


def alone(axis: Axis) -> Slide:
    """Returns an axis whose windows are single elements."""
    return Slide((axis,), (), 1, 1, 0, 0, 0, axis.size)


def slide_of(loop: Loop, axis: Axis, inside: Collection[Axis]) -> Slide:
    """Returns the windows along an axis; the axes `inside` are positions in one. Raises Unreadable."""
    index, low, high = loop.resolved(axis)
    (counts, stride), (ats, dilation) = (
        _run([term for term in index.terms if (term[0] in inside) is within]) for within in (False, True)
    )
    count, window = (Dims(a.size for a in axes).product() for axes in (counts, ats))
    first = index.constant
    if (spread := loop.slides[axis].spread) != 1:
        return Slide(counts, ats, stride, dilation, 0, 0, low, high, spread, first)
    last = first + stride * (count - 1) + dilation * (window - 1)
    start, end = max(low, first), min(high, last + 1)
    if start >= end:
        raise Unreadable
    before, after = max(0, low - first), max(0, last + 1 - high)
    if count == 1:
        stride = max(1, high - end + 1)  # no second window fits
    # Elements beyond the last window may stay, unless they would be one more window.
    more = high - end < stride and after == 0
    return Slide(
        counts, ats, stride, dilation, before, after, start if first > low else low, high if more else end, 1, first
    )


def _run(terms: Sequence[tuple[object, int]]) -> tuple[tuple[Axis, ...], int]:
    """Returns the axes, outermost first, that a sum of multiples counts with one step, and that step."""
    if not terms:
        return (), 1
    step = min(factor for _, factor in terms)
    axes = runs(Index(tuple(terms)), step) if step > 0 else None  # type: ignore[arg-type]
    if axes is None:
        raise Unreadable
    return tuple(axes), step


@dataclass(frozen=True, slots=True)
class Images:
    """An array of (images, channels, space) with its loop axes, and the windows in the space."""

    value: Value
    batch: tuple[Axis, ...]
    space: tuple[Slide, ...]

    @property
    def attributes(self) -> dict[str, tuple[int, ...]]:
        """The attributes of an ONNX node."""
        return {
            "kernel_shape": tuple(s.window for s in self.space),
            "strides": tuple(s.stride for s in self.space),
            "dilations": tuple(s.dilation for s in self.space),
            "pads": (*(s.before for s in self.space), *(s.after for s in self.space)),
        }

    @property
    def counts(self) -> tuple[int, ...]:
        return tuple(s.count for s in self.space)

    @property
    def counted(self) -> tuple[Axis, ...]:
        return tuple(axis for s in self.space for axis in s.counts)


def images(
    emit: Emitter, loop: Loop, reading: Reading, channels: Sequence[Axis], inside: Collection[Axis]
) -> Images | None:
    """Reads an array as images with these channels, with windows whose positions are `inside`; None if that fails.

    Axes after the channels are spatial too, with windows of one element, so that nothing is moved. Raises Unreadable.
    """
    axes = reading.axes
    slides = {axis: slide_of(loop, axis, inside) for axis in axes if axis in loop.slides}
    behind = max((i for i, axis in enumerate(axes) if axis in channels), default=-1)
    rows = [axis for axis in axes if axis not in slides and axis not in channels]
    if any(axis in inside for axis in rows):
        raise Unreadable
    space = [axis for i, axis in enumerate(axes) if axis in slides or (axis in rows and i > behind and channels)]
    if len(space) > MOST_AXES:
        space = [axis for axis in axes if axis in slides]
    if not 0 < len(space) <= MOST_AXES:
        return None
    batch = [axis for axis in rows if axis not in space]
    x = reading.value
    order = [*batch, *channels, *space]
    if order != axes:
        x = emit.transpose(emit.view(x, [axis.size for axis in axes]), [axes.index(axis) for axis in order])
    sizes = [Dims(axis.size for axis in each).product() for each in (batch, channels)]
    x = emit.view(x, (*sizes, *(axis.size for axis in space)))
    found = [slides.get(axis) or alone(axis) for axis in space]
    for number, slide in enumerate(found if all(slide.spread == 1 for slide in found) else ()):
        x = emit.slice(x, 2 + number, slide.low, slide.high)
    return Images(x, tuple(batch), tuple(found))


def arranged(emit: Emitter, loop: Loop, x: Value, axes: Sequence[Axis], dims: Sequence[int]) -> Value:
    """Transposes a value with these loop axes into the order of the loop's dims, and reshapes it to `dims`."""
    wanted = [axis for own in loop.parts for axis in own if axis in axes]
    x = emit.view(x, [axis.size for axis in axes])
    return emit.view(emit.transpose(x, [axes.index(axis) for axis in wanted]), dims)
