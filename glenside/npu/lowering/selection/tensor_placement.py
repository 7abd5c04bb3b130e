"""Places the int8 tensors between layers: resident in the scratchpad, or in DRAM in the layouts of their readers."""

from __future__ import annotations

from collections.abc import Container, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from math import inf

import numpy as np

from glenside.ir.errors import BadInput
from glenside.ir.operand import Array
from glenside.ir.term import Term
from glenside.ir.threads import in_parallel
from glenside.npu.lowering.allocation.scratchpad_allocation import Held, Passing, Wanted, find_shapes, free, gaps, held
from glenside.npu.lowering.allocation.skewed_layout import Reads, Skew, Writes
from glenside.npu.lowering.allocation.strip_chains import Candidates, Chain
from glenside.npu.lowering.emission.emit_layer import Writer
from glenside.npu.lowering.emission.emit_results import rows_needed
from glenside.npu.lowering.selection.candidate_cost import Priced
from glenside.npu.lowering.selection.window_cost import cycles_of_windows
from glenside.npu.lowering.tiling.mapped_layers import Mapped, MappedNetwork, Own
from glenside.npu.lowering.tiling.tile_order import Order
from glenside.npu.lowering.transfer.dram_operands import Tiles, arranged, laid_out
from glenside.npu.machine.model import HALVES, Machine
from glenside.npu.program.program import Place
from glenside.quantization.layers import IntegerNetwork

Where = tuple[dict[Term, Held], dict[Term, Passing], list[Chain]]
"""Resident tensors, other tensors that would be read in the same way, and chains of strip-mined layers."""

_COPIED, _PASSING = 4, 16
"""Least shares of the scratchpad of a layer, 1/_COPIED for copied rows and 1/_PASSING for windows."""


@dataclass
class Somewhere:
    """An int8 tensor between layers.

    place    address of each element, (dims); -1 if nobody reads it
    pairs    all writes: elements and addresses, (n)(2)
    streams  True if it is stored whole for readers that stream it; its writes are the first pairs
    """

    place: Array
    pairs: list[Array] = field(default_factory=list)
    streams: bool = False

    def stays(self, pairs: Array) -> None:
        """Adds the addresses of elements in tiles."""
        self.pairs.append(pairs)
        flat = self.place.reshape(-1)
        new = pairs[flat[pairs[:, 0]] < 0]
        flat[new[:, 0]] = new[:, 1]

    def stream_from(self, places: Array) -> None:
        """Sets the addresses of the whole tensor."""
        self.place, self.streams = places, True
        self.pairs.insert(0, np.stack([np.arange(places.size), places.ravel()], axis=1))


