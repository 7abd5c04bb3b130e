"""Lays out the operands of layers in DRAM: streamed ones in the order that is loaded fastest,
stationary ones as tiles.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby

import numpy as np

from glenside.ir.operand import Array
from glenside.ir.term import Term
from glenside.ir.threads import concurrent_cached_property
from glenside.npu.lowering.tiling.layer_tiles import Layer
from glenside.npu.lowering.tiling.tile_order import Order
from glenside.npu.lowering.transfer.dram_image import Image
from glenside.npu.lowering.transfer.permutation_table_transfers import beats_and_tables
from glenside.npu.lowering.transfer.sparse_weight_loads import Spreading, spreadings
from glenside.npu.lowering.util.fast_divmod import divided
from glenside.npu.machine.model import Machine

_SAMPLE_ELEMENTS = 1 << 16
"""Elements of rows by which the axis order of an operand is chosen."""
_PADDING_OF = 4
"""Padding is at most 1/4 of the unpadded size."""


def arranged(order: Order, leaf: Term) -> Array:
    """Returns the addresses of a streamed operand's elements, (dims), from 0 on, in the axis order that is loaded
    fastest, tables included.
    """
    dims = tuple(leaf.access.dims)
    product, machine = order.layer.product, order.machine
    first = product.rows.first[leaf]
    some = order.rows.numbers[: max(1, _SAMPLE_ELEMENTS // product.rows.numbers.shape[-1])]
    row, lane = np.nonzero((some >= first) & (some < first + leaf.access.size))
    wanted = some[row, lane] - first

    def taken(axis: int) -> int:
        where = laid_out_at(wanted, dims, axis, machine.bandwidth)
        beats, tables = beats_and_tables(where, lane, row, machine)
        return beats + tables * machine.table_beats

    axes = [axis for axis, size in enumerate(dims) if size > 1]
    return laid_out(dims, min(reversed(axes), key=taken), machine.bandwidth) if axes else np.zeros(dims, np.int64)


def laid_out(dims: Sequence[int], axis: int, beat: int) -> Array:
    """Returns the addresses of elements, (dims), with that axis innermost. The innermost axes are padded to whole beats
    if that adds a quarter at most: beats are then loaded and stored in few patterns.
    """
    found = np.zeros(tuple(dims), np.int64)
    for each, (size, stride) in enumerate(zip(dims, _strides(dims, axis, beat), strict=True)):
        found += (np.arange(size) * stride).reshape([-1 if other == each else 1 for other in range(len(dims))])
    return found


def laid_out_at(elements: Array, dims: Sequence[int], axis: int, beat: int) -> Array:
    """Returns the places of some elements, by number, (n)."""
    found, rest = np.zeros(len(elements), np.int64), elements
    for size, stride in reversed([*zip(dims, _strides(dims, axis, beat), strict=True)]):
        if size > 1:
            rest, at = divided(rest, size)
            found += at * stride
    return found


def _strides(dims: Sequence[int], axis: int, beat: int) -> list[int]:
    """Returns the stride of each axis."""
    order = [*(other for other in range(len(dims)) if other != axis), axis]
    strides, stride, padded = [0] * len(dims), 1, False
    for each in reversed(order):
        strides[each] = stride
        stride *= dims[each]
        whole = -(-stride // beat) * beat
        if not padded and stride >= beat and whole * _PADDING_OF <= stride * (_PADDING_OF + 1):
            stride, padded = whole, True
    return strides


@dataclass(frozen=True)
class Brought:
    """The weights of a tile in DRAM: address, rows, and the sparse load; None for dense rows. `used` flags the columns
    whose sums are used, (C); None: all.
    """

    address: int
    rows: int
    spread: Spreading | None = None
    used: Array | None = None

    @concurrent_cached_property
    def key(self) -> bytes:
        """Returns a key, equal for tiles of equal bytes and equal sparse loads."""
        zeros = b"" if self.spread is None else self.spread.zeros.tobytes()
        return f"{self.address} {self.rows} ".encode() + zeros


def _part(tiles: Sequence[int], numbers: Array, brought: Sequence[Brought], width: int) -> tuple[Array, Array]:
    """Returns element numbers, 0 for none, and their addresses, (n) each. The tiles have dense rows of `width` bytes,
    all with equally many rows; or there is one tile, which is loaded sparsely.
    """
    first = brought[tiles[0]]
    own = numbers[tiles[0] : tiles[-1] + 1] if len(tiles) == tiles[-1] + 1 - tiles[0] else numbers[tiles]
    own = own[:, : first.rows]
    if first.spread is not None:
        place, byte = first.spread.places.T
        return own.reshape(-1)[place], first.address + byte
    _, rows, columns = own.shape
    addresses = np.array([brought[tile].address for tile in tiles])
    every = addresses[:, None, None] + (np.arange(rows)[:, None] * width + np.arange(columns))
    return own.reshape(-1), every.reshape(-1)


@dataclass(frozen=True)
class Tiles:
    """The weights of a layer's tiles in DRAM.

    brought  the loads of each tile, (tiles)
    first    number of the first element of each leaf
    parts    element numbers, 0 for none, and their addresses, (n) each
    """

    brought: list[Brought]
    first: Mapping[Term, int]
    parts: Sequence[tuple[Array, Array]]

    @concurrent_cached_property
    def elements(self) -> Mapping[Term, Array]:
        """Returns the pairs (n)(2) of element number and address, by leaf."""
        found = {}
        for leaf, first in self.first.items():
            own = [(elements >= first) & (elements < first + leaf.access.size) for elements, _ in self.parts]
            pairs = zip(self.parts, own, strict=True)
            found[leaf] = np.concatenate([np.stack([e[there] - first, at[there]], axis=1) for (e, at), there in pairs])
        return found

    @concurrent_cached_property
    def _addresses(self) -> Array:
        """Returns an address of each element by number, -1 for elements in no tile."""
        found = np.full(1 + sum(leaf.access.size for leaf in self.first), -1)
        for elements, at in self.parts:
            found[elements] = at
        found[0] = -1
        return found

    def of(self, leaf: Term) -> Array:
        """Returns an address of each element of a leaf, (dims), -1 for elements in no tile."""
        first = self.first[leaf]
        found: Array = self._addresses[first : first + leaf.access.size]
        return found.reshape(tuple(leaf.access.dims))

    @staticmethod
    def known(
        image: Image, layer: Layer, values: Mapping[Term, Array], spreads: Sequence[Spreading | None] | None = None
    ) -> Tiles:
        """Builds the tiles of constants, with these sparse loads."""
        every, found, used = layer.product.weights.values(values, "int8"), list[Brought](), layer.used
        spreads = spreadings(image.machine).of_all(layer) if spreads is None else spreads
        for tile, (rows, spread) in enumerate(zip(layer.loaded, spreads, strict=True)):
            content = every[tile, :rows]
            if spread is None:
                found.append(Brought(image.weights(content), rows))
            else:
                packed = np.zeros(spread.beats * image.machine.bandwidth, np.int8)
                packed[spread.places[:, 1]] = content.reshape(-1)[spread.places[:, 0]]
                found.append(Brought(image.packed(packed.view(np.uint8)), rows, spread, used[tile]))
        return Tiles._placed(image, layer, found, _distinct(found, layer))

    @staticmethod
    def computed(image: Image, layer: Layer, zero: int) -> Tiles:
        """Builds tiles whose values are computed later; `zero` pads them. Equal tiles are stored once."""
        return Tiles._placed(image, layer, *_put(image, layer, zero))

    @staticmethod
    def pairs(layer: Layer, machine: Machine, leaves: Sequence[Term], some: Array | None = None) -> Array:
        """Returns the pairs (n)(2) of `computed`, in a DRAM of their own, for all or some elements of leaves that are
        one tensor.
        """
        key = "put", machine
        if key not in layer.known:
            layer.known[key] = _put(Image(machine), layer, 0)
        brought, tiles = layer.known[key]
        weights, found = layer.product.weights, list[Array]()
        numbers = weights.numbers[tiles]
        width, columns = machine.weight_beats * machine.bandwidth, numbers.shape[2]
        addresses, rows = np.array([(brought[tile].address, brought[tile].rows) for tile in tiles]).T
        for leaf in leaves:
            wanted = np.zeros(1 + sum(each.access.size for each in weights.first), bool)
            own = wanted[weights.first[leaf] :][: leaf.access.size]
            own[slice(None) if some is None else some] = True
            at = np.flatnonzero(wanted.take(numbers.reshape(-1)))
            line, column = divided(at, columns)
            tile, row = divided(line, numbers.shape[1])
            there = row < rows[tile]
            at, tile, row, column = at[there], tile[there], row[there], column[there]
            elements = numbers.reshape(-1)[at] - weights.first[leaf]
            found.append(np.stack([elements, addresses[tile] + row * width + column], axis=1))
        return np.concatenate(found)

    @staticmethod
    def _placed(image: Image, layer: Layer, brought: list[Brought], tiles: Sequence[int]) -> Tiles:
        """Builds the tiles with the elements of the given tiles, one of each set of equal ones."""
        weights, width = layer.product.weights, image.machine.weight_beats * image.machine.bandwidth
        alike = groupby(tiles, key=lambda tile: tile if brought[tile].spread is not None else -brought[tile].rows)
        parts = [_part([*group], weights.numbers, brought, width) for _, group in alike]
        return Tiles(brought, weights.first, parts)


def _put(image: Image, layer: Layer, zero: int) -> tuple[list[Brought], list[int]]:
    """Puts tiles that are computed later into DRAM, equal ones once. Returns their loads, and the first tiles."""
    numbers, width = layer.product.weights.numbers, image.machine.weight_beats * image.machine.bandwidth
    known: dict[bytes, int] = {}
    found, tiles = list[Brought](), list[int]()
    for tile, rows in enumerate(layer.loaded):
        key = numbers[tile, :rows].tobytes()
        if key not in known:
            known[key] = image.put(np.full((rows, width), zero, np.int8).view(np.uint8))
            tiles.append(tile)
        found.append(Brought(known[key], rows))
    return found, tiles


def _distinct(brought: Sequence[Brought], layer: Layer) -> list[int]:
    """Returns the tiles without repetitions; tiles of other elements may have the same bytes."""
    several, known = Counter(own.address for own in brought), set[tuple[int, bytes]]()
    tiles = list[int]()
    for tile, own in enumerate(brought):
        if several[own.address] > 1:
            key = own.address, layer.product.weights.numbers[tile, : own.rows].tobytes()
            if key in known:
                continue
            known.add(key)
        tiles.append(tile)
    return tiles
