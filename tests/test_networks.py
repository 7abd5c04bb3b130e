"""The built-in networks are those of the papers: layers, multiplications, shapes; they compute what they say."""

from __future__ import annotations

import math
import time
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import glenside as gl
from glenside.builder import Builder
from glenside.ir.errors import BadInput
from glenside.ir.interpreter import evaluate
from glenside.ir.program import Program
from glenside.mapping import product_sizes
from glenside.models import load

Floats = NDArray[Any]

# Layers, and multiplications as the papers' ports count them: convolutions and dense layers, batch 1.
NETWORKS = {
    "mobilenet-v1": (28, 568_740_352, (1, 1000)),
    "mobilenet-v2": (53, 300_774_272, (1, 1000)),
    "mobilenet-v3-large": (64, 216_589_760, (1, 1000)),
    "resnet-18": (21, 1_814_073_344, (1, 1000)),
    "resnet-50": (54, 4_089_184_256, (1, 1000)),
    "efficientnet-lite0": (50, 385_187_552, (1, 1000)),
    "unet-small": (23, 16_368_271_360, (1, 2, 256, 256)),
    "bert-base": (97, 12 * (128 * 768 * (4 * 768 + 2 * 3072) + 2 * 128 * 128 * 768) + 768 * 768, (1, 768)),
    "vit-s-16": (
        98,
        12 * (197 * 384 * (4 * 384 + 2 * 1536) + 2 * 197 * 197 * 384) + 196 * 384 * 768 + 384_000,
        (1, 1000),
    ),
}
TINY: dict[str, dict[str, Any]] = {
    "mobilenet-v2": {"resolution": 32, "width": 0.1},
    "mobilenet-v3-large": {"resolution": 32, "width": 0.1},
    "resnet-18": {"resolution": 32, "classes": 5},
    "resnet-50": {"resolution": 32, "classes": 5},
    "efficientnet-lite0": {"resolution": 32, "classes": 5},
    "unet-small": {"resolution": 16, "channels": 3, "levels": 2},
    "bert-base": {"layers": 1, "hidden": 12, "heads": 2, "sequence": 5, "vocabulary": 11},
    "vit-s-16": {"layers": 1, "hidden": 12, "heads": 3, "resolution": 32, "classes": 5},
}


@pytest.mark.parametrize("name", NETWORKS)
def test_the_whole_network(name: str) -> None:
    load(name)
    started = time.perf_counter()
    program = load(name)
    assert time.perf_counter() - started < 1.0, "about 0.04 s; weights are not made before they are read"
    layers, multiplications, dims = NETWORKS[name]
    assert len(program.layers) == layers
    assert sum(product_sizes(product).macs for product in program.layers.values()) == multiplications
    assert program.term.access.dims == dims
    assert f"{layers} layers" in gl.models.models()[name] + (gl.models.builder_of(name).__doc__ or "")  # type: ignore[union-attr]


@pytest.mark.parametrize("name", TINY)
def test_every_layer_of_a_tiny_one_is_mapped_and_exact(name: str) -> None:
    result = gl.optimize(load(name, **TINY[name]), gl.SystolicArray(8, 4))
    assert result.report.ok, [(r.name, r.checked, r.nearest_miss) for r in result.report.layers if r.checked != "exact"]
    assert result.report.totals["gap"] == 0


@pytest.mark.parametrize("name", NETWORKS)
def test_bad_parameters_are_sentences(name: str) -> None:
    for parameters in ({"batch": 0}, {"seed": -1}):
        with pytest.raises(BadInput, match="at least"):
            load(name, **parameters)


def test_parameters_that_do_not_go_together_are_sentences() -> None:
    for name, parameters, words in (
        ("bert-base", {"hidden": 10, "heads": 3}, "multiple of heads"),
        ("bert-base", {"sequence": 513}, "at most 512"),
        ("vit-s-16", {"resolution": 100}, "multiple of 16"),
        ("unet-small", {"resolution": 100}, "multiple of 16"),
    ):
        with pytest.raises(BadInput, match=words):
            load(name, **parameters)


def values(program: Program, inputs: dict[str, Floats]) -> dict[str, Floats]:
    return {**program.constants, **inputs}


def erf(x: Floats) -> Floats:
    return np.vectorize(math.erf)(x)


def softmax(x: Floats) -> Floats:
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def norm(x: Floats, v: dict[str, Floats], name: str, eps: float) -> Floats:
    centred = x - x.mean(-1, keepdims=True)
    scale = np.sqrt((centred**2).mean(-1, keepdims=True) + eps)
    return centred / scale * v[f"{name}.gamma"] + v[f"{name}.beta"]


def dense(x: Floats, v: dict[str, Floats], name: str) -> Floats:
    return x @ v[f"{name}.weight"].T + v[f"{name}.bias"]


