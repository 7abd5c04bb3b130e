"""Tests int32 results of operands with zero points: the outputs represent exactly the interpreter's numbers."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from npu_layers import MACHINES
from onnx_integer_networks import Graph
from slow_cases import quick

import glenside as gl
from glenside.ir.errors import BadInput
from glenside.ir.operand import Array
from glenside.ir.program import Program
from glenside.npu.model import execute
from glenside.npu.model.reference_results import wrong
from glenside.npu.program import binary_format
from glenside.npu.program.affine_quantization import StandsFor, narrow
from glenside.npu.program.program import NpuProgram


def _held(program: Program, machine: gl.NPU, folder: Path) -> NpuProgram:
    """Its program, whose outputs, written to a file and read again, are those of the interpreter."""
    made = gl.npu_program(program, machine)
    binary_format.save(made, folder / "sums.bin")
    made = binary_format.load(folder / "sums.bin")
    done = execute.run(made)
    assert wrong(made, done.dram) == []
    given = {}
    for name, place in made.inputs.items():
        assert place.stands_for is not None
        given[name] = place.stands_for.real(place.read(made.dram)).astype(program.inputs[name].dtype)
    wanted = gl.evaluate([program.term], {**given, **program.constants})[0]
    wanted = wanted if isinstance(wanted, tuple) else (wanted,)
    for place, want in zip(made.outputs.values(), wanted, strict=True):
        assert place.stands_for is not None
        got = place.stands_for.real(place.read(done.dram))
        assert got.dtype == np.int32
        assert np.array_equal(got, np.asarray(want))
        assert np.unique(got).size > 8
    return made


CONVOLUTIONS = [
    ((1, 3, 6, 5), (4, 3, 3, 3), {"pads": [1, 1, 1, 1]}),
    ((2, 3, 8, 7), (5, 3, 2, 3), {"pads": [0, 2, 1, 0], "strides": [2, 1]}),
    ((1, 4, 9, 7), (6, 2, 3, 3), {"pads": [2, 1, 1, 2], "group": 2, "dilations": [2, 1]}),
    ((1, 5, 7, 7), (5, 1, 3, 3), {"pads": [1, 1, 1, 1], "group": 5, "strides": [2, 2]}),
    ((1, 3, 7, 7), (7, 3, 1, 1), {}),
]


@pytest.mark.parametrize(
    ("operand", "zero", "number"),
    quick(
        [(dtype, zero, n) for n in range(len(CONVOLUTIONS)) for dtype, zero in (("uint8", 200), ("int8", 5))],
        0,
        5,
        6,
        unpacked=True,
    ),
)
def test_convolutions(number: int, operand: str, zero: int, tmp_path: Path) -> None:
    shape, filters, more = CONVOLUTIONS[number]
    g = Graph(number)
    w = g.bytes(filters, "int8", -120, 120)
    zeros = g.constant(zero, operand), g.constant(g.draw.permutation(filters[0]) - 8, "int8")
    program = g.program({"x": (shape, operand)}, g.node("ConvInteger", "x", w, *zeros, **more))
    _held(program, gl.NPU(MACHINES[number]), tmp_path)


@pytest.mark.parametrize(
    "number", [pytest.param(n, marks=pytest.mark.slow if n % 3 != 1 else ()) for n in range(len(MACHINES))]
)
def test_matrices(number: int, tmp_path: Path) -> None:
    g = Graph(number)
    b = g.bytes((12, 5), "int8", -120, 120)
    zeros = g.constant(77, "uint8"), g.constant(g.draw.permutation(5) - 7, "int8")
    _held(
        g.program({"x": ((3, 12), "uint8")}, g.node("MatMulInteger", "x", b, *zeros)),
        gl.NPU(MACHINES[number]),
        tmp_path,
    )


def test_sums_behind_a_layer_and_beside_it(tmp_path: Path) -> None:
    """The zero point of bytes that a layer made, padded; and two results, one of either kind."""
    g = Graph(3)
    scale, other, point = g.scales(), g.constant(0.05, "float32"), g.constant(-9, "int8")
    y = g.node("QLinearConv", "x", scale, g.constant(4, "int8"), g.bytes((4, 3, 3, 3)), scale, g.constant(0, "int8"),
               other, point, pads=[1] * 4)  # fmt: skip
    sums = g.node("ConvInteger", y, g.bytes((5, 4, 3, 3)), point, pads=[1] * 4)
    _held(g.program({"x": ((1, 3, 7, 5), "int8")}, sums), gl.NPU(8), tmp_path)


@pytest.mark.slow
def test_sums_that_floats_round_are_exact(tmp_path: Path) -> None:
    g = Graph(1)
    w = g.constant(g.draw.integers(100, 128, (2, 160, 3, 3)), "int8")
    node = g.node("ConvInteger", "x", w, g.constant(-127, "int8"), pads=[1] * 4)
    made = _held(g.program({"x": ((1, 160, 4, 3), "int8")}, node), gl.NPU(16), tmp_path)
    ((_, place),) = made.outputs.items()
    assert place.stands_for is not None
    got = place.stands_for.real(place.read(execute.run(made).dram))
    assert (got.astype(np.float32).astype(np.int64) != got).any()


def test_a_wrong_zero_is_seen(tmp_path: Path) -> None:
    g = Graph(0)
    node = g.node("ConvInteger", "x", g.bytes((4, 3, 3, 3)), g.constant(5, "int8"), pads=[1] * 4)
    made = _held(g.program({"x": ((1, 3, 6, 5), "int8")}, node), gl.NPU(8), tmp_path)
    (own,) = made.stretches
    assert own.result is not None
    other = replace(made, stretches=(replace(own, result=replace(own.result, stands_for=None)),))
    assert wrong(other, execute.run(other).dram) == [own.name]


def test_two_computed_operands_with_zero_points_are_a_sentence() -> None:
    g = Graph()
    node = g.node("MatMulInteger", "x", "y", g.constant(3, "int8"), g.constant(4, "int8"))
    program = g.program({"x": ((3, 12), "int8"), "y": ((12, 5), "int8")}, node)
    with pytest.raises(BadInput, match="zero point"):
        gl.npu_program(program, gl.NPU(8))


def test_arrays_are_said_as_short_as_they_are() -> None:
    every: Array = np.broadcast_to(np.array([[1], [2]]), (2, 3))
    assert narrow(every).tolist() == [[1], [2]]
    assert narrow(np.full((2, 3), 7)).shape == ()
    assert narrow(np.arange(6).reshape(2, 3)).shape == (2, 3)
    assert StandsFor.of(1, narrow(every)).real(np.full((2, 3), 9, np.int32)).tolist() == [[8] * 3, [7] * 3]
