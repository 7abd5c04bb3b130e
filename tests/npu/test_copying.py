"""Tests copies by instructions, and inputs that stay in the scratchpad: stored once by the host, copied by programs."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from npu_layers import MACHINES
from npu_networks import network
from onnx_integer_networks import Graph

import glenside as gl
from glenside.npu.lowering.emission.emit_copy import cycles_of_copy, write_copy
from glenside.npu.lowering.emission.emit_layer import Writer
from glenside.npu.lowering.emission.emit_program import finished
from glenside.npu.lowering.pipeline.compile_mapped import compile_mapped
from glenside.npu.lowering.pipeline.compile_network import map_layers
from glenside.npu.machine.model import Machine
from glenside.npu.model import execute
from glenside.npu.model.reference_results import wrong
from glenside.npu.program import binary_format
from glenside.npu.program.program import NpuProgram, Place
from glenside.npu.rtl import verilator
from glenside.quantization.layers import IntegerNetwork
from glenside.quantization.network import integer_network


@pytest.mark.parametrize("number", [0, *(pytest.param(n, marks=pytest.mark.slow) for n in range(1, len(MACHINES)))])
def test_bytes_are_copied_and_no_others_change(number: int) -> None:
    machine, draw = MACHINES[number], np.random.default_rng(number)
    for size in (1, 300, 2 * machine.half_depth * min(machine.rows, machine.bandwidth) + 9):  # the last in parts
        for kind in range(3):
            writer = Writer(machine)
            source, target = writer.image.room(size), writer.image.room(3 * size)
            sources, targets = np.arange(size), np.arange(size) * 3  # one by one
            if kind == 1:  # any, some of them several times
                sources, targets = draw.integers(0, size, 2 * size), draw.permutation(3 * size)[: 2 * size]
            elif kind == 2:  # a transpose
                rows = max(1, size // 7)
                sources = np.arange(size // rows * rows).reshape(-1, rows).T.ravel()
                targets = np.arange(len(sources))
            values = draw.integers(-128, 128, size).astype(np.int8)
            write_copy(writer, source + sources, target + targets)
            made = finished(writer, [], [(Place(source, (size,)), values)])
            done = execute.run(made)
            wanted = made.dram.copy()
            wanted[target + targets] = values.view(np.uint8)[sources]
            assert np.array_equal(done.dram, wanted)
            priced = cycles_of_copy(source + sources, target + targets, machine)
            assert 0.3 < priced / done.cycles < 3


def _held(found: IntegerNetwork, program: NpuProgram, seed: int = 1) -> None:
    """Of values that the host brings after the program was made."""
    draw, dram = np.random.default_rng(seed), program.dram.copy()
    for place in program.inputs.values():
        place.write(dram, draw.integers(-128, 128, place.shape).astype(np.int8))
    program = replace(program, dram=dram)
    done = execute.run(program)
    assert wrong(program, done.dram) == []
    assert done.cycles == program.predicted
    given = {name: place.read(dram) for name, place in program.inputs.items()}
    (want,) = gl.evaluate([found.program.term], {**given, **found.constants})
    wanted = want if isinstance(want, tuple) else (want,)
    for place, own in zip(program.outputs.values(), wanted, strict=True):
        got = place.read(done.dram).astype(np.int64)
        if place.dtype == "int32" and place.stands_for is not None:
            got = got - place.stands_for.zero.array.astype(np.int64)
        assert np.array_equal(got, np.asarray(own).reshape(got.shape))


def _programs(found: IntegerNetwork, machine: Machine) -> list[NpuProgram]:
    """One of each mapping of the layer that has most, and what is chosen."""
    result = gl.optimize(found.program, gl.NPU(machine), verify=False)
    fronts = map_layers(result, found)
    made = [gl.NPU(machine).network_code(result, found, 0)]
    for number in range(max(map(len, fronts.values()))):
        made.append(compile_mapped(found, {name: own[number % len(own)][0] for name, own in fronts.items()}, machine))
    return made


def _copies(made: NpuProgram) -> list[str]:
    return [own.name for own in made.stretches if own.name.startswith("copy of")]


@pytest.mark.slow
def test_one_tensor_is_both_operands(tmp_path: Path) -> None:
    """A tensor that streams and also stays is stored at two places at least."""
    g = Graph()
    node = g.node("MatMulInteger", "x", "x")
    found = integer_network(g.program({"x": ((9, 9), "int8")}, node))
    for machine in MACHINES:
        for made in _programs(found, machine):
            assert _copies(made) == ["copy of x"]
            binary_format.save(made, tmp_path / "square.bin")
            _held(found, binary_format.load(tmp_path / "square.bin"))


def test_a_copy_does_not_meet_an_input_that_is_held() -> None:
    """The lanes through which one input is copied hold nothing of the other yet, whatever the order of both."""
    machine = Machine(4, 4, scratchpad=1 << 12, accumulators=32, bandwidth=4, latency=3)
    for first, second in (("x", "y"), ("y", "x")):
        g = Graph()
        nodes = {"x": g.node("MatMulInteger", "x", g.bytes((5, 6))), "y": g.node("MatMulInteger", "y", "y")}
        inputs = {"x": ((30, 5), "int8"), "y": ((9, 9), "int8")}
        found = integer_network(
            g.program({name: inputs[name] for name in (first, second)}, nodes[first], nodes[second])
        )
        for made in _programs(found, machine):
            assert _copies(made) == ["copy of y"]
            _held(found, made)


@pytest.mark.slow
def test_two_inputs_of_a_product() -> None:
    """One stays where the host puts it: each element is needed once."""
    g = Graph()
    found = integer_network(
        g.program({"x": ((9, 5), "int8"), "y": ((5, 6), "int8")}, g.node("MatMulInteger", "x", "y"))
    )
    for machine in MACHINES:
        for made in _programs(found, machine):
            assert _copies(made) == []
            _held(found, made)


@pytest.mark.slow
def test_a_result_that_a_layer_keeps_in_part_is_whole() -> None:
    """The host takes all of it; another layer needs every other element, and has them stay in the array."""
    g = Graph()
    scale, zero = g.scales(), g.constant(0, "int8")
    y = g.node("QLinearConv", "x", scale, zero, g.bytes((6, 3, 1, 1)), scale, zero, g.constant(0.01, "float32"), zero)
    sums = g.node("ConvInteger", y, g.bytes((6, 2, 1, 1)), strides=[2, 2], group=3)
    found = integer_network(g.program({"x": ((1, 3, 5, 6), "int8")}, y, sums))
    for machine in (MACHINES[0], MACHINES[2]):
        for made in _programs(found, machine):
            _held(found, made)


@pytest.mark.parametrize(
    ("seed", "copied"),
    [
        (3005, True),
        pytest.param(3007, True, marks=pytest.mark.slow),
        pytest.param(3032, True, marks=pytest.mark.slow),
        (3036, False),
    ],
)
def test_windows_of_an_input_stay(seed: int, copied: bool) -> None:
    """They overlap, so that elements are at several places; of 3005 and 3036 each mapping keeps the input so."""
    found = integer_network(network(random.Random(seed)))
    programs = _programs(found, MACHINES[2])
    for made in programs:
        _held(found, made)
    assert any(_copies(made) for made in programs) == copied


@pytest.mark.slow
@pytest.mark.skipif(verilator.verilator() is None, reason="there is no Verilator")
def test_copies_in_rtl() -> None:
    g = Graph()
    found = integer_network(g.program({"x": ((9, 9), "int8")}, g.node("MatMulInteger", "x", "x")))
    made = _programs(found, MACHINES[0])[0]
    done, hardware = execute.run(made), verilator.run(made)
    assert np.array_equal(done.dram, hardware.dram)
    assert done.cycles == hardware.cycles
