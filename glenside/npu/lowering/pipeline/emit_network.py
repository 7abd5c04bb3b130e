"""Emits a network of integer layers as one program, from inputs to results."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from glenside.ir.errors import BadInput
from glenside.ir.operand import Array
from glenside.ir.program import Program
from glenside.ir.stopwatch import stage
from glenside.ir.term import Term, postorder, rebuild_all
from glenside.npu.lowering.allocation.requantization_parameters import as_seen, distinct_parameters
from glenside.npu.lowering.allocation.work_list import Piece, pieces
from glenside.npu.lowering.emission.cycle_cutoff import Trial
from glenside.npu.lowering.emission.emit_copy import write_copy
from glenside.npu.lowering.emission.emit_int32_results import SumsOut
from glenside.npu.lowering.emission.emit_layer import Feed, Sink
from glenside.npu.lowering.emission.emit_program import Filled, counted, finished, stand_in
from glenside.npu.lowering.emission.emit_results import Bytes, BytesOut
from glenside.npu.lowering.emission.infer_synchronization_forked import ForkedWaits, forked_waits
from glenside.npu.lowering.emission.resident_rows import InPlace, Kept, Windows, bring
from glenside.npu.lowering.emission.row_sources import Copied, Source
from glenside.npu.lowering.selection.tensor_placement import Somewhere, Tensors, Where
from glenside.npu.lowering.tiling.layer_tiles import Layer
from glenside.npu.lowering.tiling.mapped_layers import Mapped, Own, Unlowered, known_together
from glenside.npu.lowering.transfer.column_packing import abreast
from glenside.npu.lowering.transfer.dram_operands import Brought, Tiles, arranged
from glenside.npu.lowering.transfer.sparse_weight_loads import spreadings
from glenside.npu.lowering.util.identity_memo import Memo
from glenside.npu.machine.model import Machine
from glenside.npu.program import requantization
from glenside.npu.program.affine_quantization import StandsFor, narrow
from glenside.npu.program.program import NpuProgram, Place, Stretch
from glenside.quantization.layers import MANY, IntegerLayer, IntegerNetwork, name_of


def chained(
    network: IntegerNetwork,
    mapped: Mapping[str, Mapped],
    machine: Machine,
    given: Mapping[str, Array] | None = None,
    seed: int = 0,
    axes: Mapping[Term, int] | None = None,
    show: Callable[[str, int, int], None] = lambda *_: None,
    stay: Container[Term] | None = None,
    where: Where | None = None,
    most: int | None = None,
    trial: Trial | None = None,
) -> NpuProgram:
    """Emits a network as one program, with its mapped layers by name.

    axes   tensor in DRAM -> its innermost axis; the first reader chooses for others
    stay   the tensors that stay on chip if they can; None: all
    where  their allocation, if already computed
    given  int8 values of inputs in DRAM; others are drawn by the seed
    trial  set if only cycles are needed: the program then has no stretches and no results

    Raises Unlowered for a layer that the machine does not run, and TooLong if a unit alone is busy for `most` cycles.
    """
    with stage("allocate"):
        chain = _Chain(network, mapped, machine, axes or {}, show, stay, where, most, trial)
    with stage("emit"):
        return chain.program(given or {}, seed)


@dataclass(frozen=True)
class _Ready:
    """A layer that streams resident rows: its tiles, rows and weights, and its operands' places in DRAM."""

    layer: Layer
    source: InPlace
    tiles: Tiles
    operands: dict[Term, Place]


