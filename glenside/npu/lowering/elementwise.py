"""Layers whose elements are sums of a few weighted ones each, as additions are, or the greatest of these, as max-pools
are, by diagonals.

Each tile takes one of those of each element: rows of one tensor, which may stream from where it is held in the lanes,
and a diagonal of its weights. What is added up, or compared, are the tiles of a group, in the accumulators.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import prod

import numpy as np

from glenside.analysis.places import Places, places
from glenside.ir.errors import BadInput
from glenside.ir.operand import Array
from glenside.ir.term import Term
from glenside.npu.lowering.columnwise import side_by_side
from glenside.npu.lowering.mapped import Mapped
from glenside.npu.lowering.tiles import Group, Layer, Product
from glenside.npu.machine import Machine
from glenside.quantization.layers import IntegerLayer, leaf_of

_FEW = 8
"""Summands of an element, at most: of more the products that are searched for make better use of the array."""


def every_mapping(
    layer: IntegerLayer, found: Sequence[tuple[Mapped, int]], machine: Machine
) -> Sequence[tuple[Mapped, int]]:
    """The mappings of a layer with the cycles of their tiles: those that were found and, of weighted elements and of
    functions of bytes, one more; the one that there is where columns are changed, or products compared. Raises
    BadInput.
    """
    if layer.normalised is not None:
        return [(Mapped(layer.sums, {}), layer.sums.access.size)]
    if layer.greatest:
        own = greatest_elements(layer, machine)
        tiles, m, _ = own.product.rows.numbers.shape
        return [(Mapped(layer.sums, {}, own), machine.rows + tiles * m)]  # weights of all tiles are the same
    if layer.requantised is None or layer.requantised.table is None:
        diagonal = weighted_elements(layer, machine)
    else:
        diagonal = side_by_side(layer, machine)
    if diagonal is None:
        return found
    tiles, m, _ = diagonal.product.rows.numbers.shape
    return [*found, (Mapped(layer.sums, {}, diagonal), tiles * max(m, machine.rows))]


@dataclass(frozen=True)
class _Items:
    """What elements are made of: of channels, places and each of k the number of an operand's element, and a weight.

    across  axes of places
    """

    rows: Places
    weights: Places
    numbers: Array
    by: Array
    across: Sequence[int]
    grouped: bool

    @staticmethod
    def of(layer: IntegerLayer) -> _Items:
        product = layer.operands
        a, b = product.children
        shared, k = int(str(product.attributes[0])), a.access.item.product()
        rows, weights = _read(places(a)), places(b)
        shape = tuple(a.access.shape)
        numbers = rows.numbers.reshape(*shape, k)
        if shared:
            channels, across = prod(shape[:shared]), shape[shared:]
            return _Items(
                rows, weights, numbers.reshape(channels, -1, k), weights.numbers.reshape(channels, k), across, True
            )
        channels, across = shape[-1], shape[:-1]
        by = np.broadcast_to(weights.numbers.reshape(k), (channels, k))
        return _Items(rows, weights, numbers.reshape(-1, channels, k).swapaxes(0, 1), by, across, False)

    def tiles(self, layer: IntegerLayer, together: int, parts: int, machine: Machine) -> Layer:
        """As tiles of `parts` of the channels, and so many places side by side."""
        numbers, rows, weights = self.numbers, self.rows, self.weights
        channels, _, k = numbers.shape
        size = -(-channels // parts)
        m, lanes = numbers.shape[1] // together, size * together
        padding = (0, parts * size - channels)
        own = np.pad(numbers, (padding, (0, 0), (0, 0))).reshape(parts, size, m, together, k)
        own = own.transpose(0, 4, 2, 3, 1).reshape(parts * k, m, lanes)
        stays = np.pad(self.by, (padding, (0, 0))).reshape(parts, size, k).swapaxes(1, 2).reshape(parts * k, size)
        streams = np.zeros((parts * k, m, machine.rows), numbers.dtype)
        streams[:, :, :lanes] = own
        diagonal, each = np.zeros((parts * k, machine.rows, machine.columns), self.by.dtype), np.arange(lanes)
        diagonal[:, each, each] = np.tile(stays, together)
        part, place = np.divmod(np.arange(channels), size)
        row, turn = np.divmod(np.arange(m * together), together)
        line = part[:, None] * k * m + row
        elements = 1 + line * machine.columns + turn * size + place[:, None]  # (channels)(across)
        if not self.grouped:
            elements = elements.swapaxes(0, 1)
        groups = tuple(Group(tuple(range(part * k, part * k + k))) for part in range(parts))
        tiles = Product(layer.sums, Places(streams, rows.first), Places(diagonal, weights.first))
        return Layer(layer.sums, tiles, groups, elements.reshape(tuple(layer.sums.access.dims)), layer.greatest)


def weighted_elements(layer: IntegerLayer, machine: Machine) -> Layer | None:
    """The layer as such tiles, of as many channels as there are lanes, or of some places of fewer; None: its elements
    are sums of more, or rows of it belong to several.
    """
    a, b = layer.operands.children
    shared, k = int(str(layer.operands.attributes[0])), a.access.item.product()
    if k > _FEW or prod(b.access.shape[shared:]) != 1 or not layer.sums.access.size:
        return None
    items = _Items.of(layer)
    parts, every = _side_by_side(items, machine)
    return items.tiles(layer, every[0], parts, machine)


def greatest_elements(layer: IntegerLayer, machine: Machine) -> Layer:
    """A layer of which the greatest of each item stays, as such tiles. Raises BadInput: zeros stand around channels.

    A lane that no row of a tile has an element for adds nothing, and a 0 there is not the byte of a zero, where bytes
    have a zero point. Those have the least one, so that no item misses its zeros: tiles of nothing else are left out,
    and so many places are side by side that each lane has an element in some row.
    """
    items = _Items.of(layer)
    if any(leaf_of(leaf)[1] for leaf in items.rows.first):
        some = items.numbers.any(axis=(0, 1))
        items = replace(items, numbers=items.numbers[:, :, some], by=items.by[:, some])
    parts, every = _side_by_side(items, machine)
    for together in every:
        found = items.tiles(layer, together, parts, machine)
        weighted = found.product.weights.numbers.any(axis=2)
        if all(leaf_of(leaf)[1] == 0 for leaf in items.rows.first) or (found.enabled == weighted).all():
            return found
    raise BadInput("the greatest of bytes is none of those of several channels, with zeros around them")


def _side_by_side(items: _Items, machine: Machine) -> tuple[int, Sequence[int]]:
    """Into how many parts channels are cut, and how many places may go into a row, the most first: as many of a line as
    divide it.
    """
    channels, width = len(items.numbers), min(machine.rows, machine.columns)
    parts = -(-channels // width)
    line = next((n for n in reversed(items.across) if n > 1), 1)
    most = max(1, width // -(-channels // parts)) if parts == 1 else 1
    return parts, [n for n in range(most, 0, -1) if line % n == 0]


def _read(found: Places) -> Places:
    """The same without leaves of which nothing is read: slices of what is joined have all of them."""
    first, numbers, begin = dict[Term, int](), np.zeros_like(found.numbers), 1
    for leaf, own in found.first.items():
        there = (found.numbers >= own) & (found.numbers < own + leaf.access.size)
        if there.any():
            first[leaf] = begin
            numbers[there] = found.numbers[there] - own + begin
            begin += leaf.access.size
    return Places(numbers, first)
