"""Tests ONNX's integer operators as integer layers, bit for bit."""

from __future__ import annotations

import numpy as np
import pytest
from onnx_integer_networks import MICROSOFT, Graph, by_layers, computed, drawn, results

from glenside.analysis.element_sources import leaves_of
from glenside.ir.program import Program
from glenside.quantization.network import IntegerNetwork, integer_network, leaf_of


def equal(program: Program) -> IntegerNetwork:
    """Returns the network of a program, which computes the same integers."""
    network = integer_network(program)
    for seed in range(3):
        inputs = drawn(program, seed)
        wanted = results(program, program.constants, inputs)
        for want, got in zip(wanted, computed(network, inputs), strict=True):
            assert np.array_equal(want, got)
            assert np.unique(want).size > 8
    by_layers(network, drawn(program, 9))
    return network


@pytest.mark.parametrize("activation", ["uint8", "int8"])
@pytest.mark.parametrize("weight", ["uint8", "int8"])
@pytest.mark.parametrize("zero", [0, 3])
@pytest.mark.parametrize("pads", [0, 1])
def test_convolutions(activation: str, weight: str, zero: int, pads: int) -> None:
    """Two QLinearConv, the second one with channels of their own scales, in groups and steps."""
    g, zero = Graph(), zero + 90 * (weight == "uint8")
    scale, other = g.scales(), g.constant(0.01, "float32")
    low = (zero - 90, zero + 90)
    w, v = g.bytes((8, 4, 3, 3), weight, *low), g.bytes((6, 4, 2, 3), weight, *low)
    point = g.constant(70 if activation == "uint8" else -5, activation)
    zeros = g.constant(zero, weight), g.constant(np.full(6, zero), weight)
    bias = g.constant(g.draw.integers(-3000, 3000, 8), "int32")
    y = g.node(
        "QLinearConv", "x", scale, point, w, scale, zeros[0], other, point, bias, pads=[pads] * 4, strides=[2, 1]
    )
    z = g.node("QLinearConv", y, other, point, v, g.scales((6,)), zeros[1], other, point, pads=[0, pads, 1, 0], group=2)
    equal(g.program({"x": ((2, 4, 9, 7), activation)}, z, y))


@pytest.mark.parametrize("operands", [("uint8", "uint8"), ("uint8", "int8"), ("int8", "int8")])
@pytest.mark.parametrize("zeros", [(0, 0), (7, 2)])
def test_matrices(operands: tuple[str, str], zeros: tuple[int, int]) -> None:
    g = Graph()
    zeros = (zeros[0], zeros[1] + 60 * (operands[1] == "uint8"))
    ends = (zeros[1] - 128, 127) if operands[1] == "int8" else (0, zeros[1] + 67)
    b = g.constant(g.draw.integers(max(ends[0], -128), ends[1], (12, 5)), operands[1])
    scale, other = g.scales(), g.constant(0.03, "float32")
    points = g.constant(zeros[0], operands[0]), g.constant(zeros[1], operands[1])
    y = g.node("QLinearMatMul", "x", scale, points[0], b, g.scales((5,)), g.constant([zeros[1]] * 5, operands[1]),
               other, g.constant(90, operands[0]))  # fmt: skip
    sums = g.node("MatMulInteger", "x", b, *points)
    network = equal(g.program({"x": ((3, 12), operands[0])}, y, sums))
    assert [layer.requantised is None for layer in network.layers] == [False, True]


def test_two_inputs() -> None:
    """A product of activations, both with zero points."""
    g = Graph()
    scale, other = g.scales(), g.constant(0.02, "float32")
    points = g.constant(100, "uint8"), g.constant(-20, "int8")
    y = g.node("QLinearMatMul", "a b", scale, points[0], "c/d", scale, points[1], other, points[1])
    network = equal(g.program({"a b": ((2, 4, 12), "uint8"), "c/d": ((2, 12, 5), "int8")}, y))
    assert set(network.inputs) == {"a b", "c/d"}


