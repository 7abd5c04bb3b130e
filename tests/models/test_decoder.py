"""Tests steps of decoders: several rows at once equal rows one by one, and the example that writes tokens."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from slow_cases import quick

import glenside as gl
from glenside.builder.builder import Again
from glenside.check.open_function import lowered_open
from glenside.codegen.lowering.quantized_activations import with_activations
from glenside.codegen.open_sizes.lowered import OpenLowered
from glenside.codegen.processor.model import MACHINES
from glenside.ir.errors import BadInput
from glenside.models.decoder import Decoder, decoder_step, growing_step
from glenside.models.decoder_weights import RandomWeights

SHAPE = Decoder("small", 2, 64, 4, 2, 16, 96, 50, rotated=16)
EXAMPLE = Path(__file__).parents[2] / "examples" / "decoder.py"


def logits(shape: Decoder, rows: int, *, bits: int = 32, past: int = 8) -> np.ndarray:
    """Returns the logits after six tokens, `rows` at a time."""
    program = decoder_step(shape, RandomWeights(bits, seed=1), rows, past)
    cache = {n: np.full(tuple(t.dims), np.float32(9)) for n, t in program.inputs.items() if "." in n}
    out: tuple[np.ndarray, ...] = ()
    for start in range(0, 6, rows):
        given = {"tokens": np.arange(start, start + rows) * 7, "past": np.array(start), **cache}
        out = gl.evaluate([program.term], {**program.constants, **given})[0]
        for name, new in zip(program.result_names()[1:], out[1:], strict=True):
            cache[name.removeprefix("new.")][:, start : start + rows] = new
    return np.asarray(out[0])


@pytest.mark.parametrize("bits", [32, 8])
@pytest.mark.parametrize(
    "more", [{}, {"window": 3}, {"rotated": 8}, {"slower": (1.0, 2.0, 4.0, 8.0, 1.0, 1.0, 1.0, 1.0)}, {"scaled": True}]
)
def test_rows_at_once_equal_rows_one_by_one(bits: int, more: dict) -> None:
    shape = replace(SHAPE, **more)
    one = logits(shape, 1, bits=bits)
    for rows in (2, 3, 6):
        np.testing.assert_allclose(logits(shape, rows, bits=bits), one, atol=1e-5)
    assert not more or np.abs(one - logits(SHAPE, 1, bits=bits)).max() > 1e-4


def test_a_step_has_rows_and_a_cache() -> None:
    for wrong, words in (
        ({"layers": 0}, "layers of the decoder small is a whole number from 1"),
        ({"head": 1 << 31}, "head of the decoder small is a whole number from 1 to 65536"),
        ({"vocabulary": 0}, "vocabulary of the decoder small is a whole number from 1"),
        ({"kv_heads": 3}, "small has 4 heads of 16, 3 of keys, 16 rotated: heads of keys divide heads"),
        ({"rotated": 18}, "4 heads of 16, 2 of keys, 18 rotated"),
    ):
        with pytest.raises(BadInput, match=words):
            replace(SHAPE, **wrong)
    with pytest.raises(BadInput, match="at least one row and one row of cache, got 0 and 4"):
        decoder_step(SHAPE, RandomWeights(), 0, 4)


@pytest.mark.needs_compiler
def test_the_example_writes_tokens() -> None:
    shape = "layers=1,hidden=64,heads=2,kv_heads=1,intermediate=64,vocabulary=50"
    given = ["--shape", shape, "--tokens", "3", "--bits", "32", "--rows", "2", "--context", "8", "--prompt", "1 2 3"]
    done = subprocess.run([sys.executable, EXAMPLE, *given], capture_output=True, text=True, check=True)
    first, tokens, speed = done.stdout.splitlines()
    assert first.startswith("compiled in ")
    assert len(tokens.split()) == 3
    assert speed.startswith("glenside")
    full = subprocess.run(
        [sys.executable, EXAMPLE, *given[:6], "--rows", "1", "--context", "2"], capture_output=True, text=True
    )
    assert "4 and 3 tokens do not fit: --context gives room for more" in full.stderr


def growing(shape: Decoder, bits: int = 32) -> gl.OpenProgram:
    values: dict = {}

    def make(rows: int, past: int) -> gl.Program:
        return growing_step(shape, RandomWeights(bits, seed=1, values=values), rows, past, 64)

    return gl.open_program(make, "decoder", rows=(1, 6), past=(0, 40))


@pytest.mark.parametrize("more", [{}, {"window": 3}, {"kv_heads": 4, "scaled": True}])
def test_a_growing_cache_gives_the_logits_of_a_masked_one(more: dict) -> None:
    shape = replace(SHAPE, **more)
    for cuts in ((0, 6), (0, 1, 2, 3, 4, 5, 6), (0, 4, 6)):
        cache = {
            f"{kind}.{n}": np.zeros((0, shape.kv_heads, 16), np.float32) for n in (0, 1) for kind in ("keys", "values")
        }
        for begin, end in pairwise(cuts):
            program = growing(shape).at({"rows": end - begin, "past": begin})
            given = {"tokens": np.arange(begin, end) * 7, **cache}
            out = gl.evaluate([program.term], {**program.constants, **given})[0]
            cache = dict(zip((n.removeprefix("present.") for n in program.result_names()[1:]), out[1:], strict=True))
        np.testing.assert_allclose(out[0], logits(shape, 6), atol=1e-5)


@pytest.mark.parametrize("machine", ["avx2", pytest.param("avx512vnni", marks=pytest.mark.slow)])
@pytest.mark.parametrize(("heads", "kv_heads"), quick([(14, 2), (3, 3), (11, 1)], 0, unpacked=True))
def test_any_grouping_of_heads_is_tiled(heads: int, kv_heads: int, machine: str) -> None:
    shape = replace(SHAPE, layers=1, heads=heads, kv_heads=kv_heads)
    assert lowered_open(growing(shape), MACHINES[machine]).remarks == []


def test_equal_layers_share_functions_and_constants_are_packed_once() -> None:
    read: list[str] = []

    class Weights(RandomWeights):
        def _again(self, name: str, value: Callable[[], np.ndarray]) -> Again:
            return super()._again(name, lambda: (read.append(name), value())[1])

    def lowered(layers: int) -> OpenLowered:
        values: dict = {}
        shape = replace(SHAPE, layers=layers)

        def make(past: int) -> gl.Program:
            return growing_step(shape, Weights(4, block=16, values=values), 3, past, 64)

        program = gl.open_program(make, "decoder", past=(0, 40))
        return lowered_open(program.mapped(lambda own: with_activations(own, "int8")), MACHINES["avx2"])

    few, many = (lowered(layers).written for layers in (2, 3))
    assert len(many.nests) == len(few.nests)
    assert max(Counter(read).values()) == 4, "twice in each program: packed, and compared with its source"


@pytest.mark.needs_compiler
@pytest.mark.slow
@pytest.mark.parametrize(
    ("bits", "activations", "tolerance"), [(32, "float32", 1e-5), (4, "int8", 3e-2), (8, "float32", 1e-5)]
)
def test_one_function_for_all_lengths_appends_to_its_cache_in_place(
    bits: int, activations: str, tolerance: float
) -> None:
    f = gl.compile(growing(SHAPE, bits), "none", activations=activations, state=True)
    assert "plain loops" not in f.report
    before = f.state["keys.0"].__array_interface__["data"][0]
    for begin, end in pairwise((0, 4, 5, 6)):
        out = f(np.arange(begin, end) * 7)
        assert f.state["keys.0"].shape == (end, 2, 16)
        assert f.state["keys.0"].__array_interface__["data"][0] == before
    wanted = logits(SHAPE, 6, bits=bits)
    np.testing.assert_allclose(out, wanted, atol=tolerance * np.abs(wanted).max())
    f.reset()
    np.testing.assert_allclose(f(np.arange(6) * 7), wanted, atol=tolerance * np.abs(wanted).max())
    for _ in range(35):
        f(np.array([1]))
    with pytest.raises(BadInput, match="past is from 0 to 40, got 41"):
        f(np.array([1]))
    assert f.state["keys.0"].shape[0] == 41
