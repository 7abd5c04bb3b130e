"""Tests dropout: its random numbers against an independent program, its gradient, and training with it."""

from __future__ import annotations

import numpy as np
import onnxruntime
import pytest
from differences import results

import glenside as gl
from glenside.builder.dropout import SEED, noise
from glenside.gradients.dropout import at_inference
from glenside.ir.errors import BadInput

_WORD = (1 << 32) - 1


def _mixed(word: int) -> int:
    word = ((word ^ (word >> 16)) * 0x85EBCA6B) & _WORD
    word = ((word ^ (word >> 13)) * 0xC2B2AE35) & _WORD
    return word ^ (word >> 16)


def _of_python(seed: int, stream: int, count: int) -> list[int]:
    first = _mixed((seed + (stream + 1) * 0x9E3779B9) & _WORD)
    return [_mixed(_mixed((i * 0x9E3779B9 + 1) & _WORD) ^ first) for i in range(count)]


@pytest.mark.parametrize(("seed", "stream"), [(0, 0), (5, 3), (_WORD, 1)])
def test_words_are_the_same_everywhere(seed: int, stream: int) -> None:
    program = gl.Program(noise((7, 11), stream))
    values = {SEED.name: np.array(seed, "uint32")}
    wanted = np.array(_of_python(seed, stream, 77), "uint32").reshape(7, 11)
    session = onnxruntime.InferenceSession(gl.export_onnx(program).SerializeToString())
    for found in (results(program, values)[0], gl.compile(program, "none")(values), session.run(None, values)[0]):
        np.testing.assert_array_equal(found, wanted)


def test_words_look_random() -> None:
    """Each bit is set half the time, and neither neighbours nor next seeds go along: to five deviations."""
    program = gl.Program(noise((1 << 16,)))
    one, other = (results(program, {SEED.name: np.array(seed, "uint32")})[0] for seed in (1, 2))
    bound = 5 * 0.5 / np.sqrt(1 << 16)
    for words in (one, one[1:] ^ one[:-1], one ^ other):
        bits = np.unpackbits(words.view(np.uint8).reshape(-1, 4), axis=1)
        assert np.abs(bits.mean(0) - 0.5).max() < bound


@pytest.mark.parametrize("rate", ["0.1", 0.5, "2/3"])
def test_what_is_left_is_scaled_and_masks_differ(rate: float | str) -> None:
    b = gl.Builder("drops")
    x = b.input("x", (100, 80), "float64")
    program = b.finish(gl.ir.term.build("construct-tuple", b.dropout(x, rate), b.dropout(x, rate)))
    share = 2 / 3 if rate == "2/3" else float(rate)
    values = {"x": np.full((100, 80), 3.0), SEED.name: np.array(9, "uint32")}
    one, other = results(program, values)
    assert set(np.unique(one.round(9))) == {0, round(3 / (1 - share), 9)}
    assert abs((one == 0).mean() - share) < 5 * np.sqrt(share * (1 - share) / 8000)
    assert abs(((one == 0) & (other == 0)).mean() - share**2) < 0.03


def test_gradients_go_through_what_is_kept() -> None:
    b = gl.Builder("drops")
    program = b.finish(b.dropout(b.tanh(b.input("x", (6, 5), "float64")), "1/4"))
    gradient = gl.gradient(program, "x", cotangent="g")
    assert gl.check_gradient(program, gradient, ["x"]).ok
    values = {"x": np.zeros((6, 5)), SEED.name: np.array(2, "uint32"), "g": np.ones((6, 5))}
    (kept,) = results(program, {**values, "x": np.full((6, 5), 1.0)})
    np.testing.assert_allclose(results(gradient, values)[0], np.where(kept != 0, 4 / 3, 0))


def test_a_rate_of_one_is_a_sentence() -> None:
    b = gl.Builder("drops")
    with pytest.raises(BadInput, match="dropout requires a rate of at least 0 and below 1, got '1'"):
        b.dropout(b.input("x", (2, 2)), 1)


def _network(rate: str = "0.4") -> gl.Program:
    b = gl.Builder("drops")
    y = b.relu(b.linear(b.input("x", (20, 2)), b.constant("w1", (24, 2)), b.constant("b1", (24,)), name="first"))
    return b.finish(b.linear(b.dropout(y, rate), b.constant("w2", (3, 24)), name="last"))


def test_at_inference_nothing_is_left_out() -> None:
    plain = at_inference(_network())
    assert [*plain.inputs] == ["x"]
    assert [*plain.layers] == ["first", "last"]
    values = {**_network().seeded_constants(0).constants, "x": np.ones((20, 2), "float32")}
    (y,) = results(plain, values)
    hidden = np.maximum(values["x"] @ values["w1"].T + values["b1"], 0)
    np.testing.assert_allclose(y, hidden @ values["w2"].T, rtol=1e-5)


def test_a_network_with_dropout_is_trained_again_in_the_same_way() -> None:
    random = np.random.default_rng(0)
    x = random.uniform(-1, 1, (200, 2))
    data = {"x": x, "y": (x[:, 0] > 0).astype("int64") + (x[:, 1] > 0)}
    how = {"epochs": 12, "held_out": 0.2, "machine": "interpreter", "optimizer": "adam:0.02"}
    one, other = (gl.train(_network(), data, **how) for _ in range(2))
    assert [*one.program.inputs] == ["x"]
    np.testing.assert_array_equal(one.program.constants["w1"], other.program.constants["w1"])
    assert one.epochs[-1].held_out_accuracy > 0.8
    assert not np.array_equal(
        gl.train(_network("0.1"), data, **how).program.constants["w1"], one.program.constants["w1"]
    )
