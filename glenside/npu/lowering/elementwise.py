"""Layers whose elements are sums of a few weighted ones each, as additions and steps of max-pools are, by diagonals.

Each tile takes one summand of each element: rows of one tensor, which may stream from where it is held in the lanes,
and a diagonal of its weights. What is added up are the tiles of a group, in the accumulators.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import numpy as np

from glenside.analysis.places import Places, places
from glenside.ir.term import Term
from glenside.npu.lowering.columnwise import side_by_side
from glenside.npu.lowering.mapped import Mapped
from glenside.npu.lowering.tiles import Group, Layer, Product
from glenside.npu.machine import Machine
from glenside.quantization.layers import IntegerLayer

_FEW = 8
"""Summands of an element, at most: of more the products that are searched for make better use of the array."""


def every_mapping(
    layer: IntegerLayer, found: Sequence[tuple[Mapped, int]], machine: Machine
) -> Sequence[tuple[Mapped, int]]:
    """The mappings of a layer with the cycles of their tiles: those that were found and, of weighted elements and of
    functions of bytes, one more; the one that there is where columns are changed.
    """
    if layer.normalised is not None:
        return [(Mapped(layer.sums, {}), layer.sums.access.size)]
    if layer.requantised is None or layer.requantised.table is None:
        diagonal = weighted_elements(layer, machine)
    else:
        diagonal = side_by_side(layer, machine)
    if diagonal is None:
        return found
    tiles, m, _ = diagonal.product.rows.numbers.shape
    return [*found, (Mapped(layer.sums, {}, diagonal), tiles * max(m, machine.rows))]


def weighted_elements(layer: IntegerLayer, machine: Machine) -> Layer | None:
    """The layer as such tiles, of as many channels as there are lanes, or of some places of fewer; None: its elements
    are sums of more, or rows of it belong to several.
    """
    product = layer.sums.children[0]
    a, b = product.children
    shared, k = int(str(product.attributes[0])), a.access.item.product()
    if k > _FEW or prod(b.access.shape[shared:]) != 1 or not layer.sums.access.size:
        return None
    rows, weights = _read(places(a)), places(b)
    shape = tuple(a.access.shape)
    numbers = rows.numbers.reshape(*shape, k)
    if shared:
        channels, across = prod(shape[:shared]), shape[shared:]
        numbers = numbers.reshape(channels, -1, k)
        by = weights.numbers.reshape(channels, k)
    else:
        channels, across = shape[-1], shape[:-1]
        numbers = numbers.reshape(-1, channels, k).swapaxes(0, 1)
        by = np.broadcast_to(weights.numbers.reshape(k), (channels, k))
    width = min(machine.rows, machine.columns)
    parts = -(-channels // width)
    size = -(-channels // parts)
    together = _together(next((n for n in reversed(across) if n > 1), 1), width // size) if parts == 1 else 1
    m, lanes = numbers.shape[1] // together, size * together
    padding = (0, parts * size - channels)
    own = np.pad(numbers, (padding, (0, 0), (0, 0))).reshape(parts, size, m, together, k)
    own = own.transpose(0, 4, 2, 3, 1).reshape(parts * k, m, lanes)
    stays = np.pad(by, (padding, (0, 0))).reshape(parts, size, k).swapaxes(1, 2).reshape(parts * k, size)
    streams = np.zeros((parts * k, m, machine.rows), numbers.dtype)
    streams[:, :, :lanes] = own
    diagonal, each = np.zeros((parts * k, machine.rows, machine.columns), by.dtype), np.arange(lanes)
    diagonal[:, each, each] = np.tile(stays, together)
    part, place = np.divmod(np.arange(channels), size)
    row, turn = np.divmod(np.arange(m * together), together)
    line = part[:, None] * k * m + row
    elements = 1 + line * machine.columns + turn * size + place[:, None]  # (channels)(across)
    if not shared:
        elements = elements.swapaxes(0, 1)
    groups = tuple(Group(tuple(range(part * k, part * k + k))) for part in range(parts))
    tiles = Product(layer.sums, Places(streams, rows.first), Places(diagonal, weights.first))
    return Layer(layer.sums, tiles, groups, elements.reshape(tuple(layer.sums.access.dims)))


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


def _together(places_: int, most: int) -> int:
    """How many places side by side go into a row: as many of a line as divide it."""
    return max(n for n in range(1, max(1, most) + 1) if places_ % n == 0)
