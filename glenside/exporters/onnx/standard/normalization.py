"""Matches LayerNormalization: items minus their mean, divided by their deviation, scaled and shifted."""

from __future__ import annotations

from math import prod

import numpy as np

from glenside.exporters.onnx.affine_indices import below_views
from glenside.exporters.onnx.emitter import Emitter
from glenside.exporters.onnx.standard.expressions import Element, Expressions, axes_of, matched
from glenside.exporters.onnx.standard.record import standard
from glenside.exporters.writer import Value
from glenside.ir.index_map import Axis, flattened, reshaped
from glenside.ir.term import Term


@standard("LayerNormalization", "elementwise-add", "elementwise-mul")
def layer_normalization(emit: Emitter, term: Term) -> Value | None:
    """(x - mean(x)) / sqrt(mean((x - mean(x))^2) + eps) * scale [+ bias], means over the last axes."""
    if term.access.dtype != "float32" or not term.access.rank:
        return None
    return matched(emit, term, _found)


def _found(expressions: Expressions) -> Value | None:
    shifted = expressions.operands(expressions.root, "elementwise-add")
    for scaled, bias in (shifted, shifted[::-1]) if shifted else ((expressions.root, None),):
        pair = expressions.operands(scaled, "elementwise-mul")
        for quotient, scale in (pair, pair[::-1]) if len(pair) == 2 else ():
            if (made := _written(expressions, quotient, scale, bias)) is not None:
                return made
    return None


def _written(expressions: Expressions, quotient: Element, scale: Element, bias: Element | None) -> Value | None:
    found = _standardized(expressions, quotient)
    if found is None:
        return None
    (x, items, epsilon), emit, term = found, expressions.emit, expressions.term
    vectors = [_vector(expressions, each, items) for each in (scale, bias) if each is not None]
    known = [vector for vector in vectors if vector is not None]
    if len(known) != len(vectors):
        return None
    values = emit.view(emit.value_of(x.term), term.access.dims)
    axis = next((i for i, own in enumerate(expressions.loop.parts) if own and own[0] == items[0]), None)
    if axis is None:
        return None
    attributes = {"axis": axis - term.access.rank, "epsilon": epsilon}
    dims = term.access.dims.drop(axis)
    inputs = [values, *(emit.view(vector, dims) for vector in known)]
    return emit.graph.node("LayerNormalization", inputs, term.access.dims, term.access.dtype, attributes, main=True)


def _standardized(expressions: Expressions, quotient: Element) -> tuple[Element, list[Axis], float] | None:
    """Matches (x - mean) / sqrt(mean of squares + eps), and returns x, the axes over its items, and eps."""
    pair = expressions.operands(quotient, "elementwise-div")
    centred = pair[0] if pair else None
    difference = expressions.operands(centred, "subtract") if centred else []
    if not centred or len(difference) != 2:
        return None
    x, mean = difference
    axes = [axis for own in expressions.loop.parts for axis in own]
    if mean.kind != "reduce-mean" or axes_of(x) != axes:
        return None
    rows = axes_of(mean)
    items = axes[len(rows) :]
    if rows != axes[: len(rows)] or not items or _reduced(expressions, mean, items) != x:
        return None
    root = expressions.operands(pair[1], "sqrt")
    sums = expressions.operands(root[0], "elementwise-add") if root else []
    for variance, added in (sums, sums[::-1]) if len(sums) == 2 else ():
        epsilon = expressions.number(added)
        if epsilon is None or variance.kind != "reduce-mean" or axes_of(variance) != rows:
            continue
        square = _reduced(expressions, variance, items)
        if square and expressions.operands(square, "elementwise-mul") == [centred, centred]:
            return x, items, float(np.float32(epsilon))
    return None


def _reduced(expressions: Expressions, mean: Element, items: list[Axis]) -> Element | None:
    """Returns the element at `items` whose mean an element is; None if the items differ."""
    (of,) = mean.term.children
    item = of.access.item
    if item.product() != prod(axis.size for axis in items) or of.access.shape != mean.term.access.dims:
        return None
    sizes = [axis.size for axis in items]
    flat = flattened([expressions.loop.place(axis) for axis in items], sizes)
    (piece,) = reshaped(item, (item.product(),)).pieces
    inside = piece.at([flat]).indices
    return Element.of(expressions.loop, of, (*mean.places, *inside))


def _vector(expressions: Expressions, element: Element, items: list[Axis]) -> Value | None:
    """Returns the array of an element that depends on the index in an item alone."""
    emit = expressions.emit
    reading = below_views(expressions.loop, emit.graph, emit.value_of(element.term), element.places)
    return reading.value if reading.axes == items and not {*expressions.loop.slides} & {*items} else None
