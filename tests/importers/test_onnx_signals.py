"""Compares ONNX's Fourier transforms and mel filters with ONNX's reference and onnxruntime."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

from onnx_nodes import agree, floats, model, one_of, ours, whole  # noqa: E402

from glenside.importers.onnx import program_of_model  # noqa: E402
from glenside.ir.errors import BadInput  # noqa: E402


@pytest.mark.parametrize("seed", range(32))
def test_dft(seed: int) -> None:
    random = np.random.default_rng(seed)
    inverse, onesided = int(random.integers(2)), int(random.integers(2))
    parts = 1 + inverse if onesided else one_of(random, 1, 2)
    dims = [*whole(random, 2, 8, int(random.integers(1, 4))), parts]
    axis = int(random.integers(-len(dims), -1))
    length = one_of(random, None, np.array(random.integers(1, 12)))
    dtype = one_of(random, "float32", "float32", "float64")
    inputs, named = [floats(random, *dims, dtype=dtype), length], {"inverse": inverse, "onesided": onesided}
    if random.random() < 0.5:
        agree("reference", "DFT", [*inputs, np.array(axis)], version=20, dtypes=[dtype], **named)
    else:
        agree("reference", "DFT", inputs, version=17, dtypes=[dtype], axis=axis, **named)


def test_there_and_back() -> None:
    x = floats(np.random.default_rng(0), 2, 9, 2)
    (y,) = ours("DFT", [x])
    (back,) = ours("DFT", [y], inverse=1)
    np.testing.assert_allclose(back, x, atol=1e-6)


@pytest.mark.parametrize("seed", range(24))
def test_stft(seed: int) -> None:
    random = np.random.default_rng(seed)
    size, parts = int(random.integers(8, 40)), one_of(random, 1, 2)
    length = int(random.integers(1, size + 1))
    window = one_of(random, None, random.uniform(0, 1, length).astype(np.float32))
    given = np.array(length) if window is None else one_of(random, None, np.array(length))
    inputs = [floats(random, 2, size, parts), np.array(random.integers(1, 6)), window, given]
    agree("onnxruntime", "STFT", inputs, version=17, onesided=int(random.integers(2)) if parts == 1 else 0)


def test_the_layer_of_an_stft_slides_over_the_signal() -> None:
    inputs = [floats(np.random.default_rng(0), 1, 64, 1), np.array(8), None, np.array(16)]
    made = model("STFT", inputs, 17, ["float32"])
    for name in ("x1", "x3"):
        made.graph.input.remove(next(i for i in made.graph.input if i.name == name))
        made.graph.initializer.append(onnx.numpy_helper.from_array(inputs[int(name[1])], name))
    program = program_of_model(made)
    assert list(program.labels.values()) == ["conv 16/8"]


@pytest.mark.parametrize("by", ["reference", "onnxruntime"])
@pytest.mark.parametrize("seed", range(8))
def test_mel_filters(by: str, seed: int) -> None:
    random = np.random.default_rng(seed)
    bands, length = random.integers(1, 20), random.integers(8, 512)
    rate = random.choice([8000, 16000, 22050])
    edges = [np.array(random.uniform(*ends), np.float32) for ends in ((0, 1000), (1500, 4000))]
    inputs = [*map(np.array, (bands, length, rate)), *edges]
    agree(by, "MelWeightMatrix", inputs, version=17)


SIGNAL, EDGES = np.ones((2, 8, 1), np.float32), [np.array(0, np.float32), np.array(9000, np.float32)]
ONE, FOUR = np.array(1), np.array(4)
BAD: list[tuple[str, list[Any], dict[str, Any], str]] = [
    ("DFT", [SIGNAL[..., 0]], {}, "input 0 requires a last axis of 1 or 2 parts"),
    ("DFT", [SIGNAL, None, np.array(2)], {}, "the axis requires one of the signal"),
    ("DFT", [SIGNAL, None, np.array(3)], {}, "input 2, axis, requires a number from -3 to 2"),
    ("DFT", [SIGNAL, np.array(0)], {}, "input 1, dft_length, requires at least 1"),
    ("DFT", [SIGNAL, np.array(1 << 40)], {}, "the matrix of a Fourier transform requires at most"),
    ("DFT", [SIGNAL, np.ones(2, int)], {}, "input 1 requires one number, got 2"),
    ("DFT", [SIGNAL], {"inverse": "yes"}, "attribute inverse requires a whole number"),
    ("STFT", [SIGNAL, np.array(0), None, FOUR], {}, "a step of at least 1, got 4 and 0"),
    ("STFT", [SIGNAL, ONE, None, np.array(9)], {}, "a frame of 1 to 8 elements"),
    ("STFT", [SIGNAL, ONE, SIGNAL], {}, "input 2, window, requires one axis"),
    ("MelWeightMatrix", [FOUR, FOUR, np.array(8000), *EDGES], {}, "upper edge <= sample rate / 2"),
    (
        "MelWeightMatrix",
        [FOUR, FOUR, FOUR, *EDGES[:1], np.array(np.inf, np.float32)],
        {},
        "input 4 requires one finite frequency",
    ),
]


@pytest.mark.parametrize(("op", "inputs", "named", "message"), BAD, ids=[f"{b[0]}-{b[3][:40]}" for b in BAD])
def test_bad_input(op: str, inputs: list[Any], named: dict[str, Any], message: str) -> None:
    with pytest.raises(BadInput, match=message) as raised:
        ours(op, inputs, **named)
    assert raised.value.message.startswith(f"node it ({op}): ")
