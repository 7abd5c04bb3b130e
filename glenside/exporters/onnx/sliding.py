"""Windows that an operator of ONNX slides over an axis: their size, strides, dilations and padding."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from glenside.exporters.onnx.emitter import Emitter
from glenside.exporters.onnx.reading import Loop, Reading, Unreadable, runs
from glenside.exporters.writer import Value
from glenside.ir.index_map import Axis, Index
from glenside.ir.types import Dims

MOST_AXES = 3
"""Runtimes have pools and convolutions of up to so many axes."""


@dataclass(frozen=True, slots=True)
class Slide:
    """Windows along one axis: element stride * count + dilation * at - before, of `low` up to `high` of what there is.

    counts, ats  the axes of the loop that count windows, and places in one
    spread       how far apart elements lie, zeros between them; then all of what there is, in ConvTranspose's way
    first        the place of the first element of the first window
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
    """An axis of which each element is a window."""
    return Slide((axis,), (), 1, 1, 0, 0, 0, axis.size)


def slide_of(loop: Loop, axis: Axis, inside: Collection[Axis]) -> Slide:
    """How the windows along an axis lie, where the axes `inside` are places in one. Raises Unreadable."""
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
    # What no window reaches may stay, but where it would be one window more.
    more = high - end < stride and after == 0
    return Slide(
        counts, ats, stride, dilation, before, after, start if first > low else low, high if more else end, 1, first
    )


def _run(terms: Sequence[tuple[object, int]]) -> tuple[tuple[Axis, ...], int]:
    """The axes, outermost first, that a sum of multiples counts with one step, and that step."""
    if not terms:
        return (), 1
    step = min(factor for _, factor in terms)
    axes = runs(Index(tuple(terms)), step) if step > 0 else None  # type: ignore[arg-type]
    if axes is None:
        raise Unreadable
    return tuple(axes), step


@dataclass(frozen=True, slots=True)
class Images:
    """An array of (images, channels, space) with its axes in the loop, and the windows in the space."""

    value: Value
    batch: tuple[Axis, ...]
    space: tuple[Slide, ...]

    @property
    def attributes(self) -> dict[str, tuple[int, ...]]:
        """Of a node of ONNX."""
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
    """What is read as images with these channels, in which windows slide whose places are `inside`.

    Axes behind the channels are space too, of windows of one element: nothing is moved for them. Raises Unreadable.
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
    """A value with these axes of the loop, as the loop's dims have them, of which `dims` are those in use."""
    wanted = [axis for own in loop.parts for axis in own if axis in axes]
    x = emit.view(x, [axis.size for axis in axes])
    return emit.view(emit.transpose(x, [axes.index(axis) for axis in wanted]), dims)