@pytest.mark.parametrize("zero", [0, 9])
def test_sums_are_a_result(zero: int) -> None:
    g = Graph()
    w, point = g.bytes((5, 3, 3, 3)), g.constant(zero, "uint8")
    y = g.node("ConvInteger", "x", w, point, pads=[1, 2, 0, 1], dilations=[2, 1])
    (layer,) = equal(g.program({"x": ((1, 3, 8, 8), "uint8")}, y)).layers
    assert layer.requantised is None


@pytest.mark.parametrize("activation", ["uint8", "int8"])
@pytest.mark.parametrize("pads", [0, 1])
@pytest.mark.parametrize("window", [[2, 3], [3, 3], [1, 1]])
def test_largest_bytes(activation: str, pads: int, window: list[int]) -> None:
    """Max-pools with least numbers around them, of what comes in and of what was computed."""
    g = Graph()
    scale, point = g.constant(0.01, "float32"), g.constant(70 if activation == "uint8" else -5, activation)
    pads = min(pads, window[0] - 1)
    pool = {"kernel_shape": window, "strides": [2, 1], "pads": [pads, 0, pads, pads]}
    y = g.node("MaxPool", "x", **pool)
    z = g.node("QLinearConv", y, scale, point, g.bytes((8, 4, 1, 1)), scale, g.constant(0, "int8"), scale, point)
    found = equal(g.program({"x": ((2, 4, 9, 7), activation)}, g.node("MaxPool", z, **pool), y))
    ends = {layer.result for layer in found.layers}
    for layer in found.layers:
        zeros = {leaf_of(leaf)[1] for leaf in leaves_of(layer.operands.children[0], ends)}
        assert zeros in ({0}, {-128})


@pytest.mark.parametrize(("n", "layers"), [(2, 1), (64, 1), (65, 2), (113, 2), (64 * 64 + 1, 3)])
def test_largest_of_many_bytes(n: int, layers: int) -> None:
    """Of more bytes than are compared at once, in parts, which overlap where they do not divide them."""
    g = Graph()
    found = integer_network(g.program({"x": ((1, 60, n, 1), "int8")}, g.node("MaxPool", "x", kernel_shape=[n, 1])))
    assert [layer.greatest for layer in found.layers] == [True] * layers
    draw = np.random.default_rng(n)
    x, peaks = draw.integers(-128, -100, (1, 60, n, 1)), draw.integers(-100, 128, 60)
    places = np.append(draw.integers(0, n, 58), [0, n - 1])
    x[0, np.arange(60), places, 0] = peaks
    (got,) = computed(found, {"x": x.astype(np.int8)})
    assert np.array_equal(got.reshape(-1), peaks)


def test_a_block_of_onnxruntime() -> None:
    """Its additions, average pools and concatenations of bytes: what they scale may become the next byte."""
    g = Graph(1)
    one = (g.constant(0.031, "float32"), g.constant(100, "uint8"))
    two, three = (g.constant(0.043, "float32"), g.constant(90, "uint8")), (g.constant(0.017, "float32"), one[1])
    y = g.node("QLinearConv", "x", *one, g.bytes((4, 4, 3, 3)), g.scales((4,)), g.constant([0] * 4, "int8"), *two,
               pads=[1] * 4)  # fmt: skip
    y = g.node("QLinearAdd", "x", *one, y, *two, *three, domain=MICROSOFT)
    z = g.node("QLinearAveragePool", y, *three, *two, kernel_shape=[2, 2], domain=MICROSOFT)
    y = g.node("QLinearConcat", *one, y, *three, "x", *one, domain=MICROSOFT, axis=1)
    y = g.node("QLinearGlobalAveragePool", y, *one, *three, channels_last=0, domain=MICROSOFT)
    program = g.program({"x": ((2, 4, 6, 6), "uint8")}, y, z)
    network = integer_network(program)
    assert len(network.layers) == 5
    inputs = drawn(program, 0)
    for want, got in zip(results(program, program.constants, inputs), computed(network, inputs), strict=True):
        apart = np.abs(want - got)
        assert apart.max() <= 1
        assert apart.mean() <= 0.01
        assert np.unique(want).size > 8
