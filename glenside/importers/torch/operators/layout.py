"""Imports operators that move elements: views, slices, concatenations, padding."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import numpy as np

from glenside.builder.indexing import iota
from glenside.builder.layout import (
    broadcast,
    concatenate,
    diagonal,
    element,
    gather,
    pad_or_crop,
    reshape,
    slice_axis,
    strided,
    surround,
    tile,
    transpose,
)
from glenside.builder.layout import flip as reverse
from glenside.builder.pointwise import add, cast, compare, filled, select
from glenside.importers.known_values import KNOWN
from glenside.importers.torch.node import Node, Refused, aten, axes_of, axis_of, register, with_axis
from glenside.importers.torch.promotion import Number
from glenside.ir.term import Term


def viewed(node: Node, self: Term, *_: object, **__: object) -> Term:
    """Returns the elements in row-major order in the dims of the result."""
    return reshape(self, node.dims)


for _name, _overloads in {
    "view": ("default",),
    "_unsafe_view": ("default",),
    "reshape": ("default",),
    "flatten": ("using_ints",),
    "unflatten": ("int",),
    "unsqueeze": ("default",),
    "squeeze": ("default", "dim", "dims"),
    "view_copy": ("default",),
    "_reshape_copy": ("default",),
}.items():
    register(_name, viewed, _overloads, "", __name__)


@aten("permute")
def permute(node: Node, self: Term, dims: Sequence[int]) -> Term:
    return transpose(self, axes_of(dims, self.access.rank))


@aten("t")
def t(node: Node, self: Term) -> Term:
    return transpose(self, list(range(self.access.rank))[::-1])


@aten("transpose", "int")
def transposed(node: Node, self: Term, dim0: int, dim1: int) -> Term:
    rank = self.access.rank
    order = list(range(rank))
    if rank:
        a, b = axis_of(dim0, rank), axis_of(dim1, rank)
        order[a], order[b] = b, a
    return transpose(self, order)


@aten("expand")
def expand(node: Node, self: Term, size: Sequence[int], implicit: bool = False) -> Term:
    return broadcast(self, node.dims)


@aten("repeat")
def repeat(node: Node, self: Term, repeats: Sequence[int]) -> Term:
    return tile(reshape(self, (*(1,) * (len(repeats) - self.access.rank), *self.access.dims)), repeats)


@aten("cat")
def cat(node: Node, tensors: Sequence[Term], dim: int = 0) -> Term:
    """Concatenates tensors; PyTorch leaves out empty vectors, whatever the rank of the others."""
    kept = [cast(x, node.dtype) for x in tensors if tuple(x.access.dims) != (0,)]
    return concatenate(kept, axis_of(dim, len(node.dims))) if kept else cast(tensors[0], node.dtype)


@aten("stack")
def stack(node: Node, tensors: Sequence[Term], dim: int = 0) -> Term:
    at = axis_of(dim, len(node.dims))
    return concatenate(
        [reshape(cast(x, node.dtype), (*x.access.dims[:at], 1, *x.access.dims[at:])) for x in tensors], at
    )


def stepped(x: Term, axis: int, start: int | None, end: int | None, step: int) -> Term:
    """Returns every step-th element of one axis from start to end, which are clamped to it."""
    low, high, _ = slice(start, end, step).indices(x.access.dims[axis])
    y = slice_axis(x, axis, low, max(low, high))
    return strided(y, [step if i == axis else 1 for i in range(x.access.rank)])


@aten("slice", "Tensor")
def sliced(
    node: Node, self: Term, dim: int = 0, start: int | None = None, end: int | None = None, step: int = 1
) -> Term:
    return stepped(self, axis_of(dim, self.access.rank), start, end, step)


@aten("narrow", "default")
def narrow(node: Node, self: Term, dim: int, start: int, length: int) -> Term:
    return stepped(self, axis_of(dim, self.access.rank), start, start + length, 1)


@aten("select", "int")
def selected(node: Node, self: Term, dim: int, index: int) -> Term:
    axis = axis_of(dim, self.access.rank)
    return element(self, axis, index % self.access.dims[axis])


@aten("slice_scatter")
def slice_scatter(
    node: Node, self: Term, src: Term, dim: int = 0, start: int | None = None, end: int | None = None, step: int = 1
) -> Term:
    axis, rank, size = axis_of(dim, self.access.rank), self.access.rank, self.access.dims[dim]
    low, high, _ = slice(start, end, step).indices(size)
    places = np.arange(low, max(low, high), step)
    src = cast(src, node.dtype)
    if not len(places):
        return self
    if step == 1:
        parts = [slice_axis(self, axis, 0, low), src, slice_axis(self, axis, int(places[-1]) + 1, size)]
        return concatenate([part for part in parts if part.access.dims[axis]], axis)
    source, written = np.zeros(size, np.int64), np.zeros(size, np.bool_)
    source[places], written[places] = np.arange(len(places)), True
    mask = reshape(node.constant(written, "written"), [size if i == axis else 1 for i in range(rank)])
    return select(mask, gather(src, node.constant(source, "source"), axis), self)


@aten("select_scatter")
def select_scatter(node: Node, self: Term, src: Term, dim: int, index: int) -> Term:
    axis = axis_of(dim, self.access.rank)
    place = index % self.access.dims[axis]
    row = reshape(src, (*self.access.dims[:axis], 1, *self.access.dims[axis + 1 :]))
    return slice_scatter(node, self, row, axis, place, place + 1)


@aten("split_with_sizes")
def split_with_sizes(node: Node, self: Term, split_sizes: Sequence[int], dim: int = 0) -> list[Term]:
    axis, ends = axis_of(dim, self.access.rank), np.cumsum(split_sizes).tolist()
    return [slice_axis(self, axis, end - size, end) for size, end in zip(split_sizes, ends, strict=True)]


@aten("split", "Tensor")
def split(node: Node, self: Term, split_size: int, dim: int = 0) -> list[Term]:
    size = self.access.dims[axis_of(dim, self.access.rank)]
    sizes = [min(split_size, size - start) for start in range(0, size, max(split_size, 1))] or [0]
    return split_with_sizes(node, self, sizes, dim)


@aten("unbind", "int")
def unbind(node: Node, self: Term, dim: int = 0) -> list[Term]:
    axis = axis_of(dim, self.access.rank)
    return [element(self, axis, i) for i in range(self.access.dims[axis])]


@aten("flip")
def flip(node: Node, self: Term, dims: Sequence[int]) -> Term:
    for axis in axes_of(dims, self.access.rank) if dims else []:
        self = reverse(self, axis)
    return self


@aten("diagonal")
def diagonals(node: Node, self: Term, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Term:
    rank = self.access.rank
    rows, columns = axis_of(dim1, rank), axis_of(dim2, rank)
    x = transpose(self, [*(i for i in range(rank) if i not in (rows, columns)), rows, columns])
    size = node.dims[-1]
    for axis, start in ((rank - 2, max(-offset, 0)), (rank - 1, max(offset, 0))):
        x = slice_axis(x, axis, min(start, x.access.dims[axis]), min(start, x.access.dims[axis]) + size)
    return diagonal(x)


@aten("as_strided_copy", but="as as_strided")
def as_strided_copy(
    node: Node, self: Term, size: Sequence[int], stride: Sequence[int], storage_offset: int | None = None
) -> Term:
    return as_strided(node, self, size, stride, storage_offset)


@aten("as_strided", but="tensors that PyTorch does not store in row-major order")
def as_strided(
    node: Node, self: Term, size: Sequence[int], stride: Sequence[int], storage_offset: int | None = None
) -> Term:
    ref = node.call.args[0] if node.call.args else node.call.kwargs["self"]
    if not node.scope.is_contiguous(ref):
        raise Refused("requires a tensor that is stored in row-major order")
    if prod(size) > KNOWN:
        raise Refused(f"requires at most {KNOWN} elements, got {prod(size)}")
    flat = reshape(self, (self.access.size,))
    places = np.full(tuple(size), storage_offset or 0, np.int64)
    for axis, (n, step) in enumerate(zip(size, stride, strict=True)):
        places += (np.arange(n) * step).reshape([n if i == axis else 1 for i in range(len(size))])
    if places.size and places.max() >= self.access.size:
        raise Refused(f"reads element {places.max()} of {self.access.size}: the storage of its operand is larger")
    return reshape(gather(flat, node.constant(places.reshape(-1), "places"), 0), size)


def paddings(pad: Sequence[int], rank: int) -> list[tuple[int, int]]:
    """Returns (before, after) of each axis: PyTorch lists them from the last axis on."""
    pairs = list(zip(pad[::2], pad[1::2], strict=True))[::-1]
    return [(0, 0)] * (rank - len(pairs)) + pairs


@aten("constant_pad_nd")
def constant_pad(node: Node, self: Term, pad: Sequence[int], value: Number = 0) -> Term:
    pairs = paddings(pad, self.access.rank)
    if value == 0 and self.access.dtype != "bool":
        return pad_or_crop(self, pairs)
    cropped = pad_or_crop(self, [(min(low, 0), min(high, 0)) for low, high in pairs])
    filler = node.number(value, self.access.dtype)
    return surround(cropped, [(max(low, 0), max(high, 0)) for low, high in pairs], filler)


def _reflected(x: Term, axis: int, before: int, after: int) -> list[Term]:
    size = x.access.dims[axis]
    start = reverse(slice_axis(x, axis, 1, before + 1), axis) if before > 0 else None
    end = reverse(slice_axis(x, axis, size - after - 1, size - 1), axis) if after > 0 else None
    return [part for part in (start, x, end) if part is not None]


def _replicated(x: Term, axis: int, before: int, after: int) -> list[Term]:
    size = x.access.dims[axis]
    parts = [x]
    if before > 0:
        parts.insert(0, broadcast(slice_axis(x, axis, 0, 1), x.access.dims.set(axis, before)))
    if after > 0:
        parts.append(broadcast(slice_axis(x, axis, size - 1, size), x.access.dims.set(axis, after)))
    return parts


def _padded(reflects: bool, node: Node, self: Term, padding: Sequence[int]) -> Term:
    pairs = paddings(padding, self.access.rank)
    for axis, (before, after) in enumerate(pairs):
        parts = (_reflected if reflects else _replicated)(self, axis, before, after)
        self = concatenate(parts, axis)
    return pad_or_crop(self, [(min(low, 0), min(high, 0)) for low, high in pairs])


def _reflection(node: Node, self: Term, padding: Sequence[int]) -> Term:
    return _padded(True, node, self, padding)


def _replication(node: Node, self: Term, padding: Sequence[int]) -> Term:
    return _padded(False, node, self, padding)


for _axes in (1, 2, 3):
    register(f"reflection_pad{_axes}d", _reflection, ("default",), "", __name__)
    register(f"replication_pad{_axes}d", _replication, ("default",), "", __name__)


def _triangle(keeps_lower: bool, node: Node, self: Term, diagonal: int = 0) -> Term:
    row, column = (iota(size, axis, 2) for axis, size in enumerate(self.access.dims[-2:]))
    kept = compare("le" if keeps_lower else "ge", column, add(row, filled(row, diagonal)))
    return select(kept, self, node.filled((), 0, node.dtype))


def tril(node: Node, self: Term, diagonal: int = 0) -> Term:
    return _triangle(True, node, self, diagonal)


def triu(node: Node, self: Term, diagonal: int = 0) -> Term:
    return _triangle(False, node, self, diagonal)


register("tril", tril, ("default",), "", __name__)
register("triu", triu, ("default",), "", __name__)


@aten("unfold", "default")
def unfold(node: Node, self: Term, dimension: int, size: int, step: int) -> Term:
    """Returns the windows of one axis, whose elements are a new last axis."""
    x = with_axis(self)
    rank = x.access.rank
    axis = axis_of(dimension, self.access.rank)
    count = (x.access.dims[axis] - size) // step + 1
    places = np.arange(count)[:, None] * step + np.arange(size)
    found = gather(x, node.constant(places, "places"), axis)
    order = [i for i in range(rank + 1) if i != axis + 1] + [axis + 1]
    return reshape(transpose(found, order), node.dims)
