"""Tests mapped layers as programs of the machine: DRAM holds the interpreter's results for the product as written, in
the predicted cycles.
"""

from __future__ import annotations

import random
from dataclasses import replace

import numpy as np
import pytest
from npu_layers import MACHINES, layer
from slow_cases import quick

import glenside as gl
from glenside.ir.errors import BadInput
from glenside.ir.program import Program
from glenside.ir.term import Term
from glenside.npu.isa.address_loops import Nest, nests
from glenside.npu.lowering.emission.emit_program import lowered, without_dma
from glenside.npu.machine.model import Machine
from glenside.npu.model.execute import run
from glenside.npu.model.reference_results import wrong
from glenside.npu.program.program import NpuProgram
from glenside.npu.rtl import verilator


def _mapped(program: Program, machine: Machine, which: int = 0) -> tuple[Program, gl.Result]:
    """Returns a program in which each layer has one of the mappings of its front."""
    result = gl.optimize(program, gl.NPU(machine), verify=False)
    found = result.answer.layers
    chosen = {name: own.variants[which % len(own.variants)].term for name, own in found.items()}
    layers: dict[str, Term] = {name: term for name, term in chosen.items() if term is not None}
    return replace(result.program, layers=layers, term=next(iter(layers.values()))), result


def _lowered(program: Program, machine: Machine, which: int = 0, seed: int = 0) -> NpuProgram:
    mapped, result = _mapped(program, machine, which)
    return lowered(mapped, result.prepared, machine, seed)


@pytest.mark.parametrize("seed", quick(range(12), 0, 2, 3, 4, 5, 6))
def test_layers_drawn_at_random(seed: int) -> None:
    pick = random.Random(seed)
    program = _lowered(layer(pick), MACHINES[seed % len(MACHINES)], pick.randrange(8), seed)
    done = run(program)
    assert wrong(program, done.dram) == []
    assert done.cycles == program.predicted


def test_a_network_is_a_program_of_its_layers() -> None:
    b = gl.Builder("net")
    x = b.conv(b.input("x", (1, 3, 12, 10)), b.constant("a", (8, 3, 3, 3)), strides=2, padding=1, name="stem")
    x = b.relu(b.conv(x, b.constant("b", (8, 1, 3, 3)), padding=1, groups=8, name="dw"))
    x = b.conv(x, b.constant("c", (12, 8, 1, 1)), name="pw")
    machine = MACHINES[1]
    result = gl.optimize(b.finish(x).seeded_constants(0), gl.NPU(machine))
    program = lowered(result.program, result.prepared, machine)
    done = run(program)
    assert [stretch.name for stretch in program.stretches] == ["stem", "dw", "pw"]
    assert wrong(program, done.dram) == []
    for stretch in program.stretches:
        begin, end = done.times.between(stretch.begin, stretch.end)
        told = next(row for row in result.report.layers if row.name == stretch.name).variants["chosen"]
        alone = without_dma(program, stretch)
        assert alone <= end - begin
        assert alone <= (told.measures["cycles"] or 0)  # less where tiles of the same weights follow each other


def test_a_sum_that_is_wrong_is_seen() -> None:
    program = _lowered(layer(random.Random(3)), MACHINES[1])
    dram = run(program).dram.copy()
    place = program.stretches[0].result
    assert place is not None
    dram[place.addresses.ravel()[-1]] ^= 1
    assert wrong(program, dram) == ["own"]


def test_one_tensor_is_both_operands() -> None:
    b = gl.Builder("square")
    x = b.input("x", (6, 6))
    program = _lowered(b.finish(b.matmul(x, x)), MACHINES[1])
    (stretch,) = program.stretches
    assert len(stretch.operands) == 1
    assert wrong(program, run(program).dram) == []


def test_layers_of_nothing_have_no_instructions() -> None:
    b = gl.Builder("nothing")
    none = b.conv(b.input("x", (0, 3, 8, 8)), b.constant("w", (4, 3, 3, 3)))
    known = b.matmul(b.constant("y", (5, 6)), b.constant("v", (6, 4)))
    for term in (none, known):
        result = gl.optimize(b.finish(term).seeded_constants(0), gl.NPU(MACHINES[1]), verify=False)
        program = lowered(result.program, result.prepared, MACHINES[1])
        assert program.stretches == ()
        assert run(program).cycles == program.predicted


@pytest.mark.slow
def test_what_the_machine_cannot_do_is_a_sentence() -> None:
    program = layer(random.Random(0))
    other = gl.optimize(program, gl.NPU(MACHINES[1]), verify=False)
    with pytest.raises(BadInput, match="the layer own: the layer is mapped onto 8 x 8, the machine is 4 x 4"):
        lowered(other.program, other.prepared, MACHINES[0])
    with pytest.raises(
        BadInput, match=r"the layer own: no mapping of its product onto npu:4x4\S* was found; it still computes"
    ):
        lowered(program, program, MACHINES[0])
    onto_array = gl.optimize(_spread((3, 3), (2, 2)), gl.SystolicArray(8, 8), verify=False)
    with pytest.raises(BadInput, match="the layer own: sums at different positions of tiles are added up"):
        lowered(onto_array.program, onto_array.prepared, MACHINES[1])


