"""Tests losses and training steps against numpy loops, and that a network learns."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

import numpy as np
import onnxruntime
import pytest
from differences import difference, results

import glenside as gl
from glenside.gradients.losses import LOSSES
from glenside.gradients.optimizers import Optimizer
from glenside.ir.errors import BadInput, GlensideError
from glenside.ir.operand import Array
from glenside.ir.operators.compute import name_of
from glenside.ir.term import build, postorder
from glenside.ir.types import Tensor


def _log_softmax(x: Array) -> Array:
    shifted = x - x.max(-1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(-1, keepdims=True))


def _huber(x: Array, y: Array) -> Array:
    d = np.abs(x - y)
    return np.mean(np.where(d <= 1, d * d / 2, d - 0.5))


OF_NUMPY: Mapping[str, Callable[[Array, Array], Array]] = {
    "softmax-cross-entropy": lambda x, y: -np.mean(np.take_along_axis(_log_softmax(x), y[..., None], -1)),
    "softmax-cross-entropy-one-hot": lambda x, y: -np.mean((y * _log_softmax(x)).sum(-1)),
    "binary-cross-entropy": lambda x, y: np.mean(np.maximum(x, 0) - x * y + np.log1p(np.exp(-np.abs(x)))),
    "squared-error": lambda x, y: np.mean((x - y) ** 2),
    "absolute-error": lambda x, y: np.mean(np.abs(x - y)),
    "huber": _huber,
}


def _loss(name: str, dims: tuple[int, ...], dtype: str = "float64") -> tuple[gl.Program, Tensor]:
    b = gl.Builder(name)
    x = b.input("x", dims, dtype)
    kind = LOSSES[name].target(x.access)
    target = Tensor("y", kind.dims, kind.dtype)
    return b.finish(LOSSES[name].of(x, build("access-tensor", target))), target


def _drawn(target: Tensor, seed: int, classes: int) -> Array:
    random = np.random.default_rng(seed)
    if target.dtype == "int64":
        return random.integers(0, classes, target.dims)
    return random.dirichlet(np.ones(classes), target.dims[:-1]).astype(target.dtype)


@pytest.mark.parametrize("name", LOSSES)
@pytest.mark.parametrize("dims", [(5, 3), (2, 3, 4), (7,)])
def test_losses_and_their_gradients(name: str, dims: tuple[int, ...]) -> None:
    program, target = _loss(name, dims)
    x, y = np.random.default_rng(1).standard_normal(dims) * 2, _drawn(target, 2, dims[-1])
    value, gradient = results(gl.value_and_gradient(program, "x"), {"x": x, "y": y})
    assert value.shape == ()
    assert value == pytest.approx(float(OF_NUMPY[name](x, y)), rel=1e-12)
    along = np.random.default_rng(3).standard_normal(dims)
    (change,) = difference(program, {"x": x, "y": y}, {"x": along})
    assert np.sum(gradient * along) == pytest.approx(float(change), rel=1e-6)


@pytest.mark.parametrize("name", [name for name in LOSSES if "entropy" in name])
def test_entropies_of_large_logits_are_finite_and_their_gradients_right(name: str) -> None:
    program, target = _loss(name, (2, 3), "float32")
    x = np.array([[1000, -1000, 0], [0, 0, 0]], "float32")
    y = np.array([1, 2]) if target.dtype == "int64" else np.array([[0, 1, 0], [0, 0, 1]], "float32")
    value, gradient = results(gl.value_and_gradient(program, "x"), {"x": x, "y": y})
    hot = np.eye(3)[[1, 2]]
    expected = np.exp(_log_softmax(x.astype("float64"))) - hot
    if name == "binary-cross-entropy":
        expected = (np.array([[1, 0, 0.5], [0.5, 0.5, 0.5]]) - hot) / 3
    assert value == pytest.approx(float(OF_NUMPY[name](x.astype("float64"), y)), rel=1e-6)
    np.testing.assert_allclose(gradient, expected / 2, atol=1e-7)


def test_classes_beyond_the_last_are_a_sentence() -> None:
    program, _ = _loss("softmax-cross-entropy", (2, 3))
    with pytest.raises(BadInput, match="requires indices from -3 to 2, got 0 to 3"):
        results(program, {"x": np.zeros((2, 3)), "y": np.array([0, 3])})


def test_losses_of_halves_are_made_in_float32() -> None:
    program, _ = _loss("squared-error", (300, 300), "float16")
    assert program.term.access.dtype == "float32"
    gradient = gl.gradient(program, "x")
    assert gradient.term.children[0].access.dtype == "float16"


def _sgd(w: Array, g: Array, kept: dict[str, Array], t: int) -> Array:
    return w - 0.1 * g


def _momentum(w: Array, g: Array, kept: dict[str, Array], t: int) -> Array:
    kept["v"] = 0.9 * kept.get("v", 0) + g
    return w - 0.1 * kept["v"]


def _nesterov(w: Array, g: Array, kept: dict[str, Array], t: int) -> Array:
    kept["v"] = 0.5 * kept.get("v", 0) + g
    return w - 0.1 * (g + 0.5 * kept["v"])


def _adam(w: Array, g: Array, kept: dict[str, Array], t: int) -> Array:
    kept["m"] = 0.9 * kept.get("m", 0) + 0.1 * g
    kept["s"] = 0.99 * kept.get("s", 0) + 0.01 * g * g
    return w - 0.1 * (kept["m"] / (1 - 0.9**t)) / (np.sqrt(kept["s"] / (1 - 0.99**t)) + 1e-8)


def _adamw(w: Array, g: Array, kept: dict[str, Array], t: int) -> Array:
    return _adam(w, g, kept, t) - 0.1 * 0.2 * w


OPTIMIZERS: list[tuple[Optimizer, Callable[[Array, Array, dict[str, Array], int], Array]]] = [
    (gl.SGD(0.1), _sgd),
    (gl.SGD(None), _sgd),
    (gl.Momentum(0.1), _momentum),
    (gl.Momentum("1/10", momentum="1/2", nesterov=True), _nesterov),
    (gl.Adam(0.1, beta2=0.99), _adam),
    (gl.AdamW(0.1, beta2=0.99, decay=0.2), _adamw),
    (gl.AdamW(None, beta2=0.99, decay=0.2), _adamw),
]


def _line(dtype: str = "float64") -> gl.Program:
    """x (5 3) times w, plus a bias: the gradients of its squared error are known."""
    b = gl.Builder("line")
    random = np.random.default_rng(0)
    w = b.constant("w", (2, 3), dtype, random.standard_normal((2, 3)).astype(dtype))
    bias = b.constant("b", (2,), dtype, random.standard_normal(2).astype(dtype))
    return b.finish(b.linear(b.input("x", (5, 3), dtype), w, bias, name="line"))


@pytest.mark.parametrize(("optimizer", "of_numpy"), OPTIMIZERS, ids=[str(o) for o, _ in OPTIMIZERS])
def test_steps_are_those_of_a_loop(optimizer: Optimizer, of_numpy: Callable[..., Array]) -> None:
    step = gl.training_step(_line(), "squared-error", optimizer)
    assert step.program.constants_declared == {}
    assert {*step.program.layers} == {"line", "line.weight-gradient"}
    random = np.random.default_rng(4)
    x, y = random.standard_normal((5, 3)), random.standard_normal((5, 2))
    rate = {"learning-rate": np.asarray(0.1, "float32")} if optimizer.rate is None else {}
    state = dict(step.initial)
    w, b = state["w"], state["b"]
    kept: tuple[dict[str, Array], dict[str, Array]] = ({}, {})
    for t in range(1, 4):
        error = x @ w.T + b - y
        loss, state = step.next(results(step.program, {"x": x, "labels": y, **rate, **state}))
        assert loss == pytest.approx(np.mean(error**2), rel=1e-6)
        w = of_numpy(w, 2 * error.T @ x / error.size, kept[0], t)
        b = of_numpy(b, 2 * error.sum(0) / error.size, kept[1], t)
        np.testing.assert_allclose(state["w"], w, rtol=1e-6)
        np.testing.assert_allclose(state["b"], b, rtol=1e-6)
    assert ("steps" in state) == isinstance(optimizer, gl.Adam)


def test_a_step_is_one_program_with_names_for_its_state() -> None:
    step = gl.training_step(_line("float32"), "squared-error", gl.Adam(), weights=["w"], labels="target")
    assert step.program.result_names() == [
        *("loss", "w.next", "w.first-moment.next", "w.second-moment.next"),
        "steps.next",
    ]
    assert [t.name for t in step.program.signature.inputs] == [
        *("x", "w", "target", "w.first-moment", "w.second-moment"),
        "steps",
    ]
    assert [*step.program.constants] == ["b"]
    assert gl.parse(str(step.program)).term is step.program.term
    result = gl.optimize(step.program, gl.SystolicArray(4, 4))
    assert result.check().ok


def test_a_step_runs_in_onnxruntime_and_as_native_code() -> None:
    random = np.random.default_rng(0)
    b = gl.Builder("convolutions")
    x = b.input("x", (3, 2, 8, 7))
    w = b.constant("w", (5, 2, 3, 2), value=random.standard_normal((5, 2, 3, 2)).astype("float32"))
    v = b.constant("v", (4, 5), value=random.standard_normal((4, 5)).astype("float32"))
    y = b.max_pool(b.relu(b.conv(x, w, strides=2, padding=1)), 2)
    program = b.finish(b.linear(b.global_average_pool(y), v))
    step = gl.training_step(program, "softmax-cross-entropy", gl.AdamW(0.1))
    values = {"x": random.standard_normal((3, 2, 8, 7)).astype("float32"), "labels": np.array([3, 0, 1])}
    values = {**values, **step.initial}
    wanted = results(step.program, values)
    session = onnxruntime.InferenceSession(gl.export_onnx(step.program).SerializeToString())
    assert [output.name for output in session.get_outputs()] == step.program.result_names()
    for found in (session.run(None, values), gl.compile(step.program, "none")(**values)):
        for ours, theirs in zip(wanted, found, strict=True):
            np.testing.assert_allclose(theirs, ours, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("optimizer", [gl.SGD(0.5), gl.Momentum(0.1), gl.Adam(0.02), gl.AdamW(0.02)], ids=str)
def test_a_small_network_learns_what_no_line_tells_apart(optimizer: Optimizer) -> None:
    """Whether two numbers have one sign: 16 hidden units, 64 examples."""
    random = np.random.default_rng(0)
    b = gl.Builder("signs")
    x = b.input("x", (64, 2))
    values = {"w1": (16, 2), "b1": (16,), "w2": (2, 16), "b2": (2,)}
    w1, b1, w2, b2 = (b.constant(n, d, value=random.standard_normal(d).astype("float32")) for n, d in values.items())
    program = b.finish(b.linear(b.relu(b.linear(x, w1, b1)), w2, b2))
    step = gl.training_step(program, "softmax-cross-entropy", optimizer)
    data = random.uniform(-1, 1, (64, 2)).astype("float32")
    labels = (data[:, 0] * data[:, 1] > 0).astype("int64")
    state, losses = dict(step.initial), []
    for _ in range(200):
        loss, state = step.next(results(step.program, {"x": data, "labels": labels, **state}))
        losses.append(float(loss))
    assert losses[-1] < 0.2 < losses[0]
    (logits,) = results(replace(program, constants={n: state[n] for n in values}), {"x": data})
    assert np.mean(logits.argmax(1) == labels) > 0.95


REFUSED: list[tuple[Callable[[], object], str]] = [
    (lambda: gl.training_step(_line(), "squarederror", gl.SGD()), r"got squarederror; did you mean squared-error\?"),
    (lambda: gl.training_step(_line(), "huber", gl.SGD(), weights=["v"]), "constants of a float dtype, got v"),
    (lambda: gl.training_step(_line(), "huber", gl.SGD(), weights=[]), "requires weights, constants of .* got none"),
    (lambda: gl.training_step(_line(), "huber", gl.SGD(), labels="x"), "requires a name of its own, got x"),
    (lambda: gl.training_step(gl.gradient(_line(), "x", cotangent="g"), "huber", gl.SGD()), "network of one result"),
    (lambda: gl.SGD("fast"), "a learning rate requires a number of at least 0, got 'fast'"),
    (lambda: gl.SGD(float("nan")), "a learning rate requires a number of at least 0, got 'nan'"),
    (lambda: gl.Adam(beta1=1), "beta1 requires a number of at least 0 and below 1, got '1'"),
    (lambda: gl.AdamW(decay=-1), "decay requires a number of at least 0, got '-1'"),
]


@pytest.mark.parametrize(("ask", "message"), REFUSED)
def test_what_cannot_be_trained_is_a_sentence(ask: Callable[[], object], message: str) -> None:
    with pytest.raises(GlensideError, match=message):
        ask()


def test_softmax_and_cross_entropy_become_probabilities_minus_labels_by_rules() -> None:
    """No sum of what each label's element sends back is left: softmax / N less 1 / N at the label."""
    b = gl.Builder("loss")
    logits, labels = b.input("logits", (6, 10)), b.input("labels", (6,), "int64")
    gradient = gl.gradient(b.finish(LOSSES["softmax-cross-entropy"].of(logits, labels)), "logits")
    result = gl.optimize(gradient, gl.SystolicArray(4, 4))
    made = [name_of(term) for term in postorder(result.program.term)]
    assert "reduce-sum" in str(gradient)
    assert "reduce-sum" not in made
    assert made.count("softmax") == made.count("subtract") == made.count("access-scatter-nd") == 1
    assert result.report.checked == "exact"
    assert result.report.rules["sum-of-what-is-added-to-zeros"].matches > 0
