"""Operands of layers in DRAM: what streams in the order that fills lanes soonest, what stays as tiles read it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from glenside.ir.operand import Array
from glenside.ir.term import Term
from glenside.npu.lowering.filling import steps
from glenside.npu.lowering.image import Image
from glenside.npu.lowering.runs import Order
from glenside.npu.lowering.tiles import Layer

_SOME = 1 << 16
"""Elements of rows by which the order of an operand in DRAM is chosen."""


def arranged(order: Order, leaf: Term) -> Array:
    """The places of the elements of an operand that streams, (dims), one after the other, with that axis innermost for
    which lanes fill soonest.
    """
    dims = tuple(leaf.access.dims)
    product = order.layer.product
    first = product.rows.first[leaf]
    some = order.rows.numbers[: max(1, _SOME // product.rows.numbers.shape[-1])]
    row, lane = np.nonzero((some >= first) & (some < first + leaf.access.size))
    wanted = some[row, lane] - first

    def ordered(axis: int) -> Array:
        own = [*(other for other in range(len(dims)) if other != axis), axis]
        found = np.arange(leaf.access.size).reshape([dims[each] for each in own])
        return found.transpose(np.argsort(own))

    def taken(axis: int) -> int:
        return steps(ordered(axis).ravel()[wanted], lane, row, order.machine.bandwidth)

    axes = [axis for axis, size in enumerate(dims) if size > 1]
    return ordered(min(reversed(axes), key=taken)) if axes else np.zeros(dims, np.int64)


@dataclass(frozen=True)
class Tiles:
    """The rows of weights of a layer's tiles in DRAM.

    addresses  of each tile's first row, (tiles)
    elements   of each leaf the pairs (n)(2) of its elements, by number, and where a byte of each is
    """

    addresses: list[int]
    elements: Mapping[Term, Array]

    def of(self, leaf: Term) -> Array:
        """Of a leaf's elements one address each, -1 of those that no tile has: (dims)."""
        found = np.full(leaf.access.size, -1)
        pairs = self.elements[leaf]
        found[pairs[:, 0]] = pairs[:, 1]
        return found.reshape(tuple(leaf.access.dims))

    @staticmethod
    def known(image: Image, layer: Layer, values: Mapping[Term, Array]) -> Tiles:
        """Of constants."""
        every = layer.product.weights.values(values, "int8")
        contents = (every[tile, :rows] for tile, rows in enumerate(layer.loaded))
        return Tiles._placed(image, layer, [image.weights(content) for content in contents])

    @staticmethod
    def computed(image: Image, layer: Layer, zero: int) -> Tiles:
        """Of what is written later; the byte `zero` stands where a tile has no element. Equal tiles are there once."""
        numbers, width = layer.product.weights.numbers, image.machine.weight_beats * image.machine.bandwidth
        known: dict[bytes, int] = {}
        found = list[int]()
        for tile, rows in enumerate(layer.loaded):
            key = numbers[tile, :rows].tobytes()
            if key not in known:
                known[key] = image.put(np.full((rows, width), zero, np.int8).view(np.uint8))
            found.append(known[key])
        return Tiles._placed(image, layer, found)

    @staticmethod
    def _placed(image: Image, layer: Layer, addresses: list[int]) -> Tiles:
        weights, width = layer.product.weights, image.machine.weight_beats * image.machine.bandwidth
        pairs = list[Array]()
        for base, tile in {base: tile for tile, base in reversed([*enumerate(addresses)])}.items():
            rows = weights.numbers[tile, : layer.loaded[tile]]
            row, column = np.nonzero(rows)
            pairs.append(np.stack([rows[row, column], base + row * width + column], axis=1))
        every = np.concatenate(pairs)
        found = {}
        for leaf, first in weights.first.items():
            own = every[(every[:, 0] >= first) & (every[:, 0] < first + leaf.access.size)]
            found[leaf] = own - (first, 0)
        return Tiles(addresses, found)
