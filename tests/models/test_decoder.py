"""Tests steps of decoders: several rows at once equal rows one by one, and the example that writes tokens."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import glenside as gl
from glenside.ir.errors import BadInput
from glenside.models.decoder import Decoder, RandomWeights, decoder_step

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
    with pytest.raises(BadInput, match="at least one row and one row of cache, got 0 and 4"):
        decoder_step(SHAPE, RandomWeights(), 0, 4)


@pytest.mark.needs_compiler
def test_the_example_writes_tokens() -> None:
    shape = "layers=1,hidden=64,heads=2,kv_heads=1,intermediate=64,vocabulary=50"
    given = ["--shape", shape, "--tokens", "3", "--rows", "2", "--context", "8", "--prompt", "1 2 3"]
    done = subprocess.run([sys.executable, EXAMPLE, *given], capture_output=True, text=True, check=True)
    first, tokens, speed = done.stdout.splitlines()
    assert first.startswith("compiled in ")
    assert len(tokens.split()) == 3
    assert speed.startswith("glenside")
    full = subprocess.run(
        [sys.executable, EXAMPLE, *given[:4], "--rows", "1", "--context", "2"], capture_output=True, text=True
    )
    assert "the cache has room for 2 tokens" in full.stderr
