"""Tests that unsupported networks are refused with the operator, its layer, and a remedy."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pytest
from onnx_integer_networks import Graph

import glenside as gl
from glenside.ir.errors import BadInput
from glenside.quantization.calibration import quantized
from glenside.quantization.network import integer_network

Case = Callable[[Graph], str]


def between(*steps: str, dims: Sequence[int] = (4, 4, 1, 1), **attributes: object) -> Case:
    """Returns a product, these operators, and another product; the first of them may read the product twice."""

    def build(g: Graph) -> str:
        op = "Conv" if len(dims) == 4 else "MatMul"
        y = first = g.node(op, g.quantized("x", 0.03, 100), g.weights(dims, len(dims) % 4 // 2))
        for step in steps:
            y = g.node(step, y, **attributes)
        y = g.node("Mul", y, first) if steps == ("Sigmoid",) else y
        return g.node(op, g.quantized(y, 0.02, 100), g.weights(dims, len(dims) % 4 // 2))

    return build


def sums_added(g: Graph) -> str:
    x = g.quantized("x", 0.03, 100)
    y = g.node("Add", g.node("Conv", x, g.weights((4, 4, 1, 1))), x)
    return g.node("Conv", g.quantized(y, 0.02, 100), g.weights((4, 4, 1, 1)))


def scales_along_sums(g: Graph) -> str:
    return g.node("MatMul", g.quantized("x", 0.03, 100), g.weights((5, 4), 0))


def weights_of_floats(g: Graph) -> str:
    return g.node("MatMul", g.quantized("x", 0.03, 100), g.constant(np.ones((5, 4)), "float32"))


def wide_weights(g: Graph) -> str:
    s, z, w = g.scales(), g.constant(30, "uint8"), g.constant(np.arange(20).reshape(5, 4) * 13, "uint8")
    q = g.node("QuantizeLinear", "x", s, z)
    return g.node("QLinearMatMul", q, s, z, w, s, z, s, z)


def two_quantizations(g: Graph) -> str:
    parts = [g.node("MatMul", g.quantized("x", scale, 9), g.weights((5, 4), 1)) for scale in (0.02, 0.03)]
    return g.node("Concat", *parts, axis=0)


def a_scale_of_zero(g: Graph) -> str:
    w = g.node("DequantizeLinear", g.bytes((5, 4)), g.constant([1, 0, 1, 1], "float32"), axis=1)
    return g.quantized(g.node("MatMul", g.quantized("x", 0.03, 100), w), 0.2, 9)


def padded_pool_of_floats(g: Graph) -> str:
    y = g.node("MaxPool", "x", kernel_shape=[2, 2], pads=[0, 0, 1, 1])
    return g.node("Conv", g.quantized(y, 0.03, 100), g.weights((4, 4, 1, 1)))


def words(g: Graph) -> str:
    return g.quantized("x", 0.03, 100, "int16")


CASES: list[tuple[Case, str, str]] = [
    (between("Tanh"), "tanh after the layer Conv", "needs a vector unit"),
    (between("Sigmoid"), "sigmoid after the layer Conv", "needs a vector unit"),
    (between("Tanh", "Sigmoid", "Tanh"), "tanh after the layer Conv", "needs a vector unit"),
    (between("LeakyRelu"), "leaky-relu", "scales, shifts, clips and rounds"),
    (between("Softmax", axis=1), "softmax after the layer Conv", "quantize its operand first"),
    (between("Floor"), "floor", "needs a vector unit"),
    (sums_added, "elementwise-add after the layer Conv", "quantize the result of the layer Conv"),
    (between("Relu"), "", ""),
    (lambda g: g.node("MatMul", "x", g.weights((5, 4), 1)), "the layer MatMul", "quantize the input x before it"),
    (scales_along_sums, "the layer MatMul", "require one scale along each sum"),
    (weights_of_floats, "the layer MatMul", "its weights are float32"),
    (wide_weights, "QLinearMatMul", "less their zero point, must fit int8"),
    (two_quantizations, "of the input x", "quantized in two ways"),
    (a_scale_of_zero, "the layer MatMul", "a finite number other than 0"),
    (padded_pool_of_floats, "of the input x", "a max-pool requires bytes of one positive scale"),
    (words, "of the input x", "numbers are quantized to int16; a machine has only bytes"),
    (lambda g: g.quantized("x", 0.03, 100), "", "no product of bytes"),
]


@pytest.mark.parametrize(("case", "place", "reason"), CASES)
def test_refused(case: Case, place: str, reason: str) -> None:
    g = Graph()
    result = case(g)
    image = any(node.op_type == "Conv" for node in g.nodes)
    program = g.program({"x": ((1, 4, 6, 6) if image else (3, 5), "float32")}, result)
    if not reason:
        assert integer_network(program).layers
        return
    with pytest.raises(BadInput) as error:
        integer_network(program)
    assert place in str(error.value)
    assert reason in str(error.value)
    assert "\n" not in str(error.value)
    assert str(error.value).count(" after the layer ") <= 1  # where it begins, not all that follows


def test_what_follows_from_whole_numbers_is_refused_at_the_input() -> None:
    b = gl.Builder("p")
    x = b.gather(b.constant("words", (9, 4)), b.input("ids", (3,), "int64"))
    for name in "uvw":
        x = b.softmax(b.linear(x, b.constant(name, (4, 4))), axis=1)
    program = b.finish(b.linear(x, b.constant("z", (4, 4))))
    values = {name: np.ones(tensor.dims, np.float32) for name, tensor in program.constants_declared.items()}
    with pytest.raises(BadInput, match=r"^the input ids: inputs must be bytes.*got int64$"):
        quantized(program, values)


@pytest.mark.parametrize("how", ["added", "selected"])
def test_a_mask_of_infinity_is_refused_where_it_is(how: str) -> None:
    b = gl.Builder("p")
    scores = b.matmul(b.input("q", (3, 4)), b.constant("keys", (4, 3)))
    away = b.constant("mask", (3, 3))
    masked = b.add(scores, away) if how == "added" else b.select(b.compare("lt", away, b.full((3, 3), 0)), away, scores)
    program = b.finish(b.matmul(b.softmax(masked), b.constant("rows", (3, 4))))
    values = {name: np.ones(tensor.dims, np.float32) for name, tensor in program.constants_declared.items()}
    values["mask"] = np.triu(np.full((3, 3), -np.inf, np.float32), 1)
    with pytest.raises(BadInput, match=r"^\w[\w-]* after the layer \w+: quantized numbers .* finite, got -inf to "):
        quantized(program, values)


def test_gates_are_products() -> None:
    """Squeeze and excitation: a product of what is computed, element by element."""
    b = gl.Builder("p")
    x = b.conv(b.input("x", (1, 4, 5, 5)), b.constant("w", (4, 4, 1, 1)))
    shares = b.hard_sigmoid(b.conv(b.reshape(b.global_average_pool(x), (1, 4, 1, 1)), b.constant("v", (4, 4, 1, 1))))
    program = b.finish(b.conv(b.multiply(x, shares), b.constant("u", (4, 4, 1, 1))))
    values = {name: np.ones(tensor.dims, np.float32) for name, tensor in program.constants_declared.items()}
    found = quantized(program, values)
    assert "gate" in [layer.name for layer in found.layers]
