"""Computes lower bounds on the cycles of any choice, from the occupancy of the array and of DMA.

The array streams the rows of every sum, and between two tiles waits at least while weights load. DMA loads each tile of
weights, streamed constants and inputs, stores each tensor that is not resident, and loads it again for each layer that
streams it. A beat has a fixed number of bytes; a bank takes one of them per cycle. Of permutation tables and parameters
only the first one is counted; partly filled beats and waits are not. A choice whose lower bound exceeds the cycles of
an existing program need not be lowered.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate

import numpy as np

from glenside.analysis.element_sources import leaves_of
from glenside.ir.operand import Array
from glenside.ir.term import Term
from glenside.npu.lowering.emission.cycle_cutoff import Rest, after_rows, before_rows
from glenside.npu.lowering.selection.candidates import Option, Options, cut
from glenside.npu.lowering.tiling.layer_tiles import Layer
from glenside.npu.lowering.tiling.mapped_layers import Mapped, results_of
from glenside.npu.machine.model import Machine
from glenside.npu.model.cycle_model import dma_delay, stream_adds
from glenside.quantization.layers import IntegerNetwork, leaf_of, name_of

_MIN_SPREAD_GAIN = 2
"""Minimum ratio of the beats of rows to those of a sparse load for which sparse loads are used."""


@dataclass(frozen=True)
class Least:
    """Lower bounds of a choice.

    cycles  of the whole program
    rest    for each layer, by number, the cycles after it
    """

    cycles: int
    rest: Sequence[Rest]


@dataclass
class _Tile:
    """Tiles that may share a place in weight memory: their streamed rows, and the beats that load one."""

    rows: int = 0
    beats: int = 0


@dataclass(frozen=True)
class _Streamed:
    """A streamed tensor: beats of its elements, and cycles in which banks take them if rows are copied."""

    beats: int
    copied: int


@dataclass(frozen=True)
class _Own:
    """Lower bounds of a mapping of a layer, independent of where tensors are stored.

    rows     streamed rows
    windows  cycles of the array, with the weight loads between tiles
    weights  beats that load each tile once, and streamed constants
    made     beats of its result
    """

    rows: int
    windows: int
    weights: int
    made: int


@dataclass
class LowerBounds:
    """Lower bounds for the choices of a network: a mapping for each layer, and a set of resident tensors."""

    network: IntegerNetwork
    priced: Options
    machine: Machine
    _own: dict[tuple[str, int], _Own] = field(default_factory=dict)
    _streams: dict[tuple[str, int], tuple[Mapping[Term, _Streamed], int]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        network, self.options, kept = self.network, self.priced.every, self.priced.kept
        cut(option for own in self.options.values() for option in own)
        self.width = min(self.machine.bandwidth, self.machine.rows)
        self.layers = {layer.name: layer for layer in network.layers}
        self.results = {layer.result: layer.name for layer in network.layers}
        self.outside = {leaf for root in results_of(network) for leaf in leaves_of(root, self.results)}
        self.load = self.machine.rows
        if not self.machine.pipelined:  # weights load after the last row of the tile before has passed
            self.load += 1 + stream_adds(self.machine) + self.machine.columns - 1
        tiles = {
            name: [_tiles(*each, network, self.machine) for each in zip(own, kept[name], strict=True)]
            for name, own in self.options.items()
        }
        several = Counter(tile for own in tiles.values() for tile in {tile for each in own for tile in each})
        self.tiles = {
            name: [{tile: each for tile, each in own.items() if several[tile] == 1} for own in every]
            for name, every in tiles.items()
        }
        self.sizes = {name: [sum(each.rows for each in own.values()) for own in every] for name, every in tiles.items()}

    def own(self, name: str, number: int) -> _Own:
        """Returns the lower bounds of a mapping."""
        if not self.options[name][number].price.is_cut:  # the machine cannot run it
            return _Own(0, 0, 0, 0)
        if (name, number) not in self._own:
            layer, tiles = self.options[name][number].price.layer, self.tiles[name][number]
            rows = self.sizes[name][number]
            windows = sum(max(self.load, own.rows) for own in tiles.values())
            windows += rows - sum(own.rows for own in tiles.values())
            weights = sum(own.beats for own in tiles.values()) + self._constants(self.options[name][number])
            if self.layers[name].requantised is None:
                made = int(_needed(layer).sum()) * self.machine.sum_beats
            else:
                made = -(-int((layer.elements > 0).sum()) // self.width)
            self._own[name, number] = _Own(rows, windows, weights, made)
        return self._own[name, number]

    def _constants(self, option: Option) -> int:
        """Returns the beats of streamed constants, each element once."""
        leaves = [leaf for leaf, tensor in option.streams.items() if tensor is None]
        if not leaves:
            return 0
        seen, first = _seen(option.price.layer), option.price.layer.product.rows.first
        return sum(-(-int(seen[first[leaf] :][: leaf.access.size].sum()) // self.width) for leaf in leaves)

    def streams(self, name: str, number: int) -> tuple[Mapping[Term, _Streamed], int]:
        """Returns the DRAM reads of each tensor, and the cycles of filling zeros into copied rows."""
        if (name, number) not in self._streams:
            option = self.options[name][number]
            self._streams[name, number] = self._found(option) if option.price.is_cut else ({}, 0)
        return self._streams[name, number]

    def _found(self, option: Option) -> tuple[dict[Term, _Streamed], int]:
        layer, found = option.price.layer, dict[Term, _Streamed]()
        every, copied = layer.product.rows, option.price.order.rows.numbers
        seen = _seen(layer)
        empty = int((copied[:, layer.enabled.any(axis=0)] == 0).any(axis=1).sum())
        for leaf, tensor in option.streams.items():
            if tensor is not None:
                first, end = every.first[leaf], every.first[leaf] + leaf.access.size
                beats = -(-int(seen[first:end].sum()) // self.width)
                cells = int(((copied >= first) & (copied < end)).sum())
                before = found.get(tensor, _Streamed(0, 0))  # of another leaf of the same tensor
                cycles = max(beats, -(-cells // self.machine.rows))
                found[tensor] = _Streamed(max(before.beats, beats), max(before.copied, cycles))
        return found, empty

    def of(self, mappings: Mapping[str, int], held: Container[Term], windows: Container[Term] | None = None) -> Least:
        """Returns the lower bounds of a choice with resident tensors `held`. Tensors in `windows` may come by windows;
        None: any.
        """
        array, dma = list[int](), list[tuple[int, int]]()
        rows = loads = 0
        read, filled = self._read(mappings), set[Term]()
        for name, number in mappings.items():
            own, (streams, empty) = self.own(name, number), self.streams(name, number)
            moved = self._leaves(name, own, held, read)
            if not (streams and all(tensor in held for tensor in streams)):
                may = len(streams) == 1 and (windows is None or all(tensor in windows for tensor in streams))
                moved += 0 if may else empty
                moved += sum(each.beats if may else each.copied for each in streams.values())
                filled |= streams.keys()
            rows, loads = rows + own.rows, loads + own.windows
            array.append(own.windows)
            dma.append((own.weights, moved))
        brought = sum(read[own] for own in read.keys() - self.results.keys() - filled if own in held)
        cycles = self._cycles(max(rows, loads - self.load), brought + sum(map(sum, dma)))
        return Least(cycles, [*_rests(array, dma, self.load)])

    def _read(self, mappings: Mapping[str, int]) -> dict[Term, int]:
        """Returns the beats of the elements that are read of each streamed tensor."""
        found = dict[Term, int]()
        for name, number in mappings.items():
            for tensor, each in self.streams(name, number)[0].items():
                found[tensor] = max(found.get(tensor, 0), each.beats)
        return found

    def _leaves(self, name: str, own: _Own, held: Container[Term], read: Mapping[Term, int]) -> int:
        """Returns the beats of a layer's result that are stored to DRAM: of the elements that are read there."""
        layer = self.layers[name]
        if layer.requantised is None or layer.result in self.outside:
            return own.made
        return 0 if layer.result in held else min(own.made, read.get(layer.result, 0))

    def _cycles(self, array: int, dma: int) -> int:
        machine = self.machine
        dma += machine.table_beats + machine.parameter_beats * any(
            own.requantised is not None for own in self.network.layers
        )
        return max(array + before_rows(machine) + after_rows(machine), dma + dma_delay(machine))

    def of_any(self) -> int:
        """Returns a lower bound on the cycles of any choice."""
        rows = loads = dma = 0
        for name, every in self.options.items():
            own = [self.own(name, number) for number, option in enumerate(every) if option.price.is_cut]
            rows += min(each.rows for each in own)
            loads += min(each.windows for each in own)
            dma += min(each.weights for each in own)
            if self.layers[name].requantised is None or self.layers[name].result in self.outside:
                dma += min(each.made for each in own)
        return self._cycles(max(rows, loads - self.load), dma + sum(map(self._input, self.network.input_terms())))

    def _input(self, tensor: Term) -> int:
        """Returns the beats of an input that are loaded for any choice."""
        found = 0
        for name, every in self.options.items():
            if any(tensor in option.streams.values() for option in every):
                own = [self.streams(name, number)[0] for number, option in enumerate(every) if option.price.is_cut]
                found = max(found, min(each[tensor].beats if tensor in each else 0 for each in own))
        return found