class _Chain(Tensors):
    def __init__(
        self,
        network: IntegerNetwork,
        mapped: Mapping[str, Mapped],
        machine: Machine,
        axes: Mapping[Term, int],
        show: Callable[[str, int, int], None],
        stay: Container[Term] | None,
        where: Where | None,
        most: int | None,
        trial: Trial | None,
    ) -> None:
        super().__init__(network, mapped, machine, axes, stay, where, most)
        self.show, self.trial = show, trial
        if trial is not None:
            self.writer.clock = trial.clock
        self.copies: dict[Term, str] = {}
        self.filled = Filled()
        self.stretches = list[Stretch]()
        self.constants: dict[Term, Place] = {}
        self.sums: dict[str, SumsOut] = {}
        self.ready: dict[tuple[str, int], _Ready] = {}
        self.again = known_together(mapped) if trial is None else {**trial.again}
        self.tiles_again: defaultdict[str, Memo] = defaultdict(Memo)

    def program(self, given: Mapping[str, Array], seed: int) -> NpuProgram:
        layers = self.network.layers
        worth = self.trial is None and len(layers) >= MANY and not any(layer.normalised is not None for layer in layers)
        with forked_waits(self.writer, worth) as beside:  # normalization depends on some values
            return self._program(given, seed, beside)

    def _program(self, given: Mapping[str, Array], seed: int, beside: ForkedWaits) -> NpuProgram:
        network, inputs = self.network, self._inputs(given, seed)
        every, reached = [*pieces(network.layers, self.chains)], 0
        for (layer, piece), then in zip(every, [*every[1:], None], strict=True):
            reached = max(reached, self.numbers[layer.name])
            self._expect(reached)
            self.show(layer.name, self.numbers[layer.name], len(network.layers))
            begin = counted(self.writer)
            try:
                stretch = self._layer(layer, piece, self._coming(then))
            except Unlowered:
                raise
            except BadInput as error:
                raise Unlowered.of(f"the layer {layer.name}: {error}", layer.name) from error
            if layer is network.layers[-1]:
                self.writer.settle()
            name = layer.name if piece.last else f"{layer.name}, strip {piece.strip + 1}"
            self.stretches.append(replace(stretch, name=name, begin=begin, end=counted(self.writer)))
            beside.send()
            if piece.last:
                for known in (self.known, self.again, self.tiles_again):
                    known.pop(layer.name, None)
        if self.trial is not None:
            refuses = any(
                layer.normalised is not None for layer in network.layers
            )  # normalization depends on some values
            return finished(self.writer, [], self.filled if refuses else [])
        return finished(self.writer, self.stretches, self.filled, inputs, self._outputs(), beside)

    def _inputs(self, given: Mapping[str, Array], seed: int) -> dict[str, Place]:
        """Returns the places of inputs, and emits the loads of those that stay on chip."""
        values, inputs = self.network.drawn_inputs(seed, given), dict[str, Place]()
        self._expect(0)
        for term in self.inputs():
            name = name_of(term)
            inputs[name] = self.place(term)
            self.filled.append((inputs[name], values[name]))
            self._copy(term)
        for term in self.inputs():  # after the copies, which use any scratchpad rows
            if term in self.held:
                bring(self.writer, inputs[name_of(term)].addresses, self.held[term], self.zero(term))
        return inputs

    def _expect(self, number: int) -> None:
        """Sets the cycles still to come once the layer of that number is emitted."""
        if self.trial is not None:
            self.writer.expect(self.trial.rest[number])

    def _outputs(self) -> dict[str, Place]:
        last = self.network.layers[-1].name
        result = {stretch.name: stretch.result for stretch in self.stretches}[last]
        assert result is not None, "every layer has one"
        return {last: result}

    def _copy(self, term: Term) -> None:
        """Emits the copies of an input from where the host stores it to the tiles that stay in the array, before all
        layers.
        """
        tensor = self.tensor(term)
        if not tensor.streams or len(tensor.pairs) == 1:
            return
        begin, wanted = counted(self.writer), np.concatenate(tensor.pairs[1:])
        write_copy(self.writer, tensor.place.reshape(-1)[wanted[:, 0]], wanted[:, 1])
        name = f"copy of {name_of(term)}"
        while name in self.mapped or name in self.copies.values():
            name += "'"
        copied = Somewhere(np.full_like(tensor.place, -1))
        copied.stays(wanted)
        meaning, operands = str(Program(stand_in("operand0", term))), {"operand0": self.place(term)}
        result, end = Place.of(copied.place, "int8"), counted(self.writer)
        self.stretches.append(Stretch(name, begin, end, meaning, operands, result))
        self.copies[term] = name

    def _coming(self, then: tuple[IntegerLayer, Piece] | None) -> Sequence[Brought]:
        """Returns the weight tiles of the next piece, if all of its rows are resident."""
        ready = None if then is None else self._in_place(*then)
        if then is None or ready is None:
            return []
        self.ready[then[0].name, then[1].strip] = ready
        return [ready.tiles.brought[run.tile] for run in ready.source.runs]

    def _in_place(self, layer: IntegerLayer, piece: Piece) -> _Ready | None:
        """Returns a layer whose rows are resident; None if some have to be loaded."""
        own, operands = replace(self.own(layer)), dict[Term, Place]()
        rows = [own.operands[leaf] for leaf in own.layer.product.rows.first]
        if not rows or any(tensor not in self.held for tensor in rows):
            return None
        held, again = [self.held[tensor].at(piece.strip) for tensor in rows], self.again[layer.name]
        source = InPlace(own.layer, held, layer.name, self.machine, piece.part, again)
        own.layer = moved = source.layer
        if layer.requantised is not None and layer.normalised is None:
            every = self._parameters(layer, own)
            _, entry = again.once(lambda: distinct_parameters(every), "alike", every)
            entry, _ = again.once(lambda: as_seen(entry), "seen", entry)
            of = moved, str(entry.shape).encode(), entry.tobytes()
            own.layer = again.once(lambda: abreast(moved, entry, self.machine), "abreast", *of)
        tiles = self._stays(layer.name, own, operands, [run.tile for run in source.runs])
        return _Ready(own.layer, source, tiles, operands)

    def _layer(self, layer: IntegerLayer, piece: Piece, coming: Sequence[Brought]) -> Stretch:
        own = replace(self.own(layer))
        rows = [own.operands[leaf] for leaf in own.layer.product.rows.first]
        operands = dict[Term, Place]()
        source: Source
        if (ready := self.ready.pop((layer.name, piece.strip), None) or self._in_place(layer, piece)) is not None:
            own.layer, source, operands = ready.layer, ready.source, ready.operands
            feed = Feed(ready.tiles.brought, own.zeros[0])
        elif len(rows) == 1 and rows[0] in self.passing and (windows := self._windows(layer, own, rows[0])) is not None:
            own.layer, source = windows.layer, windows
            (leaf,) = own.layer.product.rows.first
            operands[leaf] = self.place(rows[0])
            tiles = self._stays(layer.name, own, operands)
            feed = Feed(tiles.brought, own.zeros[0], self._made(own))
        else:
            addresses = self._streams(layer.name, own, operands)
            tiles = self._stays(layer.name, own, operands)
            feed = Feed(tiles.brought, own.zeros[0], self._made(own))
            source = Copied(self.writer, self.order(layer.name), feed, addresses)
        if layer.requantised is None:
            if layer.name not in self.sums:
                self.sums[layer.name] = SumsOut(self.writer, own.layer)
            sums = self.sums[layer.name]
            self.writer.layer(own.layer, source, feed, sums, coming)
            lacking = narrow(self._corrected(layer, own))  # the sums are stored as they are
            stands_for = StandsFor.of(1, -lacking) if lacking.any() else None
            result: Place | None = replace(Place.of(sums.addresses, "int32"), stands_for=stands_for)
        elif layer.result in self.held:
            parameters = self._parameters(layer, own)
            made = self.held[layer.result].at(piece.strip)
            zero, again = self.zero(layer.result), self.again[layer.name]
            kept = Kept(self.writer, own.layer, parameters, made, zero, layer, piece.part, again)
            self.writer.layer(own.layer, source, feed, kept, coming)
            result = None
        else:
            self.writer.layer(own.layer, source, feed, self._bytes_out(layer, own), coming)
            result = self.place(layer.result)
        if not piece.last or self.trial is not None:
            return Stretch("", {}, {})
        return self._stretch(layer, own, operands, result)

    def _windows(self, layer: IntegerLayer, own: Own, tensor: Term) -> Windows | None:
        """Returns rows that stream from windows of a tensor in DRAM; None if the free windows are too small."""
        if not self.comes_by_windows(tensor):
            return None
        first, rows = self.room_for_windows(layer.name)
        bases, cells = (first * self.machine.rows, (first + rows) * self.machine.rows), rows * self.machine.rows
        reads, strides = self.passing[tensor].reads[layer.name], self.skew(tensor).strides
        feed = Feed([], own.zeros[0], self._made(own))
        try:
            return Windows(self.writer, own.layer, reads, strides, feed, self.place(tensor).addresses, bases, cells)
        except BadInput:
            return None

    def _made(self, own: Own) -> tuple[bool, bool]:
        product = own.layer.product
        rows, weights = (
            any(own.operands[leaf] in self.makers for leaf in places.first)
            for places in (product.rows, product.weights)
        )
        return rows, weights

    def _streams(self, name: str, own: Own, operands: dict[Term, Place]) -> Array:
        """Returns the address of each element that rows read, by number."""
        first = own.layer.product.rows.first
        addresses = np.full(1 + sum(leaf.access.size for leaf in first), -1)
        for leaf, begin in first.items():
            operands[leaf] = self._streamed(name, own, leaf)
            addresses[begin : begin + leaf.access.size] = operands[leaf].addresses.ravel()
        return addresses

    def _streamed(self, name: str, own: Own, leaf: Term) -> Place:
        tensor = own.operands[leaf]
        if not self.is_constant(tensor):
            return self.place(tensor)
        places = arranged(self.order(name), leaf)
        found = Place.of(self.writer.image.room(int(places.max(initial=-1)) + 1) + places, "int8")
        self.filled.append((found, self.values(tensor).reshape(tuple(leaf.access.dims))))
        return found

    def _stays(self, name: str, own: Own, operands: dict[Term, Place], order: Sequence[int] | None = None) -> Tiles:
        weights = own.layer.product.weights.first
        again, image, layer = self.tiles_again[name], self.writer.image, own.layer
        if all(self.is_constant(own.operands[leaf]) for leaf in weights):
            spreads = spreadings(self.machine).of_all(layer, order)
            values = {leaf: self.values(own.operands[leaf]) for leaf in weights}
            tiles = again.once(lambda: Tiles.known(image, layer, values, spreads), "tiles", layer, *spreads)
        else:
            tiles = self.computed_tiles(name, own)
        for leaf in weights:
            if leaf not in operands:
                operands[leaf] = again.once(partial(_in_dram, tiles, leaf), "place", tiles, leaf)
        return tiles

    def _parameters(self, layer: IntegerLayer, own: Own) -> Array:
        """Returns the requantization parameters of each element, (dims). Raises BadInput."""
        return self.again[layer.name].once(lambda: self._found_parameters(layer, own), "parameters", layer)

    def _found_parameters(self, layer: IntegerLayer, own: Own) -> Array:
        asked = layer.requantised
        assert asked is not None, "it becomes bytes"
        dims = tuple(layer.sums.access.dims)
        every = np.zeros(dims, requantization.PARAMETER)
        bias = np.broadcast_to(asked.bias, dims).astype(np.int64) + self._corrected(layer, own)
        if bias.min() < -(1 << 31) or bias.max() >= 1 << 31:
            raise BadInput("its bias with the correction for zero points does not fit in 32 bits")
        every["bias"], every["scale"] = bias, np.broadcast_to(asked.scale, dims)
        every["zero"], every["low"], every["high"] = asked.zero, asked.low, asked.high
        return every

    def _bytes_out(self, layer: IntegerLayer, own: Own) -> Sink:
        every = self._parameters(layer, own)
        pairs = np.concatenate(self.tensor(layer.result).pairs)
        assert layer.requantised is not None, "it becomes bytes"
        table = layer.requantised.table
        self._fill_zeros(own.layer, every, pairs, table)
        result = Bytes(every, pairs[:, 0], pairs[:, 1], table, layer.normalised)
        return BytesOut(self.writer, own.layer, result, self.again[layer.name])

    def _fill_zeros(self, layer: Layer, every: Array, pairs: Array, table: Array | None) -> None:
        """Stores the elements that are empty sums in the initial DRAM image."""
        nothing = layer.elements.reshape(-1) <= 0
        own = pairs[nothing[pairs[:, 0]]]
        if len(own):
            parameters = every.reshape(-1)[own[:, 0]]
            values = requantization.requantised(parameters["bias"].astype(np.int64), parameters)
            values = values if table is None else table[values]
            self.filled.append((Place.of(own[:, 1], "int8"), values))

    def _corrected(self, layer: IntegerLayer, own: Own) -> Array:
        """Returns the correction of each element, (dims): sums of (r - y) (s - z) minus sums of r s."""
        y, z = own.zeros
        product, enabled = own.layer.product, own.layer.enabled
        if not y and not z:
            return np.zeros((), np.int64)
        if y and z:
            raise BadInput("both operands have zero points: the correction would need sums of computed values")
        stays = product.weights if y else product.rows
        if not all(self.is_constant(own.operands[leaf]) for leaf in stays.first):
            raise BadInput("an operand has a zero point, and the other one is not constant, so its sums are unknown")
        every = stays.values({leaf: self.values(own.operands[leaf]) for leaf in stays.first}, "int8")
        if y:  # exact: float32 holds sums of 2^16 bytes
            sums = enabled[:, None].astype(np.float32) @ every.astype(np.float32)
            of_tile = -y * sums[:, 0].astype(np.int64)  # (tiles)(C)
        else:
            of_tile = -z * every.sum(axis=2, dtype=np.int64)  # (tiles)(m): disabled banks hold zeros
        if own.layer.greatest:  # the same for each of its tiles
            of_group = np.stack([of_tile[group.tiles[0]] for group in own.layer.groups])
        else:
            of_group = np.stack([of_tile[list(group.tiles)].sum(axis=0) for group in own.layer.groups])
        line, column = own.layer.lines()
        group, row = np.divmod(line, product.rows.numbers.shape[1])
        found: Array = np.where(own.layer.elements > 0, of_group[group, column if y else row], 0)
        return found

    def _stretch(self, layer: IntegerLayer, own: Own, operands: Mapping[Term, Place], result: Place | None) -> Stretch:
        """Describes a layer by its term of the network over tensors in DRAM; tensors on chip belong to their readers'
        descriptions.
        """
        tensors = {own.operands[leaf]: leaf for leaf in operands}
        self.constants |= {tensor: operands[leaf] for tensor, leaf in tensors.items() if self.is_constant(tensor)}
        if result is None:
            return Stretch("", {}, {})
        places, stand_ins, made = dict[str, Place](), dict[Term, Term](), dict[str, str]()
        for tensor in dict.fromkeys((*tensors, *self._means(layer))):
            name = f"operand{len(places)}"
            leaf = tensors.get(tensor)
            places[name] = operands[leaf] if leaf is not None else self.constants.get(tensor) or self.place(tensor)
            stand_ins[tensor] = stand_in(name, tensor)
            if tensor in self.makers:
                made[name] = self.makers[tensor]
            elif tensor in self.copies and leaf is not None and leaf not in own.layer.product.rows.first:
                made[name] = self.copies[tensor]
        (inner,) = rebuild_all([layer.result if layer.requantised is not None else layer.sums], _as_it_is, stand_ins)
        for term in postorder(inner):
            if self.is_constant(term):
                size, dtype = term.access.size, term.access.dtype
                room = self.writer.image.room(size * np.dtype(dtype).itemsize)
                places[name_of(term)] = Place(room, tuple(term.access.dims), dtype)
                self.filled.append((places[name_of(term)], self.network.constants[name_of(term)]))
        return Stretch("", {}, {}, str(Program(inner)), places, result, made)

    def _means(self, layer: IntegerLayer) -> Iterator[Term]:
        """Yields the tensors in DRAM that a layer depends on, also through resident tensors."""
        for tensor in self.read[layer.name]:
            if tensor in self.held and tensor in self.makers:
                yield from self._means(self.network.layers[self.numbers[self.makers[tensor]]])
            elif not self.is_constant(tensor) or tensor in self.constants:
                yield tensor


def _in_dram(tiles: Tiles, leaf: Term) -> Place:
    return Place.of_sums(tiles.of(leaf), "int8")


def _as_it_is(term: Term, _: object) -> None:
    return None
