"""Represents networks of mapped integer layers: the operands of each layer, and the readers of each tensor."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from glenside.analysis.element_sources import leaves_of
from glenside.ir.errors import BadInput
from glenside.ir.operand import Array
from glenside.ir.term import Term
from glenside.npu.lowering.tiling.column_operators import columnwise
from glenside.npu.lowering.tiling.layer_tiles import Layer
from glenside.npu.lowering.util.identity_memo import Memo
from glenside.npu.machine.model import Machine
from glenside.quantization.layers import IntegerLayer, IntegerNetwork, leaf_of, name_of


@dataclass(frozen=True)
class Mapped:
    """A layer's product as it is mapped, over placeholders of its operands or over the operands; and its tiles if
    computed.
    """

    term: Term
    operands: Mapping[Term, Term]
    layer: Layer | None = None


Front = Mapping[str, Sequence[tuple[Mapped, int]]]
"""The candidate mappings of each layer with their predicted cycles on the array, by name."""


def known_together(mapped: Mapping[str, Mapped]) -> dict[str, Memo]:
    """Returns a memo of each layer by name; layers with the same tiles share one."""
    shared = defaultdict[int, Memo](Memo)
    return {name: Memo() if own.layer is None else shared[id(own.layer)] for name, own in mapped.items()}


class Unlowered(BadInput):
    """Reports a mapping that cannot be emitted; `layers` are the layers whose other mappings may work."""

    layers: tuple[str, ...] = ()

    @staticmethod
    def of(message: str, *layers: str) -> Unlowered:
        """Returns the error with its layers."""
        found = Unlowered(message)
        found.layers = layers
        return found


def tiled(layer: IntegerLayer, mapped: Mapped, machine: Machine) -> Layer:
    """Returns the tiles of a layer: those of its mapping, or columns if it is normalized. Raises BadInput."""
    if layer.normalised is not None:
        return columnwise(layer, machine)
    return mapped.layer or Layer.of(mapped.term, machine)


@dataclass
class Own:
    """A tiled layer with its operands.

    operands  leaves of the mapped product -> the int8 tensor; constants have no zero points
    zeros     zero point of the streamed operand, and of the stationary one
    """

    layer: Layer
    operands: Mapping[Term, Term]
    zeros: tuple[int, int]


def _one_zero(zeros: Iterable[int]) -> int:
    """Returns the zero point of an operand. Raises BadInput if there are several."""
    found = {*zeros}
    if len(found) > 1:
        raise BadInput(f"an operand joins tensors with several zero points, {', '.join(map(str, sorted(found)))}")
    return found.pop() if found else 0


def results_of(network: IntegerNetwork) -> Sequence[Term]:
    """Returns the terms that the host reads."""
    whole = network.program.term
    return whole.children if whole.operator.name == "construct-tuple" else (whole,)


class MappedNetwork:
    """A network and its mapped layers by name.

    makers   result -> name of its layer
    read     name of a layer -> the tensors that it reads
    numbers  number of each layer
    outside  tensors that the host writes or reads
    """

    def __init__(self, network: IntegerNetwork, mapped: Mapping[str, Mapped], machine: Machine) -> None:
        self.network, self.mapped, self.machine = network, mapped, machine
        self.makers = {layer.result: layer.name for layer in network.layers}
        self.read = {
            layer.name: dict.fromkeys(leaf_of(leaf)[0] for leaf in leaves_of(layer.operands, self.makers))
            for layer in network.layers
        }
        self.numbers = {layer.name: number for number, layer in enumerate(network.layers)}
        self.known: dict[str, Own] = {}
        self.outside = {
            *self.inputs(),
            *(leaf for root in results_of(network) for leaf in leaves_of(root, self.makers)),
        }

    def inputs(self) -> list[Term]:
        """Returns the tensors that the host writes."""
        return self.network.input_terms()

    def own(self, layer: IntegerLayer) -> Own:
        if layer.name not in self.known:
            try:
                self.known[layer.name] = self._found(layer)
            except BadInput as error:
                raise Unlowered.of(f"the layer {layer.name}: {error}", layer.name) from error
        return self.known[layer.name]

    def _found(self, layer: IntegerLayer) -> Own:
        mapped = self.mapped[layer.name]
        found = mapped.layer or tiled(layer, mapped, self.machine)
        leaves = dict.fromkeys((*found.product.rows.first, *found.product.weights.first))
        read = {leaf: leaf_of(mapped.operands.get(leaf, leaf)) for leaf in leaves}
        for tensor, _ in read.values():
            if tensor not in self.makers and tensor.operator.name != "access-tensor":
                raise BadInput(f"an operand is neither a result nor an input, but {tensor.operator.name}")
        rows, weights = (
            _one_zero(read[leaf][1] for leaf in each.first) for each in (found.product.rows, found.product.weights)
        )
        return Own(found, {leaf: tensor for leaf, (tensor, _) in read.items()}, (rows, weights))

    def is_constant(self, tensor: Term) -> bool:
        return tensor.operator.name == "access-tensor" and name_of(tensor) in self.network.constants

    def values(self, tensor: Term) -> Array:
        """Returns the values of a constant, int8."""
        return np.asarray(self.network.constants[name_of(tensor)])
