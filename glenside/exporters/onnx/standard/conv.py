"""Matches Conv: products of windows, or of channels before the spatial axes, with weights."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from glenside.exporters.onnx.affine_indices import Loop, Reading, Unreadable, followed, read
from glenside.exporters.onnx.emitter import Emitter
from glenside.exporters.onnx.operators.products import multiplied_in
from glenside.exporters.onnx.sliding_windows import Images, arranged, images
from glenside.exporters.onnx.standard.record import standard
from glenside.exporters.onnx.supported_dtypes import runs
from glenside.exporters.writer import Value
from glenside.ir.index_map import Axis, IndexMap, reshaped, transposed
from glenside.ir.term import Term
from glenside.ir.types import Dims


@dataclass(frozen=True)
class _Product:
    """(G, A)(I) x (G, B)(I) -> (G, A, B), which is cut into `parts` and stored in another `order`.

    read_a, read_b  how each operand is read: maps, and parts with their order
    stored          the parts and the order of the result
    """

    a: Term
    b: Term
    groups: Dims
    rows: Dims
    filters: Dims
    item: Dims
    read_a: Sequence[tuple[IndexMap, Dims]] = ()
    read_b: tuple[Dims, Dims] | None = None
    stored: tuple[Dims, Dims] | None = None
    loop: Loop = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "loop", Loop.over([*self.groups, *self.rows, *self.filters, *self.item]))

    def axes(self, which: str) -> list[Axis]:
        """Returns the loop axes of the groups, the rows, the filters or the item."""
        at = 0
        for name in ("groups", "rows", "filters", "item"):
            dims: Dims = getattr(self, name)
            if name == which:
                return [axis for own in self.loop.parts[at : at + len(dims)] for axis in own]
            at += len(dims)
        raise KeyError(which)

    def reading(self, emit: Emitter) -> Reading:
        """Returns where an element of a is stored. Raises Unreadable."""
        lead, behind = len(self.groups) + len(self.rows), len(self.item)

        def made() -> Reading:
            places = self.loop.places()
            of_a = [*places[:lead], *places[len(places) - behind :]]
            return followed(self.loop, emit.graph, self.a, of_a, emit.value_of, first=self.read_a)

        return read(self.loop, made)

    def weights(self, emit: Emitter) -> Value:
        """Returns b as (G.., B.., I..), in the loop's axes."""
        b = emit.value_of(self.b)
        if self.read_b:
            b = emit.transpose(emit.view(b, self.read_b[0]), self.read_b[1])
        return emit.view(b, [axis.size for which in ("groups", "filters", "item") for axis in self.axes(which)])


def _product_of(term: Term) -> _Product | None:
    """Returns the product that a term computes."""
    if term.operator.name == "product-unit":
        n, a, a_parts, a_order, a_split, b, b_parts, b_order, b_split, parts, order = term.arguments()
        left, right = a_parts.permute(a_order), b_parts.permute(b_order)
        first = [(transposed(a_parts, a_order), a_parts), (reshaped(a.access.dims, a_parts), a.access.dims)]
        dims = left.take(n), left.take(a_split).drop(n), right.take(b_split).drop(n), left.drop(a_split)
        return _Product(a, b, *dims, first, (b_parts, b_order), (parts, order))
    pair = term if term.operator.name == "tiled-product" else term.children[0]
    if pair.operator.name not in ("access-product", "tiled-product"):
        return None
    a, b, n = pair.arguments()[:3]
    if pair is not term and term.children[0].access.split != len(a.access.shape) + len(b.access.shape) - n:
        return None
    return _Product(a, b, a.access.shape.take(n), a.access.shape.drop(n), b.access.shape.drop(n), a.access.item)


@standard("Conv", "dot-product", "tiled-product", "product-unit")
def conv(emit: Emitter, term: Term) -> Value | None:
    """y[n, (g f), c..] = sum over (k, w..) of x[n, (g k), c * stride + w * dilation - before ..] * W[(g f), k, w..]."""
    return _found(emit, term, "Conv")


@standard("ConvTranspose", "dot-product", "tiled-product", "product-unit")
def conv_transpose(emit: Emitter, term: Term) -> Value | None:
    """y[n, (g f), c..] = the sum of x[n, (g k), i..] * W[(g k), f, w..] where c = i * stride + w * dilation - before.

    It is matched as a Conv of stride 1 over elements with zeros between them, with reversed windows W.
    """
    return _found(emit, term, "ConvTranspose")


def _found(emit: Emitter, term: Term, op: str) -> Value | None:
    if not term.access.size or (product := _product_of(term)) is None or not product.a.access.size:
        return None
    inner = multiplied_in(product.a.access.dtype, product.item.product())
    if not runs(op, inner):
        return None
    try:
        found = _images(emit, product)
    except Unreadable:
        return None
    if found is None or any(slide.spread != 1 for slide in found[0].space) != (op == "ConvTranspose"):
        return None
    return (_written if op == "Conv" else _transposed)(emit, term, product, *found, inner)


