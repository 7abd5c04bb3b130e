"""Tests the accuracy of float networks as integer layers."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pytest
from onnx_integer_networks import by_layers, computed

import glenside as gl
from glenside.builder.layout import split_at
from glenside.builder.pointwise import compute, mean_from
from glenside.ir.errors import BadInput
from glenside.ir.operand import Array
from glenside.ir.program import Program
from glenside.ir.term import Term, build, postorder
from glenside.models import load
from glenside.quantization.calibration import quantized
from glenside.quantization.network import IntegerNetwork


def decibels(program: Program, network: IntegerNetwork, logits: Term, seeds: range) -> float:
    """Signal to noise of the logits, on inputs that calibration did not see."""
    signal = noise = 0.0
    for seed in seeds:
        draw = np.random.default_rng(1000 + seed)
        inputs = {name: draw.standard_normal(t.dims).astype(t.dtype) for name, t in program.inputs.items()}
        (want,) = gl.evaluate([logits], {**program.constants, **inputs})
        (got,) = computed(network, inputs)
        signal, noise = signal + np.square(want).sum(), noise + np.square(got - want).sum()
    return float(10 * np.log10(signal / noise))


def logits_of(program: Program) -> Term:
    """What softmax is taken of, of a classifier."""
    (softmax,) = (t for t in postorder(program.term) if t.attributes[:1] == ("softmax",))
    return softmax.children[0]


@pytest.mark.parametrize(
    ("name", "sizes", "least", "layers"),
    [
        ("mobilenet-v1", {"width": 0.25, "resolution": 32, "batch": 2}, 30, 29),
        ("mobilenet-v2", {"width": 0.25, "resolution": 32, "classes": 10}, 18, 65),
    ],
)
def test_small_classifiers(name: str, sizes: Mapping[str, float], least: float, layers: int) -> None:
    program = load(name, **sizes)
    network = quantized(program)
    assert len(network.layers) == layers
    assert network.rest == "scale, softmax"
    assert decibels(program, network, logits_of(program), range(3)) > least
    assert set(network.program.layers) >= set(program.layers)
    (tensor,) = program.inputs.values()
    by_layers(network, {tensor.name: np.random.default_rng(0).standard_normal(tensor.dims).astype(np.float32)})


@pytest.mark.slow
def test_mobilenets_as_they_are() -> None:
    for name, least in (("mobilenet-v1", 32), ("mobilenet-v2", 31)):
        program = load(name)
        assert decibels(program, quantized(program), logits_of(program), range(4)) > least


def small(groups: int = 1) -> tuple[Program, dict[str, Array]]:
    b, draw = gl.Builder("odd 'name"), np.random.default_rng(3)
    x, y = b.input("x y", (2, 4, 6, 6)), b.input('"', (2, 4, 6, 6))
    first = b.relu(
        b.conv(x, b.constant("w 1", (8, 4 // groups, 3, 3)), b.constant("b'", (8,)), padding=1, groups=groups)
    )
    second = b.conv(y, b.constant("w/2", (8, 4, 3, 3)), padding=1)
    pooled = b.average_pool(b.add(first, second), 2)
    program = b.finish(b.conv(pooled, b.constant("w", (3, 8, 1, 1)), name="last layer"))
    values = {n: draw.standard_normal(t.dims).astype(np.float32) for n, t in program.constants_declared.items()}
    return program, values


@pytest.mark.parametrize("groups", [1, 4])
def test_two_inputs_with_odd_names_that_are_added(groups: int) -> None:
    program, values = small(groups)
    data = {name: np.random.default_rng(0).standard_normal((64, 4, 6, 6)) for name in program.inputs}
    network = quantized(program, values, data)
    assert set(network.inputs) == {"x y", '"'}
    assert "last layer" in network.program.layers
    program = program.with_constants(values)
    assert decibels(program, network, program.term, range(3)) > 30
    assert "addition" in network.program.layers


def test_data_decides_ranges() -> None:
    program, values = small()
    data = {"x y": 5 * np.ones((6, 4, 6, 6), np.float32), '"': np.zeros((2, 4, 6, 6), np.float32)}
    scale, zero = quantized(program, values, data).inputs["x y"]
    assert scale == pytest.approx(5 / 255)
    assert zero == -128
    again, seeded = (quantized(program, values, seed=seed).inputs["x y"] for seed in (0, 1))
    assert quantized(program, values).inputs["x y"] == again != seeded


@pytest.mark.parametrize(
    ("data", "words"),
    [
        ({"z": np.zeros(3)}, "which is not an input"),
        ({"x y": np.zeros((3, 4, 6, 6))}, "whole batches of 2, got (3 4 6 6)"),
        ({"x y": np.zeros((2, 4, 6))}, "requires shape (samples 4 6 6)"),
        ({"x y": np.full((2, 4, 6, 6), np.nan)}, "finite numbers"),
    ],
)
def test_data_that_does_not_fit(data: Mapping[str, Array], words: str) -> None:
    program, values = small()
    with pytest.raises(BadInput) as error:
        quantized(program, values, data)
    assert words in str(error.value)


def test_weights_are_given() -> None:
    program, values = small()
    with pytest.raises(BadInput, match="requires the value of the constant w"):
        quantized(program, {name: value for name, value in values.items() if name != "w"})


@pytest.mark.parametrize("function", ["relu", "tanh", "sigmoid", "hard_swish"])
@pytest.mark.parametrize("groups", [1, 6])
def test_functions_of_convolutions_to_which_nothing_is_added(function: str, groups: int) -> None:
    b, draw = gl.Builder("no bias"), np.random.default_rng(5)
    x = b.conv(b.input("x", (1, 3, 7, 5)), b.constant("u", (6, 3, 3, 3)), padding=1)
    for name in "vw":
        kept = x = getattr(b, function)(x)
        x = b.add(b.conv(x, b.constant(name, (6, 6 // groups, 3, 3)), padding=1, groups=groups), kept)
    program = b.finish(b.conv(x, b.constant("z", (5, 6, 1, 1)), name="last"))
    values = {n: 0.3 * draw.standard_normal(t.dims).astype(np.float32) for n, t in program.constants_declared.items()}
    bound = program.with_values(values)
    network = quantized(bound, None, {"x": draw.standard_normal((40, 3, 7, 5)).astype(np.float32)})
    assert decibels(bound, network, program.term, range(3)) > 25
    by_layers(network, {"x": draw.standard_normal((1, 3, 7, 5)).astype(np.float32)})


@pytest.mark.parametrize("groups", [1, 4])
def test_channels_of_which_next_to_nothing_is_left_beside_what_is_added(groups: int) -> None:
    b, draw = gl.Builder("dead channels"), np.random.default_rng(6)
    x = b.input("x", (1, 4, 5, 6))
    y = b.relu(b.conv(x, b.constant("w", (8, 4 // groups, 3, 3)), b.constant("b", (8,)), groups=groups, name="first"))
    program = b.finish(b.conv(y, b.constant("v", (3, 8, 1, 1)), name="last"))
    values = {n: draw.standard_normal(t.dims).astype(np.float32) for n, t in program.constants_declared.items()}
    values["w"][[1, 6]] *= 1e-11  # as a batch norm of a channel that is always the same
    values["b"][[1, 6]] = 0.75, -0.5
    bound = program.with_values(values)
    network = quantized(bound, None, {"x": draw.standard_normal((40, 4, 5, 6)).astype(np.float32)})
    assert decibels(bound, network, program.term, range(3)) > 30
    by_layers(network, {"x": draw.standard_normal((1, 4, 5, 6)).astype(np.float32)})


def test_what_is_added_to_vanishing_numbers() -> None:
    b, draw = gl.Builder("vanishing"), np.random.default_rng(7)
    x = b.input("x", (1, 4, 5, 6))
    y = b.hard_sigmoid(b.conv(b.relu(b.conv(x, b.constant("u", (6, 4, 1, 1)))), b.constant("w", (8, 6, 1, 1))))
    program = b.finish(b.conv(y, b.constant("v", (3, 8, 1, 1)), name="last"))
    values = {n: draw.standard_normal(t.dims).astype(np.float32) for n, t in program.constants_declared.items()}
    values["u"] *= 1e-9
    bound = program.with_values(values)
    assert decibels(bound, quantized(bound), program.term, range(3)) > 30


def test_weights_of_two_products_are_those_of_each() -> None:
    """One constant as it stands and transposed, which have other channels and other scales."""
    b, draw = gl.Builder("tied"), np.random.default_rng(8)
    w = b.constant("w", (6, 6))
    y = b.relu(b.matmul(b.input("x", (5, 6)), w))
    program = b.finish(b.matmul(b.relu(b.matmul(y, b.transpose(w, (1, 0)))), b.constant("v", (6, 6))))
    values = {n: draw.standard_normal(t.dims).astype(np.float32) for n, t in program.constants_declared.items()}
    values["w"] *= np.arange(1, 7)[:, None] / 4
    bound = program.with_values(values)
    network = quantized(bound, None, {"x": draw.standard_normal((500, 6)).astype(np.float32)})
    assert decibels(bound, network, program.term, range(3)) > 28
    by_layers(network, {"x": draw.standard_normal((5, 6)).astype(np.float32)})


def _near(program: Program, least: float, samples: int = 60, seed: int = 9) -> IntegerNetwork:
    """Returns the program quantized on normal numbers with random constants: near it, and layer by layer the
    interpreter's.
    """
    draw = np.random.default_rng(seed)
    values = {n: draw.standard_normal(t.dims).astype(np.float32) for n, t in program.constants_declared.items()}
    bound = program.with_values(values)
    ((name, tensor),) = program.inputs.items()
    network = quantized(bound, None, {name: draw.standard_normal((samples, *tensor.dims[1:])).astype(np.float32)})
    assert decibels(bound, network, program.term, range(3)) > least
    if not any(layer.normalised for layer in network.layers):
        by_layers(network, {name: draw.standard_normal(tensor.dims).astype(np.float32)})
    return network


@pytest.mark.parametrize("ends", ["0 1", "-1/2 2/3", "1/4 1"])
def test_a_product_of_two_inputs_one_of_which_is_clipped(ends: str) -> None:
    """Bytes of both have the zero point 0, so the ends of the clip are no ends of bytes."""
    b = gl.Builder("clipped")
    program = b.finish(b.matmul(b.input("x", (5, 9)), compute(f"(clip {ends})", b.input("y", (9, 4)))))
    assert decibels(program, quantized(program), program.term, range(3)) > 26


@pytest.mark.parametrize("clipped", [False, True])
def test_what_is_added_to_zeros_around_sums(clipped: bool) -> None:
    b = gl.Builder("around")
    y = b.matmul(b.input("x", (1, 5, 6)), b.constant("w", (6, 6)))
    y = b.add(b.pad(y, [(0, 0), (1, 2), (0, 0)]), b.constant("places", (8, 6)))
    network = _near(b.finish(b.matmul(b.relu(y) if clipped else y, b.constant("v", (6, 4)))), 28)
    assert "rescale" in network.program.layers


@pytest.mark.parametrize("before", [True, False])
@pytest.mark.parametrize("places", [True, False])
def test_constants_beside_a_tensor(before: bool, places: bool) -> None:
    """As the token of a class, before what a layer made, or behind it."""
    b = gl.Builder("token")
    y = b.matmul(b.input("x", (1, 5, 6)), b.constant("w", (6, 8)))
    token = b.constant("token", (1, 1, 8))
    y = b.concatenate([token, y] if before else [y, token], 1)
    y = b.add(y, b.constant("places", (6, 8))) if places else y
    _near(b.finish(b.matmul(b.relu(b.matmul(y, b.constant("u", (8, 7)))), b.constant("v", (7, 4)))), 28)


@pytest.mark.parametrize("form", ["mean", "sum", "inverse", "flat"])
def test_roots_of_squares(form: str) -> None:
    """Root mean squares as exporters write them, and items of length one."""
    b = gl.Builder("roots")
    x = b.matmul(b.input("x", (1, 5, 6)), b.constant("w", (6, 8)))
    if form == "flat":  # squares in another view of the tensor
        flat = b.reshape(x, (40,))
        squares = b.reshape(b.multiply(flat, flat), (1, 5, 8))
    else:
        squares = b.multiply(x, x)
    total = build("compute", "reduce-sum" if form == "sum" else "reduce-mean", split_at(squares, 2))
    total = b.reshape(split_at(total, 0), (1, 5, 1))
    root = b.compute("sqrt", b.add(total, b.full((), "1e-6")))
    y = b.multiply(x, b.divide(b.full((1, 5, 1), 1), root)) if form == "inverse" else b.divide(x, root)
    network = _near(b.finish(b.matmul(b.multiply(y, b.constant("gamma", (8,))), b.constant("v", (8, 4)))), 28)
    assert "rms-norm" in network.program.layers


def test_a_layer_norm_in_views_and_in_another_order() -> None:
    b = gl.Builder("views")
    x = b.transpose(b.matmul(b.input("x", (1, 5, 6)), b.constant("w", (6, 8))), (0, 2, 1))
    mean = mean_from(x, 2)
    less = b.reshape(b.subtract(b.reshape(x, (40,)), b.reshape(b.broadcast(mean, (1, 8, 5)), (40,))), (1, 8, 5))
    variance = mean_from(b.multiply(less, less), 2)
    y = b.divide(less, b.compute("sqrt", b.add(variance, b.full((), "1e-5"))))
    network = _near(b.finish(b.matmul(y, b.constant("v", (5, 4)))), 28)
    assert "layer-norm" in network.program.layers


def test_roots_of_squares_of_another_tensor_are_a_division() -> None:
    """Squares of another tensor."""
    b = gl.Builder("other")
    x = b.matmul(b.input("x", (1, 5, 6)), b.constant("w", (6, 8)))
    z = b.matmul(b.relu(x), b.constant("u", (8, 8)))
    mean = mean_from(b.multiply(z, z), 2)
    y = b.divide(x, b.compute("sqrt", b.add(mean, b.full((), "1e-6"))))
    program = b.finish(b.matmul(y, b.constant("v", (8, 4))))
    assert "rms-norm" not in _near(program, 18).program.layers


def test_functions_whose_results_are_moved_before_something_is_added() -> None:
    b = gl.Builder("moved")
    y = b.gelu(b.matmul(b.input("x", (1, 5, 6)), b.constant("w", (6, 8))))
    y = b.add(b.transpose(y, (0, 2, 1)), b.constant("places", (8, 5)))
    _near(b.finish(b.matmul(y, b.constant("v", (5, 4)))), 28)


def test_responses_that_are_divided_by_their_mean() -> None:
    """A normalization of channels by the root of their squares, and of that by its mean."""
    b = gl.Builder("responses")
    x = b.gelu(b.conv(b.input("x", (1, 3, 5, 6)), b.constant("w", (8, 3, 1, 1))))
    norms = b.compute("sqrt", mean_from(b.multiply(x, x), 2))
    share = b.divide(norms, b.add(mean_from(norms, 1), b.full((), "1e-6")))
    y = b.add(b.multiply(b.multiply(x, share), b.constant("gamma", (8, 1, 1))), x)
    network = _near(b.finish(b.conv(y, b.constant("v", (4, 8, 1, 1)))), 20)
    assert not any(layer.normalised for layer in network.layers)


def test_what_is_joined_is_bytes_where_some_of_it_is() -> None:
    b = gl.Builder("joined")
    given = b.input("x", (1, 3, 5, 6))
    x = b.conv(given, b.constant("w", (8, 3, 1, 1)))
    first, second = b.slice_axis(x, 1, 0, 4), b.slice_axis(x, 1, 4, 8)
    z = b.conv(given, b.constant("u", (4, 3, 1, 1)))
    y = b.concatenate([b.conv(first, b.constant("t", (4, 4, 1, 1))), second, z], 1)
    y = b.add(y, b.conv(y, b.constant("s", (12, 12, 1, 1))))
    _near(b.finish(b.conv(b.relu(y), b.constant("v", (4, 12, 1, 1)))), 20)
