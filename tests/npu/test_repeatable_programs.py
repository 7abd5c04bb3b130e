"""Tests that a network gives the same program each time, independent of hash seeds and clocks."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import glenside as gl
from glenside.cache import Cache
from glenside.ir.program import Program
from glenside.ir.term import Term
from glenside.npu.lowering.pipeline.compile_network import map_layers
from glenside.npu.lowering.selection.candidates import options_of
from glenside.npu.lowering.selection.ilp_model import Choice, chosen
from glenside.npu.lowering.selection.residency_candidates import Staying
from glenside.npu.lowering.transfer.sparse_weight_loads import Spreadings
from glenside.npu.machine.model import Machine
from glenside.npu.program import binary_format
from glenside.quantization.calibration import quantized
from glenside.quantization.layers import IntegerNetwork

MACHINE = Machine(8, 8, scratchpad=1 << 13, accumulators=128, bandwidth=8, latency=20)


def _network() -> IntegerNetwork:
    """Returns a residual block and a depthwise layer: tensors that stay in lanes, and tiles of few values."""
    b = gl.Builder("block")

    def weights(name: str, *dims: int) -> Term:
        return b.constant(name, dims)

    x = b.relu(b.conv(b.input("x", (1, 3, 12, 12)), weights("a", 8, 3, 3, 3), strides=2, padding=1, name="stem"))
    y = b.relu(b.conv(x, weights("b", 8, 1, 3, 3), groups=8, padding=1, name="depthwise"))
    x = b.relu(b.add(b.conv(y, weights("c", 8, 8, 1, 1), name="pointwise"), x))
    y = b.conv(x, weights("d", 10, 8, 1, 1), name="one")
    z = b.conv(x, weights("e", 10, 8, 3, 3), padding=1, name="three")
    program: Program = b.finish(b.add(y, z)).seeded_constants(0)
    return quantized(program, program.constants)


def told() -> str:
    """Returns the program's file, and the numbers that tell patterns of weights apart, as this process finds them."""
    by = 2 * int(os.environ["PYTHONHASHSEED"]) + (1 << 40) + 1
    Term.__hash__ = lambda self: (id(self) >> 4) * by % ((1 << 61) - 1)  # type: ignore[method-assign]
    network, target = _network(), gl.NPU(MACHINE)
    made = target.network_code(gl.optimize(network.program, target, verify=False), network)
    spread = Spreadings(MACHINE).of(np.eye(MACHINE.rows, dtype=np.int64))
    assert spread is not None
    return f"{hashlib.sha256(binary_format.content(made)).hexdigest()} {made.predicted} {spread.zeros.tolist()}"


def _said(seed: int) -> str:
    path = os.pathsep.join([str(Path(__file__).parent), *(own for own in sys.path if own)])
    command = [sys.executable, "-c", "from test_repeatable_programs import told; print(told())"]
    environment = {**os.environ, "PYTHONHASHSEED": str(seed), "PYTHONPATH": path}
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=True, timeout=120).stdout


@pytest.mark.slow
def test_two_processes_make_the_same_program() -> None:
    first, second = map(_said, (0, 1))
    assert len(first.split()) > 2
    assert first == second


def test_an_answer_that_was_kept_has_the_same_mappings(tmp_path: Path) -> None:
    b, target = gl.Builder("depthwise"), gl.NPU(64)
    x = b.relu(b.input("x", (1, 32, 112, 112)))
    y = b.conv(x, b.constant("w", (32, 1, 3, 3)), groups=32, padding=1, name="depthwise")
    program: Program = b.finish(y).seeded_constants(0)
    network = quantized(program, program.constants)
    with Cache(tmp_path / "answers.sqlite") as cache:
        first, kept = (gl.optimize(network.program, target, cache=cache, verify=False) for _ in range(2))
    assert kept.report.cached
    fronts = [
        {name: [(own.term, cycles) for own, cycles in front] for name, front in map_layers(result, network).items()}
        for result in (first, kept)
    ]
    assert len(fronts[0]["depthwise"]) > 2
    assert fronts[0] == fronts[1]


@pytest.mark.slow
def test_work_and_no_clock_ends_a_choice() -> None:
    network = _network()
    result = gl.optimize(network.program, gl.NPU(MACHINE), verify=False)
    options = options_of(network, map_layers(result, network), MACHINE).every
    results = {layer.result: layer.name for layer in network.layers}
    requantised = {layer.name for layer in network.layers if layer.requantised is not None}
    stays = Staying(options, results, requantised, (), MACHINE)
    assert stays.found(), "the more there is to choose, the longer it takes to know that nothing is better"

    def found(work: int) -> Choice:
        return chosen(options, results, MACHINE, work=work, gap=0.0, stays=stays.found)

    whole, early = found(1 << 20), found(1)
    assert early.bound < whole.cycles * (1 - 1e-6)  # it was not searched to the end
    assert early.cycles >= whole.cycles * (1 - 1e-6)
    assert found(1) == early
