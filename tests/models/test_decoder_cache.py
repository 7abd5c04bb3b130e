"""Tests caches of decoders: halves, and int8 with a scale for each row and head, fixed and growing."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise, product
from pathlib import Path

import numpy as np
import pytest
from slow_cases import quick

import glenside as gl
from glenside.ir.dtypes import RECORDS
from glenside.ir.errors import BadInput
from glenside.models.decoder import Decoder, decoder_step, growing_step, ring_step
from glenside.models.decoder_cache import CACHES
from glenside.models.decoder_weights import RandomWeights
from glenside.models.open_decoder import ring_decoder

SHAPE = Decoder("small", 2, 64, 4, 2, 16, 96, 50, rotated=16)
TOKENS = np.arange(6) * 7
ERROR = {"float32": 1e-5, "float16": 2e-3, "bfloat16": 2e-2, "int8": 2e-2}
"""The most that a cache changes the logits, over the largest one; for float32, that another order of sums does."""


def fixed(shape: Decoder, rows: int) -> np.ndarray:
    """Returns the logits after six tokens, `rows` at a time, over a cache of eight rows."""
    program = decoder_step(shape, RandomWeights(32, seed=1), rows, 8)
    cache = {n: np.ones(tuple(t.dims), RECORDS[t.dtype].numpy) for n, t in program.inputs.items() if "." in n}
    out: tuple[np.ndarray, ...] = ()
    for start in range(0, 6, rows):
        given = {"tokens": TOKENS[start : start + rows], "past": np.array(start), **cache}
        out = gl.evaluate([program.term], {**program.constants, **given})[0]
        for name, new in zip(program.result_names()[1:], out[1:], strict=True):
            cache[name.removeprefix("new.")][:, start : start + rows] = new
    return np.asarray(out[0])


def growing(shape: Decoder, **sizes: object) -> gl.OpenProgram:
    values: dict = {}

    def make(rows: int, past: int) -> gl.Program:
        return growing_step(shape, RandomWeights(32, seed=1, values=values), rows, past, 64)

    return gl.open_program(make, "decoder", **{"rows": (1, 6), "past": (0, 20), **sizes})


def relative(found: np.ndarray, right: np.ndarray) -> float:
    return float(np.abs(found - right).max() / np.abs(right).max())


@pytest.mark.parametrize(
    ("more", "cache"),
    quick(product([{}, {"window": 3}, {"kv_heads": 4, "norm": "layer"}], CACHES), 0, 3, 5, 6, 9, 11, unpacked=True),
)
def test_a_cache_of_each_dtype_changes_logits_by_its_rounding(cache: str, more: dict) -> None:
    shape = replace(SHAPE, **more)
    right = fixed(shape, 1)
    own = fixed(replace(shape, cache=cache), 1)
    assert relative(own, right) <= ERROR[cache]
    assert cache == "float32" or not np.array_equal(own, right)
    for rows in (2, 6):
        assert relative(fixed(replace(shape, cache=cache), rows), own) <= ERROR[cache]


@pytest.mark.needs_compiler
@pytest.mark.parametrize("cache", ["int8", *(pytest.param(c, marks=pytest.mark.slow) for c in ("bfloat16", "float16"))])
def test_rows_are_rounded_and_appended_in_place(cache: str, tmp_path: Path) -> None:
    shape = replace(SHAPE, cache=cache)
    f = gl.compile(growing(shape), "none", state=True)
    names = [f"{kind}.{layer}" for layer in (0, 1) for kind in ("keys", "values")]
    assert set(f.state) == {*names, *(f"{name}.scales" for name in names if cache == "int8")}
    memory = {name: f.state[name].__array_interface__["data"][0] for name in f.state}
    for begin, end in pairwise((0, 4, 5, 6)):
        out = f(TOKENS[begin:end])
        assert {name: f.state[name].__array_interface__["data"][0] for name in f.state} == memory
    assert (f.state["keys.0"].dtype, f.state["keys.0"].shape) == (RECORDS[cache].numpy, (6, 2, 16))
    assert relative(out, fixed(shape, 6)) <= ERROR[cache]
    f.save(tmp_path / "state.npz")
    before = {name: f.state[name].copy() for name in f.state}
    after = f(np.array([9]))
    f.reset()
    assert f.state["keys.1"].shape == (0, 2, 16)
    f.load(tmp_path / "state.npz")
    for name, own in before.items():
        np.testing.assert_array_equal(f.state[name].view(np.uint8), own.view(np.uint8))
    np.testing.assert_array_equal(f(np.array([9])), after)
    for _ in range(14):
        f(np.array([1]))
    with pytest.raises(BadInput, match="past is from 0 to 20, got 21"):
        f(np.array([1]))
    assert f.state["keys.0"].shape[0] == 21


@pytest.mark.needs_compiler
@pytest.mark.parametrize("cache", ["bfloat16", "int8"])
def test_compiled_attention_has_no_copy_of_the_cache_in_float32(cache: str) -> None:
    program = decoder_step(replace(SHAPE, cache=cache), RandomWeights(32, seed=1), 1, 256)
    f = gl.compile(program, "none")
    given = {**dict(zip(program.inputs, f.drawn(1), strict=True)), "tokens": np.array([3]), "past": np.array(200)}
    wanted = gl.evaluate([program.term], {**program.constants, **given})[0]
    assert relative(f(given)[0], wanted[0]) <= 1e-4
    elements = 2 * 256 * 16
    assert max(buffer.dims.product() for buffer in f.loops.buffers if buffer.dtype == "float32") < elements


@pytest.mark.needs_compiler
@pytest.mark.parametrize("cache", ["float32", pytest.param("int8", marks=pytest.mark.slow)])
def test_a_ring_takes_any_number_of_tokens_in_the_memory_of_its_window(cache: str, tmp_path: Path) -> None:
    shape = replace(SHAPE, window=3, cache=cache)
    ring = ring_decoder("ring", shape, lambda values: RandomWeights(32, seed=1, values=values), (1, 4))
    f = gl.compile(ring, "none", state=True)
    assert [name for name in f.state if not f.is_in_place(name)] == ["past"]
    tokens, at = np.arange(31) * 7 % 50, 0
    for rows in (4, 1, 1, 3, 4, 4, 2, 1, 4, 4, 2, 1):
        out, at = f(tokens[at : at + rows]), at + rows
        if at == 13:
            f.save(tmp_path / "state.npz")
    assert f.state["keys.1"].shape == (6, 2, 16)
    assert int(f.state["past"]) == at == 31
    program = decoder_step(replace(shape, cache="float32"), RandomWeights(32, seed=1), 31, 1)
    given = {name: np.zeros(tuple(t.dims), t.dtype) for name, t in program.inputs.items()} | {"tokens": tokens}
    right = gl.evaluate([program.term], {**program.constants, **given})[0][0]
    assert relative(out, right) <= ERROR[cache]
    f.load(tmp_path / "state.npz")
    assert relative(f(tokens[13:17]), out) > 0.01
    for begin, end in pairwise((17, 21, 25, 29, 31)):
        again = f(tokens[begin:end])
    assert relative(again, right) <= ERROR[cache]
    with pytest.raises(BadInput, match="rows is from 1 to 4, got 5"):
        f(tokens[:5])
    one = gl.compile(ring_decoder("ring", shape, lambda _: RandomWeights(32, seed=1), 1), "none", state=True)
    for token in tokens:
        last = one(np.array([token]))
    assert one.state["keys.1"].shape == (3, 2, 16)
    assert relative(last, right) <= ERROR[cache]


def test_a_ring_requires_a_window_and_rotary_positions() -> None:
    for shape in (SHAPE, replace(SHAPE, window=3, rotated=0)):
        with pytest.raises(BadInput, match="a ring is for decoders with rotary positions and a window in all layers"):
            ring_step(shape, RandomWeights(), 1, 1)


def test_other_caches_are_refused() -> None:
    with pytest.raises(BadInput, match="a cache is of float32, bfloat16, float16, int8, got 'bfloat61'; did you mean"):
        decoder_step(replace(SHAPE, cache="bfloat61"), RandomWeights(), 1, 8)
    with pytest.raises(BadInput, match="cache= and ring= are for decoders of GGUF files and checkpoints, got net"):
        gl.load("net.onnx", cache="int8")