def _rests(array: Sequence[int], dma: Sequence[tuple[int, int]], load: int) -> Iterator[Rest]:
    """Yields the cycles still to come behind each layer, of the array and of DMA."""
    later = [*accumulate(reversed(array), initial=0)][::-1][1:]
    weights = [*accumulate((own for own, _ in reversed(dma)), initial=0)][::-1][2:]
    moved = [*accumulate((own for _, own in reversed(dma)), initial=0)][::-1][1:]
    for stream, own, others in zip(later, [*weights, 0], moved, strict=True):
        yield Rest(max(0, stream - load), own + others)


def _seen(layer: Layer) -> Array:
    """Returns a flag for each element number, True if the element streams; number 0 is no element."""
    rows = layer.product.rows
    seen = np.zeros(1 + sum(leaf.access.size for leaf in rows.first), bool)
    for own in rows.numbers:
        seen[own.astype(np.intp)] = True
    return seen


def _needed(layer: Layer) -> Array:
    """Returns the number of accumulator rows of each group that hold elements, (groups)."""
    found: Array = np.count_nonzero(layer.wanted().any(axis=2), axis=1)
    return found


def _tiles(option: Option, mapped: Mapped, network: IntegerNetwork, machine: Machine) -> dict[object, _Tile]:
    """Returns tiles that cannot share a place in weight memory, for any banks and columns; {} if the machine cannot run
    the mapping.
    """
    if not option.price.is_cut:
        return {}
    own = option.price.layer
    rows = np.zeros(len(own.product.rows.numbers), int)
    for group, needed in zip(own.groups, _needed(own).tolist(), strict=True):
        rows[list(group.tiles)] = needed
    steps = _steps(own.product.weights.numbers)
    tokens = _tokens(option, mapped, network, machine)
    by_rows = np.maximum(1, own.enabled.sum(axis=1)) * machine.weight_beats
    by_steps = np.minimum(by_rows, np.maximum(1, steps))
    beats = np.where(_may_spread(steps, machine), by_steps, by_rows)
    found = dict[object, _Tile]()
    for token, streamed, brought in zip(tokens, rows.tolist(), beats.tolist(), strict=True):
        if streamed:
            tile = found.setdefault(token, _Tile(0, brought))
            tile.rows, tile.beats = tile.rows + streamed, min(tile.beats, brought)
    return found


