"""Tests that MobileNetV1 is the paper's network, and computes what an independent numpy implementation computes."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from glenside.ir.errors import BadInput
from glenside.models import load, models, parameters
from glenside.semantics.interpreter import evaluate

Floats = NDArray[Any]

# Channels in and out and the stride of each pair, as table 1 of the paper lists them.
TABLE = [(32, 64, 1), (64, 128, 2), (128, 128, 1), (128, 256, 2), (256, 256, 1), (256, 512, 2)]
TABLE += [(512, 512, 1)] * 5 + [(512, 1024, 2), (1024, 1024, 1)]


def multiplications(program: Any) -> dict[str, int]:
    return {name: dot.children[0].access.size // 2 for name, dot in program.layers.items()}


def test_the_registry_lists_models_with_a_line_each() -> None:
    assert models()["mobilenet-v1"].startswith("MobileNetV1: 28 layers")
    assert parameters("mobilenet_v1")["resolution"] == 224


def test_the_whole_network_has_28_layers_and_568_740_352_multiplications() -> None:
    program = load("mobilenet_v1")
    pairs = [name for i in range(1, 14) for name in (f"dw{i}", f"pw{i}")]
    assert list(program.layers) == ["conv1", *pairs, "fc"]
    assert list(program.labels)[:3] == ["conv1", "dw1", "pw1"]
    assert [program.labels[n] for n in ("conv1", "dw1", "dw2", "pw1", "fc")] == [
        "conv 3x3/2",
        "depthwise 3x3/1",
        "depthwise 3x3/2",
        "pointwise 1x1",
        "dense",
    ]
    counts = multiplications(program)
    assert counts["conv1"] == 112 * 112 * 27 * 32
    assert counts["pw13"] == 7 * 7 * 1024 * 1024
    assert sum(counts.values()) == 568_740_352
    assert str(program.term.access) == "()(1 1000) float32"


def test_it_is_built_fast_and_its_weights_are_not_made_before_they_are_read() -> None:
    load("mobilenet_v1")
    started = time.perf_counter()
    load("mobilenet_v1", resolution=160)
    assert time.perf_counter() - started < 0.5, "about 0.02 s; 0.1 s for the weights are not part of it"


@pytest.mark.parametrize(
    ("width", "channels"), [(0.25, (8, 16, 256)), (0.5, (16, 32, 512)), (0.75, (24, 48, 768)), (0.1, (8, 8, 104))]
)
def test_the_width_multiplier_rounds_to_multiples_of_8(width: float, channels: tuple[int, ...]) -> None:
    program = load("mobilenet_v1", width=width, resolution=32)
    found = [program.layers[name].access.dims[-1] for name in ("conv1", "pw1", "pw13")]
    assert tuple(found) == channels


def test_sizes_multiply_the_work() -> None:
    small = load("mobilenet_v1", resolution=128, batch=2)
    assert sum(multiplications(small).values()) == 2 * ((568_740_352 - 1_024_000) * 128**2 // 224**2 + 1_024_000)


def normalised(x: Floats, c: Mapping[str, Floats], name: str) -> Floats:
    gamma, beta, mean, var = (c[f"{name}.{part}"].reshape(-1, 1, 1) for part in ("gamma", "beta", "mean", "var"))
    return np.maximum((x - mean) / np.sqrt(var + 1e-5) * gamma + beta, 0)


def windows(x: Floats, stride: int) -> Floats:
    padded = np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1)))
    return sliding_window_view(padded, (3, 3), (2, 3))[:, :, ::stride, ::stride]


def reference(x: Floats, c: Mapping[str, Floats]) -> Floats:
    """Returns the network in float64 numpy, from the paper's table."""
    x = normalised(np.einsum("nchwkl,ockl->nohw", windows(x, 2), c["conv1.weight"]), c, "conv1")
    for number, (_, _, stride) in enumerate(TABLE, 1):
        x = np.einsum("nchwkl,ckl->nchw", windows(x, stride), c[f"dw{number}.weight"][:, 0])
        x = normalised(x, c, f"dw{number}")
        x = np.einsum("nchw,oc->nohw", x, c[f"pw{number}.weight"][:, :, 0, 0])
        x = normalised(x, c, f"pw{number}")
    logits = x.mean((2, 3)) @ c["fc.weight"].T + c["fc.bias"]
    powers = np.exp(logits - logits.max(1, keepdims=True))
    return np.asarray(powers / powers.sum(1, keepdims=True))


