"""Tests checkpoints of transformers: each architecture over the cache, and files that are refused."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from checkpoint_files import written
from gguf_files import logits
from slow_cases import quick

import glenside as gl
from glenside.codegen.loop_ir.ir import Role
from glenside.importers.checkpoint import read_decoder, read_vocabulary
from glenside.ir.errors import BadInput
from glenside.models.decoder import decoder_step
from glenside.models.decoder_weights import RandomWeights

TOKENS = [7, 259, 3, 3, 120, 61, 299]


def run(step: Callable[[Any], Any], program: gl.Program, tokens: list[int], rows: int) -> np.ndarray:
    """Returns the logits of every `rows`-th token, from steps over the cache."""
    cache = {n: np.full(tuple(t.dims), np.float32(3)) for n, t in program.inputs.items() if "." in n}
    found = []
    for start in range(0, len(tokens) // rows * rows, rows):
        out = step({"tokens": np.array(tokens[start : start + rows]), "past": np.array(start), **cache})
        for name, new in zip(program.result_names()[1:], out[1:], strict=True):
            cache[name.removeprefix("new.")][:, start : start + rows] = new
        found.append(np.asarray(out[0]))
    return np.array(found)


def evaluated(path: Path, rows: int, past: int = 9) -> np.ndarray:
    program = gl.load(path, dims={"rows": rows, "past": past})
    return run(lambda given: gl.evaluate([program.term], {**program.constants, **given})[0], program, TOKENS, rows)


KINDS_OF_LAYERS = {
    "gemma2": {"sliding_window": 3, "query_pre_attn_scalar": 64},
    "gemma3_text": {"sliding_window": 3, "query_pre_attn_scalar": 64, "rope_theta": 1e6},
}
ARCHITECTURES = ("llama", "mistral", "qwen2", "qwen3", "gemma", "gpt2", "olmo2", *KINDS_OF_LAYERS)


def expected(arch: str, weights: dict[str, np.ndarray]) -> np.ndarray:
    """Returns the logits of `TOKENS`; halves of heads rotate together."""
    own = "qwen2" if arch in ("llama", "mistral") else arch
    return logits(
        own.removesuffix("_text"), weights, TOKENS, int(KINDS_OF_LAYERS.get(arch, {}).get("sliding_window", 0))
    )


@pytest.mark.parametrize("arch", ARCHITECTURES)
@pytest.mark.parametrize("rows", quick([1, 3], 1))
def test_architectures(tmp_path: Path, arch: str, rows: int) -> None:
    wanted = expected(arch, written(tmp_path, arch, files=rows, **KINDS_OF_LAYERS.get(arch, {})))
    np.testing.assert_allclose(evaluated(tmp_path, rows), wanted[rows - 1 :: rows][: 7 // rows], atol=2e-5)


@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_architectures_over_any_length(tmp_path: Path, arch: str) -> None:
    wanted = expected(arch, written(tmp_path, arch, **KINDS_OF_LAYERS.get(arch, {})))
    program, cache = gl.load(tmp_path, dims={"rows": (1, 8), "past": (0, 9)}), {}
    for begin, end in ((0, 4), (4, 5), (5, 7)):
        own = program.at({"rows": end - begin, "past": begin})
        cache = cache or {n: np.zeros(tuple(t.dims), np.float32) for n, t in own.inputs.items() if "." in n}
        out = gl.evaluate([own.term], {**own.constants, "tokens": np.array(TOKENS[begin:end]), **cache})[0]
        np.testing.assert_allclose(out[0], wanted[end - 1], atol=2e-5)
        cache = dict(zip((n.removeprefix("present.") for n in own.result_names()[1:]), out[1:], strict=True))


@pytest.mark.parametrize("arch", ["mistral", "qwen2"])
def test_windows_of_attention(tmp_path: Path, arch: str) -> None:
    weights = written(tmp_path, arch, sliding_window=3, use_sliding_window=True)
    np.testing.assert_allclose(evaluated(tmp_path, 2), logits("qwen2", weights, TOKENS, 3)[1::2][:3], atol=2e-5)
    ring = gl.load(tmp_path, dims={"rows": (1, 2)}, ring=True, cache="int8")
    assert isinstance(ring, gl.OpenProgram)
    assert {(t.dims[0], t.dtype) for n, t in ring.at({"rows": 1}).inputs.items() if "." in n} == {
        (4, "int8"), (4, "float32"),
    }  # fmt: skip


@pytest.mark.needs_compiler
@pytest.mark.parametrize("kind", quick(["F16", "BF16"], 1))
def test_halves_stay_halves(tmp_path: Path, kind: str) -> None:
    weights = written(tmp_path, "llama", kind)
    program = gl.load(tmp_path / "model.safetensors", dims={"rows": 1, "past": 9})
    function = gl.compile(program, "none")
    found = run(function, program, TOKENS, 1)
    wanted = logits("qwen2", weights, TOKENS)
    np.testing.assert_allclose(found, wanted, atol=1e-4 * np.abs(wanted).max())
    held = sum(b.bytes for b in function.loops.buffers if b.role is Role.CONSTANT)
    assert held < 2.2 * sum(weight.size for weight in weights.values())
    small = gl.compile(gl.quantize_weights(program, "int4", block=32), "none")
    assert sum(b.bytes for b in small.loops.buffers if b.role is Role.CONSTANT) < 0.5 * held
    assert np.abs(run(small, program, TOKENS, 1) - wanted).max() < 0.5 * np.abs(wanted).max()


def test_keys_that_a_config_leaves_out_have_the_values_of_transformers(tmp_path: Path) -> None:
    written(tmp_path / "2", "gemma2")
    written(tmp_path / "3", "gemma3_text")
    written(tmp_path / "none", "gemma2", attn_logit_softcapping=None, sliding_window=None)
    two, three, none = (read_decoder(tmp_path / name) for name in ("2", "3", "none"))
    assert (two.score_limit, two.logit_limit, two.window, two.query_scale) == (50.0, 30.0, 4096, 1 / 16)
    assert (two.global_layers, three.global_layers) == ((1,), (5,))
    assert (two.base, two.local_base, three.base, three.local_base) == (1e4, 0.0, 1e6, 1e4)
    assert (none.score_limit, none.window, none.global_layers) == (0.0, 0, ())


def _config(**changes: Any) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        path = folder / "config.json"
        path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))

    return change


def _bytes(change: Callable[[bytes], bytes]) -> Callable[[Path], None]:
    path = "model.safetensors"
    return lambda folder: (folder / path).write_bytes(change((folder / path).read_bytes())) and None  # type: ignore[func-returns-value]


def _pickled(folder: Path) -> None:
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")


REFUSED: dict[str, tuple[Callable[[Path], None], str]] = {
    "no weights": (lambda folder: (folder / "model.safetensors").unlink(), "has no model.safetensors"),
    "pickled weights": (_pickled, "is pickled, and nothing is unpickled"),
    "an empty file": (_bytes(lambda b: b""), "is empty"),
    "cut short in the header": (_bytes(lambda b: b[:100]), "is damaged or cut short"),
    "cut short in a number": (_bytes(lambda b: b[:5]), "is damaged or cut short"),
    "cut short in the tensors": (_bytes(lambda b: b[:-1000]), "a place is a whole number"),
    "no header": (_bytes(lambda b: b[:9] + b"x" + b[10:]), "its header is not JSON"),
    "a size": (_bytes(lambda b: b.replace(b"[300, 256]", b"[301, 256]", 1)), "are not the bytes"),
    "no sizes": (_bytes(lambda b: b.replace(b'"shape"', b'"shapx"', 1)), "requires dtype, shape and data_offsets"),
    "another type": (_bytes(lambda b: b.replace(b'"F32"', b'"F99"', 1)), "is of type F99; F32, F16, BF16 are read"),
    "another name": (_bytes(lambda b: b.replace(b"up_proj", b"up_prox", 1)), "has no tensor .*up_proj.weight"),
    "sizes of the config": (_config(intermediate_size=513), r"has sizes \(512, 256\), where \(513, 256\)"),
    "fewer layers than the file": (_config(num_hidden_layers=1), "has a tensor model.layers.1"),
    "another architecture": (_config(model_type="lama"), "is of the model_type lama; .* did you mean llama"),
    "no number of layers": (_config(num_hidden_layers=None), "has no num_hidden_layers"),
    "a text for a number": (_config(hidden_size="many"), "hidden_size is a whole number"),
    "heads that do not divide": (_config(num_key_value_heads=3), "has 4 heads of 64, 3 of keys"),
    "an activation": (_config(hidden_act="mish"), "has the activation mish"),
    "positions": (_config(rope_scaling={"rope_type": "yarn", "factor": 2.0}), "scales positions by yarn"),
    "quantized": (_config(quantization_config={}), "has a quantization_config"),
    "biases that are missing": (_config(attention_bias=True), "has no tensor .*q_proj.bias"),
    "layers of another kind": (_config(layer_types=["chunked_attention"] * 2), "has layers of chunked_attention"),
    "too few kinds of layers": (
        _config(layer_types=["sliding_attention"], sliding_window=3),
        "has 1 layer_types, and 2 layers",
    ),
    "kinds of positions": (_config(rope_parameters={"full_attention": 3}), "rope_parameters is an object, got 3"),
    "no query scale": (_config(model_type="gemma2", query_pre_attn_scalar=0), "query_pre_attn_scalar is"),
    "no JSON": (lambda folder: (folder / "config.json").write_text("{") and None, "is not JSON"),  # type: ignore[func-returns-value]
    "no model_type": (lambda folder: (folder / "config.json").write_text("[]") and None, "has no model_type"),  # type: ignore[func-returns-value]
}


@pytest.mark.parametrize("case", REFUSED)
def test_bad_checkpoints_are_refused_in_a_sentence(tmp_path: Path, case: str) -> None:
    written(tmp_path)
    change, words = REFUSED[case]
    change(tmp_path)
    with pytest.raises(BadInput, match=words):
        gl.load(tmp_path)


def test_files_outside_of_the_folder_are_not_read(tmp_path: Path) -> None:
    written(tmp_path / "net", files=2)
    index = tmp_path / "net" / "model.safetensors.index.json"
    index.write_text(index.read_text().replace("model-1.safetensors", "../net/model-1.safetensors"))
    with pytest.raises(BadInput, match="file of its folder"):
        gl.load(tmp_path / "net")


def test_sizes_and_saving(tmp_path: Path) -> None:
    written(tmp_path, "gpt2")
    with pytest.raises(BadInput, match="has positions for 96 tokens"):
        gl.load(tmp_path, dims={"past": 200})
    with pytest.raises(BadInput, match="and no other sizes"):
        gl.load(tmp_path, dims={"batch": 2})
    with pytest.raises(BadInput, match="is only read"):
        gl.save(gl.load(tmp_path, dims={"past": 9}), tmp_path / "other.safetensors")
    with pytest.raises(BadInput, match="has positions for 96 tokens, and 201 are asked for"):
        gl.load(tmp_path, dims={"rows": 1, "past": (1, 200)})


def test_a_config_alone_gives_the_shape(tmp_path: Path) -> None:
    written(tmp_path, "qwen3")
    (tmp_path / "model.safetensors").unlink()
    shape = read_decoder(tmp_path)
    assert (shape.layers, shape.heads, shape.kv_heads, shape.rotated) == (2, 4, 2, 64)
    assert decoder_step(shape, RandomWeights(32), 1, 4).inputs["keys.1"].dims == (2, 4, 64)


def test_vocabularies(tmp_path: Path) -> None:
    assert read_vocabulary(tmp_path) == []
    path = tmp_path / "tokenizer.json"
    path.write_text(json.dumps({"model": {"type": "BPE", "vocab": {"b": 1, "a": 0, "far": 10**9}}}))
    assert read_vocabulary(tmp_path) == ["a", "b"]
    path.write_text(json.dumps({"model": {"type": "Unigram", "vocab": [["x", -1.5], ["y", -2]]}}))
    assert read_vocabulary(tmp_path) == ["x", "y"]
    path.write_text("{}")
    with pytest.raises(BadInput, match="has no vocabulary"):
        read_vocabulary(tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(200))
def test_damaged_files_load_or_are_refused(tmp_path: Path, seed: int) -> None:
    written(tmp_path)
    draw = random.Random(seed)
    for name, most in (("model.safetensors", 3000), ("config.json", 200)):
        data = bytearray((tmp_path / name).read_bytes())
        for _ in range(draw.choice([0, 1, 3])):
            data[draw.randrange(min(most, len(data)))] = draw.randrange(256)
        (tmp_path / name).write_bytes(data)
    with suppress(BadInput):
        program = gl.load(tmp_path)
        dict(program.constants)


SMALL = {
    "vocab_size": 96, "hidden_size": 48, "num_hidden_layers": 2, "intermediate_size": 80, "num_attention_heads": 6,
    "num_key_value_heads": 2, "pad_token_id": 0, "bos_token_id": 0, "eos_token_id": 0,
}  # fmt: skip
LLAMA3 = {"rope_type": "llama3", "rope_theta": 100.0, "factor": 4.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0}
OF_TRANSFORMERS: dict[str, tuple[str, dict[str, Any]]] = {
    "Llama": ("Llama", SMALL),
    "Llama with biases": ("Llama", {**SMALL, "attention_bias": True, "mlp_bias": True, "tie_word_embeddings": True}),
    "Llama 3's positions": (
        "Llama", {**SMALL, "rope_parameters": {**LLAMA3, "original_max_position_embeddings": 16}},
    ),
    "Llama with slower positions": (
        "Llama", {**SMALL, "rope_parameters": {"rope_type": "linear", "rope_theta": 10000.0, "factor": 2.5}},
    ),
    "Llama of one head of keys": ("Llama", {**SMALL, "num_key_value_heads": 1, "head_dim": 4, "hidden_act": "gelu"}),
    "Qwen2": ("Qwen2", {**SMALL, "rope_parameters": {"rope_type": "default", "rope_theta": 1e6}}),
    "Qwen2 with a window": (
        "Qwen2", {**SMALL, "use_sliding_window": True, "sliding_window": 4, "max_window_layers": 0},
    ),
    "Qwen3": ("Qwen3", {**SMALL, "head_dim": 12}),
    "Mistral": ("Mistral", {**SMALL, "sliding_window": 5}),
    "Phi3": ("Phi3", {**SMALL, "num_attention_heads": 3, "num_key_value_heads": 1}),
    "Phi3 rotated in part": (
        "Phi3",
        {**SMALL, "rope_parameters": {"rope_type": "default", "rope_theta": 1e4, "partial_rotary_factor": 0.5}},
    ),
    "Gemma": ("Gemma", {**SMALL, "head_dim": 10}),
    "Gemma 2": ("Gemma2", {**SMALL, "head_dim": 10, "sliding_window": 4, "query_pre_attn_scalar": 23}),
    "Gemma 2 without limits": (
        "Gemma2", {**SMALL, "head_dim": 12, "attn_logit_softcapping": None, "final_logit_softcapping": None},
    ),
    "Gemma 3": ("Gemma3Text", {**SMALL, "num_hidden_layers": 7, "head_dim": 10, "sliding_window": 4}),
    "Gemma 3 with slower positions": (
        "Gemma3Text",
        {**SMALL, "num_hidden_layers": 7, "head_dim": 12, "sliding_window": 4, "rope_parameters": {
            "full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 1e6},
            "sliding_attention": {"rope_type": "default", "rope_theta": 1e4},
        }},
    ),
    "OLMo 2": ("Olmo2", SMALL),
    "Qwen2 with a window in later layers": (
        "Qwen2", {**SMALL, "num_hidden_layers": 3, "use_sliding_window": True, "sliding_window": 4,
        "max_window_layers": 2},
    ),
    "GPT2": ("GPT2", {"vocab_size": 96, "n_embd": 48, "n_layer": 2, "n_head": 3, "n_positions": 64}),
    "GPT2 with relu": (
        "GPT2",
        {"vocab_size": 96, "n_embd": 32, "n_layer": 1, "n_head": 2, "n_inner": 72, "activation_function": "relu"},
    ),
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.needs_compiler
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("case", OF_TRANSFORMERS)
def test_tokens_are_those_of_transformers(tmp_path: Path, case: str, dtype: str) -> None:
    torch, transformers = pytest.importorskip("torch"), pytest.importorskip("transformers")
    kind, config = OF_TRANSFORMERS[case]
    torch.manual_seed(3)
    auto = transformers.AutoModelForCausalLM
    drawn = auto.from_config(getattr(transformers, f"{kind}Config")(**config))
    with torch.no_grad():
        for parameter in drawn.parameters():
            parameter.add_(torch.randn_like(parameter) * (0.1 if parameter.dim() == 1 else 0.2))
    drawn.to(getattr(torch, dtype)).save_pretrained(tmp_path, max_shard_size="60KB")
    model = auto.from_pretrained(tmp_path, dtype=torch.float32).eval()
    prompt, count = [5, 17, 33, 8, 61, 7, 90], 9
    ends = {"eos_token_id": None, "pad_token_id": 0}
    found = model.generate(torch.tensor([prompt]), max_new_tokens=count, do_sample=False, **ends)[0].tolist()
    with torch.no_grad():
        wanted = model(torch.tensor([found])).logits[0].numpy()
    for rows in (1, 4):
        program = gl.load(tmp_path, dims={"rows": rows, "past": 21})
        own = run(gl.compile(program, "none"), program, found, rows)
        error = np.abs(own - wanted[rows - 1 :: rows][: len(own)]).max() / np.abs(wanted).max()
        assert error < 1e-5
        if rows == 1:
            assert own.argmax(-1)[len(prompt) - 1 : -1].tolist() == found[len(prompt) :]
