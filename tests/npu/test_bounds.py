"""Tests lower bounds: they include the memories, and no program of a random network on a random machine takes less."""

from __future__ import annotations

import random

import pytest
from fuzzing import Fuzzing
from npu_layers import MACHINES
from npu_networks import branches, network

import glenside as gl
from glenside.builder import Builder
from glenside.ir.program import Program
from glenside.npu.analysis.critical_path import accounts
from glenside.npu.lowering.pipeline.compile_network import map_layers
from glenside.npu.machine.model import Machine
from glenside.npu.pipeline import compile_fronts
from glenside.quantization.calibration import quantized
from glenside.quantization.layers import IntegerNetwork
from glenside.quantization.network import integer_network


def _told(found: IntegerNetwork, machine: Machine) -> tuple[int, int]:
    """Returns the predicted lower bound of any choice, and the cycles of the program."""
    made = compile_fronts(found, map_layers(gl.optimize(found.program, gl.NPU(machine), verify=False), found), machine)
    own = accounts(made)
    assert own.choices is not None
    assert own.bound <= own.cycles == made.predicted
    assert own.choices.least <= own.cycles
    assert not own.choices.are_all_tried or own.choices.least == own.cycles
    return own.choices.least, own.cycles


def _holds(seed: int) -> None:
    pick = random.Random(seed)
    _told(integer_network(pick.choice([network, branches])(pick)), MACHINES[seed % len(MACHINES)])


@pytest.mark.parametrize("seed", [3, 4])
def test_bounds_hold(seed: int) -> None:
    _holds(seed)


@pytest.mark.slow
def test_bounds_of_many_networks_hold(fuzzing: Fuzzing) -> None:
    for seed in fuzzing.seeds(100):
        _holds(seed)


def _dense(k: int, n: int) -> Program:
    b = Builder("dense")
    return b.finish(b.linear(b.input("x", (1, k)), b.constant("w", (n, k)), name="dense")).seeded_constants(0)


@pytest.mark.parametrize(("k", "n"), [(300, 40), pytest.param(2304, 256, marks=pytest.mark.slow)])
def test_weights_of_a_dense_layer_come_once_and_are_counted(k: int, n: int) -> None:
    """Of a layer whose rows are too many for the lanes: fewer than twice its bytes are read."""
    machine = Machine(14, 12, scratchpad=max(10 << 10, k * 20), weights=8 << 10, accumulators=128, bandwidth=8)
    program = _dense(k, n)
    bound, cycles = _told(quantized(program, program.constants), machine)
    assert k * n / machine.bandwidth <= bound <= cycles <= 1.6 * bound
    weights = -(-k * n // machine.bandwidth)
    (said,) = gl.optimize(program, gl.NPU(machine), verify=False).report.remarks
    assert said.startswith(f"{k * n:,} bytes of weights of a layer take at least {weights:,} cycles to come from DRAM")


def test_constant_products_have_no_weights_to_load() -> None:
    b = Builder("low rank")
    weights = b.matmul(b.constant("u", (8, 1)), b.constant("v", (1, 64)))
    program = b.finish(b.matmul(b.input("x", (4, 8)), weights)).seeded_constants(0)
    assert not gl.optimize(program, gl.NPU(4), verify=False, exact_order=True).report.remarks