@pytest.mark.parametrize(("resolution", "batch"), [(77, 2), (32, 1), (7, 3)])
def test_it_computes_the_network(resolution: int, batch: int) -> None:
    program = load("mobilenet_v1", width=0.25, resolution=resolution, batch=batch, classes=11, seed=3)
    x = np.random.default_rng(0).standard_normal((batch, 3, resolution, resolution)).astype(np.float32)
    (got,) = evaluate([program.term], {"x": x, **program.constants})
    wide = {name: value.astype(np.float64) for name, value in program.constants.items()}
    expected = reference(x.astype(np.float64), wide)
    np.testing.assert_allclose(got, expected, rtol=1e-3)
    if resolution > 64:  # below that the last layers are 1 x 1, where padding is most of what they see
        apart = np.abs(expected[0] / expected[1] - 1).max()
        assert apart > 0.01, "activations that fade out would compare equal whatever the layers do"


def test_activations_keep_their_scale_through_28_layers() -> None:
    program = load("mobilenet_v1", width=0.5, resolution=64)
    x = np.random.default_rng(0).standard_normal((1, 3, 64, 64)).astype(np.float32)
    for values in evaluate(list(program.layers.values()), {"x": x, **program.constants}):
        assert np.isfinite(values).all()
        assert 0.01 < values.std() < 100


def test_constants_depend_on_seed_and_name_only() -> None:
    one, again, other = (load("mobilenet_v1", resolution=32, seed=seed).constants for seed in (1, 1, 2))
    assert list(one)[:5] == ["conv1.weight", "conv1.gamma", "conv1.beta", "conv1.mean", "conv1.var"]
    assert len(one) == 27 * 5 + 2
    assert sum(math.prod(one[name].shape) for name in one) == 4_253_864
    np.testing.assert_array_equal(one["pw5.weight"], again["pw5.weight"])
    assert not np.array_equal(one["pw5.weight"], other["pw5.weight"])
    assert not np.array_equal(one["pw7.weight"], one["pw8.weight"])


def small(**values: Any) -> Any:
    return load("mobilenet_v1", **{"width": 0.1, "resolution": 32, "classes": 3, **values})


def test_weights_come_from_an_npz(tmp_path: Path) -> None:
    path, arrays = tmp_path / "w.npz", dict(small(seed=5).constants)
    np.savez(path, **arrays)
    program = small(weights=path)
    assert program.constants.keys() == arrays.keys()
    np.testing.assert_array_equal(program.constants["pw3.weight"], arrays["pw3.weight"])


def test_weights_that_do_not_fit_are_refused(tmp_path: Path) -> None:
    path, arrays = tmp_path / "w.npz", dict(small().constants)
    bias = arrays.pop("fc.bias")
    np.savez(path, **arrays)
    with pytest.raises(BadInput, match=r"137 constants and no others, got 1 missing, such as fc\.bias$"):
        small(weights=path)
    np.savez(path, **arrays, **{"fc.bias": bias, "fc.more": bias})
    with pytest.raises(BadInput, match=r"got 1 unknown, such as fc\.more$"):
        small(weights=path)
    np.savez(path, **arrays, **{"fc.bias": bias.astype(np.float64)})
    with pytest.raises(BadInput, match=r"^constant fc\.bias requires an array of \(3,\) float32, got \(3,\) float64$"):
        small(weights=path)
    path.write_bytes(b"no zip")
    with pytest.raises(BadInput, match=r"weights require an \.npz file"):
        small(weights=path)
    np.save(tmp_path / "one.npy", bias)
    with pytest.raises(BadInput, match=r"weights require an \.npz file"):
        small(weights=tmp_path / "one.npy")
    with pytest.raises(BadInput, match=r"weights require an \.npz file"):
        small(weights=tmp_path / "absent.npz")


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"resolution": 0}, "mobilenet_v1 requires resolution to be an integer of at least 1, got 0"),
        ({"batch": 1.5}, "mobilenet_v1 requires batch to be an integer of at least 1, got 1.5"),
        ({"classes": -2}, "mobilenet_v1 requires classes to be an integer of at least 1, got -2"),
        ({"seed": -1}, "mobilenet_v1 requires seed to be an integer of at least 0, got -1"),
        ({"width": 0}, "mobilenet_v1 requires width to be a number above 0, got 0"),
        ({"width": math.nan}, "mobilenet_v1 requires width to be a number above 0, got nan"),
        ({"width": "wide"}, "mobilenet_v1 requires width to be a number above 0, got wide"),
        ({"depth": 3}, "model mobilenet-v1 requires parameters among width, resolution, "),
    ],
)
def test_bad_parameters_are_refused_in_a_sentence(values: dict[str, Any], message: str) -> None:
    with pytest.raises(BadInput) as error:
        load("mobilenet_v1", **values)
    assert str(error.value).startswith(message)


def test_an_unknown_model_is_refused() -> None:
    with pytest.raises(BadInput, match=r"there is no model 'alexnet'; the models are .*mobilenet-v1"):
        load("alexnet")
