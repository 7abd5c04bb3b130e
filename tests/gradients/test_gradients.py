"""Tests gradients of programs: networks against differences, higher orders, several results, names, refusals."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

import numpy as np
import pytest
from differences import difference, doubled, results

import glenside as gl
from glenside.builder.pointwise import cast, compute, filled
from glenside.check import check_gradient, is_equal
from glenside.gradients.movement import whole
from glenside.ir.errors import BadInput
from glenside.ir.operand import Array
from glenside.ir.program import Program
from glenside.ir.term import Term, build, postorder
from glenside.models import models

SMALL: Mapping[str, Mapping[str, object]] = {
    "bert-base": dict(
        sequence=5, layers=2, hidden=12, heads=3, intermediate=20, vocabulary=11, positions=7, batch=2, mask=1
    ),
    "efficientnet-lite0": dict(width=0.25, resolution=32, classes=5),
    "mobilenet-v1": dict(width=0.25, resolution=32, classes=5, batch=2),
    "mobilenet-v2": dict(width=0.25, resolution=32, classes=5),
    "mobilenet-v3-large": dict(width=0.25, resolution=32, classes=5),
    "resnet-18": dict(width=0.125, resolution=32, classes=5),
    "resnet-50": dict(width=0.125, resolution=32, classes=5),
    "unet-small": dict(base=3, levels=2, resolution=16),
    "vit-s-16": dict(resolution=32, patch=16, layers=2, hidden=12, heads=3, intermediate=20, classes=5),
}


def mlp() -> Program:
    """x (3 5) through a hidden layer of 7 to the sum of squares."""
    b = gl.Builder("mlp")
    x = b.input("x", (3, 5), "float64")
    hidden = b.tanh(b.linear(x, b.constant("w1", (7, 5), "float64"), b.constant("b1", (7,), "float64"), name="hidden"))
    y = b.linear(hidden, b.constant("w2", (2, 7), "float64"), name="out")
    return b.finish(b.reduce_axes("reduce-sum", b.multiply(y, y), [0, 1]))


def values_of(program: Program, seed: int = 0) -> dict[str, Array]:
    random = np.random.default_rng(seed)
    return {name: random.standard_normal(t.dims).astype(t.dtype) for name, t in program.tensors.items()}


def test_a_gradient_is_the_tuple_of_what_was_asked_for_in_that_order() -> None:
    program = gl.gradient(mlp(), ["w2", "x", "w1"])
    found = results(program, values_of(program))
    assert [g.shape for g in found] == [(2, 7), (3, 5), (7, 5)]
    assert program.result_names() == ["gradient.w2", "gradient.x", "gradient.w1"]
    assert list(program.inputs) == ["x"]
    assert list(program.constants_declared) == ["w1", "b1", "w2"]
    assert {*program.layers} == {
        *("hidden", "out", "hidden.input-gradient", "hidden.weight-gradient"),
        *("out.input-gradient", "out.weight-gradient"),
    }


def test_a_gradient_is_text_and_is_optimized_as_any_program() -> None:
    program = gl.gradient(mlp(), ["w1", "w2"])
    assert gl.parse(str(program)).term is program.term
    result = gl.optimize(program, gl.SystolicArray(4, 4))
    assert result.check().ok


def _against_differences(program: Program, values: Mapping[str, Array], wrt: list[str], tolerance: float) -> None:
    found = results(gl.gradient(program, wrt), values)
    random = np.random.default_rng(5)
    direction = {name: random.standard_normal(values[name].shape) * np.mean(np.abs(values[name])) / 10 for name in wrt}
    (change,) = difference(program, values, direction)
    back = sum(float(np.sum(g * direction[name])) for g, name in zip(found, wrt, strict=True))
    assert back == pytest.approx(float(change), rel=tolerance)


def test_gradients_of_an_mlp_are_differences_for_every_tensor() -> None:
    program = mlp()
    for wrt in ("x", "w1", "b1", "w2"):
        _against_differences(program, values_of(program), [wrt], 1e-7)


@pytest.mark.parametrize("name", models())
def test_losses_of_networks_by_every_weight(name: str) -> None:
    program = doubled(gl.models.load(name, **SMALL[name]))
    b = gl.Builder
    output = program.term
    loss = b.reduce_axes("reduce-mean", b.multiply(output, b.tanh(output)), [*range(output.access.rank)])
    program = replace(program, term=loss)
    random = np.random.default_rng(1)
    values: dict[str, Array] = {
        name: random.standard_normal(t.dims) if t.dtype == "float64" else random.integers(0, 2, t.dims).astype(t.dtype)
        for name, t in program.inputs.items()
    }
    weights = [name for name, t in program.constants_declared.items() if t.dtype == "float64"]
    _against_differences(program, {**program.constants, **values}, weights, 1e-4)


def test_a_gradient_of_a_gradient_is_the_second_derivative() -> None:
    b = gl.Builder("cube")
    x = b.input("x", (5,), "float64")
    program = b.finish(b.reduce_axes("reduce-sum", b.multiply(b.multiply(x, x), x), [0]))
    second = gl.gradient(gl.gradient(program, "x"), "x", cotangent="g")
    at, g = np.arange(5.0) - 1.5, np.arange(5.0) + 1
    np.testing.assert_allclose(results(second, {"x": at, "g": g})[0], 6 * at * g)


def test_a_hessian_times_a_vector_is_the_same_forward_over_reverse_and_reverse_over_reverse() -> None:
    program = mlp()
    first = gl.gradient(program, "w1")
    forward = gl.jvp(first, "w1")
    backward = gl.gradient(first, "w1", cotangent="v")
    values, v = values_of(program), np.random.default_rng(3).standard_normal((7, 5))
    hessian_v = results(forward, {**values, "w1.tangent": v})[1]
    np.testing.assert_allclose(hessian_v, results(backward, {**values, "v": v})[0], rtol=1e-12)
    (change,) = difference(first, values, {"w1": v})
    np.testing.assert_allclose(hessian_v, change, rtol=1e-6, atol=1e-6)


def test_several_results_each_have_a_cotangent_or_one_is_named() -> None:
    b = gl.Builder()
    x = b.input("x", (3,), "float64")
    total, squares = b.reduce_axes("reduce-sum", b.multiply(x, x), [0]), b.multiply(x, x)
    both = Program(gl.parse("(construct-tuple (full (shape) 1 float64))").term)
    both = Program(both.term.operator(total, squares))
    with pytest.raises(BadInput, match=r"several results requires a cotangent.*output_0, output_1"):
        gl.gradient(both, "x")
    at = np.array([1.0, 2, -3])
    np.testing.assert_allclose(results(gl.gradient(both, "x", of="output_0"), {"x": at})[0], 2 * at)
    program = gl.gradient(both, "x", cotangent="g")
    found = results(program, {"x": at, "g.output_0": np.array(2.0), "g.output_1": np.ones(3)})
    np.testing.assert_allclose(found[0], 6 * at)
    value, squared, gradient = results(
        gl.value_and_gradient(both, "x", cotangent=["a", "b"]), {"x": at, "a": np.array(1.0), "b": np.zeros(3)}
    )
    assert value == 14
    np.testing.assert_allclose([squared, gradient], [at * at, 2 * at])


def test_integers_carry_no_gradient_and_what_nothing_depends_on_has_zeros() -> None:
    b = gl.Builder()
    table, places = b.input("table", (5, 2), "float64"), b.input("places", (3,), "int64")
    rounded = compute("round", table)
    program = b.finish(b.reduce_axes("reduce-sum", b.gather(b.multiply(table, rounded), places), [0, 1]))
    at = np.arange(10.0).reshape(5, 2) + 0.25
    (found,) = results(gl.gradient(program, "table"), {"table": at, "places": np.array([1, 1, -1])})
    np.testing.assert_allclose(found, np.round(at) * np.array([0, 2, 0, 0, 1])[:, None])
    steps = Program(b.reduce_axes("reduce-sum", cast(cast(table, "int32"), "float64"), [0, 1]))
    (zeros,) = results(gl.gradient(steps, "table"), {"table": at})
    assert zeros.shape == (5, 2)
    assert not zeros.any()


def test_what_is_read_twice_is_differentiated_once() -> None:
    """20 times x = x * x: a tree would have a million terms."""
    b = gl.Builder()
    y = x = b.input("x", (), "float64")
    for _ in range(20):
        y = b.multiply(y, y)
    program = gl.gradient(b.finish(y), "x")
    assert sum(1 for _ in postorder(program.term)) < 200
    (found,) = results(program, {"x": np.array(1.0)})
    assert found == 2**20
    assert x.access.rank == 0


CORNERS = {
    "relu": (0.0, 0.0),
    "abs": (0.0, 1.0),
    "sign": (0.0, 0.0),
    "(clip -1 2)": (2.0, 0.0),
    "(leaky-relu 1/4)": (0.0, 1.0),
    "round": (0.5, 0.0),
}


@pytest.mark.parametrize("kind", CORNERS)
def test_corners_are_those_of_jax(kind: str) -> None:
    b = gl.Builder()
    at, expected = CORNERS[kind]
    program = b.finish(compute(kind, b.input("x", (), "float64")))
    assert results(gl.gradient(program, "x"), {"x": np.array(at)})[0] == expected


def test_equal_elements_share_and_products_without_zero_divisions() -> None:
    b = gl.Builder()
    x = b.input("x", (4,), "float64")

    def at(program: Program, values: list[float]) -> list[float]:
        return [float(n) for n in results(gl.gradient(program, "x"), {"x": np.array(values, "float64")})[0]]

    assert at(Program(b.reduce_axes("reduce-max", x, [0])), [1, 3, 3, 2]) == [0, 0.5, 0.5, 0]
    assert at(Program(b.reduce_axes("reduce-prod", x, [0])), [2, 0, 3, 5]) == [0, 30, 0, 0]
    assert at(Program(b.reduce_axes("reduce-prod", x, [0])), [2, 0, 0, 5]) == [0, 0, 0, 0]
    pairs = Program(b.reduce_axes("reduce-sum", b.combine("maximum", x, filled(x, 3)), [0]))
    assert at(pairs, [3, 4, 2, 3]) == [0.5, 1, 0, 0.5]
    squares = Program(b.reduce_axes("reduce-sum", b.combine("pow", x, filled(x, 2)), [0]))
    assert at(squares, [0, -2, 1, 3]) == [0, -4, 2, 6]


REFUSED = [
    (dict(wrt="weight1"), r"requires a tensor of the program, got weight1$"),
    (dict(wrt=[]), "requires the name of at least one tensor, got none"),
    (dict(wrt=["x", "x"]), "requires tensors that are named once, got x twice"),
    (dict(wrt="x", of="outt"), r"requires a result or a named term, got outt; did you mean out\?"),
    (dict(wrt="x", of="out"), r"requires a result of one element, or a cotangent, got out of \(3 2\)"),
    (dict(wrt="x", cotangent="x"), "a new input requires a name of its own, got x"),
    (dict(wrt="x", cotangent=["a", "b"]), "requires a cotangent for each of 1 results, got 2"),
]


@pytest.mark.parametrize(("asked", "message"), REFUSED)
def test_what_cannot_be_asked_is_a_sentence(asked: dict[str, object], message: str) -> None:
    with pytest.raises(BadInput, match=message):
        gl.gradient(mlp(), **asked)  # type: ignore[arg-type]


def test_integers_are_refused_as_what_to_differentiate_by() -> None:
    b = gl.Builder()
    i = b.input("i", (3,), "int32")
    with pytest.raises(BadInput, match=r"tensors of a float dtype .*, got i of int32"):
        gl.gradient(b.finish(cast(i, "float32")), "i", cotangent="g")
    with pytest.raises(BadInput, match="results of a float dtype, got output of int32; of= selects results"):
        gl.gradient(b.finish(cast(b.input("x", (3,)), "int32")), "x", cotangent="g")


@pytest.mark.parametrize(
    ("kind", "derivative"),
    [("relu", lambda x: x > 0), ("(clip 0 6)", lambda x: (x > 0) & (x < 6)), ("(clip 1 1)", np.zeros_like)],
)
def test_gradients_of_clips_read_what_they_give(kind: str, derivative: Callable[[Array], Array]) -> None:
    """So that only it is kept: what went into it is read by the clip alone."""
    b = gl.Builder("clipped")
    x = b.input("x", (9,), "float64")
    twice = whole(b.multiply(x, filled(x, 2)))
    gradient = gl.gradient(b.finish(compute(kind, twice)), "x", cotangent="g")
    readers = [term for term in postorder(gradient.term) if any(whole(child) is twice for child in term.children)]
    assert [str(term.attributes[0]) for term in readers if term.operator.name != "access"] == [kind]
    values = np.array([-np.inf, -1, -0.0, 0, 0.5, 1, 3, 3.5, np.nan])
    given = np.arange(1.0, 10)
    (found,) = results(gradient, {"x": values, "g": given})
    np.testing.assert_array_equal(found, 2 * np.where(derivative(2 * values), given, 0))


ZEROS: dict[str, Callable[[Term], Term]] = {
    "some": lambda x: gl.Builder.compute("relu", x),
    "one row": lambda x: build("access-pad", build("access-slice", x, 0, 1, 4), "zero-padding", 0, 1, 0),
    "whole": lambda x: gl.Builder.compute("floor", x),
    "all": lambda x: gl.Builder.multiply(x, filled(x, 0)),
    "a number": lambda x: filled(x, 0),
    "none": lambda x: x,
}


@pytest.mark.parametrize(
    ("of_base", "of_exponent"),
    [  # by default each kind of base with the general kind, and each of exponent with "all"
        pytest.param(base, exponent, marks=[pytest.mark.slow] * (exponent != "some" and base != "all"))
        for base in ZEROS
        for exponent in ZEROS
    ],
)
def test_powers_of_zero_have_the_derivative_0_by_the_exponent(of_base: str, of_exponent: str) -> None:
    """As in JAX, and in PyTorch for exponents from 0 on: log(0) is masked."""
    b = gl.Builder()
    x, y = b.input("x", (4, 3)), b.input("y", (4, 3))
    program = b.finish(b.combine("pow", ZEROS[of_base](x), ZEROS[of_exponent](y)))
    wrt = [*program.tensors]
    report = check_gradient(program, gl.gradient(program, wrt, cotangent="g"), wrt) if wrt else None
    assert report is None or all(map(is_equal, report.gradients.values()))


def test_a_wrong_derivative_by_an_exponent_is_refused() -> None:
    """With log(2) in place of log(0), the derivative of 0 ** 0 is not 0."""
    b = gl.Builder()
    x, y = b.input("x", (4, 3)), b.input("y", (4, 3))
    base = b.compute("relu", x)
    program = b.finish(b.combine("pow", base, y))
    log = b.compute("log", b.select(b.compare("eq", base, b.full((), "0")), b.full((), "2"), base))
    own = gl.Program(b.multiply(b.multiply(b.input("g", (4, 3)), log), program.term))
    assert not is_equal(check_gradient(program, own, ["y"]).gradients["y"])


@pytest.mark.parametrize("size", [0, 3])
@pytest.mark.parametrize("how", [gl.gradient, gl.value_and_gradient])
def test_indices_outside_of_the_original_are_no_difference(size: int, how: Callable[..., Program]) -> None:
    b = gl.Builder()
    program = b.finish(build("access-gather", b.input("x", (size, 2)), build("full", (1,), "5", "int64"), 0))
    report = check_gradient(program, how(program, "x", cotangent="g"), "x")
    assert report.gradients["x"].startswith("not checked: access-gather requires indices from")