def _spread(kernel: tuple[int, int], strides: tuple[int, int], channels: tuple[int, int] = (5, 4)) -> Program:
    """Returns a transposed convolution."""
    b = gl.Builder("spread")
    made, read = channels[1], b.input("x", (2, channels[0], 5, 4))
    y = b.conv_transpose(read, b.constant("w", (channels[0], made, *kernel)), strides=strides, name="own")
    return b.finish(y).seeded_constants(0)


@pytest.mark.parametrize(
    ("kernel", "strides"),
    quick([((1, 2), (3, 3)), ((3, 3), (2, 2)), ((2, 2), (2, 2)), ((1, 3), (2, 2)), ((4, 1), (2, 1))], 1, unpacked=True),
)
def test_transposed_convolutions(kernel: tuple[int, int], strides: tuple[int, int]) -> None:
    """Windows that do not overlap are moved after the array; otherwise rows have zeros between elements, because sums
    at several positions of a tile are not added up.
    """
    moved = all(size <= step for size, step in zip(kernel, strides, strict=True))
    mapped, result = _mapped(_spread(kernel, strides), MACHINES[1])
    variants = result.answer.layers["own"].variants
    assert any("overlap-add" in own.label for own in variants) == moved
    for own in variants:
        assert own.term is not None
        program = lowered(replace(mapped, layers={"own": own.term}, term=own.term), result.prepared, MACHINES[1])
        done = run(program)
        assert wrong(program, done.dram) == []
        assert done.cycles == program.predicted
    whole = gl.npu_program(_spread(kernel, strides), gl.NPU(MACHINES[1]), quantize="random")
    assert wrong(whole, run(whole).dram) == []


@pytest.mark.parametrize(
    "machine",
    quick(
        [
            Machine(2, 8, parameters=1),
            Machine(2, 8, scratchpad=96),
            Machine(2, 7, scratchpad=120, parameters=1, tables=2, instructions=2),
            Machine(1, 8, scratchpad=40, accumulators=4, parameters=2),
        ],
        0,
        2,
    ),
    ids=str,
)
def test_rows_of_sums_pass_through_fewer_rows_of_lanes_and_parameters(machine: Machine) -> None:
    """A row of sums is 4 to 8 rows of lanes, each with parameters of its own: they pass one by one where they must."""
    b = gl.Builder("net")
    y = b.relu(b.add(b.matmul(b.input("x", (1, 6, 5, 3)), b.constant("w", (3, 9))), b.constant("b", (9,))))
    made = gl.npu_program(
        b.finish(b.matmul(y, b.constant("v", (9, 5)))).seeded_constants(0), gl.NPU(machine), quantize="random"
    )
    done = run(made)
    assert wrong(made, done.dram) == []
    assert done.cycles == made.predicted


def test_loops_count_what_they_were_made_of() -> None:
    pick = random.Random(1)
    for _ in range(200):
        rows: list[list[int]] = []
        for _ in range(pick.randint(1, 3)):
            counts = tuple(pick.randint(1, 4) for _ in range(3))
            strides = tuple(tuple(pick.randint(-2, 5) for _ in range(3)) for _ in range(2))
            own = Nest(counts, (pick.randint(0, 9), pick.randint(0, 9)), strides)  # type: ignore[arg-type]
            rows += np.stack([own.addresses(0), own.addresses(1)], axis=1).tolist()
        found = nests(np.array(rows))
        again = [np.stack([nest.addresses(0), nest.addresses(1)], axis=1) for nest in found]
        assert np.concatenate(again).tolist() == rows
    whole = np.array([[a + 10 * b + 100 * c] for c in range(5) for b in range(7) for a in range(3)])
    assert nests(whole) == [Nest((3, 7, 5), (0,), ((1, 10, 100),))]


@pytest.mark.slow
@pytest.mark.parametrize("number", range(len(MACHINES)))
def test_many_layers_in_rtl(number: int) -> None:
    """200 layers of each machine, as RTL and as simulated: the same bytes in the same cycles."""
    if verilator.verilator() is None:
        pytest.skip("there is no Verilator")
    for seed in range(200):
        pick = random.Random(1000 * number + seed)
        program = _lowered(layer(pick), MACHINES[number], pick.randrange(8), seed)
        done, hardware = run(program), verilator.run(program)
        assert wrong(program, hardware.dram) == [], seed
        assert np.array_equal(done.dram, hardware.dram), seed
        assert done.cycles == hardware.cycles == program.predicted, seed


@pytest.mark.slow
def test_transposed_convolutions_and_rows_of_sums_in_rtl() -> None:
    """Windows that are moved behind an array whose rows of sums have more columns than rows of lanes and parameters."""
    if verilator.verilator() is None:
        pytest.skip("there is no Verilator")
    machine = Machine(2, 7, scratchpad=160, parameters=1, tables=3, instructions=2)
    for kernel, strides in (((2, 2), (2, 2)), ((3, 3), (2, 2)), ((1, 2), (3, 3))):
        for channels in ((5, 4), (1, 9)):
            made = gl.npu_program(_spread(kernel, strides, channels), gl.NPU(machine), quantize="random")
            done, hardware = run(made), verilator.run(made)
            assert wrong(made, done.dram) == []
            assert np.array_equal(done.dram, hardware.dram)
            assert done.cycles == hardware.cycles == made.predicted