def attend(x: Floats, v: dict[str, Floats], name: str, heads: int) -> Floats:
    def split(part: str) -> Floats:
        return np.stack(np.split(dense(x, v, f"{name}.{part}"), heads, -1), 1)

    q, k, w = split("query"), split("key"), split("value")
    context = softmax(q @ k.swapaxes(-1, -2) / np.sqrt(q.shape[-1])) @ w
    return dense(np.concatenate(list(context.swapaxes(0, 1)), -1), v, f"{name}.output")


def test_bert_computes_what_numpy_does() -> None:
    program = load("bert-base", layers=2, hidden=12, heads=3, sequence=5, vocabulary=11, batch=2)
    rng = np.random.default_rng(0)
    inputs = {"ids": rng.integers(0, 11, (2, 5)), "types": rng.integers(0, 2, (2, 5))}
    v = {name: np.asarray(value, np.float64) for name, value in program.constants.items()}
    x = v["embeddings.words"][inputs["ids"]] + v["embeddings.types"][inputs["types"]] + v["embeddings.positions"][:5]
    x = norm(x, v, "embeddings.norm", 1e-12)
    for i in range(2):
        e = f"encoder.{i}"
        x = norm(x + attend(x, v, f"{e}.attention", 3), v, f"{e}.attention.norm", 1e-12)
        y = dense(x, v, f"{e}.intermediate")
        x = norm(x + dense(y * (1 + erf(y / np.sqrt(2))) / 2, v, f"{e}.output"), v, f"{e}.norm", 1e-12)
    wanted = np.tanh(dense(x[:, 0], v, "pooler"))
    (got,) = evaluate([program.term], values(program, inputs))
    np.testing.assert_allclose(got, wanted, rtol=1e-3, atol=1e-4)


def test_vit_computes_what_numpy_does() -> None:
    program = load("vit-s-16", layers=1, hidden=12, heads=2, resolution=32, classes=5)
    image = np.random.default_rng(0).standard_normal((1, 3, 32, 32)).astype(np.float32)
    v = {name: np.asarray(value, np.float64) for name, value in program.constants.items()}
    patches = image.reshape(1, 3, 2, 16, 2, 16).transpose(0, 2, 4, 1, 3, 5).reshape(1, 4, 768)
    x = patches @ v["patches.weight"].reshape(12, 768).T + v["patches.bias"]
    x = np.concatenate([v["class-token"], x], 1) + v["positions"]
    x = x + attend(norm(x, v, "encoder.0.norm1", 1e-6), v, "encoder.0.attention", 2)
    y = dense(norm(x, v, "encoder.0.norm2", 1e-6), v, "encoder.0.intermediate")
    x = x + dense(y * (1 + erf(y / np.sqrt(2))) / 2, v, "encoder.0.output")
    wanted = softmax(dense(norm(x, v, "norm", 1e-6)[:, 0], v, "head"))
    (got,) = evaluate([program.term], values(program, {"x": image}))
    np.testing.assert_allclose(got, wanted, rtol=1e-3, atol=1e-5)


def run(build: Any, **inputs: Floats) -> Floats:
    b = Builder("block")
    terms = {name: b.input(name, value.shape) for name, value in inputs.items()}
    (got,) = evaluate([build(b, **terms)], {name: value.astype(np.float32) for name, value in inputs.items()})
    return np.asarray(got)


def test_activations_and_layouts_compute_what_numpy_does() -> None:
    x = np.linspace(-5, 5, 48).reshape(2, 3, 2, 4)
    np.testing.assert_allclose(run(called("hard_swish"), x=x), x * np.clip(x + 3, 0, 6) / 6, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(run(called("sigmoid"), x=x), 1 / (1 + np.exp(-x)), rtol=1e-5)
    np.testing.assert_allclose(run(called("gelu"), x=x), x * (1 + erf(x / math.sqrt(2))) / 2, rtol=1e-4, atol=1e-6)
    wide = x.repeat(2, 2).repeat(2, 3)
    np.testing.assert_allclose(run(lambda b, x: b.upsample(x, 2), x=x), wide.astype(np.float32))
    both = run(lambda b, x, y: b.concatenate([x, y, x], 1), x=x, y=x[:, :1])
    np.testing.assert_allclose(both, np.concatenate([x, x[:, :1], x], 1).astype(np.float32))


def called(name: str) -> Any:
    return lambda b, x: getattr(b, name)(x)


def test_a_residual_block_adds_its_input_and_an_excited_one_is_gated() -> None:
    """What is special of each family, on a network small enough to follow: outputs change when the part does."""
    program = load("mobilenet-v3-large", resolution=32, width=0.1, classes=3)
    names = set(program.layers)
    assert {"block4.squeeze", "block4.excite", "block4.depthwise"} <= names
    assert "block1.expand" not in names
    image = {"x": np.random.default_rng(0).standard_normal((1, 3, 32, 32)).astype(np.float32)}
    v = values(program, image)
    (before,) = evaluate([program.term], v)
    assert before.shape == (1, 3)
    assert np.isfinite(before).all()
    gate = "block4.excite.bias"
    (after,) = evaluate([program.term], {**v, gate: v[gate] + 1})
    assert not np.array_equal(before, after)
