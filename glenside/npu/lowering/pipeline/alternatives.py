"""Compiles programs of other choices than the selected one, for networks whose predicted cost was too low."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial

from glenside.ir.errors import BadInput
from glenside.npu.lowering.emission.cycle_cutoff import TooLong
from glenside.npu.lowering.pipeline.compile_mapped import compile_mapped
from glenside.npu.lowering.selection.candidates import Options
from glenside.npu.lowering.selection.feasible_choice import best
from glenside.npu.lowering.selection.ilp_model import Choice, Known
from glenside.npu.lowering.tiling.elementwise_as_matmul import every_mapping
from glenside.npu.lowering.tiling.mapped_layers import Front, Unlowered
from glenside.npu.machine.model import Machine
from glenside.npu.program.program import NpuProgram
from glenside.quantization.layers import IntegerNetwork


def predicted_cycles(program: NpuProgram) -> int:
    """Returns the predicted cycles of a lowered program."""
    assert program.predicted is not None, "whatever is lowered has its cycles"
    return program.predicted


def alternatives(
    network: IntegerNetwork,
    fronts: Front,
    machine: Machine,
    prices: tuple[Options, Known],
    than: tuple[NpuProgram, Choice, float],
    how: tuple[int, Callable[[str, int, int], None]],
) -> Iterator[NpuProgram]:
    """Yields programs of other choices that may take fewer cycles.

    If the predicted cost was too low: a choice with more resident tensors. Simpler choices, unless their predicted cost
    is known to be higher.
    """
    made, choice, in_dram = than
    most = predicted_cycles(made)
    lanes = partial(_more_in_lanes, network, fronts, machine, prices, choice, how)
    simpler = partial(_simpler, network, fronts, machine, prices, in_dram, how)
    if most <= _UNRELIABLE_COST_RATIO * choice.cycles:
        for found in lanes(most):
            most = min(most, predicted_cycles(found))
            yield found
        yield from simpler(most)
        return
    least = most
    for found in _windows_priced(network, fronts, machine, prices, how, most):
        least = min(least, predicted_cycles(found))
        yield found
    for found in simpler(least):
        least = min(least, predicted_cycles(found))
        yield found
    if least == most:  # otherwise predictions this low need no second try
        yield from lanes(most)


def _more_in_lanes(
    network: IntegerNetwork,
    fronts: Front,
    machine: Machine,
    prices: tuple[Options, Known],
    choice: Choice,
    how: tuple[int, Callable[[str, int, int], None]],
    most: int,
) -> Iterator[NpuProgram]:
    """Yields a program that keeps more tensors on chip, if the predicted cost was too low."""
    if most <= _LOW_COST_RATIO * choice.cycles:
        return
    priced, known = prices
    with suppress(BadInput, TooLong):
        taken, other = best(network, fronts, machine, priced=priced, known=known, spared=1.0)
        if other.held != choice.held or other.mappings != choice.mappings:
            yield compile_mapped(network, taken, machine, how[0], other.axes, how[1], other.held, other.where, most)


def _windows_priced(
    network: IntegerNetwork,
    fronts: Front,
    machine: Machine,
    prices: tuple[Options, Known],
    how: tuple[int, Callable[[str, int, int], None]],
    most: int,
) -> Iterator[NpuProgram]:
    """Yields the choice by exact costs of windows: their estimates are wrong if the scratchpad is small."""
    priced, known = prices
    with suppress(BadInput, TooLong):
        taken, choice = best(network, fronts, machine, priced=priced, known=known, windows=True)
        yield compile_mapped(network, taken, machine, how[0], choice.axes, how[1], choice.held, choice.where, most)


def _simpler(
    network: IntegerNetwork,
    fronts: Front,
    machine: Machine,
    prices: tuple[Options, Known],
    in_dram: float,
    how: tuple[int, Callable[[str, int, int], None]],
    most: int,
) -> Iterator[NpuProgram]:
    """Yields programs without resident tensors, and layer by layer, unless their cost is known to be higher."""
    if in_dram * MIN_COST_RATIO > most:
        return
    priced, known = prices
    with suppress(BadInput, TooLong):
        taken, choice = best(
            network, fronts, machine, stay=False, priced=priced, known=known, enough=most / MIN_COST_RATIO
        )
        if choice.bound * MIN_COST_RATIO > most:
            return
        found = compile_mapped(network, taken, machine, how[0], choice.axes, how[1], (), most=most)
        most = min(most, predicted_cycles(found))
        yield found
    with suppress(BadInput, TooLong):
        yield layer_by_layer(network, fronts, machine, *how, most)


_LOW_COST_RATIO = 1.05
"""Cycles of a program as a multiple of its predicted cost, from which on the prediction was too low."""
_UNRELIABLE_COST_RATIO = 1.6
"""The multiple above which predictions are so unreliable that simpler programs are tried first; comparing others then
ends early.
"""
MIN_COST_RATIO = 0.75
"""Least cycles of a choice as a fraction of its predicted cost, which is extrapolated from parts of layers."""


def layer_by_layer(
    network: IntegerNetwork,
    found: Front,
    machine: Machine,
    seed: int = 0,
    show: Callable[[str, int, int], None] = lambda *_: None,
    most: int | None = None,
) -> NpuProgram:
    """Compiles each layer with its quickest mapping, and all tensors in DRAM in the layout that is loaded fastest.

    Takes the next mapping if one cannot be emitted. Raises BadInput if none is left, and TooLong.
    """
    known = {layer.name: found.get(layer.name) or every_mapping(layer, (), machine) for layer in network.layers}
    left = {name: sorted(own, key=lambda pair: pair[1]) for name, own in known.items()}
    while True:
        try:
            taken = {name: own[0][0] for name, own in left.items()}
            return compile_mapped(network, taken, machine, seed, show=show, stay=(), most=most)
        except Unlowered as error:
            name = next((name for name in error.layers if len(left[name]) > 1), None)
            if name is None:
                raise
            left[name] = left[name][1:]
