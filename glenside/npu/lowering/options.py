"""The mappings that each layer of a network may take, with their prices."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

import numpy as np

from glenside.ir.errors import BadInput
from glenside.ir.operand import Array
from glenside.ir.term import Term
from glenside.ir.threads import in_parallel
from glenside.ir.types import Tensor
from glenside.npu.lowering.copying import cycles_of_copy
from glenside.npu.lowering.elementwise import every_mapping
from glenside.npu.lowering.mapped import Mapped, tiled
from glenside.npu.lowering.price import Priced
from glenside.npu.lowering.storing import rows_needed
from glenside.npu.lowering.tiles import Layer
from glenside.npu.machine import Machine
from glenside.quantization.layers import IntegerLayer, IntegerNetwork, leaf_of

_SLOW = 8
"""How many times as long as another mapping one may take the array."""


@dataclass(frozen=True)
class Option:
    """A mapping that a layer may take.

    price     what it takes
    operands  its leaves -> the tensor that each is; None of constants
    """

    price: Priced
    operands: Mapping[Term, Term | None]

    @property
    def streams(self) -> dict[Term, Term | None]:
        return {leaf: self.operands[leaf] for leaf in self.price.layer.product.rows.first}

    @property
    def stays(self) -> dict[Term, Term | None]:
        return {leaf: self.operands[leaf] for leaf in self.price.layer.product.weights.first}


Options = tuple[dict[str, list[Option]], dict[str, list[Mapped]]]
"""What each layer may take, by name, and the mapping of each."""


def options_of(
    network: IntegerNetwork,
    variants: Mapping[str, Sequence[tuple[Mapped, int]]],
    machine: Machine,
    show: Callable[[str, int, int], None] = lambda *_: None,
) -> Options:
    """What each layer may take, with prices; and the mappings of these. Raises BadInput: nothing, by its name."""
    every = {layer.name: every_mapping(layer, variants.get(layer.name, ()), machine) for layer in network.layers}
    known, tiles = dict[tuple[Term, bool], Priced](), _tiled(network, every, machine)
    options: dict[str, list[Option]] = {}
    kept: dict[str, list[Mapped]] = {}
    for number, layer in enumerate(network.layers):
        show(f"mappings of {layer.name}", number, 2 * len(network.layers))
        options[layer.name], kept[layer.name], refused = [], [], list[BadInput]()
        for mapped, cycles in every[layer.name]:
            key = mapped.term, layer.requantised is None
            if cycles > _SLOW * min((option.price.cycles for option in options[layer.name]), default=cycles):
                continue
            try:
                if key not in known:
                    reserved = 0 if layer.requantised is None else rows_needed(machine)
                    found = tiles.get(key) or tiled(layer, mapped, machine)
                    known[key] = Priced(found, machine, cycles, reserved)
                options[layer.name].append(Option(known[key], _operands(network, known[key].layer, mapped)))
                kept[layer.name].append(replace(mapped, layer=known[key].layer))
            except BadInput as error:
                refused.append(error)
        if not options[layer.name]:
            raise BadInput(f"the layer {layer.name}: {refused[0] if refused else 'it has no mapping'}")
    return options, kept


def _tiled(
    network: IntegerNetwork, every: Mapping[str, Sequence[tuple[Mapped, int]]], machine: Machine
) -> dict[tuple[Term, bool], Layer]:
    """Mappings as tiles, by all processors at a time: of those that the machine runs, and that are not too slow."""
    jobs, found = dict[tuple[Term, bool], tuple[IntegerLayer, Mapped]](), dict[tuple[Term, bool], Layer]()
    for layer in network.layers:
        least = min((cycles for _, cycles in every[layer.name]), default=0)
        for mapped, cycles in every[layer.name]:
            if cycles <= _SLOW * least:
                jobs.setdefault((mapped.term, layer.requantised is None), (layer, mapped))

    def work(key: tuple[Term, bool], _: None) -> None:
        with suppress(BadInput):  # which is met again, and said
            found[key] = tiled(*jobs[key], machine)

    in_parallel(work, jobs, lambda _: None)
    return found


def _operands(network: IntegerNetwork, layer: Layer, mapped: Mapped) -> dict[Term, Term | None]:
    found: dict[Term, Term | None] = {}
    for leaf in (*layer.product.rows.first, *layer.product.weights.first):
        tensor, _ = leaf_of(mapped.operands.get(leaf, leaf))
        own = tensor.attributes[0] if tensor.operator.name == "access-tensor" else None
        found[leaf] = None if isinstance(own, Tensor) and own.name in network.constants else tensor
    return found


def axes_of(tensor: Term) -> list[int]:
    """Those that may be innermost."""
    return [axis for axis, size in enumerate(tensor.access.dims) if size > 1] or [0]


def best_filled(price: Priced, leaf: Term) -> float:
    """Of a constant, which may have any order."""
    return min(price.filled(leaf, axis) for axis in axes_of(leaf))


def copied(option: Option, tensor: Term, pairs: Array, alone: bool, machine: Machine) -> float:
    """Cycles that bring an input to where it stays in the array, from where the host puts it: none where it may put it
    there, which nobody else reads, each element at one place.
    """
    every = np.arange(tensor.access.size)
    if alone and tensor not in option.streams.values() and np.array_equal(pairs[:, 0], every):
        return 0.0
    return cycles_of_copy(pairs[:, 0], pairs[:, 1], machine)


def copied_at_least(option: Option, tensor: Term, machine: Machine) -> float:
    """The same of a tensor that stays as tiles, soon known: nothing where no element is in several, else beats in and
    out.
    """
    placed = bytes_of_tiles(option, tensor)
    return 0.0 if placed <= tensor.access.size else (tensor.access.size + placed) / machine.bandwidth


def bytes_of_tiles(option: Option, tensor: Term) -> int:
    """How many bytes of tiles a tensor's elements are that stays."""
    leaves = tuple(leaf for leaf, own in option.stays.items() if own == tensor)
    key, known = ("placed", leaves), option.price.layer.known
    if key not in known:
        ranges = [(option.price.layer.product.weights.first[leaf], leaf.access.size) for leaf in leaves]
        every = {own.tobytes(): own for own in option.price.layer.weights}.values()  # equal tiles are there once
        known[key] = sum(
            int(np.count_nonzero((own >= first) & (own < first + size))) for own in every for first, size in ranges
        )
    placed: int = known[key]
    return placed