def _images(emit: Emitter, product: _Product) -> tuple[Images, list[Axis]] | None:
    """Returns the images of whose windows a consists, and the axes of their channels, groups first. Raises Unreadable.

    A product with weights that are not constant must have windows.
    """
    reading = product.reading(emit)
    groups, rows, item = (product.axes(which) for which in ("groups", "rows", "item"))
    reading = reading.windowed(product.loop, item, rows)
    axes = reading.axes
    slid = any(axis in product.loop.slides for axis in axes)
    channels = [*(axis for axis in axes if axis in groups), *(axis for axis in axes if axis in item)]
    if not slid and (not channels or not emit.is_constant(product.b)):
        return None
    if not {*groups} <= {*channels}:
        return None  # windows with weights of their own
    if channels and axes[-1] in channels and not {*item} - {*channels}:
        return None  # rows of a matrix
    found = images(emit, product.loop, reading, channels, item)
    if found is None:
        return None
    met = [*channels, *found.batch, *found.counted, *(axis for slide in found.space for axis in slide.ats)]
    every = {*groups, *rows, *item}
    return (found, channels) if len(met) == len(every) and {*met} == every else None


def _written(
    emit: Emitter, term: Term, product: _Product, found: Images, channels: Sequence[Axis], inner: str
) -> Value | None:
    groups, filters, item = (product.axes(which) for which in ("groups", "filters", "item"))
    outer = [axis for axis in channels if axis in groups]
    attributes: dict[str, Any] = {**found.attributes, "group": product.groups.product()}
    count = product.groups.product() * product.filters.product()
    kernels = _kernels(emit, product, [*outer, *filters, *(axis for axis in channels if axis in item)], found)
    kernels = emit.view(kernels, (count, found.value.dims[1] // product.groups.product(), *attributes["kernel_shape"]))
    # onnxruntime 1.32 mistakes a Pad of weights for one of images, fuses it into the Conv, and then refuses the model.
    if emit.graph.producer(kernels, "Pad"):
        return None
    y = _run(emit, "Conv", found, kernels, count, attributes, inner)
    return _arranged(emit, term, product, y, [*found.batch, *outer, *filters, *found.counted])


def _transposed(
    emit: Emitter, term: Term, product: _Product, found: Images, channels: Sequence[Axis], inner: str
) -> Value | None:
    groups, filters = product.axes("groups"), product.axes("filters")
    outer = [axis for axis in channels if axis in groups]
    spans = [(slide.window - 1) * slide.dilation for slide in found.space]
    # Results of the last elements of x beyond the result are cropped; missing ones are padded.
    before = [span + slide.first for span, slide in zip(spans, found.space, strict=True)]
    after = [
        slide.spread * (size - 1) + span + 1 - lo - slide.count
        for slide, size, span, lo in zip(found.space, found.value.dims.drop(2), spans, before, strict=True)
    ]
    beyond = all(-hi < slide.spread for hi, slide in zip(after, found.space, strict=True))
    if not beyond or min(before) < 0 or any(slide.stride != 1 and slide.count > 1 for slide in found.space):
        return None
    attributes: dict[str, Any] = {
        **found.attributes,
        "strides": tuple(slide.spread for slide in found.space),
        "pads": (*before, *(max(0, hi) for hi in after)),
        "output_padding": tuple(max(0, -hi) for hi in after),
        "group": product.groups.product(),
    }
    kernels = _kernels(emit, product, [*channels, *filters], found)
    kernels = emit.view(kernels, (found.value.dims[1], product.filters.product(), *attributes["kernel_shape"]))
    for axis in range(2, kernels.rank):
        kernels = emit.flip(kernels, axis)
    count = product.groups.product() * product.filters.product()
    y = _run(emit, "ConvTranspose", found, kernels, count, attributes, inner)
    return _arranged(emit, term, product, y, [*found.batch, *outer, *filters, *found.counted])


def _kernels(emit: Emitter, product: _Product, first: Sequence[Axis], found: Images) -> Value:
    """Returns the weights with these axes first, and then those of windows."""
    own = [axis for which in ("groups", "filters", "item") for axis in product.axes(which)]
    wanted = [*first, *(axis for slide in found.space for axis in slide.ats)]
    return emit.transpose(product.weights(emit), [own.index(axis) for axis in wanted])


def _run(
    emit: Emitter, op: str, found: Images, kernels: Value, count: int, attributes: dict[str, Any], inner: str
) -> Value:
    dims = (found.value.dims[0], count, *found.counts)
    return emit.run(op, [emit.cast(x, inner) for x in (found.value, kernels)], dims, None, attributes, main=True)


def _arranged(emit: Emitter, term: Term, product: _Product, y: Value, axes: Sequence[Axis]) -> Value:
    y = arranged(emit, product.loop, y, axes, (*product.groups, *product.rows, *product.filters))
    if product.stored:
        y = emit.transpose(emit.view(y, product.stored[0]), product.stored[1])
    return emit.cast(emit.view(y, term.access.dims), term.access.dtype)
