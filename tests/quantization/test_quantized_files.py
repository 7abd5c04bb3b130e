"""Tests networks of dequantized and quantized tensors, as in QDQ files, as integer layers."""

from __future__ import annotations

import numpy as np
import pytest
from onnx_integer_networks import MICROSOFT, Graph, by_layers, computed, drawn, results

from glenside.ir.program import Program
from glenside.quantization.network import IntegerNetwork, integer_network
from glenside.quantization.quantize_program import of_bytes


def near(program: Program, seeds: int = 3) -> IntegerNetwork:
    """Returns the network of a program: each of its bytes is the one of floats, but one in a hundred, which is the next
    one.
    """
    network = integer_network(program)
    for seed in range(seeds):
        inputs = drawn(program, seed)
        wanted = results(program, program.constants, inputs)
        for want, got, (scale, _) in zip(wanted, computed(network, inputs), network.outputs, strict=True):
            apart = np.abs(want - got) / scale
            assert want.shape == got.shape
            assert apart.max() < 1.01
            assert (apart > 0.01).mean() <= 0.01
            assert np.unique(want).size > 8
    by_layers(network, drawn(program, 9))
    return network


ACTIVATIONS = ["none", "Relu", "Clip", "after"]


@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize(("dtype", "zero"), [("uint8", 77), ("int8", -9), ("int8", 0)])
@pytest.mark.parametrize("groups", [1, 4])
def test_convolutions(activation: str, dtype: str, zero: int, groups: int) -> None:
    """Padded, in steps, with a bias and scales of channels; depthwise; the clip before or after the quantization."""
    g = Graph()
    x = g.quantized("x", 0.03, zero, dtype)
    both = g.with_bias((8, 4 // groups, 3, 3), 0.03)
    y = g.node("Conv", x, *both, pads=[1, 0, 1, 2], strides=[1, 2], group=groups)
    if activation == "Relu":
        y = g.node("Relu", y)
    elif activation == "Clip":
        y = g.node("Clip", y, g.constant(-0.3, "float32"), g.constant(1, "float32"))
    y = g.quantized(y, 0.009, zero, dtype)
    if activation == "after":  # bytes that are clipped become bytes again, by a layer of products with 1
        y = g.quantized(g.node("Relu", y), 0.007, zero, dtype)
    z = g.node("Conv", y, g.weights((6, 8, 1, 1)), g.constant(g.draw.standard_normal(6), "float32"))
    network = near(g.program({"x": ((2, 4, 9, 8), "float32")}, g.quantized(z, 0.02, zero, dtype)))
    assert len(network.layers) == (3 if activation == "after" else 2)
    low = {"Relu": zero - 128 * (dtype == "uint8")}.get(activation, -128)
    assert network.layers[0].requantised is not None
    assert activation == "Clip" or network.layers[0].requantised.low == low


def test_a_classifier() -> None:
    """Convolution, average pool of windows and of all, flatten, Gemm; the host scales the sums and takes softmax."""
    g = Graph()
    y = g.node("Relu", g.node("Conv", g.quantized("x", 0.03, 120), g.weights((8, 3, 3, 3)), pads=[1] * 4))
    y = g.quantized(y, 0.012, 5)
    y = g.quantized(g.node("AveragePool", y, kernel_shape=[2, 2], strides=[2, 2]), 0.01, 5)
    y = g.node("Flatten", g.node("GlobalAveragePool", y))
    y = g.quantized(y, 0.008, 7)
    logits = g.node("Gemm", y, g.weights((10, 8)), g.constant(g.draw.standard_normal(10), "float32"), transB=1)
    program = g.program({"x": ((2, 3, 8, 8), "float32")}, g.node("Softmax", logits))
    network = integer_network(program)
    assert network.rest == "scale, softmax"
    assert [layer.requantised is None for layer in network.layers] == [False, False, False, True]
    inputs = drawn(program, 0)
    (want,), (got,) = results(program, program.constants, inputs), computed(network, inputs)
    shares = np.exp(got) / np.exp(got).sum(1, keepdims=True)
    assert np.abs(want - shares).max() < 0.01 * want.max()
    by_layers(network, inputs)


@pytest.mark.parametrize("counted", [0, 1])
def test_average_pools_with_borders(counted: int) -> None:
    g = Graph()
    x = g.quantized("x", 0.03, 100)
    y = g.node("AveragePool", x, kernel_shape=[3, 3], strides=[2, 1], pads=[1] * 4, count_include_pad=counted)
    near(g.program({"x": ((1, 3, 7, 6), "float32")}, g.quantized(y, 0.0103, 128)))


def test_what_is_added_to_bytes_is_no_whole_number_of_their_steps() -> None:
    """As where a `MatMul` has an `Add` behind it, which is quantized by itself."""
    g = Graph()
    y = g.quantized(g.node("MatMul", g.quantized("x", 0.03, 120), g.weights((12, 5), 1)), 0.02, 100)
    y = g.node("Add", y, g.constant(g.draw.uniform(-1, 1, 5), "float32"))
    network = near(g.program({"x": ((20, 4, 12), "float32")}, g.quantized(y, 0.021, 110)))
    assert len(network.layers) == 2


def test_matrices_of_two_inputs() -> None:
    """A product of activations, and one with weights that stand first."""
    g = Graph()
    a, b = g.quantized("a b", 0.03, 120), g.quantized("b'", 0.02, -7, "int8")
    y = g.quantized(g.node("MatMul", a, b), 0.05, 130)
    z = g.node("MatMul", g.weights((6, 5)), g.node("Transpose", y, perm=[0, 2, 1]))
    network = near(g.program({"a b": ((2, 4, 9), "float32"), "b'": ((2, 9, 5), "float32")}, g.quantized(z, 0.04, 99)))
    assert list(network.inputs) == ["a b", "b'"]


def test_joined_and_cut() -> None:
    """Concatenation of bytes of one scale, of others by way of a layer, and slices."""
    g = Graph()
    x = g.quantized("x", 0.03, 100)
    parts = [g.node("Conv", x, g.weights((4, 4, 1, 1))) for _ in range(2)]
    y, z = g.quantized(parts[0], 0.02, 90), g.quantized(parts[1], 0.0157, 90)
    joined = g.quantized(g.node("Concat", g.quantized(z, 0.02, 90), y, axis=1), 0.02, 90)
    ends = [g.constant([n], "int64") for n in (1, 7, 1)]
    found = g.node("Conv", g.node("Slice", joined, *ends), g.weights((5, 6, 3, 3)), pads=[1] * 4)
    near(g.program({"x": ((1, 4, 6, 5), "float32")}, g.quantized(found, 0.03, 128)))


def test_a_result_of_bytes_and_one_of_sums() -> None:
    g = Graph()
    x = g.quantized("x", 0.03, 100)
    y = g.node("MatMul", x, g.weights((8, 5), 1))
    network = near(g.program({"x": ((3, 8), "float32")}, g.quantized(y, 0.01, 100), y), 1)
    assert network.rest == "scale"
    assert len({layer.name for layer in network.layers}) == 2
    assert len({layer.sums for layer in network.layers}) == 1


def test_what_is_the_same_is_one_layer() -> None:
    g = Graph()
    x = g.quantized("x", 0.03, 100)
    w = g.weights((8, 5), 1)
    sums = [g.node("MatMul", x, w) for _ in range(2)]
    network = integer_network(g.program({"x": ((3, 8), "float32")}, *sums, g.quantized(sums[0], 0.01, 90)))
    assert [layer.requantised is None for layer in network.layers] in ([True, False], [False, True])
    assert len(network.outputs) == 2
    assert network.host is not None
    assert len(network.host.result_names()) == 3


BEHIND = [
    ("Elu", "(compare lt), cast, exp, subtract, elementwise-mul, select"),
    ("PRelu", "(compare lt), cast, elementwise-mul, select"),
    ("Gelu", "elementwise-div, erf, elementwise-add, elementwise-mul"),
]


@pytest.mark.parametrize(("function", "left"), BEHIND)
def test_functions_behind_the_last_layer_that_read_it_twice(function: str, left: str) -> None:
    """Some of it is numbers scaled, or a tensor beside itself: the host takes all that is behind the sums."""
    g = Graph()
    sums = g.node("MatMul", g.quantized("x", 0.03, 120), g.weights((12, 5), 1))
    if function == "Gelu":
        erf = g.node("Erf", g.node("Div", sums, g.constant(2**0.5, "float32")))
        y = g.node("Mul", g.node("Mul", sums, g.node("Add", erf, g.constant(1, "float32"))), g.constant(0.5, "float32"))
    else:
        y = g.node(function, sums, *([g.constant([0.2], "float32")] if function == "PRelu" else []))
    network = integer_network(g.program({"x": ((4, 12), "float32")}, y))
    assert network.rest == f"scale, {left}"
    assert [layer.requantised for layer in network.layers] == [None]


@pytest.mark.parametrize("dtype", ["int8", "uint8"])
def test_weights_that_the_file_quantizes(dtype: str) -> None:
    """Floats that become bytes and floats again, with zero points of channels, as onnxruntime's option leaves them."""
    g = Graph()
    floats = g.constant(g.draw.uniform(-1, 1, (12, 5)), "float32")
    own = [g.constant([0.008, 0.009, 0.01, 0.009, 0.012], "float32"), g.constant([0] * 5, "int8")]
    if dtype == "uint8":
        own[1] = g.constant([128, 128, 128, 128, 128], "uint8")
    w = g.node("DequantizeLinear", g.node("QuantizeLinear", floats, *own, axis=1), *own, axis=1)
    y = g.node("MatMul", g.quantized("x", 0.03, 120), w)
    network = near(g.program({"x": ((20, 4, 12), "float32")}, g.quantized(y, 0.05, 110)))
    assert len(network.layers) == 1


def test_an_input_that_is_quantized_twice() -> None:
    """As onnxruntime's quantizer does before and behind a reshape: what the zero point of weights is found by reads one
    of both.
    """
    g = Graph()
    both, shape = (g.constant(0.02, "float32"), g.constant(120, "uint8")), g.constant([5, 6], "int64")
    x, own = g.node("QuantizeLinear", "x", *both), g.node("QuantizeLinear", g.node("Reshape", "x", shape), *both)
    scale, weights = (g.constant(0.01, "float32"), g.constant(90, "uint8")), g.bytes((6, 6), "uint8", 0, 180)
    gemm = (own, *both, weights, *scale, g.constant(g.draw.integers(-900, 900, 6), "int32"), *both)
    y = g.node("Reshape", g.node("QGemm", *gemm, domain=MICROSOFT), g.constant([1, 5, 6], "int64"))
    y = g.node("QLinearAdd", x, *both, y, *both, *both, domain=MICROSOFT)
    network = near(g.program({"x": ((1, 5, 6), "float32")}, g.node("DequantizeLinear", y, *both)))
    assert len(network.layers) == 2


def test_a_softmax_of_bytes_alone() -> None:
    """There is no product in it."""
    g = Graph()
    program = g.program(
        {"x": ((3, 7), "float32")}, g.quantized(g.node("Softmax", g.quantized("x", 0.03, 120)), 1 / 256, 0)
    )
    assert of_bytes(program)
    assert [layer.normalised is not None for layer in integer_network(program).layers] == [True]


@pytest.mark.parametrize("ends", [None, (-1.5, 0.6), (0.3, 1.2)], ids=str)
@pytest.mark.parametrize(("dtype", "zero"), [("uint8", 77), ("int8", -9), ("int8", 0)])
def test_inputs_that_are_clipped_before_they_are_quantized(
    dtype: str, zero: int, ends: tuple[float, float] | None
) -> None:
    """By a Relu for None; the host quantizes inputs without clipping them, so a layer clips."""
    g = Graph()
    y = g.node("Clip", "x", *(g.constant(end, "float32") for end in ends)) if ends else g.node("Relu", "x")
    y = g.quantized(y, 0.03, zero, dtype)
    z = g.node("Conv", y, g.weights((6, 3, 3, 3)), pads=[1] * 4 if ends is None or ends[0] < 0 else [0] * 4)
    network = near(g.program({"x": ((2, 3, 5, 6), "float32")}, g.quantized(z, 0.02, zero, dtype)))
    assert len(network.layers) == 2