class Tensors(MappedNetwork):
    """The tensors of a network and their places.

    axes     innermost axis of tensors that stream from DRAM; other tensors have the layout of their first reader
    stay     tensors that may be resident; None: all
    where    the result of an earlier placement
    held     resident tensors
    passing  tensors in DRAM that would be read in the same way
    chains   strip-mined layers, with tensors of which one strip is resident
    """

    def __init__(
        self,
        network: IntegerNetwork,
        mapped: Mapping[str, Mapped],
        machine: Machine,
        axes: Mapping[Term, int],
        stay: Container[Term] | None,
        where: Where | None = None,
        most: int | None = None,
    ) -> None:
        super().__init__(network, mapped, machine)
        self.axes, self.stay = axes, stay
        self.writer = Writer(machine, most)
        self.tiles: dict[str, Tiles] = {}
        self.tensors: dict[Term, Somewhere] = {}
        self.places: dict[Term, Place] = {}
        self.orders: dict[str, Order] = {}
        self.inners: dict[Term, int] = {}
        self.windowed: dict[Term, bool] = {}
        self.held, self.passing, self.chains = self._held() if where is None else where

    @property
    def where(self) -> Where:
        """The whole placement."""
        return self.held, self.passing, self.chains

    def order(self, name: str) -> Order:
        """Returns the order in which the rows of a layer are copied into the banks."""
        if name not in self.orders:
            number, layer = self.numbers[name], self.known[name].layer
            there = [own for own in self.held.values() if own.since <= number <= own.until]
            depth, firsts = free(there, self.machine, self.reserved)
            if depth < 1:
                raise BadInput("resident tensors leave no scratchpad rows for the rows that the layer copies")
            whole = self.network.layers[number].normalised is not None
            self.orders[name] = Order(layer, self.machine, depth, firsts, whole)
        return self.orders[name]

    @cached_property
    def reserved(self) -> int:
        """Rows at both ends of the scratchpad through which results pass to DRAM."""
        return self._reserved(self.held)

    def _reserved(self, held: Container[Term]) -> int:
        layers = self.network.layers
        passes = any(layer.requantised is not None and layer.result not in held for layer in layers)
        return rows_needed(self.machine) if passes else 0

    def _held(self) -> Where:
        """Allocates all tensors that their readers can stream from the scratchpad.

        Returns the resident ones, the others, and the chains. If all results stay, more rows are free.
        """
        inputs = self.inputs()
        terms = (*inputs, *(layer.result for layer in self.network.layers))
        asked = [term for term in dict.fromkeys(terms) if term in inputs or term not in self.outside]
        every = dict[Term, Wanted | None].fromkeys(asked)
        for layer in self.network.layers:
            self.own(layer)  # errors are reported in the order of layers
        in_parallel(lambda term, _: every.update({term: self._wanted(term)}), asked, lambda _: None)
        wanted = {term: own for term, own in every.items() if own is not None}
        shaped = [own for term, own in wanted.items() if self.stay is None or term in self.stay]
        in_parallel(lambda own, _: find_shapes(own, self.machine), shaped, lambda _: None)
        reserved = self._reserved(())
        found = self._held_beside(reserved, wanted)
        if self._reserved(found[0]) < reserved:
            more = self._held_beside(0, wanted)
            found = more if more[0].keys() >= found[0].keys() else found
        return found

    def _held_beside(self, reserved: int, wanted: Mapping[Term, Wanted]) -> Where:
        """Allocates tensors; `reserved` rows at both ends of the scratchpad stay free."""
        rows = range(reserved, self.machine.depth - reserved)
        stay, crowding = {term for term in wanted if self.stay is None or term in self.stay}, set[Term]()
        while True:
            there, passing = held(wanted, self.machine, rows, stay - crowding)
            there, passing, chains = self._candidates(wanted, rows).chains(stay, there, passing)
            more = self._crowding(there, passing, reserved)
            if more is not None and not there[more].strips:
                crowding.add(more)  # one strip of it may fit
                continue
            more = more or self._apart(there)
            if more is None:
                return there, passing, chains
            stay.discard(more)

    def _candidates(self, wanted: Mapping[Term, Wanted], rows: range) -> Candidates:
        layers = self.network.layers
        owns = [self.own(layer) for layer in layers]
        read = [[own.operands[leaf] for leaf in own.layer.product.rows.first] for own in owns]
        sources = [own[0] if len(own) == 1 else None for own in read]
        results = [layer.result for layer in layers]
        whole = {number for number, layer in enumerate(layers) if layer.normalised is not None}
        return Candidates([own.layer for own in owns], results, sources, wanted, whole, self.machine, rows)

    def _apart(self, there: Mapping[Term, Held]) -> Term | None:
        """Returns a resident tensor of a layer that streams another tensor from DRAM; None if there is none."""
        for layer in self.network.layers:
            own = self.own(layer)
            rows = [own.operands[leaf] for leaf in own.layer.product.rows.first]
            held = [term for term in rows if term in there]
            if held and len(held) < len(rows):
                return held[0]
        return None

    def _crowding(self, there: Mapping[Term, Held], passing: Container[Term], reserved: int) -> Term | None:
        """Returns the largest tensor that leaves a layer too little capacity for data from DRAM;
        None if there is none.
        """
        for number, layer in enumerate(self.network.layers):
            rows = [self.own(layer).operands[leaf] for leaf in self.own(layer).layer.product.rows.first]
            alive = [term for term, own in there.items() if own.since <= number <= own.until]
            if all(term in alive for term in rows) or not alive:
                continue
            depth, _ = free([there[term] for term in alive], self.machine, reserved)
            part = _PASSING if len(rows) == 1 and rows[0] in passing else _COPIED
            if depth < (self.machine.half_depth - reserved) // part:
                return max(alive, key=lambda term: there[term].end - there[term].begin)
        return None

    def _wanted(self, term: Term) -> Wanted | None:
        layers = self.network.layers
        readers = [layer for layer in layers if term in self.read[layer.name]]
        readers = [layer for layer in readers if term in self.own(layer).operands.values()]  # not only named
        dims, reads = tuple(term.access.dims), dict[str, Reads]()
        for layer in readers:
            own = self.own(layer)
            product = own.layer.product
            rows = [own.operands[leaf] for leaf in product.rows.first]
            stays = [own.operands[leaf] for leaf in product.weights.first]
            leaves = [leaf for leaf in product.rows.first if own.operands[leaf] == term]
            alone = len(leaves) == 1 and not any(map(self.is_constant, rows)) and all(map(self.is_constant, stays))
            found = Reads.of(own.layer, dims, leaves[0]) if alone else None
            if found is None:
                return None
            reads[layer.name] = found
        if not reads or len(self._zeros(reads)) > 1:
            return None
        writes, begin = None, 0
        if term in self.makers:
            begin = self.numbers[self.makers[term]]
            made = self.own(layers[begin]).layer
            if layers[begin].requantised is None or (made.elements <= 0).any():
                return None
            writes = Writes.of(made, dims)
        return Wanted(dims, reads, writes, begin, max(self.numbers[layer.name] for layer in readers))

    def zero(self, term: Term) -> int:
        """Returns the byte of a zero in a resident tensor."""
        return next(iter(self._zeros(self.held[term].reads)), 0)

    def _zeros(self, reads: Mapping[str, Reads]) -> set[int]:
        """Returns the bytes of the zeros that readers of a tensor use."""
        layers = (self.network.layers[self.numbers[name]] for name, own in reads.items() if own.has_zeros)
        return {self.own(layer).zeros[0] for layer in layers}

    def tensor(self, term: Term) -> Somewhere:
        """Returns the place of a tensor in DRAM in the layout of its readers; whole if the host reads or writes it."""
        if term in self.tensors:
            return self.tensors[term]
        found = self.tensors[term] = Somewhere(np.full(tuple(term.access.dims), -1))
        if term in self.held:
            dims, strides = tuple(term.access.dims), self.held[term].skew.strides
            inner = next((axis for axis, size in enumerate(dims) if size > 1 and strides[axis] == 1), len(dims) - 1)
            self.stream_from(found, laid_out(dims, inner, self.machine.bandwidth))
            return found
        if term in self.makers and self.comes_by_windows(term):
            self.stream_from(found, self._passed(term))
            return found
        for layer in self.network.layers:
            if term in self.read[layer.name]:
                own = self.own(layer)
                for leaf in (leaf for leaf, tensor in own.operands.items() if tensor == term):
                    self._demand(found, layer.name, own, leaf)
        several = term not in self.makers and sum(map(len, found.pairs)) > term.access.size
        if not found.pairs or (term in self.outside and (several or (found.place < 0).any())):
            self.stream_from(found, np.arange(term.access.size).reshape(tuple(term.access.dims)))
        return found

    def _passed(self, term: Term) -> Array:
        """Returns the addresses of a tensor in DRAM that is read by windows."""
        return laid_out(tuple(term.access.dims), self.inner(term), self.machine.bandwidth)

    def comes_by_windows(self, term: Term) -> bool:
        """True if a tensor in DRAM is read by windows: its layout was chosen by their cost, windows of all readers fit
        the banks, and they are no slower than copied rows.
        """
        if term not in self.windowed:
            may = term in self.passing and bool(self.passing[term].skews)
            self.windowed[term] = may and (self.passing[term].axis is None or self._windows_come(term))
        return self.windowed[term]

    def _windows_come(self, term: Term) -> bool:
        passing, skew, axis = self.passing[term], self.skew(term), self.passing[term].axis
        for name, reads in passing.reads.items():
            _, rows = self.room_for_windows(name)
            by_windows = cycles_of_windows(reads, skew.strides, axis, rows, self.machine)
            if by_windows == inf or (len(passing.reads) == 1 and by_windows > self._copied(term, name)):
                return False
        return True

    def _copied(self, term: Term, name: str) -> float:
        """Predicts the cycles of DMA that copy a layer's rows of a tensor, in its chosen layout."""
        own = self.own(self.network.layers[self.numbers[name]])
        if term not in self.axes:
            return inf
        axis, found = self.axes[term], 0.0
        for leaf in (leaf for leaf in own.layer.product.rows.first if own.operands[leaf] == term):
            key = "filled", leaf, axis, self.reserved, self.machine
            if key not in own.layer.known:
                own.layer.known[key] = Priced(lambda: own.layer, self.machine, 0, self.reserved).filled(leaf, axis)
            found += own.layer.known[key]
        return found

    def skew(self, term: Term) -> Skew:
        """Returns the strides with which windows of a tensor are read."""
        skews, axis = self.passing[term].skews, self.passing[term].axis
        if term in self.makers or axis in skews:
            return skews[self.inner(term)]
        return min(skews.values(), key=lambda each: each.extra)

    def room_for_windows(self, name: str) -> tuple[int, int]:
        """Returns the first scratchpad row for two windows of a layer, and the rows of each window."""
        number = self.numbers[name]
        taken = [each for each in self.held.values() if each.since <= number <= each.until]
        found = gaps(taken, self.machine, self.reserved)
        result = self.network.layers[number].result
        if result in self.held:  # stores write to its half meanwhile, and DMA to the other
            low = self.held[result].begin >= self.machine.half_depth * self.machine.rows
            found = found[:1] if low else found[1:]
        rows, first = max(found)
        return first, rows // HALVES

    def inner(self, term: Term) -> int:
        """Returns the innermost axis of a tensor: the chosen one, or the one with the least cost of storing and of
        reading windows.
        """
        if (axis := self.passing[term].axis) is not None and axis in self.passing[term].skews:
            return axis
        if term not in self.inners:
            name, dims = self.makers[term], tuple(term.access.dims)
            maker = self.own(self.network.layers[self.numbers[name]])
            priced, skews = Priced(lambda: maker.layer, self.machine, 0, self.reserved), self.passing[term].skews
            known = maker.layer.known

            def taken(axis: int) -> float:
                key = "emptied", dims, axis, self.reserved, self.machine
                if key not in known:
                    known[key] = priced.emptied_in_order(dims, axis)
                cycles: float = known[key]
                return cycles + skews[axis].extra

            self.inners[term] = min(skews, key=taken)
        return self.inners[term]

    def _demand(self, found: Somewhere, name: str, own: Own, leaf: Term) -> None:
        if leaf in own.layer.product.weights.first:
            found.stays(self.computed_tiles(name, own).elements[leaf])
        if leaf in own.layer.product.rows.first and not found.streams:
            tensor = own.operands[leaf]
            if tensor in self.axes:
                self.stream_from(found, laid_out(tuple(leaf.access.dims), self.axes[tensor], self.machine.bandwidth))
            else:
                self.stream_from(found, arranged(self.order(name), leaf))

    def stream_from(self, found: Somewhere, places: Array) -> None:
        found.stream_from(self.writer.image.room(int(places.max(initial=-1)) + 1) + places)

    def computed_tiles(self, name: str, own: Own) -> Tiles:
        if name not in self.tiles:
            if any(self.is_constant(own.operands[leaf]) for leaf in own.layer.product.weights.first):
                raise BadInput("weights that combine constants with computed values are not supported")
            self.tiles[name] = Tiles.computed(self.writer.image, own.layer, own.zeros[1])
        return self.tiles[name]

    def place(self, term: Term) -> Place:
        if term not in self.places:
            self.places[term] = Place.of(self.tensor(term).place, "int8")
        return self.places[term]
