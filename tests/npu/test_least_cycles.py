"""Tests that the selected program takes no more cycles than simpler choices, or than with slower memory."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from npu_layers import MACHINES
from npu_networks import network

import glenside as gl
from glenside.builder import Builder
from glenside.npu.lowering.pipeline.alternatives import layer_by_layer
from glenside.npu.lowering.pipeline.compile_mapped import compile_mapped
from glenside.npu.lowering.pipeline.compile_network import map_layers
from glenside.npu.lowering.selection.feasible_choice import best
from glenside.npu.machine.model import Machine
from glenside.npu.pipeline import compile_fronts
from glenside.quantization.calibration import quantized
from glenside.quantization.layers import IntegerNetwork
from glenside.quantization.network import integer_network

SEEDS = [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(9, 40))]


def _least(found: IntegerNetwork, machine: Machine) -> int:
    """Returns the cycles of the selected program, which must not exceed those of simpler choices."""
    result = gl.optimize(found.program, gl.NPU(machine), verify=False)
    fronts = map_layers(result, found)
    own = compile_fronts(found, fronts, machine).predicted
    taken, choice = best(found, fronts, machine, stay=False)
    in_dram = compile_mapped(found, taken, machine, 0, choice.axes, stay=())
    apart = layer_by_layer(found, fronts, machine)
    assert own is not None
    assert all(own <= other.predicted for other in (in_dram, apart) if other.predicted is not None)
    return own


@pytest.mark.parametrize("seed", SEEDS)
def test_no_simpler_choice_takes_less_and_quicker_memory_no_more(seed: int) -> None:
    found, machine = integer_network(network(random.Random(seed))), MACHINES[seed % len(MACHINES)]
    cycles = [_least(found, replace(machine, bandwidth=bandwidth)) for bandwidth in (1, 2, 4)]
    assert cycles == sorted(cycles, reverse=True)


@pytest.mark.slow
def test_mobilenet_takes_no_more_where_memory_is_quicker() -> None:
    program = gl.models.load("mobilenet-v1").seeded_constants(0)
    found = quantized(program, program.constants)
    cycles = [_least(found, Machine(64, 64, bandwidth=bandwidth)) for bandwidth in (16, 32, 64)]
    assert cycles == sorted(cycles, reverse=True)


def test_layers_that_no_product_was_searched_for_run_one_by_one_too() -> None:
    b = Builder()
    y = b.max_pool(b.relu(b.conv(b.input("x", (1, 3, 8, 8)), b.constant("w", (4, 3, 3, 3)), padding=1)), 2)
    program = b.finish(b.linear(b.reshape(y, (1, 64)), b.constant("v", (5, 64)))).seeded_constants(0)
    _least(quantized(program, program.constants), MACHINES[0])
