"""Lists the mappings that each layer of a network may take, with their predicted costs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from glenside.analysis.element_sources import leaves_of
from glenside.ir.errors import BadInput
from glenside.ir.operand import Array
from glenside.ir.stopwatch import stage
from glenside.ir.term import Term
from glenside.ir.threads import in_parallel
from glenside.ir.types import Tensor
from glenside.npu.lowering.emission.emit_copy import cycles_of_copy
from glenside.npu.lowering.emission.emit_results import rows_needed
from glenside.npu.lowering.selection.candidate_cost import Priced
from glenside.npu.lowering.tiling.elementwise_as_matmul import every_mapping
from glenside.npu.lowering.tiling.layer_tiles import instruction_of
from glenside.npu.lowering.tiling.mapped_layers import Mapped, tiled
from glenside.npu.machine.model import Machine
from glenside.quantization.layers import IntegerLayer, IntegerNetwork, leaf_of

_MAX_TIME_RATIO = 8
"""Maximum array cycles of a candidate, relative to the fastest one."""


@dataclass(frozen=True)
class Option:
    """A mapping that a layer may take.

    price    its predicted cost
    streams  streamed leaf -> its tensor; None for a constant
    stays    the same for leaves that stay in the array
    """

    price: Priced
    streams: Mapping[Term, Term | None]
    stays: Mapping[Term, Term | None]

    @property
    def operands(self) -> dict[Term, Term | None]:
        return {**self.streams, **self.stays}


@dataclass(frozen=True)
class Options:
    """The candidates of each layer by name, with their mappings.

    A mapping is tiled only if a choice uses it: two of three never are chosen. One mapping of each layer is tiled at
    once.
    """

    every: Mapping[str, Sequence[Option]]
    kept: Mapping[str, Sequence[Mapped]]

    def taken(self, numbers: Mapping[str, int]) -> dict[str, Mapped]:
        """Returns one mapping of each layer, with its tiles. Raises BadInput if it cannot be tiled."""
        return {
            name: replace(self.kept[name][number], layer=self.every[name][number].price.layer)
            for name, number in numbers.items()
        }


@stage("price")
def cut(options: Iterable[Option]) -> None:
    """Tiles mappings, on all processors."""

    def work(price: Priced, _: None) -> None:
        price.cut()

    whole = {id(own.price): own.price for own in options if not own.price.is_cut and own.price.refused is None}
    in_parallel(work, whole.values(), lambda _: None)


@stage("price")
def options_of(
    network: IntegerNetwork,
    variants: Mapping[str, Sequence[tuple[Mapped, int]]],
    machine: Machine,
    show: Callable[[str, int, int], None] = lambda *_: None,
) -> Options:
    """Returns the candidates of each layer with their predicted cost.

    Raises BadInput for a layer without any, by its name.
    """
    every = {layer.name: every_mapping(layer, variants.get(layer.name, ()), machine) for layer in network.layers}
    known, options, kept = dict[tuple[Term, bool], Priced](), dict[str, list[Option]](), dict[str, list[Mapped]]()
    refused = dict[str, BadInput]()
    for layer in network.layers:
        options[layer.name], kept[layer.name] = [], []
        for mapped, cycles in every[layer.name]:
            key = mapped.term, layer.requantised is None
            if cycles > _MAX_TIME_RATIO * min((option.price.cycles for option in options[layer.name]), default=cycles):
                continue
            try:
                if key not in known:
                    reserved = 0 if layer.requantised is None else rows_needed(machine)
                    known[key] = Priced(partial(tiled, layer, mapped, machine), machine, cycles, reserved)
                options[layer.name].append(_option(network, layer, known[key], mapped))
                kept[layer.name].append(mapped)
            except BadInput as error:
                refused.setdefault(layer.name, error)
    waiting = {name: sorted(own, key=lambda option: option.price.cycles) for name, own in options.items()}
    while waiting:
        show(f"mappings of {next(iter(waiting))}", len(options) - len(waiting), 2 * len(options))
        cut(own[0] for own in waiting.values() if own)
        for name, own in waiting.items():
            if not own:
                why = next((o.price.refused for o in options[name] if o.price.refused), refused.get(name))
                raise BadInput(f"the layer {name}: {why or 'it has no mapping'}")
        waiting = {name: own[1:] for name, own in waiting.items() if not own[0].price.is_cut}
    return Options(options, kept)


def _option(network: IntegerNetwork, layer: IntegerLayer, price: Priced, mapped: Mapped) -> Option:
    """Builds a candidate. Raises BadInput if the machine cannot run the mapping, as far as that is
    known before tiling.
    """
    if mapped.layer is None and layer.normalised is None:
        a, b = instruction_of(mapped.term, price.machine).children
        streams, stays = leaves_of(a), leaves_of(b)
    else:
        streams, stays = [*price.layer.product.rows.first], [*price.layer.product.weights.first]

    def tensors(leaves: Sequence[Term]) -> dict[Term, Term | None]:
        return {leaf: _operand(network, mapped.operands.get(leaf, leaf)) for leaf in leaves}

    return Option(price, tensors(streams), tensors(stays))


def _operand(network: IntegerNetwork, leaf: Term) -> Term | None:
    tensor, _ = leaf_of(leaf)
    own = tensor.attributes[0] if tensor.operator.name == "access-tensor" else None
    return None if isinstance(own, Tensor) and own.name in network.constants else tensor


def axes_of(tensor: Term) -> list[int]:
    """Returns the axes of a tensor that may be innermost."""
    return [axis for axis, size in enumerate(tensor.access.dims) if size > 1] or [0]


def best_filled(price: Priced, leaf: Term) -> float:
    """Returns the least cost of loading a constant, whose layout is free."""
    return min(price.filled(leaf, axis) for axis in axes_of(leaf))


def copied(option: Option, tensor: Term, pairs: Array, alone: bool, machine: Machine) -> float:
    """Predicts the cycles of copying an input to its tiles. 0 if only this layer reads it, and each element is in one
    tile: the host then stores it there.
    """
    every = np.arange(tensor.access.size)
    if alone and tensor not in option.streams.values() and np.array_equal(pairs[:, 0], every):
        return 0.0
    return cycles_of_copy(pairs[:, 0], pairs[:, 1], machine)


def copied_at_least(option: Option, tensor: Term, machine: Machine) -> float:
    """Returns a lower bound on the beats of copying a tensor to tiles: 0 if no element is in several tiles."""
    placed = bytes_of_tiles(option, tensor) if option.price.is_cut else 0
    return 0.0 if placed <= tensor.access.size else (tensor.access.size + placed) / machine.bandwidth


def bytes_of_tiles(option: Option, tensor: Term) -> int:
    """Returns the bytes of the tiles of a tensor that is loaded as weights."""
    leaves = tuple(leaf for leaf, own in option.stays.items() if own == tensor)
    key, known = ("placed", leaves), option.price.layer.known
    if key not in known:
        weights = option.price.layer.product.weights
        every = _distinct(option.price.layer.weights)
        if [*weights.first] == [*leaves]:
            known[key] = sum(map(np.count_nonzero, every))
        else:
            ranges = [(weights.first[leaf], leaf.access.size) for leaf in leaves]
            known[key] = sum(
                int(np.count_nonzero((own >= first) & (own < first + size))) for own in every for first, size in ranges
            )
    placed: int = known[key]
    return placed


def _distinct(tiles: Iterable[Array]) -> Iterator[Array]:
    """Yields each distinct tile once; candidates are compared by their first row and column."""
    known: dict[tuple[bytes, bytes], list[Array]] = {}
    for own in tiles:
        alike = known.setdefault((own[:1].tobytes(), own[:, :1].tobytes()), [])
        if not any(own is other or np.array_equal(own, other) for other in alike):
            alike.append(own)
            yield own
