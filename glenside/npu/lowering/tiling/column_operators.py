"""Tiles layers whose items are columns of the accumulators, where softmax and layer norms change them.

The layer's product has a single weight. Items are side by side in the banks, one element of each in a row; a diagonal
of the weight moves item j to column j. So an item is a column with as many rows as it has elements.
"""

from __future__ import annotations

import numpy as np

from glenside.analysis.element_sources import Places, places
from glenside.ir.errors import BadInput
from glenside.npu.lowering.tiling.layer_tiles import Group, Layer, Product
from glenside.npu.machine.model import Machine
from glenside.quantization.layers import IntegerLayer


def columnwise(layer: IntegerLayer, machine: Machine) -> Layer:
    """Returns the tiles of a normalized layer. Raises BadInput if an item is longer than half of the accumulators."""
    a, b = layer.operands.children
    rows, weights = places(a), places(b)
    numbers = rows.numbers.reshape(-1, *layer.sums.access.dims[-2:]).reshape(len(rows.numbers), -1)
    items, n = numbers.shape
    if n > machine.half_accumulators:
        assert layer.normalised is not None, "other layers are mapped"
        raise BadInput(
            f"a {layer.normalised.kind} of {n:,} numbers needs as many rows of half of the accumulators, and {machine}"
            f" has {machine.half_accumulators:,}; accumulators={2 * n} would suffice"
        )
    width = min(machine.rows, machine.columns)
    tiles = -(-items // width)
    padded = np.zeros((tiles * width, n), numbers.dtype)
    padded[:items] = numbers
    own = np.zeros((tiles, n, machine.rows), numbers.dtype)
    own[:, :, :width] = padded.reshape(tiles, width, n).transpose(0, 2, 1)
    diagonal = np.zeros((tiles, machine.rows, machine.columns), numbers.dtype)
    each = np.arange(width)
    diagonal[:, each, each] = weights.numbers.reshape(-1)[0]
    tile, column = np.divmod(np.arange(items), width)
    elements = 1 + (tile[:, None] * n + np.arange(n)) * machine.columns + column[:, None]
    product = Product(layer.sums, Places(own, rows.first), Places(diagonal, weights.first))
    groups = tuple(Group((number,)) for number in range(tiles))
    return Layer(layer.sums, product, groups, elements.reshape(tuple(layer.sums.access.dims)))


def side_by_side(layer: IntegerLayer, machine: Machine) -> Layer:
    """Returns the tiles of a layer that multiplies each element by one weight: elements fill rows in order, and the
    weights are a diagonal.
    """
    a, b = layer.operands.children
    rows, weights = places(a), places(b)
    numbers, width = rows.numbers.reshape(-1), min(machine.rows, machine.columns)
    order = np.argsort(numbers, kind="stable")
    m = -(-len(numbers) // width)
    own = np.zeros((1, m, machine.rows), numbers.dtype)
    own[0, :, :width] = np.pad(numbers[order], (0, m * width - len(numbers))).reshape(m, width)
    diagonal = np.zeros((1, machine.rows, machine.columns), numbers.dtype)
    each = np.arange(width)
    diagonal[0, each, each] = weights.numbers.reshape(-1)[0]
    elements = np.zeros(len(numbers), np.int64)
    row, column = np.divmod(np.arange(len(numbers)), width)
    elements[order] = 1 + row * machine.columns + column
    product = Product(layer.sums, Places(own, rows.first), Places(diagonal, weights.first))
    return Layer(layer.sums, product, (Group((0,)),), elements.reshape(tuple(layer.sums.access.dims)))
