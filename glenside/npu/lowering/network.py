"""Networks of integer layers as one program, input to result: what a layer leaves in DRAM the next one reads."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from glenside.analysis.places import leaves_of
from glenside.ir.errors import BadInput
from glenside.ir.operand import Array
from glenside.ir.program import Program
from glenside.ir.term import Term, postorder, rebuild_all
from glenside.ir.types import Tensor
from glenside.npu import requantise
from glenside.npu.lowering.copying import write_copy
from glenside.npu.lowering.layers import Feed, Sink, SumsOut, Writer
from glenside.npu.lowering.operands import Tiles, arranged, laid_out
from glenside.npu.lowering.program import Filled, counted, finished, stand_in
from glenside.npu.lowering.runs import Order
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
) -> NpuProgram:
    """A network as one program, its layers as they are mapped, by name.

    axes   of tensors that stream, which is innermost in DRAM; of others it is what the first reader wants
    given  int8 values of inputs that DRAM holds; others are drawn by the seed

    Raises Unlowered: a layer that the machine does not run, by its name and why.
    """
    return _Chain(network, mapped, machine, axes or {}, show).program(given or {}, seed)


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
    order: Order
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
    ) -> None:
        self.network, self.mapped, self.machine, self.axes, self.show = network, mapped, machine, axes, show
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

    def program(self, given: Mapping[str, Array], seed: int) -> NpuProgram:
        network, draw = self.network, np.random.default_rng(seed)
        inputs = dict[str, Place]()
        for term in self._inputs():
            name = _name(term)
            inputs[name] = self._place(term)
            values = given.get(name)
            if values is None:
                values = draw.integers(-128, 128, tuple(term.access.dims)).astype(np.int8)
            self.filled.append((inputs[name], values))
            self._copy(term)
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
        reserved = rows_needed(self.machine) if layer.requantised is not None else 0
        order = Order(found, self.machine, self.machine.half_depth - reserved)
        leaves = dict.fromkeys((*found.product.rows.first, *found.product.weights.first))
        read = {leaf: leaf_of(mapped.operands.get(leaf, leaf)) for leaf in leaves}
        for tensor, _ in read.values():
            if tensor not in self.makers and tensor.operator.name != "access-tensor":
                raise BadInput(f"an operand is neither a result nor an input, but {tensor.operator.name}")
        rows, weights = (
            _one_zero(read[leaf][1] for leaf in each.first) for each in (found.product.rows, found.product.weights)
        )
        return _Own(found, order, {leaf: tensor for leaf, (tensor, _) in read.items()}, (rows, weights))

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
        for layer in self.network.layers:
            if term in self.read[layer.name]:
                own = self._own(layer)
                for leaf in (leaf for leaf, tensor in own.operands.items() if tensor == term):
                    self._demand(found, layer.name, own, leaf)
        several = term not in self.makers and sum(map(len, found.pairs)) > term.access.size
        if not found.pairs or (term in self.outside and (several or (found.place < 0).any())):
            self._stream_from(found, np.arange(term.access.size).reshape(tuple(term.access.dims)))
        return found

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
                self._stream_from(found, arranged(own.order, leaf))

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
        product = own.layer.product
        operands = dict[Term, Place]()
        addresses = np.full(1 + sum(leaf.access.size for leaf in product.rows.first), -1)
        for leaf, first in product.rows.first.items():
            operands[leaf] = self._streamed(own, leaf)
            addresses[first : first + leaf.access.size] = operands[leaf].addresses.ravel()
        tiles = self._stays(layer.name, own, operands)
        rows, weights = (
            any(own.operands[leaf] in self.makers for leaf in places.first)
            for places in (product.rows, product.weights)
        )
        feed = Feed(addresses, tiles.addresses, own.zeros[0], (rows, weights))
        if layer.requantised is None:
            sums = SumsOut(self.writer, own.layer)
            self.writer.layer(own.order, feed, sums)
            lacking = narrow(self._corrected(layer, own))  # of sums as they are: nothing is added to them
            stands_for = StandsFor.of(1, -lacking) if lacking.any() else None
            result = replace(Place.of(sums.addresses, "int32"), stands_for=stands_for)
        else:
            self.writer.layer(own.order, feed, self._bytes_out(layer, own))
            result = self._place(layer.result)
        return self._stretch(layer, own, operands, result)

    def _streamed(self, own: _Own, leaf: Term) -> Place:
        tensor = own.operands[leaf]
        if not self._is_constant(tensor):
            return self._place(tensor)
        places = arranged(own.order, leaf)
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

    def _bytes_out(self, layer: IntegerLayer, own: _Own) -> Sink:
        asked = layer.requantised
        assert asked is not None, "it becomes bytes"
        dims = tuple(layer.sums.access.dims)
        every = np.zeros(dims, requantise.PARAMETER)
        bias = np.broadcast_to(asked.bias, dims).astype(np.int64) + self._corrected(layer, own)
        if bias.min() < -(1 << 31) or bias.max() >= 1 << 31:
            raise BadInput("its bias, with what zero points add up to, is not of 32 bits")
        every["bias"], every["scale"] = bias, np.broadcast_to(asked.scale, dims)
        every["zero"], every["low"], every["high"] = asked.zero, asked.low, asked.high
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
        line, column = own.layer.lines(self.machine)
        group, row = np.divmod(line, product.rows.numbers.shape[1])
        found: Array = np.where(own.layer.elements > 0, of_group[group, column if y else row], 0)
        return found

    def _stretch(self, layer: IntegerLayer, own: _Own, operands: Mapping[Term, Place], result: Place) -> Stretch:
        """What it means: its term of the network, of tensors in DRAM."""
        whole = layer.result if layer.requantised is not None else layer.sums
        places, stand_ins, made = dict[str, Place](), dict[Term, Term](), dict[str, str]()
        read = [(own.operands[leaf], place, leaf in own.layer.product.rows.first) for leaf, place in operands.items()]
        needed = {*own.operands.values()}
        for tensor in self.read[layer.name]:  # those of which the mapping needs nothing, too
            if tensor not in needed and not self._is_constant(tensor):
                read.append((tensor, self._place(tensor), True))
        for tensor, place, streams in read:
            name = f"operand{len(places)}"
            stand_ins[tensor], places[name] = stand_in(name, tensor), place
            if tensor in self.makers:
                made[name] = self.makers[tensor]
            elif tensor in self.copies and not streams:
                made[name] = self.copies[tensor]
        (inner,) = rebuild_all([whole], lambda _, __: None, stand_ins)
        for term in postorder(inner):
            if self._is_constant(term):
                size, dtype = term.access.size, term.access.dtype
                room = self.writer.image.room(size * np.dtype(dtype).itemsize)
                places[_name(term)] = Place(room, tuple(term.access.dims), dtype)
                self.filled.append((places[_name(term)], self.network.constants[_name(term)]))
        return Stretch("", {}, {}, str(Program(inner)), places, result, made)