def _steps(every: Array) -> Array:
    """Returns the largest number of nonzero values in a column of each tile, (tiles)(R)(C) -> (tiles)."""
    found: Array = np.add.reduce((every != 0).view(np.uint8), axis=1, dtype=np.uint16).max(axis=1)
    return found


def _may_spread(steps: Array, machine: Machine) -> Array:
    """Returns flags, True for tiles with so few values that a sparse load may be used."""
    found: Array = _MIN_SPREAD_GAIN * steps.astype(int) <= machine.rows * machine.weight_beats
    return found


def _tokens(option: Option, mapped: Mapped, network: IntegerNetwork, machine: Machine) -> list[object]:
    """Returns a key of each tile, equal for tiles that may be one in DRAM: sums of powers of its values, or its element
    numbers.
    """
    layer = option.price.layer
    weights = layer.product.weights
    if any(option.operands[leaf] is not None for leaf in weights.first):
        return [own.tobytes() for own in weights.numbers]
    tensors = {leaf: leaf_of(mapped.operands.get(leaf, leaf))[0] for leaf in weights.first}
    given = {leaf: np.asarray(network.constants[name_of(tensor)]) for leaf, tensor in tensors.items()}
    values = weights.values(given, "int8")
    if (values.any(axis=2) & ~layer.enabled).any():
        return [0] * len(values)  # banks that are not read may hold any weights
    flat = values.reshape(len(values), values[0].size)
    wide = flat.astype(np.int32)  # sums wrap around, so their order does not matter
    squares = wide * wide
    sums = [wide.sum(axis=1, dtype=np.int32), squares.sum(axis=1, dtype=np.int32)]
    tokens = np.stack([*sums, np.einsum("ij,ij->i", squares, wide)], axis=1)
    few = np.flatnonzero(_may_spread(_steps(values), machine))
    seen = np.zeros((len(few), 256), bool)
    for own, tile in zip(seen, few.tolist(), strict=True):
        own[flat[tile].view(np.uint8).astype(np.intp)] = True  # three times as fast as all tiles at once
    seen[:, 0] = False  # zeros appear wherever nothing is stored
    found: list[object] = [each.tobytes() for each in tokens]
    for number, bits in zip(few.tolist(), np.packbits(seen, axis=1), strict=True):
        found[number] = bits.tobytes()
    return found
