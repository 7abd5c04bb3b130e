"""Tests batch norms in training: batch statistics, running averages, and gradients through both."""

from __future__ import annotations

import numpy as np
import onnxruntime
import pytest
from differences import results

import glenside as gl
from glenside.gradients.batch_norms import batch_statistics
from glenside.ir.errors import BadInput
from glenside.ir.operand import Array

AXES = (0, 2, 3)


def _network(dtype: str = "float64", dims: tuple[int, ...] = (6, 2, 4, 3)) -> gl.Program:
    """Convolution, batch norm, relu, a second batch norm on what is left, and a linear layer."""
    b = gl.Builder("norms")
    draw = np.random.default_rng(0).standard_normal
    x = b.input("x", dims, dtype)
    w = b.constant("w", (3, 2, 2, 2), dtype, draw((3, 2, 2, 2)).astype(dtype))
    y = b.relu(_norm(b, "first", b.conv(x, w, name="conv"), dtype))
    v = b.constant("v", (4, 3), dtype, draw((4, 3)).astype(dtype))
    y = b.linear(b.global_average_pool(y), v, name="line")
    return b.finish(_norm(b, "second", y, dtype))


def _norm(b: gl.Builder, name: str, x: gl.ir.term.Term, dtype: str) -> gl.ir.term.Term:
    """Returns a batch norm with constants NAME.gamma and so on."""
    length, random = x.access.dims[1], np.random.default_rng(len(name))
    parts = ("gamma", "beta", "mean", "var")
    leaves = (
        b.constant(f"{name}.{part}", (length,), dtype, random.uniform(0.5, 1.5, length).astype(dtype)) for part in parts
    )
    return b.batch_norm(x, *leaves, eps="1e-3")


def _of_numpy(x: Array, gamma: Array, beta: Array) -> tuple[Array, Array, Array]:
    """Returns the batch norm of a batch, ()(N C d..), and its mean and variance."""
    axes = tuple(i for i in range(x.ndim) if i != 1)
    mean, var = x.mean(axes), x.var(axes)
    shape = (1, -1, *(1 for _ in axes[1:]))
    y = (x - mean.reshape(shape)) / np.sqrt(var.reshape(shape) + 1e-3)
    return y * gamma.reshape(shape) + beta.reshape(shape), mean, var


def _forward(values: dict[str, Array]) -> tuple[Array, dict[str, Array]]:
    windows = np.lib.stride_tricks.sliding_window_view(values["x"], (2, 2), (2, 3))
    y = np.einsum("nchwij,ocij->nohw", windows, values["w"])
    y, mean, var = _of_numpy(y, values["first.gamma"], values["first.beta"])
    y = np.maximum(y, 0).mean((2, 3)) @ values["v"].T
    now = {"first.mean": mean, "first.var": var}
    y, mean, var = _of_numpy(y, values["second.gamma"], values["second.beta"])
    return y, {**now, "second.mean": mean, "second.var": var}


def test_a_step_uses_the_batch_and_moves_the_averages() -> None:
    program = _network()
    step = gl.training_step(program, "squared-error", gl.SGD("1/4"), batch_momentum="3/4", output=True)
    averages = ["first.mean", "first.var", "second.mean", "second.var"]
    assert {*averages}.isdisjoint(step.weights)
    assert sorted(t.name for t in step.state if t.name not in step.weights) == averages
    random = np.random.default_rng(1)
    values = {"x": random.standard_normal((6, 2, 4, 3)), "labels": random.standard_normal((6, 4)), **step.initial}
    found = results(step.program, values)
    loss, state = step.next(found)
    y, now = _forward(values)
    np.testing.assert_allclose(found[1], y, rtol=1e-9, atol=1e-12)
    assert loss == pytest.approx(np.mean((y - values["labels"]) ** 2))
    for name, statistic in now.items():
        np.testing.assert_allclose(state[name], 0.75 * program.constants[name] + 0.25 * statistic, rtol=1e-9)
    for name in ("w", "first.gamma", "second.beta", "v"):
        along = random.standard_normal(values[name].shape)
        gradient = np.sum((values[name] - state[name]) * 4 * along)
        sides = (_forward({**values, name: values[name] + sign * 1e-6 * along})[0] for sign in (1, -1))
        more, less = (np.mean((side - values["labels"]) ** 2) for side in sides)
        assert gradient == pytest.approx((more - less) / 2e-6, rel=1e-4, abs=1e-7)


def test_without_a_momentum_statistics_are_as_they_are() -> None:
    step = gl.training_step(_network(), "squared-error", gl.SGD(), weights=["w"], output=True)
    values = {"x": np.ones((6, 2, 4, 3)), "labels": np.zeros((6, 4)), **step.initial}
    (y,) = results(_network(), {"x": values["x"]})
    np.testing.assert_allclose(results(step.program, values)[1], y, rtol=1e-12)


def test_the_gradient_through_a_batch_is_exact() -> None:
    network, after = batch_statistics(_network(), "0.9")
    assert [*after] == ["first.mean", "first.var", "second.mean", "second.var"]
    gradient = gl.gradient(network, ["w", "first.gamma", "x"], cotangent="g")
    assert gl.check_gradient(network, gradient, ["w", "first.gamma", "x"]).ok


def test_built_in_networks_and_texts_have_batch_norms() -> None:
    program = gl.models.resnet_18(resolution=32, classes=10, batch=2)
    for network in (program, gl.parse(str(program))):
        changed, after = batch_statistics(network, "0.9")
        assert len(after) == 2 * sum(name.endswith(".gamma") for name in program.constants_declared)
        assert not any(name.endswith((".mean", ".var")) for name in changed.constants_declared)
        assert {*changed.layers.values()} != {*network.layers.values()}
        assert len({*changed.layers}) == len({*network.layers})


def test_a_step_of_batch_norms_runs_in_onnxruntime_and_as_native_code() -> None:
    step = gl.training_step(_network("float32"), "squared-error", gl.Momentum("0.1"), batch_momentum=0.9)
    random = np.random.default_rng(1)
    values = {name: random.standard_normal(dims).astype("float32") for name, dims in (("x", (6, 2, 4, 3)),)}
    values |= {"labels": random.standard_normal((6, 4)).astype("float32"), **step.initial}
    wanted = results(step.program, values)
    session = onnxruntime.InferenceSession(gl.export_onnx(step.program).SerializeToString())
    for found in (session.run(None, values), gl.compile(step.program, "none")(**values)):
        for ours, theirs in zip(wanted, found, strict=True):
            np.testing.assert_allclose(theirs, ours, rtol=1e-4, atol=1e-5)


def test_a_statistic_that_two_batch_norms_share_stays() -> None:
    b = gl.Builder("shared")
    x, leaves = b.input("x", (4, 3)), [b.constant(n, (3,)) for n in ("gamma", "beta", "mean", "var")]
    program = b.finish(b.batch_norm(b.batch_norm(x, *leaves), *leaves))
    changed, after = batch_statistics(program, "0.9")
    assert changed.term is program.term
    assert after == {}


@pytest.mark.parametrize("momentum", [1, -0.5, "most"])
def test_a_momentum_that_is_none_is_a_sentence(momentum: float | str) -> None:
    with pytest.raises(BadInput, match="the momentum of batch norms requires a number of at least 0 and below 1"):
        gl.training_step(_network(), "squared-error", gl.SGD(), batch_momentum=momentum)
