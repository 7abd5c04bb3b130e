"""Tests the joint choice of mappings and tensor layouts against all choices at the same prices."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from itertools import product
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from npu_layers import MACHINES
from npu_networks import network

import glenside as gl
from glenside.ir.errors import BadInput
from glenside.ir.term import Term
from glenside.npu.lowering.emission.cycle_cutoff import TooLong
from glenside.npu.lowering.pipeline import alternatives
from glenside.npu.lowering.pipeline.compile_network import map_layers
from glenside.npu.lowering.selection.candidate_cost import Priced
from glenside.npu.lowering.selection.candidates import Option, axes_of, copied, options_of
from glenside.npu.lowering.selection.ilp_model import Choice, chosen
from glenside.npu.lowering.selection.residency_candidates import Staying
from glenside.npu.lowering.tiling.layer_tiles import Layer
from glenside.npu.lowering.transfer.dram_image import Image
from glenside.npu.lowering.transfer.dram_operands import Tiles, laid_out
from glenside.npu.machine.model import Machine
from glenside.quantization.layers import IntegerNetwork
from glenside.quantization.network import integer_network

MOST = 1500


def _options(found: IntegerNetwork, machine: Machine) -> tuple[dict[str, Sequence[Option]], dict[Term, str]]:
    result = gl.optimize(found.program, gl.NPU(machine), verify=False)
    fronts = {name: front[:3] for name, front in map_layers(result, found).items()}
    return {**options_of(found, fronts, machine).every}, {layer.result: layer.name for layer in found.layers}


def _cycles(
    taken: Mapping[str, Option], axes: Mapping[Term, int], results: Mapping[Term, str], machine: Machine
) -> float:
    """Returns the sum of what layers take, each of the array or of DMA, whichever is longer."""
    dma = {name: float(2 * machine.latency + own.price.weights) for name, own in taken.items()}
    streamed, copies = dict[Term, int](), 0.0
    for name, own in taken.items():
        for leaf, tensor in own.streams.items():
            ways = axes_of(leaf) if tensor is None else [axes[tensor]]
            dma[name] += min(own.price.filled(leaf, axis) for axis in ways)
            if tensor is not None:
                streamed[tensor] = axes[tensor]
        for tensor in {tensor for tensor in own.stays.values() if tensor is not None}:
            tiles = Tiles.computed(Image(machine), own.price.layer, 0)
            pairs = np.concatenate([tiles.elements[leaf] for leaf, other in own.stays.items() if other == tensor])
            pairs = pairs[np.argsort(pairs[:, 0], kind="stable")]
            if tensor in results:
                dma[results[tensor]] += taken[results[tensor]].price.emptied(pairs)
            else:
                copies += copied(own, tensor, pairs, True, machine)  # one layer reads it
    for tensor, axis in streamed.items():
        if tensor in results:
            places = laid_out(tuple(tensor.access.dims), axis, machine.bandwidth)
            pairs = np.stack([np.arange(places.size), places.ravel()], axis=1)
            dma[results[tensor]] += taken[results[tensor]].price.emptied(pairs)
    return copies + sum(max(own.price.cycles, dma[name]) for name, own in taken.items())


def _least(options: Mapping[str, Sequence[Option]], results: Mapping[Term, str], machine: Machine) -> float | None:
    """Of all choices; None where they are too many."""
    operands = (option.operands.values() for own in options.values() for option in own)
    tensors = [*dict.fromkeys(tensor for each in operands for tensor in each if tensor is not None)]
    ways = [axes_of(tensor) for tensor in tensors]
    if np.prod([len(own) for own in (*options.values(), *ways)]) > MOST:
        return None
    every = product(product(*options.values()), product(*ways))
    return min(
        _cycles(dict(zip(options, own, strict=True)), dict(zip(tensors, axes, strict=True)), results, machine)
        for own, axes in every
    )


@pytest.mark.parametrize("seeds", [range(4), pytest.param(range(4, 40), marks=pytest.mark.slow)], ids=["few", "many"])
@pytest.mark.slow
def test_no_choice_takes_less(seeds: range) -> None:
    compared = 0
    for seed in seeds:
        machine = MACHINES[seed % len(MACHINES)]
        options, results = _options(integer_network(network(random.Random(seed))), machine)
        found = chosen(options, results, machine, gap=0.0)  # which cuts what it takes, as far as it is asked for
        least = _least(options, results, machine)
        if least is None:
            continue
        own = {name: options[name][number] for name, number in found.mappings.items()}
        assert found.cycles == pytest.approx(least, rel=1e-6)
        assert _cycles(own, found.axes, results, machine) == pytest.approx(least, rel=1e-6)
        compared += 1
    assert compared >= 2


def test_a_choice_of_before_is_the_best_as_long_as_it_is_possible() -> None:
    kept = 0
    for seed in range(4):
        machine = MACHINES[seed % len(MACHINES)]
        found = integer_network(network(random.Random(seed)))
        options, results = _options(found, machine)
        stays = Staying(options, results, {layer.name for layer in found.layers}, (), machine)
        before = chosen(options, results, machine, gap=0.0, stays=stays.found)
        again = chosen(options, results, machine, gap=0.0, stays=stays.found, before=before)
        assert again.is_like(before)
        stays.keep(set())
        without = chosen(options, results, machine, gap=0.0, stays=stays.found)
        assert without.cycles == pytest.approx(
            chosen(options, results, machine, gap=0.0, stays=stays.found, before=before).cycles, rel=1e-6
        )
        kept += bool(before.held)
    assert kept


def _refused() -> Layer:
    raise BadInput("it cannot be cut")


def test_mappings_that_cannot_be_cut_are_not_chosen() -> None:
    """Such mappings are refused only when a choice uses them; their predicted cost is zero."""
    machine = MACHINES[0]
    options, results = _options(integer_network(network(random.Random(0))), machine)
    bad = {
        name: Option(Priced(_refused, machine, 0, 0), every[0].streams, every[0].stays)
        for name, every in options.items()
    }
    found = chosen({name: [bad[name], *every] for name, every in options.items()}, results, machine, gap=0.0)
    assert all(each.price.refused is not None for each in bad.values())
    assert found.cycles == pytest.approx(chosen(options, results, machine, gap=0.0).cycles, rel=1e-6)
    assert all(number > 0 for number in found.mappings.values())


@pytest.mark.parametrize(
    ("taken", "asked"),
    [
        (150, [("lanes", 150), ("dram", 140), ("layers", 120)]),  # prices told 100
        (900, [("windows", 900), ("dram", 130), ("layers", 120)]),
    ],
)
def test_each_program_is_held_to_the_best_until_then(
    taken: int, asked: list[tuple[str, int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """If prices predict badly, the choice by prices of windows is lowered first, then the choice without resident
    tensors.
    """
    seen, every = list[tuple[str, int]](), {"lanes": 140, "windows": 130, "dram": 120}

    def best(*_: Any, stay: bool = True, windows: bool = False, **__: Any) -> tuple[dict[str, Any], Choice]:
        return {"which": "windows" if windows else "lanes"}, Choice({"a": 1 if stay else 2}, {}, 100.0, 100.0)

    def lowered(which: str, most: int) -> Any:
        seen.append((which, most))
        if which not in every:
            raise TooLong(0)
        return SimpleNamespace(predicted=every[which])

    def compile_mapped(*how: Any, most: int | None = None) -> Any:
        return lowered(how[1]["which"], how[-1]) if most is None else lowered("dram", most)

    monkeypatch.setattr(alternatives, "best", best)
    monkeypatch.setattr(alternatives, "compile_mapped", compile_mapped)
    monkeypatch.setattr(alternatives, "layer_by_layer", lambda *how: lowered("layers", how[-1]))
    nothing: Any = None
    than: Any = SimpleNamespace(predicted=taken), Choice({"a": 0}, {}, 100.0, 100.0), 0.0
    found = alternatives.alternatives(nothing, {}, Machine(8, 8), (nothing, nothing), than, (0, lambda *_: None))
    assert [own.predicted for own in found] == [every[which] for which, _ in asked if which in every]
    assert seen == asked
