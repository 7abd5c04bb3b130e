"""Tests GGUF files: each architecture and type against numpy, over the cache; and files that are refused."""

from __future__ import annotations

import random
import weakref
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest

import glenside as gl
from glenside.codegen.loop_ir.ir import Role
from glenside.ir.errors import BadInput
from glenside.models.decoder import Decoder, decoder_step
from glenside.models.decoder_weights import RandomWeights

gguf = pytest.importorskip("gguf")
from command_line import completed  # noqa: E402
from gguf_files import logits, written  # noqa: E402

TOKENS = [7, 259, 3, 3, 120, 61, 299]
KINDS_OF_LAYERS = {
    "gemma2": {
        "attention.sliding_window": 3, "attn_logit_softcapping": 50.0, "final_logit_softcapping": 30.0,
    },
    "gemma3": {"attention.sliding_window": 3, "rope.freq_base": 1e6},
}  # fmt: skip
ARCHITECTURES = ("llama", "qwen2", "qwen3", "gemma", "gpt2", "olmo2", *KINDS_OF_LAYERS)


def run(path: Path, rows: int, past: int, compiled: bool = False) -> np.ndarray:
    """Returns the logits of every `rows`-th token, from steps over the cache."""
    program = gl.load(path, dims={"rows": rows, "past": past})
    cache = {n: np.full(tuple(t.dims), np.float32(3)) for n, t in program.inputs.items() if "." in n}
    function, found = gl.compile(program, "none") if compiled else None, []
    for start in range(0, len(TOKENS) // rows * rows, rows):
        given = {"tokens": np.array(TOKENS[start : start + rows]), "past": np.array(start), **cache}
        out = gl.evaluate([program.term], {**program.constants, **given})[0] if function is None else function(given)
        for name, new in zip(program.result_names()[1:], out[1:], strict=True):
            cache[name.removeprefix("new.")][:, start : start + rows] = new
        found.append(np.asarray(out[0]))
    return np.array(found)


@pytest.mark.parametrize("arch", ARCHITECTURES)
@pytest.mark.parametrize("rows", [1, 3])
def test_architectures(tmp_path: Path, arch: str, rows: int) -> None:
    more = KINDS_OF_LAYERS.get(arch, {})
    weights = written(tmp_path / "net.gguf", arch, **more)
    wanted = logits(arch, weights, TOKENS, more.get("attention.sliding_window", 0))[rows - 1 :: rows]
    np.testing.assert_allclose(run(tmp_path / "net.gguf", rows, 9), wanted[: len(TOKENS) // rows], atol=2e-5)


@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_architectures_over_any_length(tmp_path: Path, arch: str) -> None:
    more = KINDS_OF_LAYERS.get(arch, {})
    weights = written(tmp_path / "net.gguf", arch, **more)
    program = gl.load(tmp_path / "net.gguf", dims={"rows": (1, 8), "past": (0, 9)})
    wanted, cache = logits(arch, weights, TOKENS, more.get("attention.sliding_window", 0)), {}
    for begin, end in ((0, 4), (4, 5), (5, 7)):
        own = program.at({"rows": end - begin, "past": begin})
        cache = cache or {n: np.zeros(tuple(t.dims), np.float32) for n, t in own.inputs.items() if "." in n}
        given = {"tokens": np.array(TOKENS[begin:end]), **cache}
        out = gl.evaluate([own.term], {**own.constants, **given})[0]
        np.testing.assert_allclose(out[0], wanted[end - 1], atol=2e-5)
        cache = dict(zip((n.removeprefix("present.") for n in own.result_names()[1:]), out[1:], strict=True))


@pytest.mark.needs_compiler
@pytest.mark.parametrize("kind", ["F16", "BF16", "Q4_0", "Q8_0", "Q4_K", "Q6_K"])
def test_types_stay_small(tmp_path: Path, kind: str) -> None:
    weights = written(tmp_path / "net.gguf", "llama", kind)
    wanted = logits("llama", weights, TOKENS)
    np.testing.assert_allclose(
        run(tmp_path / "net.gguf", 1, 9, compiled=True), wanted, atol=1e-4 * np.abs(wanted).max()
    )
    program = gl.load(tmp_path / "net.gguf", dims={"rows": 1, "past": 9})
    function = gl.compile(program, "none")
    table = weights["token_embd.weight"].size  # its rows are gathered, so it has a byte for each integer
    held = sum(b.bytes for b in function.loops.buffers if b.role is Role.CONSTANT) - table
    elements = sum(w.size for w in weights.values()) - table
    assert held < elements * {"F16": 2.3, "BF16": 2.3, "Q8_0": 1.15, "Q6_K": 1.4}.get(kind, 0.85)


@pytest.mark.needs_compiler
@pytest.mark.parametrize("rows", [1, 24])
def test_all_products_are_of_integers(tmp_path: Path, rows: int) -> None:
    """Whatever layout the rows of a table of blocks have."""
    written(tmp_path / "net.gguf", "llama", "Q4_0")
    step = gl.load(tmp_path / "net.gguf", dims={"rows": rows, "past": 32})
    function = gl.compile(step, "none", activations="int8")
    said = [str(nest.body) for nest in function.loops.nests]
    integers = [body for body in said if "dot4_turned" in body or "dot16" in body]
    assert len(integers) == 2 * 7 + 1


def test_decoded_weights_are_not_kept(tmp_path: Path) -> None:
    written(tmp_path / "net.gguf", "llama", "Q4_0")
    program = gl.load(tmp_path / "net.gguf", dims={"rows": 1, "past": 9})
    array = program.constants["blk.0.ffn_up.weight.integers"]
    gone = weakref.ref(array)
    assert array.shape == (512, 8, 32)
    del array
    assert gone() is None


def test_windows_of_attention(tmp_path: Path) -> None:
    weights = written(tmp_path / "net.gguf", "llama", **{"attention.sliding_window": 3})
    for rows in (1, 2):
        wanted = logits("llama", weights, TOKENS, window=3)[rows - 1 :: rows]
        np.testing.assert_allclose(run(tmp_path / "net.gguf", rows, 8), wanted[: len(TOKENS) // rows], atol=2e-5)


def test_a_ring_has_the_rows_of_the_window(tmp_path: Path) -> None:
    weights = written(tmp_path / "net.gguf", "llama", **{"attention.sliding_window": 3})
    wanted = logits("llama", weights, TOKENS, window=3)
    program = gl.load(tmp_path / "net.gguf", dims={"rows": 1}, ring=True)
    assert program.inputs["keys.0"].dims[0] == 3
    state = {n: np.full(tuple(t.dims), np.float32(9)) for n, t in program.inputs.items() if "." in n}
    state["past"] = np.array(0)
    for token, want in zip(TOKENS, wanted, strict=True):
        out = gl.evaluate([program.term], {**program.constants, "tokens": np.array([token]), **state})[0]
        np.testing.assert_allclose(out[0], want, atol=2e-5)
        state = dict(zip((n.removeprefix("next.") for n in program.result_names()[1:]), out[1:], strict=True))
    with pytest.raises(BadInput, match="neither a size past nor values"):
        gl.load(tmp_path / "net.gguf", dims={"past": 5}, ring=True)
    written(tmp_path / "other.gguf", "llama")
    with pytest.raises(BadInput, match="a ring is for decoders with rotary positions and a window in all layers"):
        gl.load(tmp_path / "other.gguf", ring=True)


@pytest.mark.parametrize("cache", ["bfloat16", "int8"])
def test_caches_of_other_dtypes(tmp_path: Path, cache: str) -> None:
    written(tmp_path / "net.gguf", "llama")
    fixed = gl.load(tmp_path / "net.gguf", dims={"rows": 2, "past": 9}, cache=cache)
    open_ = gl.load(tmp_path / "net.gguf", dims={"rows": (1, 4), "past": (0, 9)}, cache=cache)
    for program in (fixed, open_.at({"rows": 2, "past": 3})):
        assert program.inputs["keys.1"].dtype == cache
        assert ("values.0.scales" in program.inputs) == (cache == "int8")
    with pytest.raises(BadInput, match="a cache is of float32, bfloat16, float16, int8, got 'int9'"):
        gl.load(tmp_path / "net.gguf", cache="int9")
    done = completed(
        "optimize",
        "net.gguf",
        "--set",
        f"cache={cache}",
        "--dim",
        "past=9",
        "--emit",
        "typed",
        "--target",
        "cpu",
        folder=tmp_path,
    )
    assert f"(input keys.0 (shape 2 9 64) {cache})" in done.stdout, done
    refused = completed(
        "optimize", "net.gguf", "--set", "size=3", "--emit", "typed", "--target", "cpu", folder=tmp_path
    )
    assert (refused.returncode, "or cache= and ring=true of a decoder" in refused.stderr) == (2, True)


REFUSED: dict[str, tuple[Callable[[bytes], bytes], str]] = {
    "no file of the kind": (lambda b: b"ONNX" + b[4:], "is no GGUF file"),
    "an empty file": (lambda b: b"", "is no GGUF file: it is empty"),
    "another version": (lambda b: b[:4] + (9).to_bytes(4, "little") + b[8:], "of version 9: GGUF files of versions 2"),
    "cut short in the head": (lambda b: b[:6], "is cut short"),
    "cut short in the metadata": (lambda b: b[:100], "is damaged or cut short"),
    "cut short in the tensors": (lambda b: b[:-1000], "is damaged or cut short"),
    "another architecture": (lambda b: b.replace(b"llama", b"lla99"), "is of the architecture 'lla99'"),
    "no tensor": (lambda b: b.replace(b"blk.1.ffn_up", b"blk.1.ffn_ux"), "has no tensor blk.1.ffn_up.weight"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_bad_files_are_refused_in_a_sentence(tmp_path: Path, case: str) -> None:
    written(tmp_path / "net.gguf")
    change, words = REFUSED[case]
    (tmp_path / "net.gguf").write_bytes(change((tmp_path / "net.gguf").read_bytes()))
    with pytest.raises(BadInput, match=words):
        gl.load(tmp_path / "net.gguf")


def test_what_is_not_expressed_is_refused(tmp_path: Path) -> None:
    written(tmp_path / "net.gguf", "llama", expert_count=4)
    with pytest.raises(BadInput, match="has experts"):
        gl.load(tmp_path / "net.gguf")
    written(tmp_path / "other.gguf", "llama", "Q5_0")
    with pytest.raises(BadInput, match="is of type Q5_0; Q4_0, Q8_0, Q4_K"):
        gl.load(tmp_path / "other.gguf")
    written(tmp_path / "vector.gguf", "llama")
    head = b"output_norm.weight" + b"".join(n.to_bytes(size, "little") for n, size in ((1, 4), (256, 8)))
    data = (tmp_path / "vector.gguf").read_bytes()
    (tmp_path / "vector.gguf").write_bytes(data.replace(head + bytes(4), head + b"c" + bytes(3)))
    with pytest.raises(BadInput, match="is of type number 99; Q4_0"):
        gl.load(tmp_path / "vector.gguf")
    written(tmp_path / "gpt2.gguf", "gpt2")
    with pytest.raises(BadInput, match="has positions for 96 tokens"):
        gl.load(tmp_path / "gpt2.gguf", dims={"past": 200})
    with pytest.raises(BadInput, match="at least one row"):
        gl.load(tmp_path / "other.gguf", dims={"rows": 0})
    with pytest.raises(BadInput, match="no other sizes"):
        gl.load(tmp_path / "other.gguf", dims={"batch": 2})
    with pytest.raises(BadInput, match="is only read"):
        gl.save(decoder_step(Decoder("d", 1, 32, 1, 1, 32, 32, 40), RandomWeights(32), 1, 4), tmp_path / "d.gguf")


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(200))
def test_damaged_files_load_or_are_refused(tmp_path: Path, seed: int) -> None:
    written(tmp_path / "net.gguf")
    data, draw = bytearray((tmp_path / "net.gguf").read_bytes()), random.Random(seed)
    for _ in range(draw.choice([1, 3])):
        data[draw.randrange(3000)] = draw.randrange(256)
    (tmp_path / "net.gguf").write_bytes(data)
    with suppress(BadInput):
        gl.load(tmp_path / "net.gguf")
