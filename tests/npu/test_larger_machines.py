"""Tests that a program runs on a larger machine in no more cycles, so that no larger machine takes more."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from fuzzing import Fuzzing
from npu_networks import branches, network
from slow_cases import quick

import glenside as gl
from glenside.builder import Builder
from glenside.ir.errors import BadInput
from glenside.ir.program import Program
from glenside.ir.term import Term
from glenside.npu.analysis.retargeting import cycles_on, is_at_least, retargeted
from glenside.npu.lowering.pipeline.compile_network import map_layers
from glenside.npu.lowering.selection.program_memo import forget
from glenside.npu.machine.model import Machine, with_useful_beats
from glenside.npu.model.execute import run
from glenside.npu.model.reference_results import wrong
from glenside.npu.pipeline import compile_fronts
from glenside.npu.program.program import NpuProgram
from glenside.npu.program.results import results
from glenside.quantization.calibration import quantized
from glenside.quantization.layers import IntegerNetwork
from glenside.quantization.network import integer_network


def _machine(pick: random.Random) -> Machine:
    rows, columns = pick.randint(3, 9), pick.randint(3, 9)
    return Machine(
        rows,
        columns,
        pipelined=pick.random() < 0.8,
        scratchpad=rows * pick.choice([200, 400, 1000, 3000]) + 8 * rows * columns,
        accumulators=2 * pick.choice([8, 16, 24, 64]),
        parameters=pick.choice([8, 64]),
        tables=pick.choice([8, 24, 64]),
        bandwidth=pick.choice([1, 2, 4, 8, 16]),
        latency=pick.choice([0, 7, 100]),
    )


def _larger(machine: Machine, pick: random.Random) -> Machine:
    """With more of one resource, or of several."""
    larger: dict[str, Callable[[Machine], Machine]] = {
        "bandwidth": lambda own: replace(own, bandwidth=own.bandwidth * pick.choice([2, 4])),
        "lanes": lambda own: replace(
            own, weights=own.weight_bytes, scratchpad=own.scratchpad + own.rows * pick.choice([2, 100, own.depth])
        ),
        "weights": lambda own: replace(own, weights=2 * own.weight_bytes, scratchpad=own.scratchpad + own.weight_bytes),
        "accumulators": lambda own: replace(own, accumulators=own.accumulators + pick.choice([2, own.accumulators])),
        "latency": lambda own: replace(own, latency=own.latency // 2),
        "tables": lambda own: replace(own, tables=2 * own.tables),
        "parameters": lambda own: replace(own, parameters=2 * own.parameters),
    }
    for name in pick.sample([*larger], pick.choice([1, 1, 2, 3])):
        machine = larger[name](machine)
    return machine


def _program(found: IntegerNetwork, machine: Machine) -> NpuProgram:
    return compile_fronts(found, map_layers(gl.optimize(found.program, gl.NPU(machine), verify=False), found), machine)


def _drawn(seed: int) -> tuple[random.Random, IntegerNetwork]:
    pick = random.Random(seed)
    return pick, integer_network(pick.choice([network, network, branches])(pick))


def _moves(seed: int) -> bool:
    """True if the program of a drawn network moves to a larger machine, on which it is right."""
    pick, found = _drawn(seed)
    machine = _machine(pick)
    try:
        own = _program(found, machine)
    except BadInput:  # the machine is too small for it
        return False
    larger = _larger(machine, pick)
    assert is_at_least(larger, machine)
    try:
        moved = retargeted(own, larger)
    except BadInput:  # computed weights, in rows of several beats
        assert larger.bandwidth > machine.bandwidth
        assert machine.bandwidth < machine.columns
        return False
    assert moved.predicted is not None
    assert own.predicted is not None
    done = run(moved)
    assert done.cycles == moved.predicted == cycles_on(own, larger) <= own.predicted
    assert not wrong(moved, done.dram)
    for name, value in results(own, run(own).dram).items():
        np.testing.assert_array_equal(results(moved, done.dram)[name], value)
    return True


@pytest.mark.parametrize("seed", [1, *(pytest.param(seed, marks=pytest.mark.slow) for seed in (0, 2))])
def test_programs_run_on_larger_machines(seed: int) -> None:
    _moves(seed)


@pytest.mark.slow
def test_many_programs_run_on_larger_machines(fuzzing: Fuzzing) -> None:
    every = [_moves(seed) for seed in fuzzing.seeds(100)]
    assert fuzzing.minutes is not None or sum(every) >= 60


def test_no_program_runs_on_a_smaller_machine() -> None:
    machine = Machine(4, 4, scratchpad=1 << 11, accumulators=32, bandwidth=4, latency=3)
    own = _program(_drawn(0)[1], machine)
    for change in ({"bandwidth": 2}, {"latency": 4}, {"accumulators": 30}, {"rows": 5}, {"pipelined": False}):
        with pytest.raises(BadInput, match="smaller"):
            retargeted(own, replace(machine, **change))  # type: ignore[arg-type]


def _step(seed: int) -> tuple[int, int] | None:
    """Returns cycles of a drawn network before and after a step to a larger machine; None where it runs on neither."""
    pick, found = _drawn(seed)
    machine = _machine(pick)
    try:
        before = _program(found, machine).predicted
    except BadInput:
        return None
    own = _program(found, _larger(machine, pick))
    done = run(own)
    assert done.cycles == own.predicted
    assert not wrong(own, done.dram)
    assert before is not None
    assert own.choices is None or own.choices.least <= done.cycles
    return before, done.cycles


@pytest.mark.parametrize("seed", quick(range(2), 0))
def test_larger_machines_take_no_more_cycles(seed: int) -> None:
    step = _step(seed)
    assert step is None or step[1] <= step[0]


@pytest.mark.slow
def test_no_step_to_a_larger_machine_takes_more_cycles(fuzzing: Fuzzing) -> None:
    steps = {seed: _step(seed) for seed in fuzzing.seeds(220)}
    known = {seed: step for seed, step in steps.items() if step is not None}
    assert fuzzing.minutes is not None or len(known) >= 200
    assert not {seed: step for seed, step in known.items() if step[1] > step[0]}


def _ds_cnn() -> Program:
    """DS-CNN of MLPerf Tiny."""
    b = Builder("ds-cnn")

    def layer(x: Term, name: str, shape: tuple[int, ...], **how: Any) -> Term:
        return b.relu(b.conv(x, b.constant(name, shape), name=name, **how))

    x = layer(b.input("x", (1, 1, 49, 10)), "conv", (64, 1, 10, 4), strides=2, padding=((4, 5), (1, 1)))
    for number in range(4):
        x = layer(x, f"depthwise{number}", (64, 1, 3, 3), groups=64, padding=1)
        x = layer(x, f"pointwise{number}", (64, 64, 1, 1))
    x = b.reshape(b.global_average_pool(x), (1, 64))
    return b.finish(b.linear(x, b.constant("w", (12, 64)), name="dense"))


def _autoencoder() -> Program:
    """Returns the autoencoder of MLPerf Tiny."""
    b, k = Builder("autoencoder"), 640
    x = b.input("x", (1, k))
    for number, n in enumerate([*[128] * 4, 8, *[128] * 4, 640]):
        x, k = b.linear(x, b.constant(f"w{number}", (n, k)), name=f"dense{number}"), n
        x = b.relu(x) if number < 9 else x
    return b.finish(x)


@pytest.mark.slow
@pytest.mark.parametrize("made", [_ds_cnn, _autoencoder])
def test_wider_ports_take_no_more_cycles(made: Callable[[], Program]) -> None:
    program = made().seeded_constants(0)
    found = quantized(program, program.constants)
    cycles = []
    for bandwidth in (64, 32, 16, 8):  # the narrow ones last: nothing is known of them before
        forget()
        cycles.append(_program(found, Machine(16, 16, scratchpad=1 << 18, bandwidth=bandwidth)).predicted)
    assert cycles == sorted(cycles)  # type: ignore[type-var]


def test_beats_are_no_wider_than_lanes_and_columns() -> None:
    assert with_useful_beats(Machine(16, 12, bandwidth=64)).bandwidth == 16
    assert with_useful_beats(Machine(12, 17, bandwidth=64)).bandwidth == 32
    assert with_useful_beats(Machine(16, 16, bandwidth=8)).bandwidth == 8
