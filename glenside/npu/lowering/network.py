"""Networks of integer layers as one program, input to result: what a layer leaves in DRAM the next one reads."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from glenside.analysis.places import leaves_of
from glenside.ir.errors import BadInput
from glenside.ir.operand import Array
from glenside.ir.program import Program
from glenside.ir.term import Term, postorder, rebuild_all
from glenside.ir.types import Tensor
from glenside.npu import requantise
from glenside.npu.lowering.copying import write_copy
from glenside.npu.lowering.holding import Held, Passing, Wanted, free, gaps, held
from glenside.npu.lowering.inplace import InPlace, Kept, Windows, bring
from glenside.npu.lowering.layers import Copied, Feed, Sink, Source, SumsOut, Writer
from glenside.npu.lowering.operands import Tiles, arranged, laid_out
from glenside.npu.lowering.price import Priced
from glenside.npu.lowering.program import Filled, counted, finished, stand_in
from glenside.npu.lowering.runs import Order
from glenside.npu.lowering.skewed import Reads, Writes
from glenside.npu.lowering.storing import Bytes, BytesOut, rows_needed
from glenside.npu.lowering.tiles import Layer
from glenside.npu.machine import Machine
from glenside.npu.numbers import StandsFor, narrow
from glenside.npu.program import NpuProgram, Place, Stretch
from glenside.quantization.layers import IntegerLayer, IntegerNetwork, leaf_of


@dataclass(frozen=True)
class Mapped:
    """A layer's product as it is mapped: of tensors that stand for its operands, or of those themselves; and its tiles
    where they are known.
    """

    term: Term
    operands: Mapping[Term, Term]
    layer: Layer | None = None


def chained(
    network: IntegerNetwork,
    mapped: Mapping[str, Mapped],
    machine: Machine,
    given: Mapping[str, Array] | None = None,
    seed: int = 0,
    axes: Mapping[Term, int] | None = None,
    show: Callable[[str, int, int], None] = lambda *_: None,
    stay: Container[Term] | None = None,
) -> NpuProgram:
    """A network as one program, its layers as they are mapped, by name.

    axes   of tensors that stream, which is innermost in DRAM; of others it is what the first reader wants
    stay   the tensors that stay in lanes where they can; all of them where it is None
    given  int8 values of inputs that DRAM holds; others are drawn by the seed

    Raises Unlowered: a layer that the machine does not run, by its name and why.
    """
    return _Chain(network, mapped, machine, axes or {}, show, stay).program(given or {}, seed)


_COPIED = 4
"""What part of the lanes a layer has for rows that are copied, at least."""


class Unlowered(BadInput):
    """What the machine does not run as it is mapped; `layers` are those of which another mapping may do."""

    layers: tuple[str, ...] = ()

    @staticmethod
    def of(message: str, *layers: str) -> Unlowered:
        """With its layers."""
        found = Unlowered(message)
        found.layers = layers
        return found


@dataclass
class _Tensor:
    """An int8 tensor between layers.

    place   where its elements are, one address each, (dims); -1 where nobody wants one
    pairs   all that is to be written: elements and addresses, (n)(2)
    streams whether it is there for those who stream it: then whole, at its place, which are the first pairs
    """

    place: Array
    pairs: list[Array] = field(default_factory=list)
    streams: bool = False

    def stays(self, pairs: Array) -> None:
        """It is to be there, too."""
        self.pairs.append(pairs)
        flat = self.place.reshape(-1)
        new = pairs[flat[pairs[:, 0]] < 0]
        flat[new[:, 0]] = new[:, 1]

    def stream_from(self, places: Array) -> None:
        """It is to be there, whole."""
        self.place, self.streams = places, True
        self.pairs.insert(0, np.stack([np.arange(places.size), places.ravel()], axis=1))


@dataclass
class _Own:
    """A layer, with what its operands are.

    operands  leaves of the mapped product -> the int8 tensor; constants have no zero points
    zeros     the zero point of what streams, and that of what stays
    """

    layer: Layer
    operands: Mapping[Term, Term]
    zeros: tuple[int, int]


def _one_zero(zeros: Iterable[int]) -> int:
    """Of an operand. Raises BadInput: there are several."""
    found = {*zeros}
    if len(found) > 1:
        raise BadInput(f"an operand is made of tensors of several zero points, {', '.join(map(str, sorted(found)))}")
    return found.pop() if found else 0


def results_of(network: IntegerNetwork) -> Sequence[Term]:
    """The terms that the host takes."""
    whole = network.program.term
    return whole.children if whole.operator.name == "construct-tuple" else (whole,)


def _name(tensor: Term) -> str:
    """Of an access-tensor."""
    own = tensor.attributes[0]
    assert isinstance(own, Tensor), "it is a tensor"
    return own.name


class _Chain:
    def __init__(
        self,
        network: IntegerNetwork,
        mapped: Mapping[str, Mapped],
        machine: Machine,
        axes: Mapping[Term, int],
        show: Callable[[str, int, int], None],
        stay: Container[Term] | None,
    ) -> None:
        self.network, self.mapped, self.machine, self.axes, self.show = network, mapped, machine, axes, show
        self.stay = stay
        self.writer = Writer(machine)
        self.makers = {layer.result: layer.name for layer in network.layers}
        self.read = {
            layer.name: dict.fromkeys(leaf_of(leaf)[0] for leaf in leaves_of(layer.sums.children[0], self.makers))
            for layer in network.layers
        }
        self.known: dict[str, _Own] = {}
        self.tiles: dict[str, Tiles] = {}
        self.tensors: dict[Term, _Tensor] = {}
        self.copies: dict[Term, str] = {}
        self.outside = {
            *self._inputs(),
            *(leaf for root in results_of(network) for leaf in leaves_of(root, self.makers)),
        }
        self.filled = Filled()
        self.stretches = list[Stretch]()
        self.held: dict[Term, Held] = {}
        self.passing: dict[Term, Passing] = {}
        self.orders: dict[str, Order] = {}
        self.numbers = {layer.name: number for number, layer in enumerate(network.layers)}
        self.constants: dict[Term, Place] = {}

    def program(self, given: Mapping[str, Array], seed: int) -> NpuProgram:
        network, draw = self.network, np.random.default_rng(seed)
        inputs = dict[str, Place]()
        self.held, self.passing = self._held()
        for term in self._inputs():
            name = _name(term)
            inputs[name] = self._place(term)
            values = given.get(name)
            if values is None:
                values = draw.integers(-128, 128, tuple(term.access.dims)).astype(np.int8)
            self.filled.append((inputs[name], values))
            self._copy(term)
            if term in self.held:
                bring(self.writer, inputs[name].addresses, self.held[term], self._zero(term))
        for number, layer in enumerate(network.layers):
            self.show(layer.name, number, len(network.layers))
            begin = counted(self.writer)
            try:
                stretch = self._layer(layer)
            except Unlowered:
                raise
            except BadInput as error:
                raise Unlowered.of(f"the layer {layer.name}: {error}", layer.name) from error
            if layer is network.layers[-1]:
                self.writer.settle()
            self.stretches.append(replace(stretch, name=layer.name, begin=begin, end=counted(self.writer)))
            del self.known[layer.name]
        return finished(self.writer, self.stretches, self.filled, inputs, self._outputs())

    def _inputs(self) -> list[Term]:
        """The tensors that the host brings."""
        network = self.network
        tensors = [term for term in postorder(network.program.term) if term.operator.name == "access-tensor"]
        return [term for term in tensors if _name(term) not in network.constants]

    def _outputs(self) -> dict[str, Place]:
        found = {stretch.name: stretch.result for stretch in self.stretches}
        last = self.network.layers[-1].name
        result = found[last]
        assert result is not None, "every layer has one"
        return {last: result}

    # What each layer is made of.

    def _own(self, layer: IntegerLayer) -> _Own:
        if layer.name not in self.known:
            try:
                self.known[layer.name] = self._found(layer)
            except BadInput as error:
                raise Unlowered.of(f"the layer {layer.name}: {error}", layer.name) from error
        return self.known[layer.name]

    def _found(self, layer: IntegerLayer) -> _Own:
        mapped = self.mapped[layer.name]
        found = mapped.layer or Layer.of(mapped.term, self.machine)
        leaves = dict.fromkeys((*found.product.rows.first, *found.product.weights.first))
        read = {leaf: leaf_of(mapped.operands.get(leaf, leaf)) for leaf in leaves}
        for tensor, _ in read.values():
            if tensor not in self.makers and tensor.operator.name != "access-tensor":
                raise BadInput(f"an operand is neither a result nor an input, but {tensor.operator.name}")
        rows, weights = (
            _one_zero(read[leaf][1] for leaf in each.first) for each in (found.product.rows, found.product.weights)
        )
        return _Own(found, {leaf: tensor for leaf, (tensor, _) in read.items()}, (rows, weights))

    def _order(self, name: str) -> Order:
        """How rows of a layer are copied into lanes."""
        if name not in self.orders:
            number, layer = self.numbers[name], self.known[name].layer
            there = [own for own in self.held.values() if own.since <= number <= own.until]
            depth, firsts = free(there, self.machine, self.reserved)
            self.orders[name] = Order(layer, self.machine, depth, firsts)
        return self.orders[name]

    @cached_property
    def reserved(self) -> int:
        """Rows at both ends of the lanes that results pass through."""
        asked = any(layer.requantised is not None for layer in self.network.layers)
        return rows_needed(self.machine) if asked else 0

    # Tensors that are held in lanes.

    def _held(self) -> tuple[dict[Term, Held], dict[Term, Passing]]:
        """Those that all who read them may stream from there; and those for which there is no room."""
        wanted: dict[Term, Wanted] = {}
        inputs = self._inputs()
        for term in (*inputs, *(layer.result for layer in self.network.layers)):
            own = self._wanted(term) if term in inputs or term not in self.outside else None
            if own is not None:
                wanted[term] = own
        rows, crowding = range(self.reserved, self.machine.depth - self.reserved), set[Term]()
        while True:
            stay = {term for term in wanted if self.stay is None or term in self.stay} - crowding
            there, passing = held(wanted, self.machine, rows, stay)
            more = self._crowding(there)
            if more is None:
                return there, passing
            crowding.add(more)

    def _crowding(self, there: Mapping[Term, Held]) -> Term | None:
        """The largest tensor of those that leave a layer too little room for rows that are copied; None: none does."""
        for number, layer in enumerate(self.network.layers):
            rows = [self._own(layer).operands[leaf] for leaf in self._own(layer).layer.product.rows.first]
            alive = [term for term, own in there.items() if own.since <= number <= own.until]
            if (len(rows) == 1 and rows[0] in alive) or not alive:
                continue
            depth, _ = free([there[term] for term in alive], self.machine, self.reserved)
            if depth < (self.machine.half_depth - self.reserved) // _COPIED:
                return max(alive, key=lambda term: there[term].end - there[term].begin)
        return None

    def _wanted(self, term: Term) -> Wanted | None:
        layers = self.network.layers
        readers = [layer for layer in layers if term in self.read[layer.name]]
        dims, reads = tuple(term.access.dims), dict[str, Reads]()
        for layer in readers:
            own = self._own(layer)
            product = own.layer.product
            rows = [own.operands[leaf] for leaf in product.rows.first]
            stays = [own.operands[leaf] for leaf in product.weights.first]
            found = Reads.of(own.layer, dims) if rows == [term] and all(map(self._is_constant, stays)) else None
            if found is None:
                return None
            reads[layer.name] = found
        if not reads or len({self._own(layer).zeros[0] for layer in readers}) > 1:
            return None
        writes, begin = None, 0
        if term in self.makers:
            begin = self.numbers[self.makers[term]]
            made = self._own(layers[begin]).layer
            if layers[begin].requantised is None or (made.elements <= 0).any():
                return None
            writes = Writes.of(made, dims)
        return Wanted(dims, reads, writes, begin, max(self.numbers[layer.name] for layer in readers))

    def _zero(self, term: Term) -> int:
        """The byte of a zero in a tensor that is held."""
        name = next(iter(self.held[term].reads))
        return self._own(self.network.layers[self.numbers[name]]).zeros[0]

    # Tensors between layers.

    def _is_constant(self, tensor: Term) -> bool:
        return tensor.operator.name == "access-tensor" and _name(tensor) in self.network.constants

    def _values(self, tensor: Term) -> Array:
        """Of a constant, int8."""
        return np.asarray(self.network.constants[_name(tensor)])

    def _tensor(self, term: Term) -> _Tensor:
        """Where a tensor belongs, as those want it that read it; whole where the host puts or takes it."""
        if term in self.tensors:
            return self.tensors[term]
        found = self.tensors[term] = _Tensor(np.full(tuple(term.access.dims), -1))
        if term in self.held:
            dims, strides = tuple(term.access.dims), self.held[term].skew.strides
            inner = next((axis for axis, size in enumerate(dims) if size > 1 and strides[axis] == 1), len(dims) - 1)
            self._stream_from(found, laid_out(dims, inner, self.machine.bandwidth))
            return found
        if term in self.passing and term in self.makers:
            self._stream_from(found, self._passed(term))
            return found
        for layer in self.network.layers:
            if term in self.read[layer.name]:
                own = self._own(layer)
                for leaf in (leaf for leaf, tensor in own.operands.items() if tensor == term):
                    self._demand(found, layer.name, own, leaf)
        several = term not in self.makers and sum(map(len, found.pairs)) > term.access.size
        if not found.pairs or (term in self.outside and (several or (found.place < 0).any())):
            self._stream_from(found, np.arange(term.access.size).reshape(tuple(term.access.dims)))
        return found

    def _passed(self, term: Term) -> Array:
        """The places of a tensor in DRAM, of which windows are read: as its maker writes them soonest."""
        name, dims = self.makers[term], tuple(term.access.dims)
        priced = Priced(self._own(self.network.layers[self.numbers[name]]).layer, self.machine, 0, self.reserved)
        strides = self.passing[term].skew.strides
        axes = [axis for axis, size in enumerate(dims) if size > 1] or [0]
        if len(axes) > 1:  # a window has but a part of the outermost one, and beats are to be needed whole
            axes.remove(max(axes, key=lambda axis: int(strides[axis])))
        every = [laid_out(dims, axis, self.machine.bandwidth) for axis in axes]

        def taken(places: Array) -> float:
            return priced.emptied(np.stack([np.arange(places.size), places.ravel()], axis=1))

        return min(every, key=taken)

    def _copy(self, term: Term) -> None:
        """An input, which the host puts at one place, to others at which it stays in the array: by instructions of the
        program before those of its layers.
        """
        tensor = self._tensor(term)
        if not tensor.streams or len(tensor.pairs) == 1:
            return
        begin, wanted = counted(self.writer), np.concatenate(tensor.pairs[1:])
        write_copy(self.writer, tensor.place.reshape(-1)[wanted[:, 0]], wanted[:, 1])
        name = f"copy of {_name(term)}"
        while name in self.mapped or name in self.copies.values():
            name += "'"
        copied = _Tensor(np.full_like(tensor.place, -1))
        copied.stays(wanted)
        meaning, operands = str(Program(stand_in("operand0", term))), {"operand0": self._place(term)}
        result, end = Place.of(copied.place, "int8"), counted(self.writer)
        self.stretches.append(Stretch(name, begin, end, meaning, operands, result))
        self.copies[term] = name

    def _demand(self, found: _Tensor, name: str, own: _Own, leaf: Term) -> None:
        if leaf in own.layer.product.weights.first:
            found.stays(self._computed_tiles(name, own).elements[leaf])
        if leaf in own.layer.product.rows.first and not found.streams:
            tensor = own.operands[leaf]
            if tensor in self.axes:
                self._stream_from(found, laid_out(tuple(leaf.access.dims), self.axes[tensor], self.machine.bandwidth))
            else:
                self._stream_from(found, arranged(self._order(name), leaf))

    def _stream_from(self, found: _Tensor, places: Array) -> None:
        found.stream_from(self.writer.image.room(int(places.max(initial=-1)) + 1) + places)

    def _computed_tiles(self, name: str, own: _Own) -> Tiles:
        if name not in self.tiles:
            if any(self._is_constant(own.operands[leaf]) for leaf in own.layer.product.weights.first):
                raise BadInput("what stays in the array is made of constants and of what was computed")
            self.tiles[name] = Tiles.computed(self.writer.image, own.layer, own.zeros[1])
        return self.tiles[name]

    def _place(self, term: Term) -> Place:
        return Place.of(self._tensor(term).place, "int8")

    # Layers.

    def _layer(self, layer: IntegerLayer) -> Stretch:
        own = self._own(layer)
        rows = [own.operands[leaf] for leaf in own.layer.product.rows.first]
        operands = dict[Term, Place]()
        source: Source
        if len(rows) == 1 and rows[0] in self.held:
            there = InPlace(own.layer, self.held[rows[0]], layer.name, self.machine)
            own.layer, source = there.layer, there
            tiles = self._stays(layer.name, own, operands)
            feed = Feed(tiles.brought, own.zeros[0])
        elif len(rows) == 1 and rows[0] in self.passing and (windows := self._windows(layer, own, rows[0])) is not None:
            own.layer, source = windows.layer, windows
            (leaf,) = own.layer.product.rows.first
            operands[leaf] = self._place(rows[0])
            tiles = self._stays(layer.name, own, operands)
            feed = Feed(tiles.brought, own.zeros[0], self._made(own))
        else:
            addresses = self._streams(layer.name, own, operands)
            tiles = self._stays(layer.name, own, operands)
            feed = Feed(tiles.brought, own.zeros[0], self._made(own))
            source = Copied(self.writer, self._order(layer.name), feed, addresses)
        if layer.requantised is None:
            sums = SumsOut(self.writer, own.layer)
            self.writer.layer(own.layer, source, feed, sums)
            lacking = narrow(self._corrected(layer, own))  # of sums as they are: nothing is added to them
            stands_for = StandsFor.of(1, -lacking) if lacking.any() else None
            result: Place | None = replace(Place.of(sums.addresses, "int32"), stands_for=stands_for)
        elif layer.result in self.held:
            parameters = self._parameters(layer, own).reshape(-1)
            kept = Kept(self.writer, own.layer, parameters, self.held[layer.result], self._zero(layer.result))
            self.writer.layer(own.layer, source, feed, kept)
            result = None
        else:
            self.writer.layer(own.layer, source, feed, self._bytes_out(layer, own))
            result = self._place(layer.result)
        return self._stretch(layer, own, operands, result)

    def _windows(self, layer: IntegerLayer, own: _Own, tensor: Term) -> Windows | None:
        """Rows of a tensor for which lanes have no room, from windows of it; None: these are too small."""
        machine, passing = self.machine, self.passing[tensor]
        number = self.numbers[layer.name]
        taken = [each for each in self.held.values() if each.since <= number <= each.until]
        found = gaps(taken, machine, self.reserved)
        if layer.result in self.held:  # stores write to its half meanwhile, and DMA to the other
            found = found[:1] if self.held[layer.result].begin >= machine.half_depth * machine.rows else found[1:]
        rows, first = max(found)
        size = rows // 2
        bases = first * machine.rows, (first + size) * machine.rows
        feed = Feed([], own.zeros[0], self._made(own))
        try:
            return Windows(
                self.writer,
                own.layer,
                passing.reads[layer.name],
                passing.skew.strides,
                feed,
                self._place(tensor).addresses,
                bases,
                size * machine.rows,
            )
        except BadInput:
            return None

    def _made(self, own: _Own) -> tuple[bool, bool]:
        product = own.layer.product
        rows, weights = (
            any(own.operands[leaf] in self.makers for leaf in places.first)
            for places in (product.rows, product.weights)
        )
        return rows, weights

    def _streams(self, name: str, own: _Own, operands: dict[Term, Place]) -> Array:
        """The address of each element that rows are made of, by number."""
        first = own.layer.product.rows.first
        addresses = np.full(1 + sum(leaf.access.size for leaf in first), -1)
        for leaf, begin in first.items():
            operands[leaf] = self._streamed(name, own, leaf)
            addresses[begin : begin + leaf.access.size] = operands[leaf].addresses.ravel()
        return addresses

    def _streamed(self, name: str, own: _Own, leaf: Term) -> Place:
        tensor = own.operands[leaf]
        if not self._is_constant(tensor):
            return self._place(tensor)
        places = arranged(self._order(name), leaf)
        found = Place.of(self.writer.image.room(int(places.max(initial=-1)) + 1) + places, "int8")
        self.filled.append((found, self._values(tensor).reshape(tuple(leaf.access.dims))))
        return found

    def _stays(self, name: str, own: _Own, operands: dict[Term, Place]) -> Tiles:
        weights = own.layer.product.weights.first
        if all(self._is_constant(own.operands[leaf]) for leaf in weights):
            values = {leaf: self._values(own.operands[leaf]) for leaf in weights}
            tiles = Tiles.known(self.writer.image, own.layer, values)
        else:
            tiles = self._computed_tiles(name, own)
        for leaf in weights:
            if leaf not in operands:
                operands[leaf] = Place.of(tiles.of(leaf), "int8")
        return tiles

    def _parameters(self, layer: IntegerLayer, own: _Own) -> Array:
        """Of each element, (dims). Raises BadInput."""
        asked = layer.requantised
        assert asked is not None, "it becomes bytes"
        dims = tuple(layer.sums.access.dims)
        every = np.zeros(dims, requantise.PARAMETER)
        bias = np.broadcast_to(asked.bias, dims).astype(np.int64) + self._corrected(layer, own)
        if bias.min() < -(1 << 31) or bias.max() >= 1 << 31:
            raise BadInput("its bias, with what zero points add up to, is not of 32 bits")
        every["bias"], every["scale"] = bias, np.broadcast_to(asked.scale, dims)
        every["zero"], every["low"], every["high"] = asked.zero, asked.low, asked.high
        return every

    def _bytes_out(self, layer: IntegerLayer, own: _Own) -> Sink:
        every = self._parameters(layer, own)
        pairs = np.concatenate(self._tensor(layer.result).pairs)
        self._fill_zeros(own.layer, every, pairs)
        return BytesOut(self.writer, own.layer, Bytes(every.reshape(-1), pairs[:, 0], pairs[:, 1]))

    def _fill_zeros(self, layer: Layer, every: Array, pairs: Array) -> None:
        """Elements that are sums of nothing are there from the begin on."""
        nothing = layer.elements.reshape(-1) <= 0
        own = pairs[nothing[pairs[:, 0]]]
        if len(own):
            parameters = every.reshape(-1)[own[:, 0]]
            values = requantise.requantised(parameters["bias"].astype(np.int64), parameters)
            self.filled.append((Place.of(own[:, 1], "int8"), values))

    def _corrected(self, layer: IntegerLayer, own: _Own) -> Array:
        """What sums of (r - y) (s - z) are above those of r s: of each element, (dims)."""
        y, z = own.zeros
        product, enabled = own.layer.product, own.layer.enabled
        if not y and not z:
            return np.zeros((), np.int64)
        if y and z:
            raise BadInput("both operands have zero points, and sums of what is computed are not known beforehand")
        stays = product.weights if y else product.rows
        if not all(self._is_constant(own.operands[leaf]) for leaf in stays.first):
            raise BadInput("an operand has a zero point, and the other one is no constant whose sums are known")
        every = stays.values({leaf: self._values(own.operands[leaf]) for leaf in stays.first}, "int8").astype(np.int64)
        if y:
            of_tile = -y * (every * enabled[:, :, None]).sum(axis=1)  # (tiles)(C)
        else:
            of_tile = -z * every.sum(axis=2)  # (tiles)(m): lanes that are not enabled hold zeros
        of_group = np.stack([of_tile[list(group.tiles)].sum(axis=0) for group in own.layer.groups])
        line, column = own.layer.lines()
        group, row = np.divmod(line, product.rows.numbers.shape[1])
        found: Array = np.where(own.layer.elements > 0, of_group[group, column if y else row], 0)
        return found

    def _stretch(
        self, layer: IntegerLayer, own: _Own, operands: Mapping[Term, Place], result: Place | None
    ) -> Stretch:
        """What it means: its term of the network, of tensors in DRAM; nothing of what is held in lanes, which layers
        that read it mean too.
        """
        tensors = {own.operands[leaf]: leaf for leaf in operands}
        self.constants |= {tensor: operands[leaf] for tensor, leaf in tensors.items() if self._is_constant(tensor)}
        if result is None:
            return Stretch("", {}, {})
        places, stand_ins, made = dict[str, Place](), dict[Term, Term](), dict[str, str]()
        for tensor in dict.fromkeys((*tensors, *self._means(layer))):
            name = f"operand{len(places)}"
            leaf = tensors.get(tensor)
            places[name] = operands[leaf] if leaf is not None else self.constants.get(tensor) or self._place(tensor)
            stand_ins[tensor] = stand_in(name, tensor)
            if tensor in self.makers:
                made[name] = self.makers[tensor]
            elif tensor in self.copies and leaf is not None and leaf not in own.layer.product.rows.first:
                made[name] = self.copies[tensor]
        (inner,) = rebuild_all([layer.result if layer.requantised is not None else layer.sums], _as_it_is, stand_ins)
        for term in postorder(inner):
            if self._is_constant(term):
                size, dtype = term.access.size, term.access.dtype
                room = self.writer.image.room(size * np.dtype(dtype).itemsize)
                places[_name(term)] = Place(room, tuple(term.access.dims), dtype)
                self.filled.append((places[_name(term)], self.network.constants[_name(term)]))
        return Stretch("", {}, {}, str(Program(inner)), places, result, made)

    def _means(self, layer: IntegerLayer) -> Iterator[Term]:
        """The tensors in DRAM that a layer is made of, also by way of those that are held in lanes."""
        for tensor in self.read[layer.name]:
            if tensor in self.held and tensor in self.makers:
                yield from self._means(self.network.layers[self.numbers[self.makers[tensor]]])
            elif not self._is_constant(tensor) or tensor in self.constants:
                yield tensor


def _as_it_is(term: Term, _: object) -> None:
    return None
