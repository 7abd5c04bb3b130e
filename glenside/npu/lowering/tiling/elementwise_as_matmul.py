"""Maps layers whose elements are weighted sums of few elements, as in additions, or their maximum, as in max-pools.

Each tile takes one summand of each element: its rows are of one tensor, which may be resident, and its weights are a
diagonal. The tiles of a group are added up, or compared, in the accumulators.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from math import prod

import numpy as np

from glenside.analysis.element_sources import Places, places
from glenside.ir.operand import Array
from glenside.ir.term import Term
from glenside.npu.lowering.tiling.column_operators import side_by_side
from glenside.npu.lowering.tiling.layer_tiles import Group, Layer, Product
from glenside.npu.lowering.tiling.mapped_layers import Mapped
from glenside.npu.machine.model import Machine
from glenside.quantization.layers import IntegerLayer, leaf_of

_MAX_SUMMANDS = 8
"""Maximum number of summands per element: with more, mappings found by the search use the array better."""


def every_mapping(
    layer: IntegerLayer, found: Sequence[tuple[Mapped, int]], machine: Machine
) -> Sequence[tuple[Mapped, int]]:
    """Returns the mappings of a layer with the array cycles of their tiles: those found by the search, and a diagonal
    one.

    The diagonal mapping is added for weighted elements and for lookup tables; it is the only one for layers with column
    operations, and for maxima.
    """
    if layer.normalised is not None:
        return [(Mapped(layer.sums, {}), layer.sums.access.size)]
    if layer.greatest:
        own = greatest_elements(layer, machine)
        tiles, m, _ = own.product.rows.numbers.shape
        return [(Mapped(layer.sums, {}, own), machine.rows + tiles * m)]  # the weights of all tiles are equal
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
    """The operand elements and weights of each result: by channel, position and index k.

    across  axes of positions
    axis    the axis of channels
    """

    rows: Places
    weights: Places
    numbers: Array
    across: Sequence[int]
    by: Array
    axis: int

    @staticmethod
    def of(layer: IntegerLayer) -> _Items:
        """Splits a layer into channels: by shared axis if weights differ there, otherwise by the last axis."""
        product = layer.operands
        a, b = product.children
        shared, k = int(str(product.attributes[0])), a.access.item.product()
        rows, weights = _read(places(a)), places(b)
        shape = tuple(a.access.shape) or (1,)
        shape = (prod(shape[:shared]), *shape[shared:]) if shared else shape
        by = np.broadcast_to(weights.numbers.reshape(-1, k), (shape[0] if shared else shape[-1], k))
        axis = 0 if shared else len(shape) - 1
        return _Items(rows, weights, *_channels(rows.numbers.reshape(*shape, k), axis), by, axis)

    def by_other_axes(self) -> Iterator[_Items]:
        """Yields the items with each other axis as channels, largest axis first, and last as one channel. Requires
        equal weights.
        """
        channels, _, k = self.numbers.shape
        whole = np.moveaxis(self.numbers.reshape(channels, *self.across, k), 0, self.axis)
        axes = [axis for axis, size in enumerate(whole.shape[:-1]) if axis != self.axis and size > 1]
        for axis in sorted(axes, key=lambda own: -whole.shape[own]):
            by = np.broadcast_to(self.by[0], (whole.shape[axis], k))
            yield replace(self, numbers=_channels(whole, axis)[0], across=_channels(whole, axis)[1], by=by, axis=axis)
        alone = whole.reshape(1, -1, k)
        yield replace(self, numbers=alone, across=whole.shape[:-1], by=self.by[:1], axis=0)

    def tiles(self, layer: IntegerLayer, together: int, parts: int, machine: Machine) -> Layer:
        """Returns the tiles, with channels in `parts` parts and `together` positions side by side."""
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
        elements = np.moveaxis(elements.reshape(channels, *self.across), 0, self.axis)
        groups = tuple(Group(tuple(range(part * k, part * k + k))) for part in range(parts))
        tiles = Product(layer.sums, Places(streams, rows.first), Places(diagonal, weights.first))
        return Layer(layer.sums, tiles, groups, elements.reshape(tuple(layer.sums.access.dims)), layer.greatest)


def weighted_elements(layer: IntegerLayer, machine: Machine) -> Layer | None:
    """Returns diagonal tiles of a layer with as many channels as banks, or of several positions of fewer channels. None
    if elements are sums of more summands, or rows of the operand have different weights.
    """
    a, b = layer.operands.children
    shared, k = int(str(layer.operands.attributes[0])), a.access.item.product()
    if k > _MAX_SUMMANDS or prod(b.access.shape[shared:]) != 1 or not layer.sums.access.size:
        return None
    items = _Items.of(layer)
    parts, every = _side_by_side(items, machine)
    return items.tiles(layer, every[0], parts, machine)


def greatest_elements(layer: IntegerLayer, machine: Machine) -> Layer:
    """Returns diagonal tiles of a layer that computes the maximum of each item.

    The zero point of a maximum is the least byte, so zeros never change the result: tiles of zeros only are dropped. A
    bank must not be without an element in all rows of a tile, because it would give 0, which is not the zero point. The
    axis of banks, and the number of positions side by side, are chosen so that each bank has an element in some row.
    """
    items = _Items.of(layer)
    if all(leaf_of(leaf)[1] == 0 for leaf in items.rows.first):
        parts, every = _side_by_side(items, machine)
        return items.tiles(layer, every[0], parts, machine)
    some = items.numbers.any(axis=(0, 1))
    items = replace(items, numbers=items.numbers[:, :, some], by=items.by[:, some])
    for own in (items, *items.by_other_axes()):
        parts, every = _side_by_side(own, machine)
        for together in every:
            found = own.tiles(layer, together, parts, machine)
            if (found.enabled == found.product.weights.numbers.any(axis=2)).all():
                return found
    raise AssertionError("a row of one element has it in some tile")


def _channels(numbers: Array, axis: int) -> tuple[Array, Sequence[int]]:
    """Reshapes numbers (dims)(k) to (channels)(positions)(k), with channels along an axis; also returns the dims of
    positions.
    """
    found = np.moveaxis(numbers, axis, 0)
    return found.reshape(len(found), -1, found.shape[-1]), found.shape[1:-1]


def _side_by_side(items: _Items, machine: Machine) -> tuple[int, Sequence[int]]:
    """Returns the number of parts of the channels, and the possible numbers of positions in a row, most first: they
    divide the innermost axis.
    """
    channels, width = len(items.numbers), min(machine.rows, machine.columns)
    parts = -(-channels // width)
    line = next((n for n in reversed(items.across) if n > 1), 1)
    most = max(1, width // -(-channels // parts)) if parts == 1 else 1
    return parts, [n for n in range(most, 0, -1) if line % n == 0]


def _read(found: Places) -> Places:
    """Removes leaves that nothing reads: slices of joined tensors have all leaves."""
    seen = np.zeros(1 + sum(leaf.access.size for leaf in found.first), bool)
    seen[found.numbers] = True
    read = [leaf for leaf, own in found.first.items() if seen[own : own + leaf.access.size].any()]
    if len(read) == len(found.first):
        return found
    first, numbers, begin = dict[Term, int](), np.zeros_like(found.numbers), 1
    for leaf in read:
        own = found.first[leaf]
        there = (found.numbers >= own) & (found.numbers < own + leaf.access.size)
        numbers[there] = found.numbers[there] - own + begin
        first[leaf], begin = begin, begin + leaf.access.size
    return Places(numbers, first)
